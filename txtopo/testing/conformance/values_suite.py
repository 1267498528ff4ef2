"""Values of every declared type come back as they were."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from txtopo.errors import StateUsageError, ValueRefusedError
from txtopo.state import Fields, State
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import putting
from txtopo.testing.conformance.exactly import exactly
from txtopo.testing.conformance.subject import Drive, Subject

LARGEST = 2**63 - 1
NOON = datetime.datetime(2013, 7, 4, 12, 30, 15, 123456)
NEW_YORK = datetime.timezone(datetime.timedelta(hours=-4))
DIGITS = decimal.Decimal("12345678901234567890123456789012.3456")
# What every store keeps, by type; the first is a key in other tests.
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


class ValuesSuite(Subject):
    """Each type as key and as value, NULL beside it, before and after an undo."""

    @pytest.mark.parametrize("kind", VALUES)
    @proves(Rule.EXACT)
    def test_values_come_back_as_they_were(self, url: str, drive: Drive, kind: str) -> None:
        key, value = Fields(f"id {kind}, n int"), Fields(f"value {kind}, other string")
        store = drive(self.declared(url, "values", key, value))
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
        fields = _wide()
        store = drive(self.declared(url, "values", Fields("n int"), fields, "transactional"))
        rows = {n: _row(n) for n in range(10)}

        store.run(1, putting(rows))
        expected = {n: dict(zip(fields.names, row, strict=True)) for n, row in rows.items()}
        assert exactly(store.contents()) == exactly(expected)
        store.run(1, putting(dict.fromkeys(rows, _row(4))), attempt=1)
        assert exactly(store.contents()) == exactly(expected)
        assert exactly(store.run(2, lambda s: s.get_all(rows))) == exactly(list(expected.values()))

    @pytest.mark.parametrize("many", [False, True], ids=["few rows", "many rows"])
    @proves(Rule.EXACT)
    def test_few_rows_and_many_are_kept_alike(self, url: str, drive: Drive, many: bool) -> None:
        """They take different ways into some stores."""
        fields = _wide()
        store = drive(self.declared(url, "wide", Fields("n int"), fields))
        rows = {n: _row(n) for n in range(self.many if many else 10)}

        store.run(1, putting(rows))
        expected = {n: dict(zip(fields.names, row, strict=True)) for n, row in rows.items()}
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

    @proves(Rule.EXACT)
    def test_wrong_shapes_are_refused_by_name(self, state: State, drive: Drive) -> None:
        store = drive(state)

        for key, value in ((("a", "b"), 1), ("a", (1, 2)), (1, 1), ("a", "text"), ("a", True)):
            with pytest.raises(StateUsageError, match="'counts'"):
                store.run(1, putting({key: value}))
        with pytest.raises(ValueRefusedError, match="a long holds"):
            store.run(1, putting({"a": LARGEST + 1}))
        assert store.contents() == {}


def _named(value: Any, other: Any) -> dict[str, Any]:
    return {"value": value, "other": other}


def _wide() -> Fields:
    """Return a column of each type."""
    return Fields(", ".join(f"c{at} {kind}" for at, kind in enumerate(VALUES)))


def _row(number: int) -> tuple[Any, ...]:
    """Return a row of :func:`_wide`; each fifth one is NULL throughout."""
    some = number % 5 < 4
    return tuple(values[number % len(values)] if some else None for values in VALUES.values())
