"""Stores that break a rule of groups, and keep every rule of single txids."""

from __future__ import annotations

import time
from dataclasses import replace

from tests.unit.testing.conformance.broken_store import BrokenStore, Changes, Rows
from txtopo.attempt import TransactionAttempt
from txtopo.errors import FencedError, GroupBoundsError, LedgerGapError, ValueRefusedError
from txtopo.plugins.stores import Standing, Writes
from txtopo.state import Ledger


class BrokenGroups(BrokenStore):
    """Knows in each step which attempt it commits."""

    attempt = TransactionAttempt(0)

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        self.attempt = attempt
        return super().commit(attempt, writes)

    @property
    def grouped(self) -> bool:
        return len(self.attempt.attempts) > 1


def alone(attempt: TransactionAttempt) -> TransactionAttempt:
    """Return the attempt at the last txid of a group."""
    return TransactionAttempt(attempt.txid, attempt.attempt, attempt.epoch)


class ExpectsTheTxidBefore(BrokenGroups):
    """It was written before there were groups, and only says that it takes them."""

    fails, rule = "test_a_group_is_written_as_its_last_txid", "GROUP"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        return super().standing(ledger, alone(attempt))


class TakesOtherBounds(BrokenGroups):
    fails, rule = "test_other_bounds_than_those_of_the_held_group_are_refused", "GROUP"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        try:
            return super().standing(ledger, attempt)
        except GroupBoundsError:
            return Standing.REDO


class TakesAHeldTxidIntoAGroup(BrokenGroups):
    fails, rule = "test_a_held_txid_is_not_written_again_in_a_group", "GROUP"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        try:
            return super().standing(ledger, attempt)
        except GroupBoundsError:
            if ledger is not None and ledger.first_txid == ledger.txid:
                return Standing.REDO
            raise


class KeepsTheLastAttemptOnly(BrokenGroups):
    fails, rule = "test_the_ledger_keeps_the_attempts_of_a_group", "CLAIM"

    def write(self, held: Ledger, ledger: Ledger, changes: Changes) -> bool:
        return super().write(held, held.written_by(alone(self.attempt)), changes)


class TakesTheLastAttemptForAll(BrokenGroups):
    fails, rule = "test_other_attempts_of_the_earlier_txids_are_a_redo", "GROUP"

    def write(self, held: Ledger, ledger: Ledger, changes: Changes) -> bool:
        attempts = (ledger.attempt,) * len(ledger.attempts)
        return super().write(held, replace(ledger, attempts=attempts), changes)


class TagsRowsWithTheFirstTxid(BrokenGroups):
    fails, rule = "test_a_txid_reads_what_those_before_it_in_the_group_wrote", "GROUP"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        return super().changed(rows, self.attempt.first_txid, writes, found)


class DoesNotUndoAGroup(BrokenGroups):
    fails, rule = "test_a_redo_takes_a_whole_group_back", "GROUP"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        if self.grouped and self.table.kind == "opaque":
            rows = {key: replace(row, txid=min(row.txid, txid - 1)) for key, row in rows.items()}
        return super().changed(rows, txid, writes, found)


class DoesNotUndoTheGroupOfItsPredecessor(BrokenGroups):
    fails, rule = "test_a_successor_undoes_the_group_of_its_predecessor", "GROUP"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        if self.grouped and self.attempt.epoch > 1 and found is Standing.REDO:
            rows = {key: replace(row, txid=min(row.txid, txid - 1)) for key, row in rows.items()}
        return super().changed(rows, txid, writes, found)


class AppliesAGroupTwice(BrokenGroups):
    fails, rule = "test_the_same_attempts_of_a_group_count_once", "GROUP"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        found = super().standing(ledger, attempt)
        return Standing.APPLY if self.grouped and found is Standing.HELD else found

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        if self.grouped and found is Standing.APPLY:
            rows = {key: replace(row, txid=min(row.txid, txid - 1)) for key, row in rows.items()}
        return super().changed(rows, txid, writes, found)


class AddsATransactionalGroupAgain(BrokenGroups):
    fails, rule = "test_a_transactional_state_keeps_the_rows_of_a_held_group", "KEPT"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        again = self.grouped and self.table.kind == "transactional"
        return super().changed(rows, txid, writes, Standing.APPLY if again else found)


class PutsATransactionalGroupAgain(AddsATransactionalGroupAgain):
    fails = "test_a_transactional_group_that_is_held_discards_its_writes"


class ShowsAPartOfAGroup(BrokenGroups):
    """It writes the first txid of a group before the others."""

    fails, rule = "test_a_reader_never_sees_a_part_of_a_group", "GROUP"

    def write(self, held: Ledger, ledger: Ledger, changes: Changes) -> bool:
        if not self.grouped or held.txid == ledger.txid:
            return super().write(held, ledger, changes)
        first = held.written_by(TransactionAttempt(ledger.first_txid, 0, ledger.epoch))
        half = dict(list(changes.items())[: len(changes) // 2])
        written = self.replace(held, first, half)
        time.sleep(0.001)  # what a reader has who looks all the time
        return written and self.replace(first, ledger, changes)


class TakesGroupsOfAnyEpoch(BrokenGroups):
    fails, rule = "test_a_group_of_a_deposed_coordinator_is_refused", "FENCE"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        if self.grouped and ledger is not None:
            ledger = replace(ledger, epoch=attempt.epoch)
        return super().standing(ledger, attempt)


class TakesOlderAttemptsAtGroups(BrokenGroups):
    fails, rule = "test_an_older_attempt_at_a_group_is_refused", "FENCE"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        try:
            return super().standing(ledger, attempt)
        except FencedError:
            if not self.grouped or ledger is None or ledger.epoch != attempt.epoch:
                raise
            return Standing.REDO


class AcceptsAGapBeforeAGroup(BrokenGroups):
    fails, rule = "test_a_group_after_a_gap_or_behind_is_refused", "ORDER"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        try:
            return super().standing(ledger, attempt)
        except LedgerGapError:
            if not self.grouped or ledger is None or ledger.epoch < attempt.epoch:
                raise
            return Standing.APPLY


class SkipsEmptyGroups(BrokenGroups):
    fails, rule = "test_an_empty_group_moves_the_ledger", "GROUP"

    def write(self, held: Ledger, ledger: Ledger, changes: Changes) -> bool:
        return super().write(held, ledger if changes or not self.grouped else held, changes)


class DeletesInGroupsWithoutATombstone(BrokenGroups):
    fails, rule = "test_a_removal_in_a_group_is_hidden_undone_and_swept", "TOMBSTONE"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        changes = super().changed(rows, txid, writes, found)
        if not self.grouped:
            return changes
        return {k: None if row is not None and row.deleted else row for k, row in changes.items()}


class WritesTheFirstTxidOfARefusedGroup(BrokenGroups):
    fails, rule = "test_a_group_that_does_not_fit_is_refused_whole", "EXACT"

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        try:
            return super().commit(attempt, writes)
        except ValueRefusedError:
            held = self.load().ledger
            if held is not None and self.grouped:
                first = TransactionAttempt(attempt.first_txid, 0, attempt.epoch)
                self.replace(held, held.written_by(first), {})
            raise


class LosesTheGroupWhoseAnswerWasLost(BrokenGroups):
    """What is written is not there for the connection that asks after it."""

    fails, rule = "test_a_group_that_landed_is_found_in_the_ledger", "OUTCOME"

    def write(self, held: Ledger, ledger: Ledger, changes: Changes) -> bool:
        if self.grouped and self.attempt.attempt == 3:  # the one whose answer the test loses
            return True
        return super().write(held, ledger, changes)
