"""Evolution: what may change in a table that has rows, and which values its old rows get.

Rules
-----
1. Value columns may be added. An old row gets the default that the state declares
   (``open_state(…, defaults={"refunds": 0})``); in a column of a ``PersistentAggregate`` it gets
   :attr:`~txtopo.state.aggregates.Aggregate.initial`, the value for no rows. A column without a
   default is refused: old rows get NULL only if NULL is declared.
2. The previous values of an old row get the default as well. The undo of a batch that was written
   before the change must leave the default, not NULL.
3. Value columns may be removed, if the store supports that. The column stays in the table with its
   values, and is no longer written. A removed column cannot be added again, since its values are
   out of date: drop it first, or use another name.
4. Key, kind, mode, and the type or the aggregate of a column do not change, since that would change
   the meaning of rows. :data:`REBUILD` explains how to compute a state again.
5. :meth:`~txtopo.state.backend.StateBackend.create` does not touch a table that is to be changed.
   :meth:`~txtopo.state.backend.StateBackend.claim` changes it, if the claim allows it: by then
   ZooKeeper has accepted the new topology, and the ledger refuses every earlier coordinator, which
   would write rows without the new columns. The declaration in the store is written together with
   the defaults, after everything else, so an interrupted change is repeated as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from txtopo.errors import SchemaDrift
from txtopo.state.backend import StateTable, Values
from txtopo.state.declaration import declaration, parsed_declaration, retired_of
from txtopo.state.values import Row
from txtopo.tuples import Field

REBUILD = (
    "to start it over, empty, give it another table and start once with allow_change; to compute "
    "all batches again, give each state another table and call txtopo.operations.rebuild (txtopo "
    "rebuild)"
)
"""How to replace a state that cannot be changed."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """What has to be done to the table of a state so that it matches the declaration.

    Attributes:
        stored: The state as its store has it.
        declared: The state as it is declared.
        added: The columns to add.
        taken: The columns that are no longer written.
        retired: Names of columns that were removed earlier and are still in the table.
    """

    stored: StateTable
    declared: StateTable
    added: tuple[Field, ...]
    taken: tuple[Field, ...]
    retired: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[str, ...]:
        """Names of all columns that stay in the table and are no longer written."""
        names = dict.fromkeys([*self.retired, *(field.name for field in self.taken)])
        return tuple(name for name in names if name not in self.declared.value.names)

    def text(self) -> str:
        """Return the declaration for the store."""
        return declaration(self.declared, self.left)

    def row(self, row: Row) -> Row:
        """Return a stored row with the columns that the state declares."""
        previous = None if row.previous is None else self._values(row.previous)
        return replace(row, current=self._values(row.current), previous=previous)

    def _values(self, values: Values) -> Values:
        if not values and self.stored.value.names:  # a tombstone of a key that did not exist
            return values
        named = dict(zip(self.stored.value.names, values, strict=True))
        defaults = dict(self.declared.defaults)
        return tuple(
            named[name] if name in named else defaults[name] for name in self.declared.value.names
        )


def table_change(text: str, table: StateTable, label: str) -> TableChange | None:
    """Return the change that a table needs; None if it is as declared.

    Args:
        text: The declaration that the store has.
        table: The state as it is declared.
        label: The state and its store, for messages.

    Raises:
        SchemaDrift: It cannot be done; the message says what to do instead.
    """
    retired = retired_of(text)
    if text == declaration(table, retired):
        return None
    stored = parsed_declaration(table.name, text)
    found, wanted = json.loads(text), json.loads(declaration(table))
    for part in ("kind", "mode", "key"):
        if found.get(part) != wanted.get(part):
            raise refused_change(f"its {part} cannot change", text, table, label)
    before, now = _columns(found), _columns(wanted)
    for name, (kind, aggregate) in now.items():
        if name in before and before[name] != (kind, aggregate):
            what = "type" if before[name][0] != kind else "aggregate"
            raise refused_change(
                f"the {what} of its column {name!r} cannot change", text, table, label
            )
    added = tuple(field for field in table.value if field.name not in before)
    defaults = dict(table.defaults)
    for field in added:
        if field.name not in defaults:
            raise refused_change(
                f"its column {field.name!r} is new and has no default for existing rows; declare "
                f"one, as in open_state(…, defaults={{{field.name!r}: None}}) for NULL",
                text,
                table,
                label,
            )
    taken = tuple(field for field in stored.value if field.name not in now)
    return TableChange(stored, table, added, taken, retired)


def refused_change(why: str, text: str, table: StateTable, label: str) -> SchemaDrift:
    """Return the error for a state whose store has another declaration."""
    return SchemaDrift(
        f"{label} was created with a different declaration, and {why}; got {declaration(table)}; "
        f"the store has {text}; nothing was written; declare it as before; or {REBUILD}",
        stored=text,
        declared=declaration(table),
        state=table.name,
    )


def not_allowed(change: TableChange, label: str) -> SchemaDrift:
    """Return the error for a claim that may not change a table."""
    parts = [f"column {field.name!r} is new" for field in change.added]
    parts += [f"column {field.name!r} was removed" for field in change.taken]
    return SchemaDrift(
        f"{label} was created with a different declaration; "
        f"{'; '.join(parts) or 'the order has changed'}; nothing was written; declare it as "
        "before; or, if the change is intended, start the topology once with "
        "Config(allow_change=True), which a query of foreach_batch cannot do",
        stored=declaration(change.stored),
        declared=declaration(change.declared),
        state=change.declared.name,
    )


def check_none_taken(change: TableChange, label: str) -> None:
    """Check that no column is removed in a store that takes none away.

    Raises:
        SchemaDrift: A column would be removed.
    """
    if change.taken:
        names = ", ".join(repr(field.name) for field in change.taken)
        raise refused_change(
            f"this store cannot remove a column from its rows ({names}); only SQL stores can",
            declaration(change.stored),
            change.declared,
            label,
        )


def _columns(declared: dict[str, Any]) -> dict[str, tuple[str, Sequence[Any] | None]]:
    aggregates = declared["aggregates"] or [None] * len(declared["value"])
    return {
        name: (kind, aggregate)
        for (name, kind), aggregate in zip(declared["value"], aggregates, strict=True)
    }
