"""Suites of values and keys: every type, json, odd keys, refused values, and many keys.

* :class:`ValuesSuite`: values of every type come back as they were.
* :class:`KeysSuite`, :class:`PutKeysSuite`: keys that differ are different rows, whatever a
  collation says.
* :class:`JsonSuite`: values of type json come back as they were.
* :class:`RefusalSuite`, :class:`PutRefusalSuite`: a value is refused before any write, or not at
  all.
* :class:`SizeSuite`: many keys in a batch, in an undo, and in a reader.
"""

from __future__ import annotations

import datetime
import decimal
import random
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from txtopo.errors import StateUsageError, TopologyError, ValueRefusedError
from txtopo.state import Count, Max, State, StateTransaction
from txtopo.testing.conformance.driver import (
    Drive,
    StateDriver,
    StoreFixtures,
    named,
    putting,
    stored_rows,
)
from txtopo.testing.conformance.pace import Extent, announce
from txtopo.testing.conformance.rules import REFUSABLE, Refusable, Rule, exactly, proves
from txtopo.tuples import Fields

LARGEST = 2**63 - 1

NOON = datetime.datetime(2013, 7, 4, 12, 30, 15, 123456)

NEW_YORK = datetime.timezone(datetime.timedelta(hours=-4))

DIGITS = decimal.Decimal("12345678901234567890123456789012.3456")

# Values that every store keeps, by type, as long as it keeps decimals so wide. Other tests use the
# first one as a key.
VALUES: Mapping[str, list[Any]] = MappingProxyType(
    {
        "string": ["plain", "", " ", "tab\tnew\nline\r", "quote\"s'`", "back\\slash \\. \\N", "%s"],
        "binary": [b"plain", b"", b"\x00\xff\\", bytes(range(256))],
        "boolean": [True, False],
        "byte": [127, -128, 0],
        "short": [32767, -32768, 0],
        "int": [2**31 - 1, -(2**31), 0],
        "long": [LARGEST, -LARGEST - 1, 0, -1, 2**53 + 1],
        "float": [0.5, -1.5 * 2**100, 2.0**-126, 16777216.0, 0.10000000149011612],
        "double": [0.1, 1e300, -5e-324, 1.7976931348623157e308, 2.0**53, 0.30000000000000004],
        "decimal(38,4)": [
            DIGITS,
            DIGITS.copy_negate(),
            decimal.Decimal("0.0000"),
            decimal.Decimal("-0.0001"),
        ],
        "decimal(18,4)": [
            decimal.Decimal("99999999999999.9999"),
            decimal.Decimal("-99999999999999.9999"),
            decimal.Decimal("0.0000"),
            decimal.Decimal("-0.0001"),
            decimal.Decimal("9.1000"),
            decimal.Decimal("10.0000"),
        ],
        "decimal(18,0)": [decimal.Decimal(10**18 - 1), decimal.Decimal(1 - 10**18)],
        "decimal(18,18)": [decimal.Decimal(f"-0.{10**18 - 1}"), decimal.Decimal("1E-18")],
        "decimal(38,0)": [decimal.Decimal(10**38 - 1), decimal.Decimal(1 - 10**38)],
        "decimal(5,5)": [decimal.Decimal("0.12345"), decimal.Decimal("-0.99999")],
        "date": [NOON.date(), datetime.date(1900, 2, 28), datetime.date(9999, 12, 31)],
        "timestamp": [
            NOON.replace(tzinfo=datetime.UTC),
            NOON.replace(tzinfo=NEW_YORK),
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC),
        ],
        "timestamp_ntz": [
            NOON,
            datetime.datetime(1900, 1, 1),
            datetime.datetime(2013, 3, 10, 2, 30),
        ],
    }
)


class _Colour(str, Enum):  # noqa: UP042 - the text of a StrEnum is its value anyway
    RED = "red"


class _Level(IntEnum):
    HIGH = 3


class _Price(decimal.Decimal):
    """A library's own number type."""


class _Moment(datetime.datetime):
    """A library's own time type with nanoseconds, like that of pandas."""

    nanosecond = 0


class _FinerMoment(_Moment):
    nanosecond = 100


# Values from a program, and what every store keeps for them.
GIVEN: Sequence[tuple[str, Any, Any]] = (
    ("string", _Colour.RED, "red"),
    ("binary", memoryview(b"abcdef")[::2], b"ace"),
    ("long", _Level.HIGH, 3),
    ("double", 2**53, 2.0**53),
    ("decimal(18,4)", _Price("1.5"), decimal.Decimal("1.5000")),
    ("timestamp_ntz", _Moment(2013, 7, 4, 12, 30, 15, 123456), NOON),
)

# Values that fit no column exactly, so that Columns refuses them for every store.
INEXACT: Sequence[tuple[str, Any]] = (
    ("double", 2**53 + 1),
    ("float", 2**24 + 1),
    ("float", 1e39),
    ("timestamp_ntz", _FinerMoment(2013, 7, 4)),
    ("decimal(18,4)", _Price("1.00005")),
)


class ValuesSuite(StoreFixtures):
    """Each type as a key and as a value, beside a NULL, before and after an undo."""

    @pytest.mark.parametrize("kind", VALUES)
    @proves(Rule.EXACT)
    def test_values_come_back_as_they_were(self, url: str, drive: Drive, kind: str) -> None:
        key, value = Fields(f"id {kind}, n int"), Fields(f"value {kind}, other string")
        state = self.declared(url, "values", key, value)
        if not self.keeps(kind):
            _refused_as_declared(drive, state, kind)
            return
        store = drive(state)
        rows = {(value, n): (value, None) for n, value in enumerate(VALUES[kind])}
        first = VALUES[kind][0], 0

        store.run(1, putting(rows))
        expected = exactly({k: _named(*v) for k, v in rows.items()})
        assert exactly(store.contents()) == expected
        store.run(2, putting({first: (None, "x")}))
        assert store.contents()[first] == _named(None, "x")
        assert exactly(store.run(2, lambda s: s.get(first), 1)) == exactly(_named(first[0], None))
        assert exactly(store.contents()) == expected

    @proves(Rule.EXACT)
    def test_a_transactional_state_keeps_them_as_well(self, url: str, drive: Drive) -> None:
        fields = self._wide()
        store = drive(self.declared(url, "values", Fields("n int"), fields, "transactional"))
        rows = {n: self._row(n) for n in range(10)}

        store.run(1, putting(rows))
        expected = {n: named(fields, *row) for n, row in rows.items()}
        assert exactly(store.contents()) == exactly(expected)
        store.run(1, putting(dict.fromkeys(rows, self._row(4))), attempt=1)
        assert exactly(store.contents()) == exactly(expected)
        assert exactly(store.run(2, lambda s: s.get_all(rows))) == exactly(list(expected.values()))

    @proves(Rule.EXACT)
    def test_a_table_of_arrow_has_the_declared_types_and_values(
        self, url: str, drive: Drive
    ) -> None:
        key, fields = Fields("n int"), self._wide()
        store = drive(self.declared(url, "wide", key, fields))
        rows = {n: self._row(n) for n in range(10)}

        store.run(1, putting({**rows, 10: self._row(1)}))
        store.puts(2, {10: None})
        with store.state.reader() as reader:
            table = reader.to_arrow()
        assert table.schema == pa.schema([*key.arrow_schema(), *fields.arrow_schema()])
        assert table.schema.metadata == {b"txid": b"2"}
        found = {row.pop("n"): row for row in table.to_pylist()}
        assert _comparable(found) == _comparable({n: named(fields, *r) for n, r in rows.items()})

    @pytest.mark.parametrize("many", [False, True], ids=["few rows", "many rows"])
    @proves(Rule.EXACT)
    def test_few_rows_and_many_are_kept_alike(
        self, url: str, drive: Drive, extent: Extent, many: bool
    ) -> None:
        """Some stores write them in different ways."""
        fields = self._wide()
        store = drive(self.declared(url, "wide", Fields("n int"), fields))
        rows = {n: self._row(n) for n in range(extent.many if many else 10)}

        store.run(1, putting(rows))
        expected = {n: named(fields, *row) for n, row in rows.items()}
        assert exactly(store.contents()) == exactly(expected)

    @proves(Rule.EXACT)
    def test_a_decimal_has_the_digits_of_its_column(self, url: str, drive: Drive) -> None:
        kinds = Fields("key decimal(10,2)"), Fields("value decimal(10,2)")
        store = drive(self.declared(url, "digits", *kinds))
        given = ("-0", "1.5", "3E+2", "-7.25")

        store.run(1, putting({decimal.Decimal(n): decimal.Decimal(n) for n in given}))
        shown = sorted((str(key), str(value)) for key, value in store.contents().items())
        assert shown == [(n, n) for n in ("-7.25", "0.00", "1.50", "300.00")]
        with store.state.reader() as reader:
            assert reader.get(decimal.Decimal("-0.0")) == 0
        for other in map(decimal.Decimal, ("1.005", "100000000", "NaN", "Infinity")):
            for row in ({decimal.Decimal(1): other}, {other: decimal.Decimal(1)}):
                with pytest.raises(ValueRefusedError, match=r"decimal\(10,2\)"):
                    store.run(2, putting(row))

    @proves(Rule.EXACT)
    def test_wrong_shapes_are_refused_by_name(self, state: State, drive: Drive) -> None:
        store = drive(state)

        for key, value in ((("a", "b"), 1), ("a", (1, 2)), (1, 1), ("a", "text"), ("a", True)):
            with pytest.raises(StateUsageError, match="'counts'"):
                store.run(1, putting({key: value}))
        with pytest.raises(ValueRefusedError, match="a long holds"):
            store.run(1, putting({"a": LARGEST + 1}))
        assert store.contents() == {}

    @proves(Rule.EXACT)
    def test_a_value_of_a_library_is_kept_as_the_plain_one(self, url: str, drive: Drive) -> None:
        """:mod:`txtopo.fitting` defines the plain value for all stores."""
        for at, (kind, given, kept) in enumerate(GIVEN):
            if not self.keeps(kind):
                continue
            fields = Fields(f"k {kind}, n int"), Fields(f"v {kind}, m int")
            store = drive(self.declared(url, f"given_{at}", *fields))
            store.run(1, putting({(kept, 0): (given, 0), (given, 1): (None, 1)}))
            store.run(2, putting({(given, 0): (given, 2)}))
            expected = {(kept, 0): {"v": kept, "m": 2}, (kept, 1): {"v": None, "m": 1}}
            assert exactly(store.contents()) == exactly(expected)

    @proves(Rule.EXACT)
    def test_what_no_store_returns_exactly_is_refused(self, url: str, drive: Drive) -> None:
        for at, (kind, given) in enumerate(INEXACT):
            if not self.keeps(kind):
                continue
            fields = Fields(f"k {kind}, n int"), Fields(f"v {kind}, m int")
            store = drive(self.declared(url, f"inexact_{at}", *fields))
            fine = VALUES[kind][0]
            for key, value in ((given, fine), (fine, given)):
                with pytest.raises(ValueRefusedError, match=re.escape(kind)):
                    store.run(1, putting({(key, 0): (value, 0)}))
            assert store.contents() == {}

    def _wide(self) -> Fields:
        """Return a column of each type."""
        kept = filter(self.keeps, VALUES)
        return Fields(", ".join(f"c{at} {kind}" for at, kind in enumerate(kept)))

    def _row(self, number: int) -> tuple[Any, ...]:
        """Return a row of :meth:`_wide`; every fifth row has only NULLs."""
        some = number % 5 < 4
        columns = [VALUES[kind] for kind in filter(self.keeps, VALUES)]
        return tuple(values[number % len(values)] if some else None for values in columns)


def _refused_as_declared(drive: Drive, state: State, kind: str) -> None:
    """Fail unless a state with a too wide decimal is refused, with the type in the error."""
    with pytest.raises(TopologyError, match=re.escape(kind)):
        drive(state)


def _named(value: Any, other: Any) -> dict[str, Any]:
    return {"value": value, "other": other}


def _comparable(rows: Mapping[Any, Mapping[str, Any]]) -> object:
    """Return rows without the difference between two zones of UTC: Arrow has its own."""
    return exactly(
        {
            key: {
                name: value.astimezone(datetime.UTC)
                if isinstance(value, datetime.datetime) and value.tzinfo
                else value
                for name, value in row.items()
            }
            for key, row in rows.items()
        }
    )


_CHANCE = random.Random(700)

# 700 random characters, which no store can compress.
_LONG = "".join(
    _CHANCE.choices("abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=700)
)

# Keys that a collation, trimming or normalisation would make equal.
ALIKE = {
    "case": ["word", "Word", "WORD", "straße", "STRASSE", "ı", "i", "I", "İ"],
    "accents": ["e", "é", "è", "ê", "ë", "o", "ö", "ø", "ł", "l"],
    "trailing blanks": ["a", "a ", "a  ", " a", "a\t", "a\n", "a\u00a0", "", " "],
    "normalisation": [
        *("\u00e9", "e\u0301", "\ufb01", "fi", "\u00c5", "\u212b", "A\u030a"),
        *("\uff41", "a", "\u2460", "1"),
    ],
    "quotes": ["'", "''", '"', '""', "`", "a'b", "a\\'b", "\\", "\\\\", "\\N", "NULL", "null"],
    "patterns": ["%", "_", "a%", "a_", ":a", "?", "$1", "{}", "{a}", "[1]", "(1)", "*", "%s", "%%"],
    "numbers": ["1", "01", "1.0", "1e0", "+1", "-0", "0", "nan", "NaN", "true", "1 "],
    "scripts": [
        "żółć",
        "Ελλάδα",
        "мир",
        "שלום",
        "سلام",
        "日本",
        "日本語",
        "नमस्ते",
        "🐘",
        "🐘🐘",
        "👩‍👩‍👧",
    ],
    "invisible": [
        "a\u200b",
        "a",
        "\ufeffa",
        "a\u00ad",
        "\u202ea",
        "\x01",
        "\x7f",
        "\x1f",
        "\r",
        "\r\n",
    ],
    "700 characters": [_LONG, _LONG[:-1] + "!", _LONG[:-1], "x" * 700, "x" * 699],
}


class KeysSuite(StoreFixtures):
    """Keys of partial aggregates: odd strings, several fields, names that have to be quoted."""

    @pytest.mark.parametrize("sort", ALIKE)
    @proves(Rule.KEYS)
    def test_keys_that_look_alike_are_different(
        self, counts: State, drive: Drive, sort: str
    ) -> None:
        self._keep_apart(drive(counts), list(dict.fromkeys(ALIKE[sort])), 0)

    @proves(Rule.KEYS)
    def test_keys_that_look_alike_are_different_among_many(
        self, counts: State, drive: Drive, extent: Extent
    ) -> None:
        keys = [key for alike in ALIKE.values() for key in alike]
        self._keep_apart(drive(counts), list(dict.fromkeys(keys)), extent.many)

    def _keep_apart(self, store: StateDriver, keys: list[str], number: int) -> None:
        others = [f"other {n}" for n in range(number)]

        store.merge(1, [(key, n) for n, key in enumerate([*keys, *others])])
        store.merge(2, [(key, 100) for key in [*keys[::2], *others]])
        expected = {key: n + 100 * (n % 2 == 0) for n, key in enumerate(keys)}
        assert _of(keys, store.contents()) == expected
        store.merge(2, [(key, 100) for key in keys[1::2]], attempt=1)
        expected = {key: n + 100 * (n % 2) for n, key in enumerate(keys)}
        assert _of(keys, store.contents()) == expected
        assert len(store.contents()) == len(keys) + len(others)

    @proves(Rule.KEYS)
    def test_keys_that_differ_in_a_field_are_different(self, url: str, drive: Drive) -> None:
        key = Fields("word string, hour int, raw binary, price decimal(10,2)")
        store = drive(self.aggregated(url, "several", key, Fields("n long"), (Count(),)))
        price, zero = decimal.Decimal("9.10"), decimal.Decimal("0.00")
        keys = [
            ("a", 1, b"b", price),
            ("a", 1, b"b", zero),
            ("a", 1, b"", price),
            ("a", 11, b"b", price),
            ("a1", 1, b"b", price),
            ("", 1, b"b", price),
        ]

        store.merge(1, [(*key, n) for n, key in enumerate(keys)])
        store.merge(2, [(*keys[0], 10), (*keys[3], 10), ("new", 0, b"", zero, 1)])
        store.merge(2, [(*keys[1], 10)], attempt=1)
        assert store.contents() == {key: n + 10 * (n == 1) for n, key in enumerate(keys)}
        with store.backend.snapshot() as snapshot:
            assert set(snapshot.rows([*keys, ("a", 2, b"b", price)])) == set(keys)

    @pytest.mark.parametrize("kind", [kind for kind in VALUES if kind != "boolean"])
    @proves(Rule.KEYS)
    def test_a_key_of_each_type_is_found_again(self, url: str, drive: Drive, kind: str) -> None:
        state = self.aggregated(url, "typed", Fields(f"k {kind}"), Fields("n long"), (Count(),))
        if not self.keeps(kind):
            _refused_as_declared(drive, state, kind)
            return
        store = drive(state)
        keys = VALUES[kind]

        store.merge(1, [(key, 1) for key in keys])
        store.merge(2, [(key, n) for n, key in enumerate(keys)])
        store.merge(2, [(keys[0], 5)], attempt=1)
        assert store.contents() == {key: 1 + 5 * (key == keys[0]) for key in keys}
        with state.reader() as reader:
            assert [reader.get(key) for key in keys] == [6, *[1] * (len(keys) - 1)]

    @proves(Rule.KEYS)
    def test_null_and_nan_are_no_keys_and_zero_has_no_sign(self, url: str, drive: Drive) -> None:
        state = self.aggregated(url, "keys", Fields("x double"), Fields("n long"), (Count(),))
        store = drive(state)

        for key in (None, float("nan")):
            with pytest.raises(ValueRefusedError):
                store.merge(1, [(key, 1)])
        store.merge(1, [(-0.0, 1)])
        store.merge(2, [(0.0, 1)])
        assert store.contents() == {0.0: 2}
        assert str(next(iter(store.contents()))) == "0.0"
        with pytest.raises(ValueRefusedError):
            store.merge(3, [(0.0, 1), (-0.0, 1)])

    @proves(Rule.KEYS)
    def test_a_key_twice_in_a_batch_is_refused_whole(self, counts: State, drive: Drive) -> None:
        store = drive(counts)

        with pytest.raises(ValueRefusedError):
            store.merge(1, [("a", 1), ("b", 1), ("a", 1)])
        assert store.contents() == {}
        assert store.merge(1, [("a", 1)]).txid == 1

    @pytest.mark.parametrize("name", ['we"ird name', "select", "ünicode", "50% off:`b"])
    @proves(Rule.KEYS)
    def test_names_are_quoted(self, url: str, drive: Drive, extent: Extent, name: str) -> None:
        column = name.replace("`", "'")
        fields = Fields(f"`{column}` string"), Fields(f"`{column} 2` long")
        store = drive(self.aggregated(url, name, *fields, (Count(),)))

        store.merge(1, [("x", 1)])
        store.merge(2, [(str(n), 1) for n in range(extent.many)])
        store.merge(2, [("x", 1)], attempt=1)
        assert store.contents() == {"x": 2}


class PutKeysSuite(StoreFixtures):
    """Keys of final values."""

    @proves(Rule.KEYS)
    def test_keys_that_look_alike_are_written_apart(self, state: State, drive: Drive) -> None:
        keys = list(dict.fromkeys(key for alike in ALIKE.values() for key in alike))
        store = drive(state)

        store.run(1, putting({key: n for n, key in enumerate(keys)}))
        assert store.contents() == {key: n for n, key in enumerate(keys)}
        assert store.run(2, lambda s: s.get_all(keys)) == list(range(len(keys)))
        store.puts(3, dict.fromkeys(keys[::2]))
        assert set(store.contents()) == set(keys[1::2])

    @proves(Rule.KEYS)
    def test_a_put_under_null_or_nan_is_refused(self, url: str, drive: Drive) -> None:
        store = drive(self.declared(url, "keys", Fields("x double")))

        for key in (None, float("nan")):
            with pytest.raises(ValueRefusedError):
                store.run(1, putting({key: 1}))
        store.run(1, putting({-0.0: 1}))
        assert store.run(2, lambda s: s.get(0.0)) == 1
        assert [str(key) for (key,) in stored_rows(store)] == ["0.0"]

    @proves(Rule.KEYS)
    def test_many_keys_are_read_at_once(self, state: State, drive: Drive, extent: Extent) -> None:
        store, stored = drive(state), 2 * (extent.many // 2)
        store.puts(1, {str(n): n for n in range(stored)})

        wanted = [str(n) for n in range(0, stored + 10, 2)]
        found = store.run(2, lambda s: s.get_all(wanted))
        assert found == [*range(0, stored, 2), *[None] * 5]


def _of(keys: list[str], contents: dict[str, Any]) -> dict[str, Any]:
    return {key: contents.get(key) for key in keys}


JSON_VALUES: tuple[Any, ...] = (
    *({}, [], "", 0, -0.0, 1, 1.0, True, False, "null", [None], {"": None}),
    *(LARGEST, -LARGEST - 1, 2**53 + 1, 0.1, 5e-324, 1.7976931348623157e308),
    *("quote\"s'`\\ \\N %s", "é\N{ELEPHANT}\ufb00", "nul \0", "surrogate \ud800", " blanks "),
    {"b": [1, 2.5, {"c": [[], {}]}], "a": "x" * 700, "é\0'\"": {"deep": [[[[True]]]]}},
)

_REFUSED: tuple[Any, ...] = (LARGEST + 1, float("nan"), [float("inf")], {"a": [-LARGEST - 2]})

_WRONG: tuple[Any, ...] = ({1: "a"}, (1, 2), [{"a": {1, 2}}], b"a", [1j])


class JsonSuite(StoreFixtures):
    """Values of type json come back as they were: 1 is not 1.0 and not True."""

    @proves(Rule.EXACT)
    def test_json_comes_back_as_it_was(self, url: str, drive: Drive) -> None:
        store = drive(self._documents(url))
        rows: dict[str, Any] = {f"key {at}": value for at, value in enumerate(JSON_VALUES)}

        store.run(1, putting({**rows, "nothing": None}))
        assert exactly(store.contents()) == exactly({**rows, "nothing": None})
        with store.state.reader() as reader:
            assert exactly(reader.get("key 4")) == exactly(-0.0)

    @proves(Rule.UNDO)
    def test_an_update_of_json_can_be_undone(self, url: str, drive: Drive) -> None:
        """Changing a value that was read changes nothing in the store."""
        store = drive(self._documents(url))
        store.run(1, putting({"a": {"seen": [1]}}))

        def body(state: StateTransaction) -> Any:
            state.get("a")["seen"].append("not written")
            return state.update("a", lambda old: {**old, "seen": [*old["seen"], 2]})

        assert store.run(2, body) == {"seen": [1, 2]}
        assert store.run(2, body, 1) == {"seen": [1, 2]}
        assert store.contents() == {"a": {"seen": [1, 2]}}
        store.run(2, putting({}), 2)
        assert store.contents() == {"a": {"seen": [1]}}

    @pytest.mark.parametrize("value", [*_REFUSED, *_WRONG], ids=repr)
    @proves(Rule.EXACT)
    def test_what_json_would_change_is_refused(self, url: str, drive: Drive, value: Any) -> None:
        store = drive(self._documents(url))
        store.run(1, putting({"a": 1}))

        with pytest.raises(StateUsageError if value in _WRONG else ValueRefusedError, match="json"):
            store.run(2, putting({"a": 2, "b": value}))
        assert store.contents() == {"a": 1}

    def _documents(self, url: str) -> State:
        return self.declared(url, "documents", Fields("key string"), Fields("document json"))


Rows = Mapping[Any, Any]

Write = Callable[[int, Rows, int], None]


# Some stores write few rows in a different way than many, so both are tried.
class _Refusals(StoreFixtures):
    def _try(self, name: str, store: StateDriver, write: Write, bulk: int) -> None:
        """Write an odd value by itself, then among many others, then undo a change of it."""
        sort = REFUSABLE[name]
        in_key = sort.part == "key"
        fine = 1 if in_key else sort.harmless
        key = sort.value if in_key else "odd"
        odd = {key: fine if in_key else sort.value}
        many = {str(n): fine for n in range(bulk)} | odd
        write(1, {"before": fine}, 0)
        if name in self.refused:
            for rows in (odd, many):
                with pytest.raises(ValueRefusedError):
                    write(2, rows, 0)
                assert store.contents() == {"before": fine}, "it was refused, but not as a whole"
                assert store.held() == store.ledger.written_by(store.attempt(1))
            write(2, {"after": fine}, 0)
            return
        write(2, odd, 0)
        assert exactly(store.contents()) == exactly({"before": fine} | odd)
        write(3, many, 0)
        expected = exactly({"before": fine} | many)
        assert exactly(store.contents()) == expected
        write(4, {key: fine}, 0)
        write(4, {}, 1)
        assert exactly(store.contents()) == expected, "an undo has changed it"


class RefusalSuite(_Refusals):
    """Values that some stores refuse, in partial aggregates."""

    @pytest.mark.parametrize("name", [name for name in REFUSABLE if REFUSABLE[name].in_arrow])
    @proves(Rule.EXACT)
    def test_a_partial_is_kept_exactly_or_refused(
        self, url: str, drive: Drive, extent: Extent, name: str
    ) -> None:
        store = drive(self.aggregated(url, "odd", *_fields(REFUSABLE[name]), (Max("x"),)))

        def merge(txid: int, rows: Rows, attempt: int) -> None:
            store.merge(txid, list(rows.items()), attempt)

        self._try(name, store, merge, extent.many)


class PutRefusalSuite(_Refusals):
    """Values that some stores refuse, as final values."""

    @pytest.mark.parametrize("name", REFUSABLE)
    @proves(Rule.EXACT)
    def test_a_value_is_kept_exactly_or_refused(
        self, url: str, drive: Drive, extent: Extent, name: str
    ) -> None:
        store = drive(self.declared(url, "odd", *_fields(REFUSABLE[name])))

        def put(txid: int, rows: Rows, attempt: int) -> None:
            store.run(txid, putting(rows), attempt)

        self._try(name, store, put, extent.many)


def _fields(sort: Refusable) -> tuple[Fields, Fields]:
    if sort.part == "key":
        return Fields(f"key {sort.type}"), Fields("value long")
    return Fields("key string"), Fields(f"value {sort.type}")


class SizeSuite(StoreFixtures):
    """``keys_max`` keys in two batches; a replay of the second one leaves them out."""

    @proves(Rule.UNDO)
    def test_many_keys_are_written_undone_and_read(
        self, counts: State, drive: Drive, extent: Extent, request: pytest.FixtureRequest
    ) -> None:
        """Write the keys; change their upper half and add as many new ones; undo that."""
        store, keys, half = drive(counts), extent.keys, extent.keys // 2
        old, changed = range(keys), range(half, keys + half)

        _merge(store, 1, old)
        announce(request, f"{type(self).__name__}: {keys:,} keys are written; next, {keys:,} more")
        _merge(store, 2, changed)
        contents = store.contents()
        assert len(contents) == keys + half
        assert [contents[_key(n)] for n in (0, half, keys, keys + half - 1)] == [1, 2, 1, 1]
        assert sum(contents.values()) == 2 * keys
        _merge(store, 2, range(1), attempt=1)
        contents = store.contents()
        assert len(contents) == keys
        assert sum(contents.values()) == keys + 1
        with store.state.reader() as reader:
            assert [reader.get(_key(n)) for n in (0, half, keys - 1, keys)] == [2, 1, 1, None]


class MillionKeysSuite(SizeSuite):
    """A million keys. It is not part of ``StateBackendSuite``, since it may take minutes."""

    keys_max = 1_000_000


def _key(number: int) -> str:
    return f"key {number:09}"


def _merge(store: StateDriver, txid: int, keys: range, attempt: int = 0) -> None:
    store.merge(txid, [(_key(number), 1) for number in keys], attempt)
