"""Plain: the operators of a StreamBuilder in plain Python, for the oracle of a program.

It has the methods of the builder and its streams, so a program runs on either. One batch after the
other, each stream is a list of dicts and each table a dict. It knows no tasks, attempts, stores or
record batches; an aggregate is computed from all rows of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from txtopo import Count, Max, Mean, Min, Sum

Row = dict[str, Any]
Rows = list[Row]


class PlainBuilder:
    """Runs a program over batches; ``tables`` has what each state holds afterwards."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, Any]] = {}
        self.batch = 0
        self._sources: dict[str, list[str]] = {}
        self._rows: dict[str, Rows] = {}
        self._ends: list[Callable[[], object]] = []

    def source(self, id: str, names: Sequence[str]) -> PlainStream:
        self._sources[id] = list(names)
        return PlainStream(self, lambda: self._rows[id])

    def merge(self, *streams: PlainStream) -> PlainStream:
        return PlainStream(self, lambda: [row for stream in streams for row in stream.rows()])

    def at_the_end(self, name: str, compute: Callable[[], object]) -> None:
        self.tables.setdefault(name, {})
        self._ends.append(compute)

    def run(self, source: str, batches: Sequence[Sequence[Sequence[Any]]]) -> None:
        for records in batches:
            self.batch += 1
            names = self._sources[source]
            self._rows[source] = [dict(zip(names, each, strict=True)) for each in records]
            for end in self._ends:
                end()


class PlainStream:
    """A stream: the rows of the batch that is being run."""

    def __init__(self, builder: PlainBuilder, compute: Callable[[], Rows]) -> None:
        self.builder, self._compute = builder, compute
        self._batch, self._found = 0, Rows()

    def rows(self) -> Rows:
        if self._batch != self.builder.batch:
            self._found, self._batch = self._compute(), self.builder.batch
        return self._found

    def _then(self, compute: Callable[[Rows], Rows]) -> PlainStream:
        return PlainStream(self.builder, lambda: compute(self.rows()))

    def map(self, function: Any, fields: str, **_: Any) -> PlainStream:
        names = names_of(fields)
        return self._then(lambda rows: [named(names, function(row)) for row in rows])

    def flat_map(self, function: Any, fields: str, **_: Any) -> PlainStream:
        names = names_of(fields)
        return self._then(lambda rows: [named(names, v) for row in rows for v in function(row)])

    def filter(self, function: Any, **_: Any) -> PlainStream:
        return self._then(lambda rows: [row for row in rows if function(row)])

    def with_columns(self, function: Any, fields: str, **_: Any) -> PlainStream:
        names = names_of(fields)
        return self._then(lambda rows: [row | named(names, function(row)) for row in rows])

    def select(self, *names: str, id: str | None = None, **renamed: str) -> PlainStream:
        columns = {name: name for name in names} | renamed
        return self._then(lambda rows: [{n: row[o] for n, o in columns.items()} for row in rows])

    def branch(self, function: Any, **_: Any) -> tuple[PlainStream, PlainStream]:
        return self.filter(function), self.filter(lambda row: not function(row))

    def group_by(self, *names: str) -> PlainGrouped:
        return PlainGrouped(self, names)

    def aggregate(self, **aggregates: Any) -> PlainStream:
        return PlainGrouped(self, ()).aggregate(**aggregates)

    def store(self, state: str, key: Any, order_by: Sequence[str] = ()) -> None:
        self.as_table(state, key, None, order_by)

    def as_table(
        self, state: str, key: Any, value: Any = None, order_by: Sequence[str] = ()
    ) -> PlainTable:
        keys, values = as_names(key), None if value is None else as_names(value)

        def apply(table: dict[Any, Any]) -> None:
            for row in in_order(self.rows(), as_names(order_by)):
                kept = values or [name for name in row if name not in keys]
                table[key_of(row, keys)] = {name: row[name] for name in kept}

        return PlainTable(self.builder, state, keys, apply)

    def query(self, table: PlainTable, on: Any, **_: Any) -> PlainStream:
        def answered(rows: Rows) -> Rows:
            held = table.held()
            names = {name for value in held.values() for name in value} | set(table.columns)
            nothing = dict.fromkeys(sorted(names))
            return [row | held.get(key_of(row, as_names(on)), nothing) for row in rows]

        return self._then(answered)

    def bolt(self, id: str, bolt: Any, **_: Any) -> PlainStream:
        return self._then(bolt.plain)


class PlainGrouped:
    """A stream that is grouped."""

    def __init__(self, stream: PlainStream, key: Sequence[str]) -> None:
        self._stream, self._key = stream, tuple(key)

    def persistent_aggregate(
        self, state: str, retracted: str | None = None, **aggregates: Any
    ) -> PlainTable:
        seen: dict[Any, Rows] = {}

        # Each txid's values are computed anew from all rows of the key so far.
        def apply(table: dict[Any, Any]) -> None:
            for row in self._stream.rows():
                key = key_of(row, self._key) if self._key else "global"
                seen.setdefault(key, []).append(row)
                table[key] = {}
            for key in [key for key, value in table.items() if not value]:
                table[key] = aggregated(aggregates, seen[key])

        return PlainTable(self._stream.builder, state, self._key or ("key",), apply)

    def aggregate(self, id: str | None = None, **aggregates: Any) -> PlainStream:
        def of_batch(rows: Rows) -> Rows:
            groups: dict[Any, Rows] = {}
            for row in rows:
                groups.setdefault(tuple(row[name] for name in self._key), []).append(row)
            return [
                named(self._key, key) | aggregated(aggregates, group)
                for key, group in groups.items()
            ]

        return self._stream._then(of_batch)

    def update(
        self, function: Any, fields: str, *, state: str, order_by: Sequence[str] = ()
    ) -> PlainStream:
        names, values = names_of(fields), dict[Any, Any]()
        builder = self._stream.builder

        def emitted(rows: Rows) -> Rows:
            found: Rows = []
            for row in in_order(rows, as_names(order_by)):
                key = key_of(row, self._key)
                values[key], after = function(values.get(key), row)
                if values[key] is None:
                    del values[key]
                if after is not None:
                    found.append(named(names, after))
            builder.tables[state] = {key: {"value": value} for key, value in values.items()}
            return found

        stream = self._stream._then(emitted)
        builder.at_the_end(state, stream.rows)
        return stream


class PlainTable:
    """A table: what it holds after the batch that is being run, and what that changed."""

    def __init__(
        self, builder: PlainBuilder, state: str, keys: Sequence[str], apply: Callable[..., None]
    ) -> None:
        self._builder, self._state, self._keys, self._apply = builder, state, keys, apply
        self._batch = 0
        self._before: dict[Any, Any] = {}
        self.columns: Sequence[str] = ()
        builder.at_the_end(state, self.held)

    def held(self) -> dict[Any, Any]:
        table = self._builder.tables[self._state]
        if self._batch != self._builder.batch:
            self._before, self._batch = dict(table), self._builder.batch
            self._apply(table)
            self.columns = next((tuple(value) for value in table.values()), ())
        return table

    def changes(self, *, before: bool = False) -> PlainStream:
        def changed() -> Rows:
            rows = []
            for key, value in self.held().items():
                old = self._before.get(key)
                if value == old:
                    continue
                row = named(self._keys, key if len(self._keys) > 1 else (key,)) | value
                if before:
                    row |= {f"before_{name}": (old or {}).get(name) for name in value}
                rows.append(row)
            return rows

        return PlainStream(self._builder, changed)


def aggregated(aggregates: dict[str, Any], rows: Rows) -> Row:
    return {name: aggregate_of(each, rows) for name, each in aggregates.items()}


def aggregate_of(aggregate: Any, rows: Rows) -> Any:
    if isinstance(aggregate, Count) and aggregate.field is None:
        return len(rows)
    values = [row[aggregate.field] for row in rows if row[aggregate.field] is not None]
    if isinstance(aggregate, Count):
        return len(values)
    if not values:
        return None
    kinds: dict[type, Callable[[list[Any]], Any]] = {
        Sum: sum,
        Min: min,
        Max: max,
        Mean: lambda found: sum(found) / len(found),
    }
    return kinds[type(aggregate)](values)


def names_of(fields: str) -> list[str]:
    return [each.split()[0] for each in fields.split(",")]


def as_names(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def named(names: Sequence[str], values: Sequence[Any]) -> Row:
    return dict(zip(names, values, strict=True))


def key_of(row: Row, names: Sequence[str]) -> Any:
    return row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)


def in_order(rows: Rows, names: Sequence[str]) -> Rows:
    def place(row: Row) -> list[Any]:
        return [(row[name] is not None, row[name] or 0) for name in names]

    return sorted(rows, key=place) if names else rows
