"""The expressions of a merge, in delta-rs' SQL: what a row was before a txid, and what it becomes.

``t`` is the stored row, ``s`` the row of the batch. One set of expressions serves the first attempt
of a txid and every later one: a row tagged with the txid starts from its previous values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from state_backends.delta.layout import Layout
from txtopo.state import Aggregate

DELETED = "txtopo_deleted"
"""A column of the batch: whether the row deletes its key."""
Combine = Callable[[int, str, str], str]
"""(position of a value column, what was there, what comes) -> what it becomes."""
_WHOLE = ("byte", "short", "int", "long")
_SQL_TYPES = {"byte": "TINYINT", "short": "SMALLINT", "int": "INT", "long": "BIGINT"}


def same_key(layout: Layout) -> str:
    """Return the condition under which a stored row and a row of the batch have one key."""
    return " AND ".join(f"{stored(name)} = {given(name)}" for name in layout.keys)


def updated(
    layout: Layout, txid: int, *, merging: bool, combine: Combine | None = None
) -> Mapping[str, str]:
    """Return what each column of a stored row becomes when *txid* writes its key.

    Args:
        layout: The columns.
        txid: The batch.
        merging: Whether it brings partial aggregates; else final values.
        combine: How those meet what is stored; by default in delta-rs' SQL.
    """
    combine = combine or _combining(layout)
    values = {
        name: _new_value(layout, position, txid, combine if merging else None)
        for position, name in enumerate(layout.values)
    }
    if not layout.opaque:
        return {**_quoted(values), "txid": str(txid)}
    previous = {f"prev_{name}": _before(name, layout, txid) for name in layout.values}
    before = f"CASE WHEN t.txid = {txid} THEN t.prev_txid WHEN t.deleted THEN NULL ELSE t.txid END"
    deleted = "false" if merging else f"s.{DELETED}"
    return {
        **_quoted(values),
        **_quoted(previous),
        "txid": str(txid),
        "prev_txid": before,
        "deleted": deleted,
    }


def inserted(layout: Layout, txid: int) -> Mapping[str, str]:
    """Return the columns of a row whose key was not there."""
    columns = {name: given(name) for name in (*layout.keys, *layout.values)}
    flags = {"deleted": "false"} if layout.opaque else {}
    return {**_quoted(columns), "txid": str(txid), **flags}


def restored(layout: Layout) -> Mapping[str, str]:
    """Return the columns of a row as it was before the txid that tags it."""
    values = {name: stored(f"prev_{name}") for name in layout.values}
    return {**_quoted(values), "txid": "t.prev_txid", "deleted": "false"}


def stored(name: str) -> str:
    """Return a column of the stored row."""
    return f't."{name}"'


def given(name: str) -> str:
    """Return a column of the batch."""
    return f's."{name}"'


def _quoted(columns: Mapping[str, str]) -> dict[str, str]:
    return {f'"{name}"': expression for name, expression in columns.items()}


def _before(name: str, layout: Layout, txid: int) -> str:
    if not layout.opaque:
        return stored(name)
    previous = stored(f"prev_{name}")
    return (
        f"CASE WHEN t.txid = {txid} THEN {previous} WHEN t.deleted THEN NULL "
        f"ELSE {stored(name)} END"
    )


def _combining(layout: Layout) -> Combine:
    def combine(position: int, old: str, new: str) -> str:
        kind = layout.state.value[position].type
        return combined(layout.state.aggregates[position], kind, old, new)

    return combine


def _new_value(layout: Layout, position: int, txid: int, combine: Combine | None) -> str:
    field = list(layout.state.value)[position]
    before, new = f"({_before(field.name, layout, txid)})", given(field.name)
    if combine is not None:
        return combine(position, before, new)
    # What a deleted row held is kept, though nobody sees it, as in every other store.
    return f"CASE WHEN s.{DELETED} THEN {before} ELSE {new} END"


def combined(aggregate: Aggregate, kind: str, old: str, new: str) -> str:
    """Return the value after a partial aggregate meets the stored one; NULL is no value."""
    if aggregate.operator != "add":
        sign = "<=" if aggregate.operator == "min" else ">="
        both = f"CASE WHEN {old} {sign} {new} THEN {old} ELSE {new} END"
    elif kind in _WHOLE:
        # 64-bit addition wraps without a word; this raises.
        wide = f"CAST({old} AS DECIMAL(38,0)) + CAST({new} AS DECIMAL(38,0))"
        both = f"CAST({wide} AS {_SQL_TYPES[kind]})"
    elif kind.startswith("decimal"):
        # A sum of 39 digits may still fit into 128 bits; in 256 there is room, and the cast raises.
        wide = f"'Decimal256(40, {kind[8:-1].split(',')[1].strip()})'"
        both = f"arrow_cast({old}, {wide}) + arrow_cast({new}, {wide})"
        both = f"CAST({both} AS {kind.upper()})"
    else:
        both = f"{old} + {new}"
    return f"CASE WHEN {old} IS NULL THEN {new} WHEN {new} IS NULL THEN {old} ELSE {both} END"
