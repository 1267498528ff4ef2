"""What is larger than a message or a value of a store is cut before, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from state_backends.delta import layout
from state_backends.delta.failures import translated
from state_backends.sql import mariadb_rows
from state_backends.sql import postgresql as postgresql_rows
from state_backends.sql.failures import translated as translated_by_sql
from state_backends.sql.postgresql import as_csv
from txtopo import Fields
from txtopo.errors import ValueRefusedError
from txtopo.state import Max, State, open_state
from txtopo.testing.conformance.driver import StateDriver

LONG = {f"key {n:03}": str(n) * 20_000 for n in range(60)}


def texts(url: str) -> State:
    return open_state(url, table="texts", value=Fields("text string"))


def test_mariadb_makes_no_text_that_is_much_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gigabytes as one text took longer than the server lets a transaction be idle."""
    made: list[int] = []

    class Encoder(json.JSONEncoder):
        def encode(self, o: Any) -> str:
            text = super().encode(o)
            made.append(len(text))
            return text

    monkeypatch.setattr(mariadb_rows, "_TO_JSON", Encoder(separators=(",", ":")))
    rows = [(f"key {n}", "x" * 100_000) for n in range(200)]

    cut = list(mariadb_rows.chunks(rows, 1 << 24))

    assert [tuple(row) for text in cut for row in json.loads(text)] == rows
    assert max(map(len, cut)) <= 1_000_000
    assert max(made) < 5_000_000


@pytest.mark.service("postgresql")
def test_postgresql_copies_few_long_rows_in_pieces(
    postgresql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As arrays they are one message, which holds less than 1 GiB, made while the server waits."""
    sizes: list[int] = []

    def noting(rows: pa.Table) -> Any:
        sizes.append(rows.nbytes)
        return as_csv(rows)

    monkeypatch.setattr(postgresql_rows, "as_csv", noting)
    monkeypatch.setattr(postgresql_rows, "COPIED_BYTES_MIN", 500_000)
    monkeypatch.setattr(postgresql_rows, "PIECE_BYTES_MAX", 200_000)
    store = StateDriver(texts(postgresql.create_database("long_rows")))

    store.puts(1, LONG)
    store.puts(2, {"key 000": "short", "key 001": None})
    store.puts(2, {"key 002": "x" * 600_000}, attempt=1)

    assert store.contents() == LONG | {"key 002": "x" * 600_000}
    assert sum(sizes) > 1_800_000
    assert sorted(sizes)[-2] <= 200_000


@pytest.mark.service("postgresql")
def test_postgresql_reads_long_rows_as_columns(postgresql: Any) -> None:
    """They are longer than a block of the parser; ``contents`` reads them both ways."""
    store = StateDriver(texts(postgresql.create_database("long_columns")))
    long = {"a": "x,\n" * 500_000, "b": '"' * 1_500_000, "c": ""}
    store.puts(1, long)

    assert store.contents() == long


@pytest.mark.service("postgresql")
@pytest.mark.parametrize(("kind", "value"), [("string", "x" * 300), ("binary", b"x" * 150)])
def test_postgresql_refuses_a_row_beyond_its_limit_by_name(
    postgresql: Any, monkeypatch: pytest.MonkeyPatch, kind: str, value: object
) -> None:
    monkeypatch.setattr(postgresql_rows, "COPIED_BYTES_MIN", 100)
    monkeypatch.setattr(postgresql_rows, "PIECE_BYTES_MAX", 100)
    monkeypatch.setattr(postgresql_rows, "ROW_BYTES_MAX", 200)
    url = postgresql.create_database(f"long_{kind}")
    store = StateDriver(open_state(url, table="texts", value=Fields(f"text {kind}")))

    with pytest.raises(ValueRefusedError, match=r"too long for table 'texts.*bytes of text.* 200,"):
        store.puts(1, {"a": value})

    assert store.held() == store.ledger


@pytest.mark.parametrize("mode", ["table", "log"])
def test_delta_refuses_a_batch_that_outgrows_a_column_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    state = open_state(f"delta://{tmp_path}", table="texts", mode=mode)
    state = state.with_columns(Fields("key string"), Fields("text string"), (Max("text"),))
    store = StateDriver(state)
    monkeypatch.setattr(layout, "COLUMN_BYTES_MAX", 1_000_000)

    with pytest.raises(
        ValueRefusedError, match=r"'texts' in Delta; got 2\d+ bytes in column 'text'"
    ):
        store.merge(1, list(LONG.items()))
    store.merge(1, list(LONG.items())[:10], attempt=1)

    assert store.contents() == dict(list(LONG.items())[:10])


def test_an_overflow_inside_delta_says_what_to_do() -> None:
    """As when the rows that are merged with the batch's are long."""
    error = DeltaError("Generic DeltaTable error: Arrow error: Offset overflow error: 2306867234")

    found = translated(error, "state 'texts' in /folder", writing=True)

    assert isinstance(found, ValueRefusedError)
    assert "more than 2 GiB in one column" in str(found)
    assert "cut smaller batches" in str(found)


def test_a_limit_of_a_database_says_what_to_do() -> None:
    """As when the list of a batch's keys is longer than an array of PostgreSQL."""

    class ProgramLimitExceeded(Exception):
        sqlstate = "54000"

    error = ProgramLimitExceeded("array size exceeds the maximum allowed (1073741823)")

    found = translated_by_sql(error, "state 'texts'")

    assert isinstance(found, ValueRefusedError)
    assert "cut smaller batches" in str(found)
