"""A store in memory whose commit can be broken at one step; whole, it keeps every promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from state_backends.memory import MemoryBackend, MemoryStore
from txtopo.attempt import GroupAttempt, TransactionAttempt
from txtopo.plugins.stores import Key, Row, Standing, StateTable, Writes, standing, witness_of
from txtopo.state import Ledger
from txtopo.state.row_backend import changed_rows

Rows = Mapping[Key, Row]
Changes = dict[Key, Row | None]


class BrokenStore(MemoryBackend):
    """What a subclass overrides is the rule that it breaks.

    Attributes:
        fails: The test of the suite that has to notice.
        rule: The name of the rule that its failure has to tell.
    """

    fails: ClassVar[str] = ""
    rule: ClassVar[str] = ""

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        while True:
            held = self.load()
            found = self.standing(held.ledger, attempt)
            assert held.ledger is not None
            if found is Standing.HELD:
                return held.ledger
            note = self.note(held.ledger, attempt, writes, found)
            ledger = held.ledger.written_by(attempt, note)
            changes = self.changed(held.rows, attempt.txid, writes, found)
            if self.write(held.ledger, ledger, changes):
                return ledger

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        return standing(ledger, attempt, self.claimant)

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        return changed_rows(self.table, rows, txid, writes, found)

    def note(
        self, held: Ledger, attempt: TransactionAttempt, writes: Writes, found: Standing
    ) -> str:
        return witness_of(self.table, held, attempt, writes, found)

    def write(self, held: Ledger, ledger: Ledger, changes: Changes) -> bool:
        return self.replace(held, ledger, changes)


class StoreWithoutGroups(BrokenStore):
    """It keeps every promise, and does not say that it takes groups."""

    groups = False

    def standing(self, ledger: Ledger | None, attempt: TransactionAttempt) -> Standing:
        assert not isinstance(attempt, GroupAttempt), "nobody may give it a group"
        return super().standing(ledger, attempt)


class BrokenStores:
    """The factory of one kind of them: a store for each URL, as long as the process lives."""

    shared_by_processes = False

    def __init__(self, kind: type[BrokenStore]) -> None:
        self._kind = kind
        self._stores: dict[str, MemoryStore] = {}

    def __call__(self, url: str, table: StateTable) -> BrokenStore:
        return self._kind(self._stores.setdefault(url, MemoryStore()), table)
