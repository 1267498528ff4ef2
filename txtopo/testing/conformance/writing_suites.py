"""Suites of final values, which committers write key by key, and of readers.

* :class:`PutsSuite`: final values in an opaque state: undo, deletes and NULL.
* :class:`TransactionalSuite`: final values in a transactional state: a txid that it holds is not
  written again.
* :class:`ReadingSuite`: a reader sees rows and ledger of one moment, and never half a batch.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from txtopo.attempt import TransactionAttempt
from txtopo.errors import FencedError, StaleBatchError
from txtopo.state import State, StateTransaction
from txtopo.testing.conformance.driver import (
    Drive,
    StateDriver,
    StoreFixtures,
    adding,
    putting,
    stored_rows,
    whole_ledger,
)
from txtopo.testing.conformance.rules import Rule, proves


class PutsSuite(StoreFixtures):
    """Final values in an opaque state."""

    @proves(Rule.UNDO)
    def test_check_39_a_replay_starts_from_before_its_txid(
        self, state: State, drive: Drive
    ) -> None:
        store = drive(state)

        def once(get: list[object], *amounts: int) -> Callable[[StateTransaction], object]:
            def body(transaction: StateTransaction) -> object:
                get.append(transaction.get("a"))
                for amount in amounts:
                    adding(("a", amount))(transaction)
                    get.append(transaction.get("a"))
                return get

            return body

        assert store.run(1, once([], 1, 2)) == [None, 1, 3]
        assert store.run(1, once([], 2), attempt=1) == [None, 2]
        assert store.run(2, once([], 3, 1)) == [2, 5, 6]

    @proves(Rule.TOMBSTONE)
    def test_check_41_a_removal_is_undone_and_redone(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.run(1, putting({"a": 1, "b": 2}))

        def remove(transaction: StateTransaction) -> tuple[object, ...]:
            before = transaction.get("a"), transaction.get("b")
            transaction.delete("a")
            return *before, transaction.get("a"), transaction.get("b")

        assert store.run(2, remove) == (1, 2, None, 2)
        assert store.contents() == {"b": 2}
        assert store.run(2, remove, attempt=1) == (1, 2, None, 2)
        assert store.run(3, lambda s: (s.get("a"), s.get("b"))) == (None, 2)

    @proves(Rule.UNDO)
    def test_check_42_the_example_of_the_documentation(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"apple": 1})
        store.puts(2, {"apple": 4})

        assert store.run(2, adding(("apple", 2)), attempt=1) == [3]
        store.puts(2, {"apple": 4}, attempt=2)
        assert store.run(3, adding(("apple", 2))) == [6]

    @proves(Rule.UNDO)
    def test_a_put_that_a_replay_lacks_is_taken_back(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": 2, "b": 2, "new": 2})

        store.puts(2, {"a": 3}, attempt=1)
        assert store.contents() == {"a": 3, "b": 1}

    @proves(Rule.ONE_WRITE)
    def test_an_empty_write_set_moves_the_ledger(self, state: State, drive: Drive) -> None:
        store = drive(state)

        assert store.puts(1, {}).txid == 1
        assert store.run(2, adding()) == []
        assert store.held() == whole_ledger("topology", 1, 2, 1, 0)
        assert store.contents() == {}

    @pytest.mark.parametrize("before", [None, 1], ids=["null", "one"])
    @proves(Rule.PREVIOUS)
    def test_what_was_null_or_not_comes_back_as_it_was(
        self, state: State, drive: Drive, before: int | None
    ) -> None:
        """A previous value may be NULL. Only prev_txid shows that there was no previous row."""
        store = drive(state)
        store.run(1, putting({"to value": before, "to null": before, "gone": before}))

        def change(transaction: StateTransaction) -> None:
            putting({"to value": 5, "to null": None, "new": None})(transaction)
            transaction.delete("gone")

        store.run(2, change)
        assert store.contents() == {"to value": 5, "to null": None, "new": None}
        store.run(2, lambda _: None, attempt=1)
        assert store.contents() == {"to value": before, "to null": before, "gone": before}
        store.run(3, change)
        assert store.contents() == {"to value": 5, "to null": None, "new": None}

    @proves(Rule.EXACT)
    def test_a_null_is_a_value_and_not_a_removal(self, state: State, drive: Drive) -> None:
        store = drive(state)

        store.run(1, putting({"a": None, "b": 1}))
        store.run(2, putting({"b": None}))
        assert store.contents() == {"a": None, "b": None}
        assert store.run(3, lambda s: sorted(s.items())) == [("a", None), ("b", None)]

    @proves(Rule.TOMBSTONE)
    def test_a_tombstone_is_hidden_and_then_gone(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None, "never there": None})

        assert stored_rows(store)["a",].deleted
        assert store.contents() == {"b": 1}
        with state.reader() as reader:
            assert reader.get("a", "none") == "none"
        store.puts(3, {})
        assert list(stored_rows(store)) == [("b",)]

    @proves(Rule.TOMBSTONE)
    def test_a_tombstone_is_swept_by_the_txid_that_follows(
        self, state: State, drive: Drive
    ) -> None:
        """The deleted key is not in that txid, and must not come back when that txid is undone."""
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None})

        store.puts(3, {"b": 3})
        store.puts(3, {"b": 4}, attempt=1)
        assert store.contents() == {"b": 4}
        assert set(stored_rows(store)) == {("b",)}

    @proves(Rule.TOMBSTONE)
    def test_a_key_comes_back_after_its_removal(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1})
        store.puts(2, {"a": None})

        store.puts(3, {"a": 3})
        assert store.contents() == {"a": 3}
        store.puts(3, {}, attempt=1)
        assert store.contents() == {}

    @proves(Rule.TOMBSTONE)
    def test_a_removal_that_a_replay_lacks_is_taken_back(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None, "b": None})

        store.puts(2, {"b": None}, attempt=1)
        assert store.contents() == {"a": 1}
        store.puts(3, {"a": None})
        store.puts(3, {"a": 7}, attempt=1)
        assert store.contents() == {"a": 7}

    @proves(Rule.PREVIOUS)
    def test_a_row_says_what_was_before_its_txid(self, state: State, drive: Drive) -> None:
        store = drive(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": 2})

        rows = stored_rows(store)
        assert (rows["a",].txid, rows["a",].current) == (2, (2,))
        assert rows["a",].before(2) == (1,)
        assert rows["b",].before(2) == (1,)
        assert rows["b",].before(1) is None
        with store.backend.snapshot() as snapshot:
            assert snapshot.rows([("a",), ("none",)]) == {("a",): rows["a",]}
            assert snapshot.rows([]) == {}


class TransactionalSuite(StoreFixtures):
    """Final values in a transactional state, where the batch of a txid is always the same."""

    @proves(Rule.KEPT)
    def test_check_40_a_replay_finds_its_own_values(self, kept: State, drive: Drive) -> None:
        store = drive(kept)

        assert store.run(1, adding(("a", 1), ("a", 2))) == [1, 3]
        assert store.run(1, adding(("a", 1), ("a", 2)), attempt=1) == [3, 3]
        assert store.run(1, lambda s: s.get("a"), attempt=2) == 3
        assert store.run(2, adding(("a", 3), ("a", 1))) == [6, 7]

    @proves(Rule.KEPT)
    def test_check_42_the_transactional_example_of_the_documentation(
        self, kept: State, drive: Drive
    ) -> None:
        store = drive(kept)
        store.puts(1, {"man": 3})
        store.puts(2, {"apple": 10})
        store.puts(3, {"dog": 4, "man": 5})

        store.run(3, adding(("man", 2), ("dog", 1)), attempt=1)
        assert store.contents() == {"man": 5, "dog": 4, "apple": 10}

    @proves(Rule.KEPT)
    def test_writes_of_a_held_txid_are_discarded(self, kept: State, drive: Drive) -> None:
        store = drive(kept)
        store.puts(1, {"a": 1})

        def body(state: StateTransaction) -> object:
            state.put("a", 9)
            state.delete("b")
            return state.get("a"), state.update("new", lambda old: 1)

        assert store.run(1, body, attempt=1) == (1, None)
        assert store.puts(1, {"a": 9}, attempt=2).attempt == 2
        assert store.contents() == {"a": 1}
        assert store.held() == whole_ledger("topology", 1, 1, 1, 2)

    @proves(Rule.KEPT)
    def test_a_successor_keeps_what_its_predecessor_wrote(self, kept: State, drive: Drive) -> None:
        drive(kept, epoch=1).puts(1, {"a": 1})
        new = drive(kept, epoch=2)

        assert new.puts(1, {"a": 1}) == whole_ledger("topology", 2, 1, 2, 0)
        assert new.run(2, adding(("a", 1))) == [2]

    @proves(Rule.ORDER)
    def test_a_held_attempt_is_not_written_again(self, kept_counts: State, drive: Drive) -> None:
        store = drive(kept_counts)
        store.merge(1, [("a", 1)])

        assert store.merge(1, [("a", 1)]) == whole_ledger("topology", 1, 1, 1, 0)
        assert store.contents() == {"a": 1}

    @proves(Rule.TOMBSTONE)
    def test_a_transactional_removal_leaves_nothing(self, kept: State, drive: Drive) -> None:
        store = drive(kept)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None, "never there": None})

        assert store.contents() == {"b": 1}
        store.puts(2, {"a": None}, attempt=1)
        store.puts(3, {"a": 3})
        assert store.contents() == {"a": 3, "b": 1}

    @proves(Rule.ORDER)
    def test_a_late_transactional_commit_changes_nothing(self, kept: State, drive: Drive) -> None:
        store = drive(kept)
        store.puts(1, {"a": 1})
        store.puts(2, {"a": 2}, attempt=1)

        with pytest.raises(StaleBatchError):
            store.puts(1, {"new": 9})
        with pytest.raises(FencedError):
            store.puts(2, {"new": 9}, attempt=0)
        assert store.contents() == {"a": 2}


Batch = Sequence[tuple[str, int]]

Sample = tuple[TransactionAttempt, dict[str, int]]

# A store in memory writes all batches before the reader has begun. So the writer sometimes waits
# for a sample, with a limit in case the reader has failed.
_PATIENCE_S = 120.0

_SAMPLES_MIN = 15

_SAMPLES_MAX = 1_000

# Python lets a thread compute for 5 ms while others wait: a reader alone, a hundred times.
_TURN_S = 0.000_5


class ReadingSuite(StoreFixtures):
    """Readers beside a writer; skipped if ``atomic_reader = False``."""

    @pytest.fixture
    def atomic(self) -> None:
        """Skip a test that needs atomic reading."""
        if not self.atomic_reader:
            pytest.skip("a reader of the store may see half a batch: atomic_reader = False")

    @proves(Rule.SNAPSHOT)
    def test_a_reading_does_not_move(self, counts: State, drive: Drive, atomic: None) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1), ("b", 1)])

        with counts.reader() as reader:
            store.merge(2, [("a", 1), ("new", 1)])
            store.merge(2, [("b", 1)], attempt=1)
            assert reader.get("a") == 1
            assert dict(reader.items()) == {"a": 1, "b": 1}
            assert reader.ledger is not None
            assert reader.ledger.txid == 1
        assert store.contents() == {"a": 1, "b": 2}

    def test_a_reader_says_whether_it_reads_a_snapshot(self, counts: State, drive: Drive) -> None:
        """A reader declares if its rows may be from half a batch."""
        drive(counts)

        with counts.reader() as reader:
            assert reader.is_snapshot is self.atomic_reader

    def test_a_size_is_an_estimate_or_unknown(self, counts: State, drive: Drive) -> None:
        """A store does not read its rows for the size, so the size need not be exact."""
        store = drive(counts)
        store.merge(1, [("a", 1), ("b", 1)])

        with counts.reader() as reader:
            size = reader.size()
        assert size.rows is None or size.rows >= 0
        assert size.bytes is None or size.bytes >= 0

    @proves(Rule.ONE_WRITE)
    def test_every_sample_is_the_fold_of_its_ledgers_txid(
        self, counts: State, drive: Drive, atomic: None
    ) -> None:
        """A reader reads all the time while batches are written."""
        store = drive(counts)
        batches = {
            store.attempt(txid): [(key, txid) for key in "abcdefgh"[txid % 5 :]]
            for txid in range(1, 41)
        }

        samples = sampled(counts, store, batches)
        folds = {attempt.txid: fold for attempt, fold in folds_of(batches)}
        assert wrong_samples(samples, lambda attempt: folds[attempt.txid]) == []

    @proves(Rule.ONE_WRITE)
    def test_no_sample_shows_an_undo_without_its_redo(
        self, counts: State, drive: Drive, atomic: None
    ) -> None:
        store = drive(counts)
        batches = {
            store.attempt(txid, attempt): [("every", 1), (f"{txid} {attempt}", 1), ("c", attempt)]
            for txid in range(1, 16)
            for attempt in range(3)
        }

        samples = sampled(counts, store, batches)
        folds = dict(folds_of(batches))
        assert wrong_samples(samples, lambda attempt: folds[attempt]) == []


def sampled(
    state: State, store: StateDriver, batches: Mapping[TransactionAttempt, Batch]
) -> list[Sample]:
    """Read the state continuously while the attempts are merged, and return what was read."""
    sampled = threading.Semaphore(0)
    samples: list[Sample] = []

    def write() -> None:
        for number, (attempt, batch) in enumerate(batches.items(), 1):
            store.merge(attempt.txid, batch, attempt.attempt, first=attempt.first_txid)
            if number % 2 == 0:
                sampled.acquire(timeout=_PATIENCE_S)

    with _short_turns(), ThreadPoolExecutor(1) as writer:
        done = writer.submit(write)
        try:
            while not done.done():
                with state.reader() as reader:
                    assert reader.ledger is not None, "a claimed state was read as unclaimed"
                    samples.append((reader.ledger.writer, dict(reader.items())))
                sampled.release()
        finally:
            # If reading failed, the writer must no longer wait for samples.
            sampled.release(_SAMPLES_MAX)
    done.result()
    assert len(samples) >= _SAMPLES_MIN, "too few samples to say anything"
    return samples


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let threads take turns so often that readings begin in the middle of writes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def folds_of(
    batches: Mapping[TransactionAttempt, Batch],
) -> Iterator[tuple[TransactionAttempt, dict[str, int]]]:
    """Yield what the state holds after each attempt has written."""
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    txid = 0
    for attempt, batch in batches.items():
        if attempt.txid != txid:
            before, txid = after, attempt.txid
        after = dict(before)
        for key, amount in batch:
            after[key] = after.get(key, 0) + amount
        yield attempt, after


def wrong_samples(
    samples: Sequence[Sample], fold: Callable[[TransactionAttempt], dict[str, int]]
) -> list[str]:
    """Return the first samples that do not match their ledger, or that go back."""
    wrong: list[str] = []
    for attempt, contents in samples:
        expected = fold(attempt) if attempt.txid else {}
        if contents != expected:
            wrong.append(f"ledger {attempt}: got {contents}; expected {expected}")
    txids = [attempt.txid for attempt, _ in samples]
    wrong += [f"txid {then} after {first}" for first, then in _steps(txids) if then < first]
    return wrong[:3]


def _steps(txids: Sequence[int]) -> Iterator[tuple[int, int]]:
    return itertools.pairwise(txids)
