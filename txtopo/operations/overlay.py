"""OverlayState: a state of the past in memory, which takes writes and keeps them to itself.

It stands in for a state when txids are computed again: it reads the rows that the real state held
then, and what was written to it since. Nobody else sees those writes, and the store is only read.

Rules
-----
1. Whatever wrote a row, it counts as written by the txid before the first one that is computed
   again, so that a txid may read it and write it.
2. A key that was written is read from memory, and never again from the store.
3. A statement of a user is checked as the real state checks it, and not executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.state.backend import (
    Key,
    Snapshot,
    StateBackend,
    StateTable,
    Values,
    Writes,
)
from txtopo.state.evolution import TableChange
from txtopo.state.ledger import Claim, Ledger, standing
from txtopo.state.row_backend import final_values
from txtopo.state.statements import Statement
from txtopo.state.values import Row

if TYPE_CHECKING:
    from txtopo.frames.states import FrameWrites


@dataclass(frozen=True, slots=True)
class PastRows:
    """The rows of a state as they were after an earlier txid.

    Attributes:
        snapshot: Reads them; None for a state that is empty, and for a sink.
        undone: The last txid of the group whose writes are taken back; None if the snapshot shows
            the rows as they were.
        change: Gives a row the columns of a changed program; None if it has them.
    """

    snapshot: Snapshot | None = None
    undone: int | None = None
    change: TableChange | None = None

    def values(self, row: Row) -> Values | None:
        """Return the values that a row had; None if there was no row."""
        if self.change is not None:
            row = self.change.row(row)
        return row.visible() if self.undone is None else row.before(self.undone)


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What a txid did to a key.

    Attributes:
        before: Its values before the txid; None if there were none.
        after: Its values after the txid; None if there are none.
    """

    before: Values | None
    after: Values | None


@dataclass(slots=True)
class Written:
    """What one txid wrote to a state.

    Attributes:
        changes: The keys that it wrote, also those whose values stayed the same.
        statements: The statements of users, none of which was executed.
        expires: Up to which value of its range column no later txid needs rows; None for none.
    """

    changes: dict[Key, KeyChange] = field(default_factory=dict)
    statements: tuple[Statement, ...] = ()
    expires: Any = None


class OverlayState(StateBackend):
    """A state whose writes stay in memory.

    Args:
        table: The schema of the state.
        rows: Its rows after the txid before the first one that is computed again.
        ledger: Its ledger then.
        check: Checks a statement as the real state does.

    Attributes:
        written: What each txid that was computed again has written, by txid.
        writing: Whether a write has begun and not ended; it has failed then.
    """

    modes = frozenset({"table", "log"})
    existing_tables = groups = evolves = True
    shared_by_processes = False

    def __init__(
        self,
        table: StateTable,
        rows: PastRows,
        ledger: Ledger,
        check: Callable[[Statement], None] | None = None,
    ) -> None:
        self.written: dict[int, Written] = {}
        self.writing = False
        self._table, self._past, self._ledger = table, rows, ledger
        self._begins = ledger.txid
        self._check = check
        self._now: dict[Key, Values | None] = {}

    def create(self) -> None:
        """Do nothing: there is no table."""

    def claim(self, claim: Claim) -> Ledger:
        """Refuse: nobody claims it."""
        raise NotImplementedError("an overlay has its ledger from the start")

    def check_statement(self, statement: Statement) -> None:
        """Check a statement as the real state does."""
        (self._check or super().check_statement)(statement)

    def admit(self, attempt: TransactionAttempt) -> None:
        """Let an attempt at the next txid write."""
        self._ledger = replace(self._ledger, epoch=attempt.epoch, term=attempt.term)

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        """Keep the final values of a txid."""
        self.writing = True
        standing(self._ledger, attempt)
        final = final_values(self._table, attempt.txid, writes, self.rows)
        before = self.rows(list(final.rows))
        values = {
            key: None if (row := before.get(key)) is None else row.current for key in final.rows
        }
        changes = {key: KeyChange(values[key], after) for key, after in final.rows.items()}
        self.written[attempt.txid] = Written(changes, final.statements)
        self._now.update(final.rows)
        self._ledger = self._ledger.written_by(attempt)
        self.writing = False
        return self._ledger

    def expired(self, txid: int, end: Any) -> None:
        """Keep up to which value of its range column a txid needs no rows; they stay readable.

        The runtime learns it beside the writes, since a store deletes such rows later.
        """
        self.written[txid].expires = end

    def apply_frame(self, attempt: TransactionAttempt, writes: FrameWrites) -> Ledger:
        """Keep the final values of a txid that Spark has computed; all of them come here."""
        from txtopo.frames.collecting import collected_writes

        return self.commit(attempt, collected_writes(self._table, writes, self.rows))

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return the rows as they are now. The snapshot of the store stays open in between."""
        return nullcontext(_OverlaySnapshot(self))

    @property
    def ledger(self) -> Ledger:
        """The ledger after the last write."""
        return self._ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """Return the rows of those keys that exist."""
        found = {key: self._row(now) for key in keys if (now := self._now.get(key)) is not None}
        stored = [key for key in keys if key not in self._now]
        snapshot = self._past.snapshot
        if stored and snapshot is not None:
            found |= dict(self._then(snapshot.rows(stored).items()))
        return found

    def seen(
        self, stored: Callable[[Snapshot, int], Iterable[tuple[Key, Row]]]
    ) -> Iterator[tuple[Key, Row]]:
        """Yield rows of the past that were not written since, and all that were.

        Args:
            stored: Reads rows of the snapshot. It gets the txid that is taken back, since values
                from before it are looked for as well.
        """
        snapshot, undone = self._past.snapshot, self._past.undone
        if snapshot is not None:
            # With other columns than the stored ones, whoever asked picks from all rows.
            every = self._past.change is not None
            at = self._begins + 1 if undone is None else undone
            rows = snapshot.items() if every else stored(snapshot, at)
            yield from self._then(each for each in rows if each[0] not in self._now)
        for key, values in self._now.items():
            if values is not None:
                yield key, self._row(values)

    def close(self) -> None:
        """Do nothing: whoever opened the snapshot closes it."""

    def _then(self, rows: Iterable[tuple[Key, Row]]) -> Iterator[tuple[Key, Row]]:
        for key, row in rows:
            values = self._past.values(row)
            if values is not None:
                yield key, self._row(values)

    def _row(self, values: Values) -> Row:
        return Row(self._begins, values, values, self._begins)


class _OverlaySnapshot(Snapshot):
    def __init__(self, state: OverlayState) -> None:
        self._state = state
        self._ledger = state.ledger

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        return self._state.rows(keys)

    def items(self) -> Iterator[tuple[Key, Row]]:
        return self._state.seen(lambda snapshot, _: snapshot.items())

    def between(
        self, table: StateTable, above: Any, up_to: Any, txid: int
    ) -> Iterator[tuple[Key, Row]]:
        return self._state.seen(
            lambda snapshot, undone: snapshot.between(table, above, up_to, undone)
        )

    def starting(self, prefixes: Sequence[Key]) -> Iterator[tuple[Key, Row]]:
        wanted, width = set(prefixes), len(prefixes[0]) if prefixes else 0
        for key, row in self._state.seen(lambda snapshot, _: snapshot.starting(prefixes)):
            if key[:width] in wanted:
                yield key, row
