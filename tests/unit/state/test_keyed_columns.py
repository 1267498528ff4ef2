"""Kernels on rows by key equal plain Python, on random tables with NULL, NaN and signed zeros."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from txtopo.state.keyed_columns import (
    codes_of,
    differing,
    is_key,
    last_of_each,
    order_of,
    positions,
    there,
    with_plain_zeros,
)

NAN = math.nan
TYPES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "double": (pa.float64(), [0.0, -0.0, 1.5, -math.inf, NAN]),
    "long": (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    "string": (pa.string(), ["", "a", "b", "ä"]),
    "decimal": (pa.decimal128(10, 2), [decimal.Decimal(text) for text in ("0", "-1.5", "2")]),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC), datetime.datetime.now(datetime.UTC)],
    ),
    "boolean": (pa.bool_(), [False, True]),
    "binary": (pa.binary(), [b"", b"\xff", b"a"]),
}
Row = tuple[Any, ...]
SEEDS = range(60)


def drawn(chance: Random, kinds: Sequence[str], rows: int, nulls: bool = True) -> pa.Table:
    """Return a random table of some types, in several chunks."""
    columns = []
    for kind in kinds:
        type_, values = TYPES[kind]
        among = [*values, None] if nulls else list(values)
        cells = [chance.choice(among) for _ in range(rows)]
        cut = chance.randint(0, rows)
        columns.append(pa.chunked_array([cells[:cut], [], cells[cut:]], type_))
    return pa.table(columns, names=[f"c{at}" for at in range(len(kinds))])


def tables(rows_max: int = 12) -> list[tuple[Random, pa.Table]]:
    found = []
    for seed in SEEDS:
        chance = Random(seed)
        kinds = chance.choices(sorted(TYPES), k=chance.randint(1, 3))
        found.append((chance, drawn(chance, kinds, chance.choice([0, 1, 2, rows_max]))))
    return found


def rows_of(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def exactly(value: Any) -> Any:
    """Return what is equal for equal keys alone: NULL and NaN equal themselves."""
    return "NaN" if is_nan(value) else (value,)


def key_of(row: Row) -> Row:
    return tuple(map(exactly, row))


def compared(left: Any, right: Any) -> int:
    """Compare two values: NULL first, NaN last."""
    ranks = [0 if each is None else 2 if is_nan(each) else 1 for each in (left, right)]
    if ranks[0] != ranks[1]:
        return ranks[0] - ranks[1]
    return 0 if ranks[0] != 1 else int(left > right) - int(left < right)


def in_order(columns: Sequence[tuple[int, bool]]) -> Callable[[tuple[int, Row]], Any]:
    """Return the sort key of numbered rows by some columns, of which some fall."""

    def compare(left: tuple[int, Row], right: tuple[int, Row]) -> int:
        for at, falls in columns:
            found = compared(left[1][at], right[1][at])
            if found:
                return -found if falls else found
        return 0

    return cmp_to_key(compare)


def test_equal_keys_have_equal_codes_and_no_others_have() -> None:
    for _, table in tables():
        keys = [key_of(row) for row in rows_of(table)]
        codes = codes_of(table).tolist()
        assert len(codes) == len(keys)
        assert all(code >= 0 for code in codes)
        for at, (key, code) in enumerate(zip(keys, codes, strict=True)):
            assert [key == other for other in keys[:at]] == [code == o for o in codes[:at]]


def test_codes_in_order_are_larger_where_keys_are() -> None:
    for _, table in tables():
        codes = codes_of(table, in_order=True)
        in_order = codes[order_of(table, table.column_names).to_numpy()]
        assert (np.diff(in_order) >= 0).all()
        assert len(np.unique(codes)) == len(np.unique(codes_of(table)))


@pytest.mark.parametrize("columns", [6, 9])
def test_codes_of_many_distinct_values_do_not_overflow(columns: int) -> None:
    """Their product is more than 64 bits hold, with six columns and again with nine."""
    count = 3_000
    chance = Random(columns)
    arrays = [pa.array(chance.sample(range(count), count)) for _ in range(columns)]
    table = pa.table(arrays, names=[str(at) for at in range(columns)])
    twice = pa.concat_tables([table, table.take(pa.array(range(count - 1, -1, -1)))])
    codes = codes_of(twice)

    assert count**columns > 2**63
    assert len(np.unique(codes)) == count
    assert (codes[:count] == codes[count:][::-1]).all()
    assert (codes >= 0).all()


def test_a_position_is_where_an_equal_key_is() -> None:
    """As between the rows that a stream asks for and those that a state has: no NULL, no NaN."""
    for chance, table in tables():
        rows = rows_of(table)
        distinct = {
            tuple(row): at
            for at, row in enumerate(rows)
            if not any(each is None or is_nan(each) for each in row)
        }
        chosen = list(dict(distinct).values())
        chance.shuffle(chosen)
        among = table.take(pa.array(chosen, pa.int64()))
        places = {rows[at]: place for place, at in enumerate(chosen)}
        found = positions(table, among)

        assert found.to_pylist() == [places.get(row) for row in rows]
        assert there(found).tolist() == [row in places for row in rows]


def test_a_position_does_not_depend_on_the_sign_of_zero() -> None:
    keys = pa.table({"a": [-0.0, 0.0, 1.0, None, NAN], "b": ["x"] * 5})
    for among, width in (([0.0, 1.0], 1), ([-0.0, 1.0], 1), ([0.0, 1.0], 2), ([-0.0, 1.0], 2)):
        known = pa.table({"a": among, "b": ["x", "x"]})
        names = ["a", "b"][:width]
        found = positions(keys.select(names), known.select(names))
        assert found.to_pylist() == [0, 0, 1, None, None]


def test_a_position_among_no_keys_is_none() -> None:
    keys = pa.table({"a": [1, None]})

    assert positions(keys, keys.slice(2)).to_pylist() == [None, None]
    assert positions(keys.slice(2), keys).to_pylist() == []


def test_an_order_has_null_first_and_nan_last_and_falls_the_other_way() -> None:
    for chance, table in tables():
        names = chance.sample(table.column_names, len(table.column_names))
        falling = {name for name in names if chance.random() < 0.4}
        by = [(table.column_names.index(name), name in falling) for name in names]
        expected = sorted(enumerate(rows_of(table)), key=in_order(by))

        assert order_of(table, names, falling).to_pylist() == [at for at, _ in expected]


def test_of_rows_with_equal_keys_the_last_one_stays() -> None:
    for chance, table in tables(20):
        width = chance.randint(1, table.num_columns)
        keys = drawn(chance, ["double", "string"], table.num_rows, nulls=False)
        keys = keys.rename_columns(["k0", "k1"]).select(["k0", "k1"][: chance.randint(1, 2)])
        rows = pa.table([*keys.columns, *table.columns], [*keys.column_names, *table.column_names])
        wide, by = keys.num_columns, table.column_names[:width]
        falling = {name for name in by if chance.random() < 0.4}
        for chosen in ((), by):
            order = [(wide + at, name in falling) for at, name in enumerate(chosen)]
            last: dict[Any, Row] = {}
            for _, row in sorted(enumerate(rows_of(rows)), key=in_order(order)):
                # NaN equals no key.
                key = tuple(object() if is_nan(each) else each for each in row[:wide])
                last[key] = row
            found = rows_of(last_of_each(rows, wide, chosen, falling))

            assert sorted(map(str, map(key_of, found))) == sorted(
                map(str, map(key_of, last.values()))
            )
            order = [(at, False) for at in range(wide)]
            assert [at for at, _ in sorted(enumerate(found), key=in_order(order))] == [
                *range(len(found))
            ]


def test_rows_differ_where_a_value_does() -> None:
    for chance, table in tables():
        rows = rows_of(table)
        other = table.take(pa.array(chance.choices(range(len(rows)), k=len(rows)), pa.int64()))
        expected = [
            key_of(one) != key_of(another)
            for one, another in zip(rows, rows_of(other), strict=True)
        ]

        assert differing(table, other).tolist() == expected
        assert not differing(table, table).any()


def test_null_differs_from_nan() -> None:
    one, other = pa.table({"a": [None, NAN, 1.0, None]}), pa.table({"a": [NAN, None, None, 1.0]})

    assert differing(one, other).all()


def test_a_key_has_neither_null_nor_nan() -> None:
    for _, table in tables():
        found = is_key(table, table.column_names)
        expected = [
            all(each is not None and not is_nan(each) for each in row) for row in rows_of(table)
        ]
        assert (found is None) == all(expected)
        if found is not None:
            assert found.to_pylist() == expected


def test_zero_has_no_sign_in_the_key_columns_alone() -> None:
    rows = pa.table({"k": [-0.0, 1.0], "v": [-0.0, 1.0], "s": ["a", "b"]})

    plain = with_plain_zeros(rows, ["k", "s"])
    assert [str(value) for value in plain.column("k").to_pylist()] == ["0.0", "1.0"]
    assert [str(value) for value in plain.column("v").to_pylist()] == ["-0.0", "1.0"]
