"""Values that a state cannot keep are refused before anything of their batch is written."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from tests.faults.bad_inputs.evidence import ends_at, held
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import keeping, summing
from tests.harness.runs import Storage, run_to_end
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
def test_a_null_key_is_refused(storage: Storage) -> None:
    """It would never match itself in SQL, so each batch would insert it again."""
    topology = keeping(storage, [["a", 1], [None, 2], ["b", 3]])

    ends_at(
        2,
        topology,
        storage,
        ValueRefusedError,
        r"'kept' refuses a value of key field 'key' \(string\); got None; a key cannot be NULL",
    )
    assert held(storage).rows == {"a": 1}


@bad_input(26)
def test_a_null_key_of_an_aggregate_is_refused(storage: Storage) -> None:
    ends_at(
        2,
        summing(storage, [["a", 1], [None, 2], ["b", 3]]),
        storage,
        ValueRefusedError,
        "a key of state 'kept' is NULL in field 'key'; expected a value; filter out such rows",
    )
    assert held(storage).rows == {"a": 1}


@bad_input(27)
def test_a_nan_key_is_refused(storage: Storage) -> None:
    """It equals nothing, not even itself."""
    fields = Fields("key double, value long")

    ends_at(
        2,
        keeping(storage, [[1.0, 1], [NAN, 2]], fields, key="key double"),
        storage,
        ValueRefusedError,
        r"key field 'key' \(double\); got nan; a key cannot be NaN, which is not equal to anything",
    )
    other = Storage.in_memory()
    ends_at(
        2,
        summing(other, [[1.0, 1], [NAN, 2]], fields),
        other,
        ValueRefusedError,
        "a key of state 'kept' is NaN in field 'key'; expected a value; filter out such rows",
    )


@bad_input(27)
def test_a_nan_value_is_kept_or_refused_but_never_changed(storage: Storage) -> None:
    """SQLite would make a NULL of it, and MariaDB has none."""
    topology = keeping(
        storage, [["a", 1.0], ["b", NAN]], Fields("key string, value double"), value="value double"
    )

    if storage.url.startswith("sqlite"):
        ends_at(
            2, topology, storage, ValueRefusedError, "SQLite has no NaN; got one in field 'value'"
        )
        assert held(storage).rows == {"a": 1.0}
    elif storage.url.startswith("mariadb"):
        ends_at(2, topology, storage, ValueRefusedError, "got nan in field 'value'; MariaDB has no")
        assert held(storage).rows == {"a": 1.0}
    else:
        run_to_end(topology, storage)
        assert str(held(storage).rows["b"]) == "nan"


@bad_input(28)
@pytest.mark.parametrize("beyond", [LARGEST + 1, -LARGEST - 2])
def test_a_number_beyond_64_bits_is_refused_by_the_state(beyond: int) -> None:
    storage = Storage.in_memory()
    topology = keeping(
        storage, [["a", 1], ["b", 2]], pair=lambda row: (row[0], beyond * (row[1] - 1))
    )

    ends_at(
        2,
        topology,
        storage,
        ValueRefusedError,
        rf"value field 'value' \(long\); got {beyond}; a long holds {-LARGEST - 1} to {LARGEST}",
    )


@bad_input(28)
def test_a_number_beyond_64_bits_cannot_be_emitted() -> None:
    storage = Storage.in_memory()

    ends_at(
        2,
        keeping(storage, [["a", 1], ["b", LARGEST + 1]]),
        storage,
        EmitError,
        rf"'spout' .*column 'value' .*got {LARGEST + 1} \(int\); expected long",
    )


@bad_input(28)
def test_a_sum_beyond_64_bits_is_refused(storage: Storage) -> None:
    """Within a batch, and with what is stored."""
    topology = summing(storage, [["a", LARGEST], ["b", 1], ["a", 1]])

    ends_at(3, topology, storage, ValueRefusedError, "state 'kept'|cannot store a value exactly")
    assert held(storage).rows == {"a": LARGEST, "b": 1}


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
    storage = Storage.in_memory()
    topology = keeping(
        storage,
        [["a", 1], ["b", 2]],
        pair=lambda row: (row[0], None if row[1] == 1 else wrong),
        value=f"value {kind}",
    )

    ends_at(2, topology, storage, error, f"field 'value' .*{message}")
    assert held(storage).rows == {"a": None}


@bad_input(29)
def test_both_zeros_are_one_key_and_an_empty_string_is_no_null(storage: Storage) -> None:
    rows = [[0.0, 1], [-0.0, 2], [-0.0, 4]]
    run_to_end(summing(storage, rows, Fields("key double, value long"), take=2), storage)
    assert held(storage).rows == {0.0: 7}

    store = StateDriver(storage.state("texts", value=Fields("value string")), topology="other")
    store.puts(1, {"": ""})
    assert store.contents() == {"": ""}
    with pytest.raises(TopologyError, match="no state backend for 'oracle'"):
        open_state("oracle://host/database")


@bad_input(30)
def test_a_nul_in_a_string_is_kept_or_refused_but_never_cut(storage: Storage) -> None:
    topology = keeping(storage, [["a", 1], ["a\0b", 2]])

    if storage.url.startswith("postgresql"):
        ends_at(
            2, topology, storage, ValueRefusedError, "state 'kept' .* cannot store a value exactly"
        )
        assert held(storage).rows == {"a": 1}
    else:
        run_to_end(topology, storage)
        assert held(storage).rows == {"a": 1, "a\0b": 2}


@bad_input(30)
def test_a_lone_surrogate_cannot_be_emitted() -> None:
    """It is no text in any encoding."""
    storage = Storage.in_memory()
    topology = keeping(storage, [["a", 1], ["\ud800", 2]])

    ends_at(2, topology, storage, EmitError, r"'spout' .*column 'key' .*got '\\ud800' \(str\)")


@bad_input(30)
def test_a_lone_surrogate_is_refused_by_a_database(database: Storage) -> None:
    topology = keeping(
        database, [["a", 1], ["b", 2]], pair=lambda row: ("\ud800" if row[1] == 2 else row[0], 1)
    )

    message = "state 'kept' .* cannot store a value exactly: .*surrogates not allowed"
    ends_at(2, topology, database, ValueRefusedError, message)
    assert held(database).rows == {"a": 1}


@bad_input(31)
def test_keys_that_a_language_takes_for_equal_are_distinct(storage: Storage) -> None:
    keys = ["a", "A", "a ", "ä", "a\u0308", "ss", "ß"]

    run_to_end(keeping(storage, [[key, at] for at, key in enumerate(keys)]), storage)

    assert held(storage).rows == {key: at for at, key in enumerate(keys)}
