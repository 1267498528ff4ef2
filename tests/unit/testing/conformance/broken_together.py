"""Stores that break a rule of shared transactions, and keep every rule of one state."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.unit.testing.conformance.broken_store import BrokenStore
from txtopo.attempt import TransactionAttempt
from txtopo.plugins.stores import Contents, RowBackend, StateBackend, Writes
from txtopo.state import Ledger

Together = Sequence[tuple[StateBackend, Writes]]


class WritesTheFirstAlone(BrokenStore):
    fails, rule = "test_every_state_gets_its_rows_and_its_ledger", "TOGETHER"

    def commit_together(self, attempt: TransactionAttempt, writes: Together) -> list[Ledger]:
        return super().commit_together(attempt, writes[:1]) * len(writes)


class WritesOneAfterTheOther(BrokenStore):
    fails, rule = "test_nothing_is_written_if_one_state_refuses_the_attempt", "TOGETHER"

    def commit_together(self, attempt: TransactionAttempt, writes: Together) -> list[Ledger]:
        return [backend.commit(attempt, each) for backend, each in writes]


class LetsOneLedgerSpeakForAll(BrokenStore):
    fails = "test_states_that_hold_the_attempt_are_left_alone_and_the_others_get_it"
    rule = "TOGETHER"

    def commit_together(self, attempt: TransactionAttempt, writes: Together) -> list[Ledger]:
        for backend, _ in writes:
            with backend.snapshot() as snapshot:
                held = snapshot.ledger
            if held is not None and held.writer == attempt:
                return [held] * len(writes)
        return super().commit_together(attempt, writes)


class ReadsOneAfterTheOther(BrokenStore):
    fails, rule = "test_a_reader_of_all_sees_them_change_together", "TOGETHER"

    def load_together(self, backends: Sequence[RowBackend]) -> list[Contents]:
        found = []
        for backend in backends:
            found.append(backend.load())
            time.sleep(0.002)
        return found
