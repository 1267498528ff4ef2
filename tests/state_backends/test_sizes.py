"""What is larger than a message or a value of a store is cut before, or refused by name."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from state_backends.sql import mariadb_rows, postgresql_rows
from txtopo.errors import ValueRefusedError
from txtopo.state import Fields, State, open_state
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
    as_csv = postgresql_rows.as_csv

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
