"""Readers: rows and ledger of one instant, and never half a batch."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from txtopo.state import State, TransactionAttempt
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.subject import Drive, Subject

Batch = Sequence[tuple[str, int]]
Sample = tuple[TransactionAttempt, dict[str, int]]
# A store in memory is done with all batches before the reader has begun, so the writer waits for a
# sample now and then, however slow the store or the machine is, but not for one that never comes.
_PATIENCE_S = 120.0
_SAMPLES_MIN = 15
_SAMPLES_MAX = 1_000


class ReadingSuite(Subject):
    """Skipped for a store that says ``atomic_reader = False``, but for the fold at rest."""

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

    @proves(Rule.ONE_WRITE)
    def test_every_sample_is_the_fold_of_its_ledgers_txid(
        self, counts: State, drive: Drive, atomic: None
    ) -> None:
        """What a reader sees who looks all the time while batches are written."""
        store = drive(counts)
        batches = {
            store.attempt(txid): [(key, txid) for key in "abcdefgh"[txid % 5 :]]
            for txid in range(1, 41)
        }

        samples = _sampled(counts, self._write(store.merge, batches))
        folds = {attempt.txid: fold for attempt, fold in _folds(batches)}
        assert _wrong(samples, lambda attempt: folds[attempt.txid]) == []

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

        samples = _sampled(counts, self._write(store.merge, batches))
        folds = dict(_folds(batches))
        assert _wrong(samples, lambda attempt: folds[attempt]) == []

    def _write(
        self,
        merge: Callable[[int, Batch, int], object],
        batches: dict[TransactionAttempt, list[tuple[str, int]]],
    ) -> Callable[[Callable[[], object]], None]:
        def write(wait: Callable[[], object]) -> None:
            for number, (attempt, batch) in enumerate(batches.items(), 1):
                merge(attempt.txid, batch, attempt.attempt)
                if number % 2 == 0:
                    wait()

        return write


def _sampled(state: State, write: Callable[[Callable[[], object]], None]) -> list[Sample]:
    """Read the state all the time while somebody writes, and return what was seen."""
    sampled = threading.Semaphore(0)
    samples: list[Sample] = []
    with ThreadPoolExecutor(1) as writer:
        done = writer.submit(write, lambda: sampled.acquire(timeout=_PATIENCE_S))
        try:
            while not done.done():
                with state.reader() as reader:
                    assert reader.ledger is not None, "a claimed state was read as unclaimed"
                    samples.append((reader.ledger.writer, dict(reader.items())))
                sampled.release()
        finally:
            # If reading failed, nobody is to wait for a sample any more.
            sampled.release(_SAMPLES_MAX)
    done.result()
    assert len(samples) >= _SAMPLES_MIN, "too few samples to say anything"
    return samples


def _folds(
    batches: dict[TransactionAttempt, list[tuple[str, int]]],
) -> Iterator[tuple[TransactionAttempt, dict[str, int]]]:
    """Yield what the state holds once each attempt has written."""
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


def _wrong(
    samples: Sequence[Sample], fold: Callable[[TransactionAttempt], dict[str, int]]
) -> list[str]:
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
