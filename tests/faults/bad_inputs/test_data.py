"""Values that a state cannot keep: refused before anything of their batch is written."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from tests.faults.bad_inputs.evidence import ends_at, held
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import keeping, summing
from tests.services.integration.running import Place, run_to_end
from txtopo import Fields
from txtopo.errors import (
    EmitError,
    StateUsageError,
    TopologyError,
    ValueRefusedError,
)
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver

LARGEST = 2**63 - 1
NAN = float("nan")


@bad_input(26)
def test_a_null_key_is_refused(place: Place) -> None:
    """It would never match itself in SQL, so each batch would insert it again."""
    topology = keeping(place, [["a", 1], [None, 2], ["b", 3]])

    ends_at(
        2,
        topology,
        place,
        ValueRefusedError,
        r"'kept' refuses a value of key field 'key' \(string\); got None; a key cannot be NULL",
    )
    assert held(place).rows == {"a": 1}


@bad_input(26)
def test_a_null_key_of_an_aggregate_is_refused(place: Place) -> None:
    ends_at(
        2,
        summing(place, [["a", 1], [None, 2], ["b", 3]]),
        place,
        ValueRefusedError,
        "a key of state 'kept' is NULL in field 'key'; expected a value; filter such rows",
    )
    assert held(place).rows == {"a": 1}


@bad_input(27)
def test_a_nan_key_is_refused(place: Place) -> None:
    """It equals nothing, not even itself."""
    fields = Fields("key double, value long")

    ends_at(
        2,
        keeping(place, [[1.0, 1], [NAN, 2]], fields, key="key double"),
        place,
        ValueRefusedError,
        r"key field 'key' \(double\); got nan; a key cannot be NaN, which equals nothing",
    )
    other = Place.in_memory()
    ends_at(
        2,
        summing(other, [[1.0, 1], [NAN, 2]], fields),
        other,
        ValueRefusedError,
        "a key of state 'kept' is NaN in field 'key'; expected a value; filter such rows",
    )


@bad_input(27)
def test_a_nan_value_is_kept_or_refused_but_never_changed(place: Place) -> None:
    """SQLite would make a NULL of it, and MariaDB has none."""
    topology = keeping(
        place, [["a", 1.0], ["b", NAN]], Fields("key string, value double"), value="value double"
    )

    if place.url.startswith("sqlite"):
        ends_at(
            2, topology, place, ValueRefusedError, "SQLite has no NaN; got one in field 'value'"
        )
        assert held(place).rows == {"a": 1.0}
    elif place.url.startswith("mariadb"):
        ends_at(2, topology, place, ValueRefusedError, "got nan in field 'value'; MariaDB has no")
        assert held(place).rows == {"a": 1.0}
    else:
        run_to_end(topology, place)
        assert str(held(place).rows["b"]) == "nan"


@bad_input(28)
@pytest.mark.parametrize("beyond", [LARGEST + 1, -LARGEST - 2])
def test_a_number_beyond_64_bits_is_refused_by_the_state(beyond: int) -> None:
    place = Place.in_memory()
    topology = keeping(
        place, [["a", 1], ["b", 2]], pair=lambda row: (row[0], beyond * (row[1] - 1))
    )

    ends_at(
        2,
        topology,
        place,
        ValueRefusedError,
        rf"value field 'value' \(long\); got {beyond}; a long holds {-LARGEST - 1} to {LARGEST}",
    )


@bad_input(28)
def test_a_number_beyond_64_bits_cannot_be_emitted() -> None:
    place = Place.in_memory()

    ends_at(
        2,
        keeping(place, [["a", 1], ["b", LARGEST + 1]]),
        place,
        EmitError,
        rf"'spout' .*column 'value' .*got {LARGEST + 1} \(int\); expected long",
    )


@bad_input(28)
def test_a_sum_beyond_64_bits_is_refused(place: Place) -> None:
    """Within a batch, and with what is stored."""
    topology = summing(place, [["a", LARGEST], ["b", 1], ["a", 1]])

    ends_at(3, topology, place, ValueRefusedError, "state 'kept'|cannot store a value exactly")
    assert held(place).rows == {"a": LARGEST, "b": 1}


@bad_input(29)
@pytest.mark.parametrize(
    ("kind", "wrong", "error", "message"),
    [
        (
            "decimal(10,2)",
            decimal.Decimal("1.005"),
            ValueRefusedError,
            r"\(decimal\(10,2\)\); got Decimal\('1.005'\); it has more digits than its column",
        ),
        (
            "timestamp",
            datetime.datetime(2013, 1, 1),
            StateUsageError,
            r"expected timestamp \(a datetime with a time zone\)",
        ),
        (
            "timestamp_ntz",
            datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC),
            StateUsageError,
            r"expected timestamp_ntz \(a datetime without a time zone\)",
        ),
    ],
)
def test_what_a_column_would_round_or_guess_is_refused(
    kind: str, wrong: Any, error: type[Exception], message: str
) -> None:
    place = Place.in_memory()
    topology = keeping(
        place,
        [["a", 1], ["b", 2]],
        pair=lambda row: (row[0], None if row[1] == 1 else wrong),
        value=f"value {kind}",
    )

    ends_at(2, topology, place, error, f"field 'value' .*{message}")
    assert held(place).rows == {"a": None}


@bad_input(29)
def test_both_zeros_are_one_key_and_an_empty_string_is_no_null(place: Place) -> None:
    rows = [[0.0, 1], [-0.0, 2], [-0.0, 4]]
    run_to_end(summing(place, rows, Fields("key double, value long"), take=2), place)
    assert held(place).rows == {0.0: 7}

    store = StateDriver(place.state("texts", value=Fields("value string")), topology="other")
    store.puts(1, {"": ""})
    assert store.contents() == {"": ""}
    with pytest.raises(TopologyError, match="no state backend for 'oracle'"):
        open_state("oracle://host/database")


@bad_input(30)
def test_a_nul_in_a_string_is_kept_or_refused_but_never_cut(place: Place) -> None:
    topology = keeping(place, [["a", 1], ["a\0b", 2]])

    if place.url.startswith("postgresql"):
        ends_at(
            2, topology, place, ValueRefusedError, "state 'kept' .* cannot store a value exactly"
        )
        assert held(place).rows == {"a": 1}
    else:
        run_to_end(topology, place)
        assert held(place).rows == {"a": 1, "a\0b": 2}


@bad_input(30)
def test_a_lone_surrogate_cannot_be_emitted() -> None:
    """It is no text in any encoding."""
    place = Place.in_memory()
    topology = keeping(place, [["a", 1], ["\ud800", 2]])

    ends_at(2, topology, place, EmitError, r"'spout' .*column 'key' .*got '\\ud800' \(str\)")


@bad_input(30)
def test_a_lone_surrogate_is_refused_by_a_database(database: Place) -> None:
    topology = keeping(
        database, [["a", 1], ["b", 2]], pair=lambda row: ("\ud800" if row[1] == 2 else row[0], 1)
    )

    message = "state 'kept' .* cannot store a value exactly: .*surrogates not allowed"
    ends_at(2, topology, database, ValueRefusedError, message)
    assert held(database).rows == {"a": 1}


@bad_input(31)
def test_keys_that_a_language_takes_for_equal_are_distinct(place: Place) -> None:
    keys = ["a", "A", "a ", "ä", "a\u0308", "ss", "ß"]

    run_to_end(keeping(place, [[key, at] for at, key in enumerate(keys)]), place)

    assert held(place).rows == {key: at for at, key in enumerate(keys)}
