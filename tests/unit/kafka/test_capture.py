"""The log of a real table becomes rows: in the order of the log, and with the right values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

import pytest

from tests.harness.servers.postgresql import PostgresServer
from tests.unit.kafka.capture import (
    NAMES,
    SETTINGS,
    Captured,
    Table,
    captured,
    described,
    plain,
    recorded,
    table_of,
)
from tests.unit.kafka.test_decoding import Record
from txtopo import Debezium
from txtopo.kafka.reading import RecordColumns


def rows_of(format: Debezium, records: Iterable[Captured]) -> list[dict[str, Any] | None]:
    """Return the row of each record; None for one that makes none."""
    columns = RecordColumns(("offset", "value"), value=format)
    given = [Record(each.value, at, name=each.key) for at, each in enumerate(records)]
    _, batch = columns.read(cast(Any, given), columns.fields().arrow_schema())
    found = {row.pop("offset"): row for row in batch.to_pylist()}
    return [found.get(at) for at in range(len(given))]


def check(format: Debezium, records: list[Captured]) -> Table:
    """Check the rows of records against the model; return the table after them."""
    model: Table = {}
    table: Table = {}
    last = ""
    first_of: dict[bytes | None, str] = {}
    for record, row in zip(records, rows_of(format, records), strict=True):
        record.apply(model)
        if row is None:
            assert (record.puts, record.removes) == (None, None)
            continue
        value, op, position = row["id"], row["op"], row["position"]
        assert first_of.setdefault(record.value, position) == position
        if record.puts is None and record.removes is None:
            continue  # it was sent again
        assert position >= last, f"{record} is at {position}, after {last}"
        last = position
        if op == "t":
            table.clear()
        elif op == "d":
            table.pop(value, None)
        else:
            table[value] = {name: row[name] for name in NAMES}
        assert table == model
    return table


def test_recorded_changes_are_read_in_the_order_of_the_log() -> None:
    records = recorded()
    values = [json.loads(each.value) for each in records if each.value is not None]
    envelopes = [each["payload"] for each in values if "payload" in each]
    assert {each["op"] for each in envelopes} == set("crudt")
    assert {each["source"]["snapshot"] for each in envelopes} == {"true", "false", "incremental"}

    assert check(described(), records)


@pytest.mark.slow
@pytest.mark.service("postgresql")
@pytest.mark.parametrize(("seed", "schemas"), [(11, True), (12, False), (13, False)])
def test_captured_changes_add_up_to_the_real_table(seed: int, schemas: bool) -> None:
    server = PostgresServer(SETTINGS)
    server.start()
    try:
        records = [*captured(server, seed, 1_500, schemas=schemas)]

        assert check(described() if schemas else plain(), records) == table_of(server)
    finally:
        server.end()
