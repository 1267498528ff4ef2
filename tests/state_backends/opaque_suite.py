"""What every backend does with an opaque state. Subclasses say where the state is."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.state_backends.driver import StateDriver, adding, putting
from txtopo.errors import (
    FencedError,
    ForeignStateError,
    LedgerGapError,
    PromiseError,
    StaleBatchError,
)
from txtopo.state import Count, Fields, Ledger, State, StateTransaction, open_state


class OpaqueSuite:
    """Subclasses have a fixture ``url``: a store of the test's own."""

    @pytest.fixture
    def state(self, url: str) -> State:
        return open_state(url, table="counts")

    @pytest.fixture
    def counts(self, url: str) -> State:
        state = open_state(url, table="aggregated")
        return state.with_columns(Fields("key string"), Fields("count long"), (Count(),))

    def test_check_39_a_replay_starts_from_before_its_txid(self, state: State) -> None:
        store = StateDriver(state)

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

    def test_check_41_a_removal_is_undone_and_redone(self, state: State) -> None:
        store = StateDriver(state)
        store.run(1, putting({"a": 1, "b": 2}))

        def remove(transaction: StateTransaction) -> tuple[object, ...]:
            before = transaction.get("a"), transaction.get("b")
            transaction.delete("a")
            return *before, transaction.get("a"), transaction.get("b")

        assert store.run(2, remove) == (1, 2, None, 2)
        assert store.contents() == {"b": 2}
        assert store.run(2, remove, attempt=1) == (1, 2, None, 2)
        assert store.run(3, lambda s: (s.get("a"), s.get("b"))) == (None, 2)

    def test_check_42_the_example_of_the_documentation(self, state: State) -> None:
        store = StateDriver(state)
        store.puts(1, {"apple": 1})
        store.puts(2, {"apple": 4})

        assert store.run(2, adding(("apple", 2)), attempt=1) == [3]
        store.puts(2, {"apple": 4}, attempt=2)
        assert store.run(3, adding(("apple", 2))) == [6]

    def test_r1_a_key_that_a_replay_lacks_is_taken_back(self, state: State) -> None:
        """Storm over-counts here: nobody reverts b."""
        store = StateDriver(state)
        store.run(1, adding(("a", 1), ("b", 1)))
        store.run(2, adding(("a", 1), ("b", 1)))

        store.run(2, adding(("a", 1)), attempt=1)
        assert store.contents() == {"a": 2, "b": 1}
        store.run(3, adding(("b", 1)))
        assert store.contents() == {"a": 2, "b": 2}

    def test_r1_an_empty_replay_takes_all_back(self, counts: State) -> None:
        store = StateDriver(counts)
        store.merge(1, [("global", 5)])
        store.merge(2, [("global", 3), ("new", 1)])

        store.merge(2, [], attempt=1)

        assert store.contents() == {"global": 5}

    def test_r4_a_late_commit_changes_nothing(self, state: State) -> None:
        store = StateDriver(state)
        for txid in (1, 2, 3):
            store.puts(txid, {"a": txid}, attempt=1)

        with pytest.raises(StaleBatchError):
            store.puts(2, {"a": 9, "new": 9}, attempt=5)
        with pytest.raises(FencedError):
            store.puts(3, {"a": 9}, attempt=0)
        with pytest.raises(LedgerGapError):
            store.puts(5, {"a": 9})
        assert store.contents() == {"a": 3}
        assert store.held() == Ledger("topology", 1, 3, 1, 1)

    def test_the_same_attempt_commits_once(self, counts: State) -> None:
        store = StateDriver(counts)
        store.merge(1, [("a", 1)])

        assert store.merge(1, [("a", 1)]) == Ledger("topology", 1, 1, 1, 0)
        assert store.contents() == {"a": 1}

    def test_a_claim_fences_the_predecessor(self, state: State) -> None:
        old = StateDriver(state, epoch=1)
        old.puts(1, {"a": 1})
        new = StateDriver(state, epoch=2)

        with pytest.raises(FencedError) as caught:
            old.puts(2, {"a": 2})
        assert caught.value.successor == 2
        with pytest.raises(FencedError):
            old.backend.claim("topology", 1)
        assert new.ledger == Ledger("topology", 2, 1, 1, 0)
        assert new.contents() == {"a": 1}

    def test_a_successor_undoes_what_its_predecessor_wrote_of_a_txid(self, counts: State) -> None:
        StateDriver(counts, epoch=1).merge(1, [("a", 7), ("b", 1)], attempt=4)
        new = StateDriver(counts, epoch=2)

        new.merge(1, [("a", 2)])

        assert new.contents() == {"a": 2}
        assert new.held() == Ledger("topology", 2, 1, 2, 0)

    def test_another_topology_is_refused(self, state: State) -> None:
        StateDriver(state)

        with pytest.raises(ForeignStateError) as caught:
            StateDriver(state, topology="other")
        assert caught.value.owner == "topology"

    def test_an_unclaimed_state_takes_no_writes(self, state: State) -> None:
        backend = state.open()
        backend.create()

        with backend.snapshot() as snapshot:
            assert snapshot.ledger is None
        with pytest.raises(PromiseError):
            StateDriver.puts(_unclaimed(state), 1, {"a": 1})

    def test_an_empty_batch_commits(self, state: State) -> None:
        store = StateDriver(state)

        assert store.puts(1, {}).txid == 1
        assert store.run(2, adding()) == []
        assert store.contents() == {}

    def test_a_null_before_the_txid_comes_back_as_null(self, state: State) -> None:
        """NULL in prev is a value; NULL in prev_txid means that there was no row."""
        store = StateDriver(state)
        store.run(1, putting({"a": None}))
        store.run(2, putting({"a": 5, "b": 5}))

        store.run(2, lambda s: None, attempt=1)

        assert store.contents() == {"a": None}

    def test_a_tombstone_is_hidden_and_then_gone(self, state: State) -> None:
        store = StateDriver(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None, "never there": None})

        with store.backend.snapshot() as snapshot:
            assert dict(snapshot.items())["a",].deleted
        assert store.contents() == {"b": 1}
        store.puts(3, {})
        with store.backend.snapshot() as snapshot:
            assert [key for key, _ in snapshot.items()] == [("b",)]

    def test_a_key_comes_back_after_its_removal(self, state: State) -> None:
        store = StateDriver(state)
        store.puts(1, {"a": 1})
        store.puts(2, {"a": None})

        store.puts(3, {"a": 3})
        assert store.contents() == {"a": 3}
        store.puts(3, {}, attempt=1)
        assert store.contents() == {}

    def test_a_reading_does_not_move(self, state: State) -> None:
        store = StateDriver(state)
        store.puts(1, {"a": 1})

        with state.reader() as reader:
            store.puts(2, {"a": 2, "b": 2})
            assert reader.get("a") == 1
            assert dict(reader.items()) == {"a": 1}
            assert reader.ledger is not None
            assert reader.ledger.txid == 1
        assert store.contents() == {"a": 2, "b": 2}

    def test_c2_every_sample_is_the_fold_of_a_prefix(self, counts: State) -> None:
        """What a second reader sees while batches are written."""
        store = StateDriver(counts)
        batches = [[(key, txid) for key in "abcde"[txid % 3 :]] for txid in range(1, 41)]
        samples: list[tuple[int, dict[str, int]]] = []
        sampled = threading.Semaphore(0)

        def write() -> Ledger:
            for txid, batch in enumerate(batches, 1):
                ledger = store.merge(txid, batch)
                if txid % 4 == 0:  # a store in memory would be done before the reader has begun
                    sampled.acquire(timeout=5.0)
            return ledger

        with ThreadPoolExecutor(1) as writer:
            done = writer.submit(write)
            while not done.done():
                with counts.reader() as reader:
                    samples.append(
                        (reader.ledger.txid if reader.ledger else 0, dict(reader.items()))
                    )
                sampled.release()
        assert done.result().txid == len(batches)
        assert len(samples) >= 10
        for txid, contents in samples:
            assert contents == _fold(batches[:txid])


def _fold(batches: list[list[tuple[str, int]]]) -> dict[str, int]:
    folded: dict[str, int] = {}
    for key, amount in itertools.chain(*batches):
        folded[key] = folded.get(key, 0) + amount
    return folded


def _unclaimed(state: State) -> StateDriver:
    driver = object.__new__(StateDriver)
    driver.state, driver.epoch, driver.backend = state, 1, state.open()
    return driver
