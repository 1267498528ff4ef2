"""Stores that break a rule of the ledger: order, fence, claim, one write."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from tests.unit.testing.conformance.broken_store import BrokenStore, Changes, Rows
from txtopo.attempt import TransactionAttempt
from txtopo.errors import FencedError, LedgerGapError, StaleBatchError
from txtopo.plugins.stores import Claim, Key, Puts, Row, Snapshot, Standing, Writes, standing
from txtopo.state import Ledger
from txtopo.testing.conformance.driver import claim_of


class TakesAnyEpoch(BrokenStore):
    fails, rule = "test_a_zombie_of_an_older_epoch_is_refused", "FENCE"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        assert ledger is not None
        return super().standing(replace(ledger, epoch=attempt.epoch), attempt)


class TakesOlderAttempts(BrokenStore):
    fails, rule = "test_an_older_attempt_is_refused", "FENCE"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        try:
            return super().standing(ledger, attempt)
        except FencedError:
            if ledger is None or ledger.epoch != attempt.epoch:
                raise
            return Standing.REDO


class TakesWhatNobodyClaimed(BrokenStore):
    fails, rule = "test_an_unclaimed_state_takes_no_writes", "ORDER"

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        if self.load().ledger is None:
            self.claim(claim_of("topology", attempt.epoch))
        return super().commit(attempt, writes)


class TakesAnEpochThatHasNotClaimed(BrokenStore):
    fails, rule = "test_an_epoch_that_has_not_claimed_writes_nothing", "FENCE"

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        ledger = self.load().ledger
        if ledger is not None and ledger.epoch < attempt.epoch:
            self.claim(claim_of(ledger.topology, attempt.epoch))
        return super().commit(attempt, writes)


class AcceptsGaps(BrokenStore):
    fails, rule = "test_a_gap_is_refused", "ORDER"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        try:
            return super().standing(ledger, attempt)
        except LedgerGapError:
            if ledger is None or ledger.epoch < attempt.epoch:
                raise
            return Standing.APPLY


class StepsBack(BrokenStore):
    fails, rule = "test_a_step_back_is_refused", "ORDER"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        try:
            return super().standing(ledger, attempt)
        except StaleBatchError:
            return Standing.APPLY


class AppliesAnAttemptTwice(BrokenStore):
    fails, rule = "test_the_same_attempt_counts_once", "ORDER"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        found = super().standing(ledger, attempt)
        return Standing.APPLY if found is Standing.HELD else found

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        if found is Standing.APPLY:
            rows = {key: replace(row, txid=min(row.txid, txid - 1)) for key, row in rows.items()}
        return super().changed(rows, txid, writes, found)


class SkipsEmptyBatches(BrokenStore):
    fails, rule = "test_an_empty_batch_moves_the_ledger", "ONE_WRITE"

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        empty = not (writes.rows if isinstance(writes, Puts) else writes.partials.num_rows)
        ledger = self.load().ledger
        if empty and ledger is not None and ledger.txid == attempt.txid - 1:
            return ledger.written_by(attempt)
        return super().commit(attempt, writes)


class AnswersWithTheOldLedger(BrokenStore):
    fails, rule = "test_a_commit_returns_the_ledger_that_it_wrote", "ORDER"

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        before = self.load().ledger
        after = super().commit(attempt, writes)
        return before or after


class ClaimsTheTxidToo(BrokenStore):
    fails, rule = "test_a_claim_leaves_txid_and_rows_as_they_are", "CLAIM"

    def claim(self, claim: Claim) -> Ledger:
        held = super().claim(claim)
        ledger = replace(held, txid=max(held.txid - 1, 0))
        self.replace(held, ledger, {})
        return ledger


class LetsASmallerEpochClaim(BrokenStore):
    fails, rule = "test_a_claim_of_a_smaller_epoch_is_refused", "CLAIM"

    def claim(self, claim: Claim) -> Ledger:
        held = self.load().ledger
        if held is None or held.epoch <= claim.epoch or held.owner != claim.owner:
            return super().claim(claim)
        ledger = replace(held, epoch=claim.epoch)
        self.replace(held, ledger, {})
        return ledger


class TakesOneTermForAnother(BrokenStore):
    fails, rule = "test_another_term_of_the_same_epoch_is_refused", "CLAIM"

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        held = self.load().ledger
        term = attempt.term if held is None else held.term
        return super().commit(replace(attempt, term=term), writes)


class LetsAnotherTopologyClaim(BrokenStore):
    fails, rule = "test_a_claim_by_another_topology_is_refused", "CLAIM"

    def claim(self, claim: Claim) -> Ledger:
        held = self.load().ledger
        if held is not None and held.topology != claim.owner.topology:
            self.replace(held, replace(held, topology=claim.owner.topology), {})
        return super().claim(claim)


class ForgetsWhatItDoesNotKnow(BrokenStore):
    """A plug-in with a column for each field that there was when it was written."""

    fails, rule = "test_every_field_of_the_ledger_is_kept", "CLAIM"

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        known = Ledger(
            ledger.topology, ledger.epoch, ledger.txid, ledger.writer_epoch, ledger.attempt
        )
        return super().replace(expected, known, changes)


class LetsASecondStateClaim(BrokenStore):
    fails, rule = "test_a_second_state_of_the_topology_is_refused", "CLAIM"

    def claim(self, claim: Claim) -> Ledger:
        held = self.load().ledger
        if held is not None and held.topology == claim.owner.topology:
            mine = replace(held, component=claim.owner.component)
            self.replace(held, mine, {})
        return super().claim(claim)


class LetsAnotherEnsembleClaim(BrokenStore):
    fails, rule = "test_a_claim_of_another_ensemble_is_refused", "CLAIM"

    def claim(self, claim: Claim) -> Ledger:
        return super().claim(replace(claim, replaces=self.load().ledger))


class WritesUnderAnotherEnsemble(BrokenStore):
    fails, rule = "test_of_two_ensembles_the_last_to_claim_an_empty_state_has_it", "CLAIM"

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        return standing(ledger, attempt)


class WritesTheLedgerAfterTheRows(BrokenStore):
    fails, rule = "test_every_sample_is_the_fold_of_its_ledgers_txid", "ONE_WRITE"

    def write(self, held: Ledger, ledger: Ledger, changes: Changes) -> bool:
        written = self.replace(held, held, changes)
        time.sleep(0.001)  # what a reader has who looks all the time
        return written and self.replace(held, ledger, {})


class ShowsHalfABatch(BrokenStore):
    fails, rule = "test_every_sample_is_the_fold_of_its_ledgers_txid", "ONE_WRITE"

    def write(self, held: Ledger, ledger: Ledger, changes: Changes) -> bool:
        half = dict(list(changes.items())[: len(changes) // 2])
        written = self.replace(held, ledger, half)
        time.sleep(0.001)  # as above
        return written and self.replace(ledger, ledger, changes)


class ShowsTheUndoAlone(BrokenStore):
    fails, rule = "test_no_sample_shows_an_undo_without_its_redo", "ONE_WRITE"

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        held = self.load()
        found = self.standing(held.ledger, attempt)
        if found is Standing.REDO and held.ledger is not None:
            undone = self.changed(held.rows, attempt.txid, Puts({}), found)
            self.replace(held.ledger, held.ledger, undone)
            time.sleep(0.001)  # as above
        return super().commit(attempt, writes)


class ReadsRowsOfAnotherInstant(BrokenStore):
    fails, rule = "test_a_reading_does_not_move", "SNAPSHOT"

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        return nullcontext(_Moving(self))


class _Moving(Snapshot):
    def __init__(self, store: BrokenStore) -> None:
        self._store = store

    @property
    def ledger(self) -> Ledger | None:
        return self._store.load().ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        rows = self._store.load().rows
        return {key: rows[key] for key in keys if key in rows}

    def items(self) -> Iterator[tuple[Key, Row]]:
        return iter(self._store.load().rows.items())


class ForgetsWhenItIsClosed(BrokenStore):
    fails, rule = "test_a_new_backend_goes_on_where_the_old_one_ended", "DURABLE"

    def close(self) -> None:
        self._store.tables.pop(self.table.name, None)


class NotesNothing(BrokenStore):
    fails, rule = "test_the_ledger_names_a_row_of_the_last_change", "WITNESS"

    def note(
        self, held: Ledger, attempt: TransactionAttempt, writes: Writes, found: Standing
    ) -> str:
        return ""


class NotesWhatItUndoes(BrokenStore):
    fails, rule = "test_what_is_undone_is_not_named", "WITNESS"

    def note(
        self, held: Ledger, attempt: TransactionAttempt, writes: Writes, found: Standing
    ) -> str:
        return super().note(held, attempt, writes, Standing.APPLY)


class ChangesTheTableUnasked(BrokenStore):
    fails, rule = "test_a_claim_that_may_not_change_the_table_changes_nothing", "EVOLVES"

    def claim(self, claim: Claim) -> Ledger:
        return super().claim(replace(claim, changes_table=True))
