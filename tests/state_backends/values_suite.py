"""Which values every backend gives back exactly. Subclasses say where the state is."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from tests.state_backends.driver import StateDriver, putting
from txtopo.errors import StateUsageError, ValueRefusedError
from txtopo.state import Count, Fields, Max, Min, State, Sum, open_state

LARGEST = 2**63 - 1
NOON = datetime.datetime(2013, 7, 4, 12, 30, 15, 123456)
VALUES: dict[str, list[Any]] = {
    "string": [
        "",
        "plain",
        "tab\tnew\nline\r",
        "quote\"s'",
        "back\\slash \\. \\N",
        "żółć 🐘",
        "%s %",
    ],
    "binary": [b"", b"\x00\xff\\", b"plain"],
    "boolean": [True, False],
    "byte": [-128, 127],
    "short": [-32768, 32767],
    "int": [-(2**31), 2**31 - 1],
    "long": [-LARGEST - 1, LARGEST, 0],
    "float": [0.5, -1.5 * 2**100],
    "double": [0.1, 1e300, -5e-324, float("inf")],
    "decimal(38,4)": [decimal.Decimal("12345678901234567890123456789012.3456"), decimal.Decimal(0)],
    "date": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "timestamp": [NOON.replace(tzinfo=datetime.UTC)],
    "timestamp_ntz": [NOON, datetime.datetime(1900, 1, 1)],
}


class ValuesSuite:
    """Subclasses have a fixture ``url``: a store of the test's own."""

    @pytest.mark.parametrize("kind", VALUES)
    def test_values_come_back_as_they_were(self, url: str, kind: str) -> None:
        key, value = Fields(f"id {kind}, n int"), Fields(f"value {kind}, other string")
        store = StateDriver(open_state(url, table=f"of {kind}", key=key, value=value))
        rows = {(value, n): (value, None) for n, value in enumerate(VALUES[kind])}

        store.run(1, putting(rows))

        expected = {k: dict(zip(("value", "other"), v, strict=True)) for k, v in rows.items()}
        assert store.contents() == expected
        store.run(2, putting({(VALUES[kind][0], 0): (None, "x")}))
        assert (
            store.run(2, lambda s: s.get((VALUES[kind][0], 0)), 1) == expected[VALUES[kind][0], 0]
        )
        assert store.contents() == expected

    @pytest.mark.parametrize("rows", [3, 2_500])
    def test_partials_come_in_as_they_are(self, url: str, rows: int) -> None:
        """Few rows and many take different ways into some stores."""
        key = Fields("word string, raw binary, price decimal(38,4)")
        state = open_state(url, table="many").with_columns(key, Fields("n long"), (Count(),))
        store = StateDriver(state)
        odd, raw, price = (VALUES[kind] for kind in ("string", "binary", "decimal(38,4)"))
        keys = [(f"{odd[n % 7]}{n}", raw[n % 3], price[n % 2]) for n in range(rows)]

        store.merge(1, [(*key, n) for n, key in enumerate(keys)])
        store.merge(2, [(*key, None) for key in keys])
        assert store.contents() == {key: n for n, key in enumerate(keys)}
        store.run(3, putting(dict.fromkeys(keys, 1)))
        store.merge(3, [], attempt=1)
        assert store.contents() == {key: n for n, key in enumerate(keys)}

    def test_aggregates_meet_what_is_stored(self, url: str) -> None:
        fields = "n long, total double, low string, high timestamp, cost decimal(38,2)"
        aggregates = (Count(), Sum("x"), Min("x"), Max("x"), Sum("x"))
        state = open_state(url, table="all").with_columns(
            Fields("key string"), Fields(fields), aggregates
        )
        store = StateDriver(state)
        early, late = (datetime.datetime(y, 1, 1, tzinfo=datetime.UTC) for y in (2013, 2014))
        cost = decimal.Decimal("9.10")

        store.merge(1, [("a", 1, 0.5, "b", early, cost), ("b", 0, None, None, None, None)])
        store.merge(2, [("a", 2, 1.0, "Z", late, -cost * 2), ("b", 1, 2.0, "x", early, cost)])
        store.merge(3, [("a", 0, None, None, None, None)])

        with state.reader() as reader:
            assert reader.get("a") == _named(fields, 3, 1.5, "Z", late, -cost)
            assert reader.get("b") == _named(fields, 1, 2.0, "x", early, cost)

    @pytest.mark.parametrize("sign", [1, -1])
    @pytest.mark.parametrize("beyond", [1, 2, 1000])
    def test_a_sum_beyond_a_long_is_refused_whole(self, url: str, sign: int, beyond: int) -> None:
        state = open_state(url, table="sums").with_columns(
            Fields("key string"), Fields("total long"), (Sum("x"),)
        )
        store = StateDriver(state)
        store.merge(1, [("a", sign * LARGEST), ("b", 1)])

        with pytest.raises(ValueRefusedError):
            store.merge(2, [("a", sign * (beyond + 1)), ("b", 1), ("new", 1)])
        assert store.contents() == {"a": sign * LARGEST, "b": 1}
        assert store.merge(2, [("b", 1)]).txid == 2

    def test_null_and_nan_keys_are_refused(self, url: str) -> None:
        state = open_state(url, table="keys").with_columns(
            Fields("x double"), Fields("n long"), (Count(),)
        )
        store = StateDriver(state)

        for key in (None, float("nan")):
            with pytest.raises(ValueRefusedError):
                store.merge(1, [(key, 1)])
            with pytest.raises(ValueRefusedError):
                store.run(1, putting({key: 1}))
        store.run(1, putting({-0.0: 1}))
        assert store.run(2, lambda s: s.get(0.0)) == 1

    @pytest.mark.parametrize("name", ['we"ird name', "select", "ünicode", "50% off", "a:b"])
    def test_names_are_quoted(self, url: str, name: str) -> None:
        fields = Fields(f"`{name}` string"), Fields(f"`{name} 2` long")
        state = open_state(url, table=name).with_columns(*fields, (Count(),))
        store = StateDriver(state)

        store.merge(1, [("x", 1)])
        store.merge(2, [(str(n), 1) for n in range(2_500)])
        store.merge(2, [("x", 1)], attempt=1)

        assert store.contents() == {"x": 2}
        with open_state(url, table=name).reader() as reader:
            assert reader.table.key.names == (name,)

    def test_many_keys_are_read_at_once(self, state: State) -> None:
        store = StateDriver(state)
        store.puts(1, {str(n): n for n in range(1_000)})

        wanted = [str(n) for n in range(0, 1_010, 2)]
        found = store.run(2, lambda s: s.get_all(wanted))
        assert found == [*range(0, 1_000, 2), *[None] * 5]

    def test_wrong_shapes_are_refused_by_name(self, state: State) -> None:
        store = StateDriver(state)

        for key, value in ((("a", "b"), 1), ("a", (1, 2)), (1, 1), ("a", "text"), ("a", True)):
            with pytest.raises(StateUsageError, match="'counts'"):
                store.run(1, putting({key: value}))
        with pytest.raises(ValueRefusedError, match="a long holds"):
            store.run(1, putting({"a": LARGEST + 1}))


def _named(fields: str, *values: Any) -> dict[str, Any]:
    return dict(zip(Fields(fields).names, values, strict=True))
