"""Unknown outcome: the answer to a commit was lost, and the ledger decides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from txtopo.errors import FencedError, StoreUnavailable, UnknownOutcomeError
from txtopo.state import (
    Claim,
    Ledger,
    Snapshot,
    State,
    StateBackend,
    TransactionAttempt,
    Writes,
)
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import StateDriver, partials, whole_ledger
from txtopo.testing.conformance.subject import Drive, Subject


class OutcomeSuite(Subject):
    """Commits whose write has landed, has not, or lands too late."""

    @proves(Rule.OUTCOME)
    def test_a_write_that_landed_is_found_in_the_ledger(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1)])
        self._lose(store, landed=True)

        assert store.merge(2, [("a", 1)], attempt=3) == whole_ledger("topology", 1, 2, 1, 3)
        assert store.contents() == {"a": 2}
        assert store.merge(3, [("a", 1)]).txid == 3

    @proves(Rule.OUTCOME)
    def test_a_write_that_was_lost_is_tried_again(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1)])
        self._lose(store, landed=False)

        with pytest.raises(StoreUnavailable):
            store.merge(2, [("a", 1)])
        assert store.contents() == {"a": 1}
        assert store.merge(2, [("a", 1)]).txid == 2
        assert store.contents() == {"a": 2}

    @pytest.mark.parametrize("landed", [True, False])
    @proves(Rule.OUTCOME)
    def test_a_replay_counts_once_whatever_became_of_the_write(
        self, counts: State, drive: Drive, landed: bool
    ) -> None:
        """Nobody could read the ledger; the next attempt, with another batch, decides."""
        store = drive(counts)
        store.merge(1, [("a", 1), ("b", 1)])
        self._lose(store, landed=landed)

        with pytest.raises(UnknownOutcomeError):
            store.backend.commit(store.attempt(2), partials(counts, [("a", 5), ("new", 5)]))
        assert store.merge(2, [("b", 1)], attempt=1).txid == 2
        assert store.contents() == {"a": 1, "b": 2}

    @proves(Rule.FENCE)
    def test_a_write_that_lands_after_its_replay_changes_nothing(
        self, counts: State, drive: Drive
    ) -> None:
        store = drive(counts)
        self._lose(store, landed=False)
        with pytest.raises(StoreUnavailable):
            store.merge(1, [("late", 1)])
        store.merge(1, [("a", 1)], attempt=1)

        with pytest.raises(FencedError):
            store.merge(1, [("late", 1)])
        assert store.contents() == {"a": 1}

    @proves(Rule.OUTCOME)
    def test_a_successor_finds_the_write_whose_answer_was_lost(
        self, counts: State, drive: Drive
    ) -> None:
        old = drive(counts, epoch=1)
        self._lose(old, landed=True)
        with pytest.raises(UnknownOutcomeError):
            old.backend.commit(old.attempt(1, 2), partials(counts, [("a", 1)]))

        new = drive(counts, epoch=2)
        assert new.ledger == whole_ledger("topology", 2, 1, 1, 2)
        assert new.contents() == {"a": 1}

    def _lose(self, store: StateDriver, *, landed: bool) -> None:
        losing = self.losing(store.backend, landed=landed)
        store.backend = losing or _Losing(store.backend, landed=landed)


class _Losing(StateBackend):
    """Loses the answer to one commit of the backend behind it."""

    def __init__(self, behind: StateBackend, *, landed: bool) -> None:
        self._behind = behind
        self.claimant = behind.claimant
        self._landed = landed
        self._commit: Callable[[TransactionAttempt, Writes], Ledger] = self._lost

    def create(self) -> None:
        self._behind.create()

    def claim(self, claim: Claim) -> Ledger:
        return self._behind.claim(claim)

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        return self._commit(attempt, writes)

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        return self._behind.snapshot()

    def close(self) -> None:
        self._behind.close()

    def _lost(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        self._commit = self._behind.commit
        if self._landed:
            self._behind.commit(attempt, writes)
        raise UnknownOutcomeError("the connection was lost during the write, as the test wanted")
