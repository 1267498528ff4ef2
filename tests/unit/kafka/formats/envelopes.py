"""Envelopes as Debezium's documentation and tests show them, and the rows that they become.

They are written by hand to the documented format, since no connector can be started here. The
shapes are those of Debezium's pages on the connectors for PostgreSQL and MySQL (versions 2 and 3),
of its ``MySqlSourceInfoTest``, ``SourceInfoTest`` (PostgreSQL), ``RecordsSnapshotProducerIT``,
``JsonConverter`` of Kafka Connect, and of records that its users posted. Materialize's issues 5668
and 7557 and Debezium's pull request 2563 say what ``sequence`` is in each version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

NAME = "inventory"


def postgresql(lsn: int, commit: int | None = None, /, **more: Any) -> Json:
    """Return the ``source`` of a change in PostgreSQL."""
    sequence = json.dumps([None if commit is None else str(commit), str(lsn)])
    return {
        "version": "2.7.0.Final",
        "connector": "postgresql",
        "name": NAME,
        "ts_ms": 1559033904863,
        "snapshot": "false",
        "db": "postgres",
        "sequence": sequence,
        "schema": "public",
        "table": "customers",
        "txId": 556,
        "lsn": lsn,
        "xmin": None,
    } | more


def mysql(file: str, pos: int, row: int = 0, /, **more: Any) -> Json:
    """Return the ``source`` of a change in MySQL."""
    return {
        "version": "2.7.0.Final",
        "connector": "mysql",
        "name": NAME,
        "ts_ms": 1465581029000,
        "snapshot": "false",
        "db": "inventory",
        "sequence": None,
        "table": "customers",
        "server_id": 223344,
        "gtid": None,
        "file": file,
        "pos": pos,
        "row": row,
        "thread": 7,
        "query": None,
    } | more


def envelope(op: str, source: Json, **more: Any) -> Json:
    """Return an envelope; ``before`` and ``after`` are absent if they are not given."""
    return {"source": source, "op": op, "ts_ms": 1559033904961, "transaction": None, **more}


def with_schema(payload: object, columns: list[Json], name: str = "Envelope") -> Json:
    """Return a payload as ``schemas.enable`` has it; *columns* are those of the table."""
    parts = [
        {"type": "struct", "fields": columns, "optional": True, "field": part}
        for part in ("before", "after")
    ]
    fields = [*parts, {"type": "string", "optional": False, "field": "op"}]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": name}
    return {"schema": schema, "payload": payload}


def column(field: str, kind: str, name: str | None = None, **parameters: str) -> Json:
    """Return a column of a Connect schema."""
    made: Json = {"type": kind, "optional": True, "field": field}
    if name is not None:
        made |= {"name": name, "version": 1}
    return made | ({"parameters": parameters} if parameters else {})


ANNE = {"id": 1, "first_name": "Anne", "email": "annek@noanswer.org"}


@dataclass(frozen=True)
class EnvelopeCase:
    """A record, and what it becomes.

    Attributes:
        about: What the case shows, and where the record is from.
        value: The record's value; None for a tombstone.
        row: The row without its place; None if there is none.
        place: Position and timeline.
        key: The record's key.
        options: What else the format is told.
    """

    about: str
    value: object
    row: Json | None
    place: tuple[str, str] | None = None
    key: object = None
    options: Json = field(default_factory=dict)


def _pg(first: int, lsn: int, rank: int) -> tuple[str, str]:
    return f"{first:020d}.{lsn:020d}.{rank}", "postgresql/inventory/postgres"


def _my(
    file: int, pos: int, row: int, rank: int, server: str = "", connector: str = "mysql"
) -> tuple[str, str]:
    return f"{file:010d}.{pos:020d}.{row:010d}.{rank}", f"{connector}/inventory/mysql-bin{server}"


NULLS = {"first_name": None, "email": None}
OURS = {"server_ids": [223344]}

CASES = [
    EnvelopeCase(
        "PostgreSQL, create event of the page",
        envelope("c", postgresql(24023128, 24023119), before=None, after=ANNE),
        ANNE,
        _pg(24023128, 24023128, 1),
    ),
    EnvelopeCase(
        "PostgreSQL, update event of the page: before has the key alone; columns not declared",
        envelope(
            "u",
            postgresql(24023128, 24023200),
            before={"id": 1},
            after=ANNE | {"last_name": "Kretchmar"},
        ),
        ANNE,
        _pg(24023200, 24023128, 1),
    ),
    EnvelopeCase(
        "PostgreSQL, update with REPLICA IDENTITY DEFAULT: before is null",
        envelope("u", postgresql(7, 9), before=None, after=ANNE),
        ANNE,
        _pg(9, 7, 1),
    ),
    EnvelopeCase(
        "PostgreSQL, delete event of the page",
        envelope("d", postgresql(46523128, 1), before={"id": 1}, after=None),
        {"id": 1, **NULLS},
        _pg(46523128, 46523128, 1),
    ),
    EnvelopeCase(
        "PostgreSQL, delete of a table without before: the record's key",
        envelope("d", postgresql(5, 4), before=None, after=None),
        {"id": 1, **NULLS},
        _pg(5, 5, 1),
        key={"id": 1},
    ),
    EnvelopeCase(
        "the same, where the key has a schema",
        envelope("d", postgresql(5, 4), after=None),
        {"id": 1, **NULLS},
        _pg(5, 5, 1),
        key={
            "schema": {"type": "struct", "fields": [column("id", "int32")]},
            "payload": {"id": 1},
        },
    ),
    EnvelopeCase(
        "PostgreSQL, delete with REPLICA IDENTITY FULL: the key alone counts",
        envelope("d", postgresql(5, 4), before=ANNE, after=None),
        {"id": 1, **NULLS},
        _pg(5, 5, 1),
    ),
    EnvelopeCase(
        "PostgreSQL, truncate event of the page: neither before nor after, and no key",
        envelope("t", postgresql(46523128, 46523000)),
        {"id": None, **NULLS},
        _pg(46523128, 46523128, 1),
    ),
    EnvelopeCase(
        "PostgreSQL, snapshot: the commit is null",
        envelope("r", postgresql(36167792, snapshot="first"), before=None, after=ANNE),
        ANNE,
        _pg(0, 36167792, 0),
    ),
    EnvelopeCase(
        "PostgreSQL before 1.6: no sequence, snapshot as a boolean",
        envelope(
            "r",
            {
                "connector": "postgresql",
                "name": NAME,
                "db": "postgres",
                "lsn": 30998528,
                "snapshot": True,
            },
            before=None,
            after=ANNE,
        ),
        ANNE,
        _pg(0, 30998528, 0),
    ),
    EnvelopeCase(
        "PostgreSQL 1.6.1, whose sequence has the commit twice: lsn counts",
        envelope(
            "c",
            postgresql(54604384, sequence='["54604320","54604320"]'),
            before=None,
            after=ANNE,
        ),
        ANNE,
        _pg(54604384, 54604384, 1),
    ),
    EnvelopeCase(
        "PostgreSQL, incremental snapshot: the place of the record that closed the window",
        envelope("r", postgresql(200, 150, snapshot="incremental"), before=None, after=ANNE),
        ANNE,
        _pg(200, 200, 0),
    ),
    EnvelopeCase(
        "MySQL, create event of the page: a snapshot has the server 0",
        envelope(
            "c",
            mysql("mysql-bin.000003", 154, server_id=0, snapshot="true"),
            before=None,
            after=ANNE,
        ),
        ANNE,
        _my(3, 154, 0, 0),
    ),
    EnvelopeCase(
        "MySQL, update event of the page",
        envelope("u", mysql("mysql-bin.000003", 484), before=ANNE, after=ANNE),
        ANNE,
        _my(3, 484, 0, 1),
        options=OURS,
    ),
    EnvelopeCase(
        "MySQL, delete event of the page, row 2 of its binlog event",
        envelope("d", mysql("mysql-bin.1000012", 805, 2), before=ANNE, after=None),
        {"id": 1, **NULLS},
        _my(1000012, 805, 2, 1),
        options=OURS,
    ),
    EnvelopeCase(
        "MariaDB, and a change that another server made: its own timeline",
        envelope("c", mysql("mysql-bin.000001", 4, connector="mariadb", server_id=9), after=ANNE),
        ANNE,
        _my(1, 4, 0, 1, "/9", "mariadb"),
        options=OURS,
    ),
    EnvelopeCase("a tombstone", None, None, key={"id": 1}),
    EnvelopeCase(
        "a tombstone of a JsonConverter with schemas", {"schema": None, "payload": None}, None
    ),
    EnvelopeCase("a heartbeat", {"ts_ms": 1559033904863, "ts_us": 1559033904863123}, None),
    EnvelopeCase(
        "a heartbeat with a schema",
        {
            "schema": {"type": "struct", "name": "io.debezium.connector.common.Heartbeat"},
            "payload": {"ts_ms": 1559033904863},
        },
        None,
    ),
    EnvelopeCase(
        "the begin of a transaction",
        {"status": "BEGIN", "id": "571:53195829", "ts_ms": 1, "event_count": None},
        None,
    ),
    EnvelopeCase(
        "the end of a transaction",
        {
            "status": "END",
            "id": "571:53195832",
            "event_count": 2,
            "data_collections": [{"data_collection": "public.a", "event_count": 2}],
        },
        None,
    ),
    EnvelopeCase(
        "a change of a schema, from the page on MySQL",
        {
            "source": mysql("mysql-bin.000003", 219),
            "ts_ms": 1651535750218,
            "databaseName": "inventory",
            "schemaName": None,
            "ddl": "ALTER TABLE customers ADD middle_name varchar(255)",
            "tableChanges": [],
        },
        None,
    ),
    EnvelopeCase(
        "a message of logical decoding",
        envelope("m", postgresql(1), message={"prefix": "foo", "content": "Ymfy"}),
        None,
    ),
]

REFUSED = [
    ("no envelope: the transform took it off", ANNE, "ExtractNewRecordState"),
    ("another database", envelope("c", {"connector": "oracle"}, after=ANNE), "oracle"),
    ("no source", {"op": "c", "after": ANNE}, "source"),
    ("an op of the future", envelope("x", postgresql(1)), "expected c, r, u, d or t"),
    ("no after", envelope("u", postgresql(1), before=ANNE, after=None), "has no after"),
    (
        "a column that the table lacks",
        envelope("c", postgresql(1), after={"id": 1, "first_name": "a"}),
        "lacks the declared field 'email'",
    ),
    (
        "a delete that says no key",
        envelope("d", postgresql(1), before=None, after=None),
        "REPLICA IDENTITY",
    ),
    (
        "a value that PostgreSQL left out",
        envelope("u", postgresql(1), after=ANNE | {"email": "__debezium_unavailable_value"}),
        "REPLICA IDENTITY to FULL",
    ),
    (
        "an update of what is the key here and is not of the record",
        envelope("u", postgresql(1), before=ANNE | {"id": 2}, after=ANNE),
        "changes 'id'",
    ),
    (
        "a change of a server that nobody named",
        envelope("u", mysql("binlog.000001", 4), after=ANNE),
        "server_ids=[223344]",
    ),
    ("a binlog without a number", envelope("u", mysql("binlog", 4), after=ANNE), "binlog.000001"),
    ("no LSN", envelope("u", postgresql(1, lsn=None, sequence=None), after=ANNE), "lsn"),
    ("a broken sequence", envelope("u", postgresql(1, sequence="[1]"), after=ANNE), "sequence"),
    ("a snapshot of the future", envelope("c", postgresql(1, snapshot="x"), after=ANNE), "'x'"),
    ("not an object", [1], "not a JSON object"),
]
