"""TableComparison: a table of a changed program beside that of the running one, row by row.

Only keys that one of the two wrote in the range are compared: all others are equal, since both
began with the same rows. Value columns that only one of them has are left out. A row that one of
two programs has let expire, and the other one keeps, differs also if nobody wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from txtopo.operations.overlay import OverlayState, PastRows
from txtopo.operations.replay import same_values
from txtopo.state.backend import Key, StateTable, Values, in_range


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A key whose row is not the same in both tables.

    Attributes:
        key: The key.
        here: The values in the table of the changed program; None if it has no such row.
        there: The values in the other table; None if it has no such row.
    """

    key: Key
    here: Values | None
    there: Values | None


@dataclass(frozen=True, slots=True)
class TableComparison:
    """How a table differs from another one.

    Attributes:
        here: The schema of the changed program.
        there: The schema of the other table.
        keys: How many keys were compared.
        differences: The rows that differ, sorted by key.
    """

    here: StateTable = field(repr=False)
    there: StateTable = field(repr=False)
    keys: int
    differences: tuple[RowDifference, ...]

    @property
    def only_here(self) -> tuple[RowDifference, ...]:
        """The rows that only the changed program has."""
        return tuple(each for each in self.differences if each.there is None)

    @property
    def only_there(self) -> tuple[RowDifference, ...]:
        """The rows that only the other table has."""
        return tuple(each for each in self.differences if each.here is None)

    @property
    def changed(self) -> tuple[RowDifference, ...]:
        """The rows that both have, with other values."""
        return tuple(
            each for each in self.differences if each.here is not None and each.there is not None
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """The value columns that only one of the two has."""
        names = dict.fromkeys([*self.here.value.names, *self.there.value.names])
        return tuple(
            name
            for name in names
            if name not in self.here.value.index or name not in self.there.value.index
        )


def compared_overlays(
    here: OverlayState, here_table: StateTable, there: OverlayState, there_table: StateTable
) -> TableComparison:
    """Compare what two programs have made of the same rows."""
    keys = {**written_keys(here), **written_keys(there)}
    end, other_end = _end(here), _end(there)
    if end != other_end:
        keys |= dict.fromkeys(_expired_keys(here, here_table, end))
        keys |= dict.fromkeys(_expired_keys(there, there_table, other_end))
    ours, theirs = values_of(here, keys), values_of(there, keys)
    for key in keys:
        gone = _is_expired(here_table, key, ours[key], end)
        if gone != _is_expired(there_table, key, theirs[key], other_end):
            if gone and theirs[key] is not None:
                ours[key] = None
            elif not gone and ours[key] is not None:
                theirs[key] = None
    return _compared(here_table, ours, there_table, theirs)


def _end(state: OverlayState) -> Any:
    """Return up to which value of the range column a program needs no rows; None for none."""
    ends = [each.expires for each in state.written.values() if each.expires is not None]
    return max(ends, default=None)


def _expired_keys(state: OverlayState, table: StateTable, end: Any) -> list[Key]:
    if end is None:
        return []
    with state.snapshot() as snapshot:
        rows = snapshot.between(table, None, end, 0)
        return [key for key, row in rows if _is_expired(table, key, row.visible(), end)]


def _is_expired(table: StateTable, key: Key, values: Values | None, end: Any) -> bool:
    if end is None or values is None or table.range_by is None:
        return False
    return in_range(table.column_of(key, values, table.range_by), None, end)


def compared_stored(
    here: OverlayState,
    here_table: StateTable,
    stored: PastRows,
    stored_table: StateTable,
    first_txid: int,
) -> TableComparison:
    """Compare what a program has made of rows with those that a store had at the end.

    A row that only the program has is left out if it has let it expire: the store of the running
    one deletes such rows at any time. Which rows expire is not compared: no store keeps that.

    Args:
        here: The state of the program.
        here_table: Its schema.
        stored: The rows of the store.
        stored_table: Its schema.
        first_txid: The first txid that was computed.
    """
    assert stored.snapshot is not None
    keys = written_keys(here)
    there: dict[Key, Values | None] = {}
    seen = set[Key]()
    for key, row in stored.snapshot.items():
        seen.add(key)
        if key in keys or (row.txid or 0) >= first_txid:
            there[key] = stored.values(row)
    # No row is left of a key that the running program deleted, unless it was the last txid. In a
    # table whose rows expire, the store may have deleted it.
    gone = (
        () if stored_table.range_by is not None else (key for key in _keys(here) if key not in seen)
    )
    wanted = dict.fromkeys([*keys, *there, *gone])
    found = _compared(here_table, values_of(here, wanted), there_table=stored_table, there=there)
    if (end := _end(here)) is None:
        return found
    differences = tuple(
        each
        for each in found.differences
        if each.there is not None or not _is_expired(here_table, each.key, each.here, end)
    )
    return TableComparison(here_table, stored_table, found.keys, differences)


def _keys(state: OverlayState) -> Iterator[Key]:
    return (key for key, _ in state.seen(lambda snapshot, _: snapshot.items()))


def written_keys(state: OverlayState) -> dict[Key, None]:
    """Return the keys that a program wrote."""
    return dict.fromkeys(key for each in state.written.values() for key in each.changes)


def values_of(state: OverlayState, keys: Iterable[Key]) -> dict[Key, Values | None]:
    """Return the values of keys as a program has left them; None for no row."""
    wanted = list(keys)
    rows = state.rows(wanted)
    return {key: rows[key].visible() if key in rows else None for key in wanted}


def _compared(
    here_table: StateTable,
    here: Mapping[Key, Values | None],
    there_table: StateTable,
    there: Mapping[Key, Values | None],
) -> TableComparison:
    names = [name for name in here_table.value.names if name in there_table.value.index]
    ours, theirs = _picker(here_table, names), _picker(there_table, names)
    differences = [
        RowDifference(key, here.get(key), there.get(key))
        for key in here
        if not same_values(ours(here.get(key)), theirs(there.get(key)))
    ]
    return TableComparison(here_table, there_table, len(here), tuple(_sorted(differences)))


def _picker(table: StateTable, names: Collection[str]) -> Callable[[Values | None], Any]:
    places = [table.value.index[name] for name in names]
    return lambda values: None if values is None else tuple(values[at] for at in places)


def _sorted(found: list[RowDifference]) -> list[RowDifference]:
    try:
        return sorted(found, key=lambda each: each.key)
    except TypeError:  # NULL has no order
        return sorted(found, key=lambda each: repr(each.key))
