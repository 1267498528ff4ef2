"""RowBackend: the whole protocol of a state, over two primitives that a plug-in supplies.

The rules of :mod:`txtopo.state.backend` are worked out here in Python, so that a plug-in for a
store that can replace a document atomically has two methods and no protocol. It reads all rows for
each commit; a store for many keys implements :class:`StateBackend` and does the work in place.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from txtopo.attempt import TransactionAttempt
from txtopo.errors import PlugInError, StoreUnavailable
from txtopo.state.backend import Key, Puts, Snapshot, StateBackend, StateTable, Writes
from txtopo.state.final_values import final_values
from txtopo.state.ledger import Claim, Ledger, Standing, claimed, standing
from txtopo.state.partials import checked_partials
from txtopo.state.values import Row, first_row

# A lost compare-and-set means that another writer came in between; the next reading says whether
# it may write. More than a few in a row means two writers that do not mind the fence.
_TRIES_MAX = 3


@dataclass(frozen=True, slots=True)
class Contents:
    """What a store holds at one instant.

    Attributes:
        ledger: The ledger, or None if nobody has claimed the state.
        rows: Every row by key. It must not change afterwards.
    """

    ledger: Ledger | None = None
    rows: Mapping[Key, Row] = field(default_factory=dict)


class RowBackend(StateBackend):
    """A state in a store that can be read whole and replaced by compare-and-set.

    Delivery: exactly once and fenced, if :meth:`replace` is atomic and durable as it says.
    Who calls it: as :class:`~txtopo.state.backend.StateBackend` says, so calls of :meth:`load` and
    :meth:`replace` may overlap: :meth:`replace` compares and writes in one step. ``ledger`` and
    rows are plain dataclasses of plain values; ``dataclasses.asdict`` turns them into JSON, and
    ``Ledger.of`` makes a ledger of what was stored. Keep every field: later versions add some.
    """

    def __init__(self, table: StateTable) -> None:
        self.table = table

    @abstractmethod
    def load(self) -> Contents:
        """Read the ledger and all rows as of one instant; ``Contents()`` for a new store."""

    @abstractmethod
    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        """Write ledger and rows together or not at all, if the store still holds *expected*.

        Args:
            expected: The ledger that :meth:`load` returned.
            ledger: The ledger to write.
            changes: The rows to set; None removes the row. May be empty.

        Returns:
            Whether it was written, durably; False if the store holds another ledger by now.
        """

    def create(self) -> None:
        """Make what is missing; nothing, unless a plug-in needs to."""

    def close(self) -> None:
        """Release what is open; nothing, unless a plug-in needs to."""

    def claim(self, claim: Claim) -> Ledger:
        """Write a claim into the ledger, as ``StateBackend.claim`` says."""
        self.claimant = claim
        for _ in range(_TRIES_MAX):
            held = self.load().ledger
            ledger = claimed(held, claim)
            if ledger == held or self._replaced(held, ledger, {}):
                return ledger
        raise self._contended()

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        """Apply the writes of an attempt, as ``StateBackend.commit`` says."""
        for _ in range(_TRIES_MAX):
            held = self.load()
            found = standing(held.ledger, attempt, self.claimant)
            assert held.ledger is not None
            if found is Standing.HELD:
                return held.ledger
            self.point("P5.after")
            self.point("P6.before")
            ledger = held.ledger.written_by(attempt)
            changes = changed_rows(self.table, held.rows, attempt.txid, writes, found)
            self.point("P6.after")
            self.point("P7.before")
            if self._replaced(held.ledger, ledger, changes):
                return ledger
        raise self._contended()

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open one consistent reading of the state."""
        return nullcontext(_LoadedSnapshot(self.load()))

    def _replaced(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        written: object = self.replace(expected, ledger, changes)
        if not isinstance(written, bool):
            raise PlugInError(
                f"replace of {type(self).__name__} returned {written!r:.100}; expected True or "
                "False: whether it was written; mend the plug-in, and look at what the store holds",
                state=self.table.name,
            )
        return written

    def _contended(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"state {self.table.name!r} was changed by others {_TRIES_MAX} times in a row; "
            "nothing was written; try again"
        )


class _LoadedSnapshot(Snapshot):
    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    @property
    def ledger(self) -> Ledger | None:
        return self._contents.ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        rows = self._contents.rows
        return {key: rows[key] for key in keys if key in rows}

    def items(self) -> Iterator[tuple[Key, Row]]:
        return iter(self._contents.rows.items())


def changed_rows(
    table: StateTable, rows: Mapping[Key, Row], txid: int, writes: Writes, found: Standing
) -> dict[Key, Row | None]:
    """Return the rows that a commit of *txid* changes: undo, clean-up, then the writes."""
    if table.kind == "transactional":
        if found is Standing.REDO:
            return {}
        final = final_values(table, txid, writes, lambda _: rows).rows
        return {key: None if values is None else Row(txid, values) for key, values in final.items()}
    changes: dict[Key, Row | None] = {}
    for key, row in rows.items():
        if row.txid == txid:
            changes[key] = row.undone(txid)
        elif row.deleted:
            changes[key] = None
    for key, values in final_values(table, txid, writes, lambda _: rows).rows.items():
        row_before = changes[key] if key in changes else rows.get(key)
        if row_before is not None:
            changes[key] = row_before.after(txid, values)
        elif values is not None:
            changes[key] = first_row(txid, values)
    return changes


def written_keys(table: StateTable, writes: Writes) -> list[Key]:
    """Return the keys that a commit writes, whatever else it has to undo."""
    if isinstance(writes, Puts):
        return list(writes.rows)
    columns = checked_partials(table, writes.partials).columns[: len(table.key)]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))
