"""A small connector: real changes of a PostgreSQL table as the records that Debezium would write.

No connector of Debezium can be started here. So this one reads the same plugin as Debezium does,
``pgoutput``, and writes its messages by hand to the documented format: the snapshot, envelopes with
``sequence``, a delete, a tombstone and a create for a changed key, truncates without a key,
incremental snapshots with their windows, heartbeats, and records that are sent again after a crash.

``python -m tests.unit.kafka.capture SEED TRANSACTIONS FILE`` records what a run of
:class:`Workload` writes.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from tests.harness.servers.postgresql import PostgresServer
from tests.unit.kafka.formats.envelopes import column, postgresql, with_schema
from txtopo import Debezium

TABLE = """
CREATE TABLE accounts (
    id bigint PRIMARY KEY, owner text, price numeric(10,2), at timestamp, day date, open boolean
)
"""
COLUMNS = "id long, owner string, price decimal(10,2), at timestamp_ntz, day date, open boolean"
NAMES = ("id", "owner", "price", "at", "day", "open")
SETTINGS = {"wal_level": "logical", "synchronous_commit": "off", "fsync": "off"}
KEYS = 200
SESSIONS = 4
RECORDED = Path(__file__).parent / "accounts.jsonl.gz"

_SCHEMA = [
    column("id", "int64"),
    column("owner", "string"),
    column("price", "bytes", "org.apache.kafka.connect.data.Decimal", scale="2"),
    column("at", "int64", "io.debezium.time.MicroTimestamp"),
    column("day", "int32", "io.debezium.time.Date"),
    column("open", "boolean"),
]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Table = dict[int, dict[str, Any]]


def described() -> Debezium:
    """Return the format of records with schemas."""
    return Debezium(COLUMNS, key="id")


def plain() -> Debezium:
    """Return the format of records without schemas."""
    return Debezium(COLUMNS, key="id", times="microseconds", decimals="precise")


@dataclass(frozen=True)
class Captured:
    """A record, and what it does to the table.

    Attributes:
        key: The record's key.
        value: The record's value.
        puts: The row that is now that of its id; None if there is none.
        removes: The id without a row; "all" for a truncate; None for none.
    """

    key: bytes | None
    value: bytes | None
    puts: Mapping[str, Any] | None = None
    removes: int | str | None = None

    def apply(self, table: Table) -> None:
        """Do to a table what the record says."""
        if self.removes == "all":
            table.clear()
        elif isinstance(self.removes, int):
            table.pop(self.removes, None)
        if self.puts is not None:
            table[self.puts["id"]] = dict(self.puts)


def table_of(server: PostgresServer) -> Table:
    """Return the rows of the real table."""
    with psycopg.connect(_dsn(server)) as session:
        return {row[0]: dict(zip(NAMES, row, strict=True)) for row in session.execute(_ROWS)}


_ROWS = "SELECT id, owner, price, at, day, open FROM accounts"


def _dsn(server: PostgresServer) -> str:
    return server.url.replace("+psycopg", "")


class Workload:
    """Random transactions, several open at a time; a context manager.

    Each step is a statement, a commit or a rollback. No statement waits for another transaction:
    the ids that an open one has touched are left alone.

    Args:
        server: The server, with the settings of this module.
        seed: Determines all steps.
    """

    def __init__(self, server: PostgresServer, seed: int) -> None:
        self._chance = Random(f"accounts/{seed}")
        self._dsn = _dsn(server)
        self._stack = ExitStack()
        self.ended = 0
        self.rolled_back = 0

    def __enter__(self) -> Workload:
        self._sessions = [self._session() for _ in range(SESSIONS)]
        # What it commits flushes the log; only what is flushed is decoded.
        self._signals = self._session()
        self._signals.execute("SET synchronous_commit = on")
        for statement in (TABLE, "CREATE TABLE signals (id bigserial PRIMARY KEY, kind text)"):
            self._signals.execute(statement)
        self._touched: list[set[int] | None] = [None] * SESSIONS
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _session(self) -> psycopg.Connection[Any]:
        return self._stack.enter_context(psycopg.connect(self._dsn, autocommit=True))

    def run(self, transactions: int) -> None:
        """End so many transactions; others stay open."""
        end = self.ended + transactions
        while self.ended < end:
            self._step()

    def rest(self) -> None:
        """End all open transactions."""
        for at in range(SESSIONS):
            self._end(at)
        self._signal("end")

    def read_chunk(self) -> tuple[int, int, list[tuple[Any, ...]]]:
        """Read rows as an incremental snapshot does, between two signals; other steps go on.

        Returns:
            The ids of the signals that open and close the window, and the rows.
        """
        opened = self._signal("open")
        first = self._chance.randrange(KEYS)
        self._step()
        rows = self._signals.execute(
            f"{_ROWS} WHERE id BETWEEN %s AND %s", (first, first + KEYS // 4)
        ).fetchall()
        for _ in range(self._chance.randrange(6)):
            self._step()
        return opened, self._signal("close"), rows

    def _signal(self, kind: str) -> int:
        made = self._signals.execute("INSERT INTO signals (kind) VALUES (%s) RETURNING id", (kind,))
        row = made.fetchone()
        assert row is not None
        return int(row[0])

    def _step(self) -> None:
        at = self._chance.randrange(SESSIONS)
        if self._chance.random() < 0.001:
            self.rest()  # it needs the table for itself
            self._signals.execute("TRUNCATE accounts")
        if self._touched[at] is None:
            self._sessions[at].execute("BEGIN")
            self._touched[at] = set()
        if self._chance.random() < 0.35:
            self._end(at)
        else:
            self._statement(at)

    def _end(self, at: int) -> None:
        if self._touched[at] is None:
            return
        rolls_back = self._chance.random() < 0.1
        self._sessions[at].execute("ROLLBACK" if rolls_back else "COMMIT")
        self._touched[at] = None
        self.ended += 1
        self.rolled_back += rolls_back

    def _statement(self, at: int) -> None:
        session, chance = self._sessions[at], self._chance
        id, other, third = (self._free(at) for _ in range(3))
        row = self._row(id)
        kind = chance.random()
        if kind < 0.4:
            places = ", ".join(["%s"] * len(row))
            session.execute(
                f"INSERT INTO accounts VALUES ({places}) ON CONFLICT (id) DO UPDATE SET "
                "owner = EXCLUDED.owner, price = EXCLUDED.price, at = EXCLUDED.at",
                row,
            )
        elif kind < 0.6:
            session.execute(
                "UPDATE accounts SET owner = %s, price = price + %s WHERE id = ANY(%s)",
                (row[1], row[2], [id, other]),
            )
        elif kind < 0.75:
            session.execute("DELETE FROM accounts WHERE id = %s", (id,))
        elif kind < 0.95:
            session.execute(
                "UPDATE accounts SET id = %s, day = %s WHERE id = %s AND %s NOT IN "
                "(SELECT id FROM accounts)",
                (other, row[4], id, other),
            )
        else:
            # Several rows in one record of the log: they have the same LSN.
            session.execute("DELETE FROM accounts WHERE id = ANY(%s)", ([id, other, third],))
            with session.cursor().copy("COPY accounts FROM STDIN") as copy:
                for each in {id, other, third}:
                    copy.write_row(self._row(each))

    def _free(self, at: int) -> int:
        """Return an id that no other transaction has touched, and touch it."""
        touched = self._touched[at]
        assert touched is not None
        others = [each for each in self._touched if each is not None and each is not touched]
        while True:
            id = self._chance.randrange(KEYS)
            if not any(id in each for each in others):
                touched.add(id)
                return id

    def _row(self, id: int) -> tuple[Any, ...]:
        chance = self._chance
        return (
            id,
            chance.choice([None, "ann", "bob", "zoë", "", 'it\'s \\ "quoted"']),
            Decimal(chance.randrange(-99_999, 99_999)).scaleb(-2),
            datetime(2026, 1, 1) + timedelta(microseconds=chance.randrange(10**13)),
            date(1960, 1, 1) + timedelta(days=chance.randrange(40_000)),
            chance.choice([True, False, None]),
        )


class Connector:
    """Reads the log of ``accounts`` as Debezium does, and writes its records.

    Args:
        server: The server.
        schemas: Whether records have their schemas.
        seed: Determines when records are sent again.
    """

    def __init__(self, server: PostgresServer, *, schemas: bool, seed: int = 0) -> None:
        self._session = psycopg.connect(_dsn(server), autocommit=True)
        self._schemas = schemas
        self._chance = Random(f"connector/{seed}")
        self._commit: int | None = None
        self._relations: dict[int, tuple[str, list[str]]] = {}
        self._chunks: dict[int, tuple[int, list[tuple[Any, ...]]]] = {}
        self._windows: dict[int, dict[int, tuple[Any, ...]]] = {}

    def snapshot(self) -> list[Captured]:
        """Begin: make the slot, and read the table; no transaction may be open."""
        self._session.execute("CREATE PUBLICATION of_all FOR TABLE accounts, signals")
        made = self._session.execute(
            "SELECT lsn - '0/0' FROM pg_create_logical_replication_slot('debezium', 'pgoutput')"
        ).fetchone()
        assert made is not None
        rows = self._session.execute(_ROWS).fetchall()
        return [self._read(row, int(made[0]), "true") for row in rows]

    def window(self, opened: int, closed: int, rows: list[tuple[Any, ...]]) -> None:
        """Take what :meth:`Workload.read_chunk` has read."""
        self._chunks[opened] = (closed, rows)

    def poll(self) -> Iterator[Captured]:
        """Read all transactions that have been committed since; some are sent twice."""
        again: list[Captured] = []
        for lsn, data in self._session.execute(_CHANGES).fetchall():
            for record in self._records(int(lsn), bytes(data)):
                yield record
                again.append(replace(record, puts=None, removes=None))
                if self._chance.random() < 0.001:
                    yield from again[-50:]
                if self._chance.random() < 0.01:
                    yield Captured(b'{"serverName":"inventory"}', b'{"ts_ms":1}')

    def _records(self, lsn: int, data: bytes) -> Iterator[Captured]:
        """Return the records of one message of pgoutput."""
        kind, rest = chr(data[0]), _Message(data[1:])
        if kind == "C":
            self._commit = lsn
        elif kind == "R":
            id, _, name = rest.int32(), rest.text(), rest.text()
            rest.skip(1)
            self._relations[id] = (name, [rest.column() for _ in range(rest.int16())])
        elif kind == "T":
            truncated, _ = rest.int32(), rest.skip(1)
            if self._relations[rest.int32()][0] == "accounts":
                assert truncated == 1
                for window in self._windows.values():
                    window.clear()
                yield Captured(None, self._value("t", lsn), removes="all")
        elif kind in "IUD":
            name, columns = self._relations[rest.int32()]
            given = {chr(rest.skip(1)[0]): dict(zip(columns, rest.tuple(), strict=True))}
            if kind == "U" and "N" not in given:
                rest.skip(1)
                given["N"] = dict(zip(columns, rest.tuple(), strict=True))
            if name == "signals":
                yield from self._signalled(int(given["N"]["id"] or 0), lsn)
            else:
                yield from self._changed(kind, lsn, given.get("K"), given.get("N"))

    def _changed(
        self, kind: str, lsn: int, old: _Texts | None, new: _Texts | None
    ) -> Iterator[Captured]:
        row = None if new is None else _typed(new)
        gone = None if old is None else int(old["id"] or 0)
        for window in self._windows.values():
            for id in (gone, None if row is None else row["id"]):
                window.pop(id, None)  # type: ignore[arg-type]
        if gone is not None:
            before = {**dict.fromkeys(NAMES), "id": gone}
            value = self._value("d", lsn, before=before, after=None)
            yield Captured(self._key(gone), value, removes=gone)
            yield Captured(self._key(gone), None)
        if row is not None:
            op = "u" if kind == "U" and gone is None else "c"
            value = self._value(op, lsn, before=None, after=_encoded(row))
            yield Captured(self._key(row["id"]), value, row)

    def _signalled(self, id: int, lsn: int) -> Iterator[Captured]:
        """Open the window of an incremental snapshot, or close it and send what is left."""
        if id in self._chunks:
            closed, rows = self._chunks.pop(id)
            self._windows[closed] = {row[0]: row for row in rows}
        for row in self._windows.pop(id, {}).values():
            yield self._read(row, lsn, "incremental")

    def _read(self, values: Sequence[Any], lsn: int, snapshot: str) -> Captured:
        row = dict(zip(NAMES, values, strict=True))
        value = self._value("r", lsn, snapshot, before=None, after=_encoded(row))
        return Captured(self._key(row["id"]), value, row)

    def _key(self, id: int) -> bytes:
        key: Any = {"id": id}
        if self._schemas:
            key = {"schema": {"type": "struct", "fields": _SCHEMA[:1]}, "payload": key}
        return json.dumps(key).encode()

    def _value(self, op: str, lsn: int, snapshot: str = "false", **more: Any) -> bytes:
        source = postgresql(lsn, self._commit, snapshot=snapshot, table="accounts")
        value: Any = {**more, "source": source, "op": op, "ts_ms": 1, "transaction": None}
        return json.dumps(with_schema(value, _SCHEMA) if self._schemas else value).encode()


_CHANGES = """
SELECT lsn - '0/0', data FROM pg_logical_slot_get_binary_changes(
    'debezium', NULL, NULL, 'proto_version', '1', 'publication_names', 'of_all')
"""

_Texts = dict[str, str | None]


class _Message:
    """The fields of a message of pgoutput, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def skip(self, length: int) -> bytes:
        self._at += length
        return self._data[self._at - length : self._at]

    def int32(self) -> int:
        return int(struct.unpack(">i", self.skip(4))[0])

    def int16(self) -> int:
        return int(struct.unpack(">h", self.skip(2))[0])

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end].decode()
        self._at = end + 1
        return found

    def column(self) -> str:
        self.skip(1)
        name = self.text()
        self.skip(8)
        return name

    def tuple(self) -> list[str | None]:
        found: list[str | None] = []
        for _ in range(self.int16()):
            kind = self.skip(1)
            assert kind in b"nt", kind
            found.append(None if kind == b"n" else self.skip(self.int32()).decode())
        return found


def _typed(texts: _Texts) -> dict[str, Any]:
    """Return the values that PostgreSQL shows."""
    types = (int, str, Decimal, datetime.fromisoformat, date.fromisoformat, "t".__eq__)
    pairs = zip(NAMES, types, strict=True)
    return {name: None if texts[name] is None else kind(texts[name]) for name, kind in pairs}  # type: ignore[operator]


def _encoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as Debezium writes it: ``precise``, and ``adaptive``."""
    price, at, day = row["price"], row["at"], row["day"]
    encoded = dict(row)
    if price is not None:
        unscaled = int(price.scaleb(2))
        data = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
        encoded["price"] = base64.b64encode(data).decode()
    if at is not None:
        since = at.replace(tzinfo=UTC) - _EPOCH
        encoded["at"] = since // timedelta(microseconds=1)
    if day is not None:
        encoded["day"] = (day - _EPOCH.date()).days
    return encoded


def captured(
    server: PostgresServer, seed: int, transactions: int, *, schemas: bool
) -> Iterator[Captured]:
    """Run a workload, and yield the records of its log; all its transactions are ended."""
    connector = Connector(server, schemas=schemas, seed=seed)
    with Workload(server, seed) as workload:
        workload.run(min(50, transactions // 4))
        workload.rest()
        yield from connector.snapshot()
        while workload.ended < transactions:
            workload.run(min(500, transactions - workload.ended))
            connector.window(*workload.read_chunk())
            yield from connector.poll()
        workload.rest()
        yield from connector.poll()


def recorded() -> list[Captured]:
    """Return the records of 500 transactions that were captured once, with their schemas."""
    records = []
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        schema = json.loads(next(lines))
        for line in lines:
            key, payload, puts, removes = json.loads(line)
            value = (
                payload
                if payload is None or "op" not in payload
                else {"schema": schema, "payload": payload}
            )
            row = None if puts is None else _typed(puts)
            records.append(Captured(_bytes(key), _bytes(value), row, removes))
    return records


def _bytes(value: object) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


def _record(seed: int, transactions: int, path: Path) -> None:
    server = PostgresServer(SETTINGS)
    server.start()
    try:
        found = [*captured(server, seed, transactions, schemas=False)]
    finally:
        server.end()
    with gzip.GzipFile(path, "wb", mtime=0) as lines:
        lines.write(json.dumps(with_schema(None, _SCHEMA)["schema"]).encode() + b"\n")
        for each in found:
            key, value = (
                None if data is None else json.loads(data) for data in (each.key, each.value)
            )
            puts = None if each.puts is None else {n: _shown(v) for n, v in each.puts.items()}
            lines.write(json.dumps([key, value, puts, each.removes]).encode() + b"\n")


def _shown(value: object) -> str | None:
    return (
        {True: "t", False: "f"}[value]
        if isinstance(value, bool)
        else None
        if value is None
        else str(value)
    )


if __name__ == "__main__":
    _record(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
