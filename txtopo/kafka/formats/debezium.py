"""Debezium's change records of a table, in JSON or Avro, as rows.

Rules
-----
1. A record becomes one row: the columns of the table as they are after the change, then ``op``,
   ``position`` and ``timeline``. A delete has the columns of the key, and NULL in all others; they
   come from ``before``, or from the record's key where ``before`` does not have them. A truncate
   has NULL in all columns of the table.
2. What is not a change of a row makes no row: tombstones, heartbeats, transaction markers, changes
   of a schema, messages of logical decoding. Anything else that is not an envelope is refused.
3. No value is guessed. A column that the envelope lacks, the placeholder of a value that the
   connector did not get, a key that is not said, and an encoding that could be two things are
   refused; see :mod:`txtopo.kafka.formats.debezium_values`.
4. An update does not change the key. Debezium sends a change of the record's key as a delete and a
   create, so an update that changes it means that ``key`` is not the record's key.

Positions and timelines are in :mod:`txtopo.kafka.formats.debezium_positions`.
"""

from __future__ import annotations

import base64
import decimal
import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from txtopo.errors import ConfigError, FieldsError
from txtopo.kafka.formats.debezium_positions import place_of
from txtopo.kafka.formats.debezium_schemas import WrittenPart, connect_meanings
from txtopo.kafka.formats.debezium_values import (
    UNKNOWN,
    BinaryMode,
    ColumnMeaning,
    Convert,
    DecimalMode,
    Encodings,
    TimeUnit,
    converter,
)
from txtopo.kafka.formats.record_format import Part, RecordFormat, Row, RowReader
from txtopo.servers import Server
from txtopo.tuples import Field, Fields

if TYPE_CHECKING:
    from confluent_kafka import Message

    from txtopo.kafka.formats.schema_format import Setting

PLACEHOLDER = "__debezium_unavailable_value"

_UPSERTS = ("c", "r", "u")
_DELETE, _TRUNCATE, _MESSAGE = "d", "t", "m"

_TIMES_OF_RECORD = {"ts_ms", "ts_us", "ts_ns"}


class Debezium(RecordFormat):
    """The format of Debezium's change records: ``value=Debezium("id long, …", key="id")``.

    Each change of a row becomes a row with the columns of the table, and three more: ``op``
    (``c``, ``r``, ``u``, ``d``, ``t``), ``position`` (texts whose order is that of the database's
    log) and ``timeline`` (positions of different ones cannot be compared). ``stream.as_changes``
    makes a stream of changes of them; see ``docs/how-to/change-data-capture.md``. Records without a
    change, such as tombstones and heartbeats, become no rows. It reads the envelopes of the
    connectors for PostgreSQL, MySQL and MariaDB.

    Args:
        fields: The columns of the table, or those that you need, with their types.
        key: The columns of the record's key, usually the primary key.
        registry: URL of a schema registry, if keys and values are Avro; None if they are JSON, with
            or without schemas.
        settings: More settings of confluent-kafka's ``SchemaRegistryClient``. They travel to the
            tasks, and are never shown or stored.
        server_ids: For MySQL and MariaDB: the ids of the servers whose changes are in the one
            binlog that the connector reads, usually that of the server itself.
        times: What numbers in times count, if the JSON has no schemas: ``"milliseconds"``,
            ``"microseconds"`` or ``"nanoseconds"``.
        decimals: How the connector writes decimals, if the JSON has no schemas: ``"precise"`` (with
            the declared scale) or ``"string"``. Numbers need no setting.
        binary: How the connector writes bytes, if the schema does not say it: ``"base64"``,
            ``"base64-url-safe"`` or ``"hex"``.
        unavailable: The connector's ``unavailable.value.placeholder``.
        op: The name of the column for ``op``, if the table has one of that name.
        position: The name of the column for the position.
        timeline: The name of the column for the timeline.

    Raises:
        ConfigError: An argument is wrong, or a package is missing.
        FieldsError: The fields cannot be read, a name is there twice, or *key* is not among them.
    """

    def __init__(
        self,
        fields: str | Fields,
        *,
        key: str | Sequence[str],
        registry: str | None = None,
        settings: Mapping[str, Setting] | None = None,
        server_ids: Collection[int] = (),
        times: TimeUnit | None = None,
        decimals: DecimalMode | None = None,
        binary: BinaryMode | None = None,
        unavailable: str = PLACEHOLDER,
        op: str = "op",
        position: str = "position",
        timeline: str = "timeline",
    ) -> None:
        self._columns = fields if isinstance(fields, Fields) else Fields(fields)
        if self._columns.required:
            raise ConfigError(
                f"column {self._columns.required[0]!r} of Debezium is required, but a delete has "
                "only the key; leave out its !; the columns of the key are never NULL",
                setting="fields",
            )
        self._key = (key,) if isinstance(key, str) else tuple(key)
        self._columns.select(self._key)
        self._names = (op, position, timeline)
        self._fields = _with_places(self._columns, self._names)
        if not self._key:
            raise ConfigError(
                "key of Debezium(…) is empty; expected the columns of the record's key",
                setting="key",
            )
        if isinstance(server_ids, str) or not all(type(each) is int for each in server_ids):
            raise ConfigError(
                f"server_ids of Debezium are wrong; got {server_ids!r}; expected numbers",
                setting="server_ids",
            )
        self._server_ids = frozenset(server_ids)
        self._modes = Encodings(
            _checked("times", times, get_args(TimeUnit)),
            _checked("decimals", decimals, get_args(DecimalMode)),
            _checked("binary", binary, get_args(BinaryMode)),
        )
        self._unavailable = unavailable
        self._avro: RecordFormat | None = None
        if registry is not None:
            from txtopo.kafka.formats.debezium_schemas import SelfDescribed

            self._avro = SelfDescribed(registry, settings)
        elif settings:
            raise ConfigError(
                "settings of Debezium(…) are only for a registry; expected registry= as well",
                setting="settings",
            )

    def __repr__(self) -> str:
        return f"Debezium({self._columns!r}, key={self._key!r})"

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of Avro, if the records are Avro."""
        return () if self._avro is None else self._avro.modules

    @property
    def connects_to(self) -> tuple[Server, ...]:
        """The schema registry, if the records are Avro."""
        return () if self._avro is None else self._avro.connects_to

    def fields(self, part: Part) -> Fields:
        """Return the columns of the table, and the three that say what happened and where."""
        return self._fields

    def reader(self, part: Part) -> RowReader:
        """Return a decoder for the records of one reading."""
        return _EnvelopeReader(
            self._columns,
            self._key,
            self._names,
            self._server_ids,
            self._modes,
            self._unavailable,
            None if self._avro is None else (self._avro.reader("key"), self._avro.reader("value")),
        )


def _with_places(columns: Fields, names: Sequence[str]) -> Fields:
    for argument, name in zip(("op", "position", "timeline"), names, strict=True):
        if not isinstance(name, str) or name in columns.index or names.count(name) > 1:
            raise FieldsError(
                f"the column for the {argument} of a change cannot be named {name!r}; got a table "
                f"with {', '.join(columns.names)}; expected another name: "
                f"Debezium(…, {argument}='change_{argument}')",
                field=str(name),
            )
    return Fields.of([*columns, *(Field(name, "string") for name in names)])


def _checked(argument: str, given: Any, known: Sequence[str]) -> Any:
    if given is not None and given not in known:
        raise ConfigError(
            f"unknown {argument} of Debezium; got {given!r}; expected one of {', '.join(known)}",
            setting=argument,
        )
    return given


class _EnvelopeReader:
    """Decodes envelopes, in one reading."""

    def __init__(
        self,
        columns: Fields,
        key: Sequence[str],
        names: Sequence[str],
        server_ids: Collection[int],
        modes: Encodings,
        unavailable: str,
        avro: tuple[RowReader, RowReader] | None,
    ) -> None:
        self.expected = "an envelope of Debezium, of PostgreSQL, MySQL or MariaDB"
        self._columns = {field.name: field.type for field in columns}
        self._key = {name: self._columns[name] for name in key}
        self._op, self._position, self._timeline = names
        self._server_ids, self._modes, self._avro = server_ids, modes, avro
        data = unavailable.encode()
        self._unavailable = {unavailable, data, data.hex()}
        self._unavailable |= {each(data).decode() for each in _BASE64}
        self._converters: dict[tuple[str, ColumnMeaning], Convert] = {}

    def read(self, record: Message) -> Row | None:
        """Return the row of a change; None if the record is not one."""
        written = self._written(record, "value")
        if written is None or _is_no_change(written.value):
            return None
        envelope = written.value
        op, source = envelope.get("op"), envelope.get("source")
        if not isinstance(op, str) or not isinstance(source, dict):
            raise ValueError(  # noqa: TRY004
                f"it has the fields {', '.join(map(str, envelope))!r:.200}, but not op and "
                "source; does the connector remove the envelope (ExtractNewRecordState)?"
            )
        position, timeline = place_of(source, op, self._server_ids)
        place = {self._op: op, self._position: position, self._timeline: timeline}
        if op in _UPSERTS:
            return self._after(written) | place
        if op == _DELETE:
            return self._deleted(written, record) | place
        if op == _TRUNCATE:
            return place
        raise ValueError(f"its op is {op!r:.100}; expected c, r, u, d or t")

    def _written(self, record: Message, part: Part) -> WrittenPart | None:
        """Return what was written into a part of a record; None if nothing was."""
        if self._avro is None:
            data = record.key() if part == "key" else record.value()
            return None if data is None else _of_json(data)
        row = self._avro[part == "value"].read(record)
        written = None if row is None else row.get("")
        return written if written is None or isinstance(written, WrittenPart) else None

    def _after(self, written: WrittenPart) -> dict[str, object]:
        row = self._row(written, "after", self._columns)
        if row is None:
            raise ValueError(f"its op is {written.value['op']!r}, but it has no after field")
        if written.value["op"] == "u":
            before = self._known_key(written, "before") or {}
            if changed := [name for name, value in before.items() if value != row[name]]:
                raise ValueError(
                    f"an update changes {changed[0]!r}, which belongs to the key; expected a "
                    "delete and a create, which Debezium sends where the record's key changes; "
                    "declare the columns of the record's key as key"
                )
        return row

    def _deleted(self, written: WrittenPart, record: Message) -> dict[str, object]:
        key = self._known_key(written, "before")
        if key is None:
            of_key = self._written(record, "key")
            key = None if of_key is None else self._known_key(of_key, None)
        if key is None:
            raise ValueError(
                f"it deletes a row without {', '.join(self._key)}: neither its before nor its key "
                "contains it; set the table's REPLICA IDENTITY, or declare the columns of the "
                "record's key as key"
            )
        return key

    def _known_key(self, written: WrittenPart, part: str | None) -> dict[str, object] | None:
        """Return the columns of the key, unless one is missing or NULL."""
        given = written.value if part is None else written.value.get(part)
        if not isinstance(given, dict) or any(given.get(name) is None for name in self._key):
            return None
        return self._row(written, part, self._key)

    def _row(
        self, written: WrittenPart, part: str | None, columns: Mapping[str, str]
    ) -> dict[str, object] | None:
        """Return columns of the table; None if that part of the envelope is null or absent."""
        given = written.value if part is None else written.value.get(part)
        if given is None:
            return None
        if not isinstance(given, dict):
            raise ValueError(  # noqa: TRY004
                f"its {part} is {given!r:.100}; expected the columns of a row"
            )
        if missing := [name for name in columns if name not in given]:
            raise ValueError(
                f"its {part or 'key'} lacks the declared field {missing[0]!r}; got "
                f"{', '.join(given)!r:.500}; declare only columns that the table has"
            )
        meanings = written.meanings(part)
        return {
            name: self._value(name, declared, given[name], meanings.get(name, UNKNOWN))
            for name, declared in columns.items()
        }

    def _value(self, name: str, declared: str, value: Any, meaning: ColumnMeaning) -> object:
        if value is None:
            return None
        if isinstance(value, str | bytes) and value in self._unavailable:
            raise ValueError(
                f"field {name!r} has only a placeholder instead of a value, because PostgreSQL "
                "does not send large values that did not change; set the table's REPLICA "
                "IDENTITY to FULL, or remove the field"
            )
        convert = self._converters.get((name, meaning))
        try:
            if convert is None:
                convert = converter(declared, meaning, self._modes)
                self._converters[name, meaning] = convert
            return convert(value)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"field {name!r}: {error}") from error


_BASE64 = (base64.b64encode, base64.urlsafe_b64encode)


def _is_no_change(envelope: Mapping[str, Any]) -> bool:
    """Return whether a record tells something else than a change of a row."""
    if "op" in envelope:
        return bool(envelope["op"] == _MESSAGE)
    heartbeat = not envelope.keys() - _TIMES_OF_RECORD and "ts_ms" in envelope
    transaction = envelope.get("status") in ("BEGIN", "END") and "id" in envelope
    of_schema = "databaseName" in envelope and ("ddl" in envelope or "tableChanges" in envelope)
    return heartbeat or transaction or of_schema


def _of_json(data: bytes) -> WrittenPart | None:
    """Return what JSON says, with or without a schema; None if its payload is null."""
    try:
        value = json.loads(data, parse_float=decimal.Decimal)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    schema: Any = None
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        value, schema = value["payload"], value["schema"]
        if value is None:
            return None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004
    return WrittenPart(value, lambda part: connect_meanings(schema, part))
