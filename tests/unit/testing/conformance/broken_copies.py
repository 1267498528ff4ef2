"""Stores that break a rule of copies, and keep every other one."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.testing.conformance.broken_store import BrokenStore, Changes, Rows
from txtopo.attempt import CopyAttempt, TransactionAttempt
from txtopo.errors import StaleBatchError
from txtopo.plugins.stores import Standing, Writes
from txtopo.state import Ledger


class BrokenCopies(BrokenStore):
    """Knows in each step whether it copies, and which txid."""

    copied_txid = 0

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        self.copied_txid = attempt.copied_txid if isinstance(attempt, CopyAttempt) else 0
        return super().commit(attempt, writes)


class TagsACopyWithItsTxid(BrokenCopies):
    """A redo of the copied txid would take the copy back."""

    fails, rule = "test_a_redo_of_the_copied_txid_takes_nothing_back", "COPY"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        return super().changed(rows, self.copied_txid or txid, writes, found)


class NamesTheCopierAsTheWriter(BrokenCopies):
    fails, rule = "test_a_copy_is_held_and_nobody_wrote_it", "COPY"

    def write(self, held: Ledger, ledger: Ledger, changes: Changes) -> bool:
        named = replace(ledger, writer_epoch=ledger.epoch) if self.copied_txid else ledger
        return super().write(held, named, changes)


class CopiesAgain(BrokenCopies):
    fails, rule = "test_a_copy_that_is_made_again_counts_once", "COPY"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        found = super().standing(ledger, attempt)
        return Standing.APPLY if self.copied_txid else found


class CopiesOntoATxidOfItsOwn(BrokenCopies):
    fails, rule = "test_a_state_that_holds_a_txid_of_its_own_takes_no_copy", "COPY"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        try:
            return super().standing(ledger, attempt)
        except StaleBatchError:
            if self.copied_txid:
                return Standing.APPLY
            raise
