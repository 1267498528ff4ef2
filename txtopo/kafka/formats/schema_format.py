"""What Avro and Protobuf have in common: the registry, and the conversion to and from columns.

confluent-kafka's own serializers read and write the bytes. This module only handles the columns,
and the meaning of errors.

Rules
-----
1. Each process has one client and one (de)serializer for equal formats, and asks the registry once
   for each schema. A schema that the registry does not have is requested once in each reading.
2. An error while a record is decoded is the record's fault, unless the registry was asked and did
   not answer like a registry: that fails the attempt, which is tried again. So a replay decodes the
   same values, as long as nobody deletes a schema: a registry never reuses an id.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import unquote, urlsplit

from txtopo.errors import ConfigError, FieldsError, TxtopoError, ValueRefusedError, text_of
from txtopo.extras import require
from txtopo.kafka.formats.record_format import Part, RecordFormat, Row
from txtopo.servers import Server
from txtopo.state.registry import redacted_url
from txtopo.tuples import Field, Fields, Tuple

if TYPE_CHECKING:
    from confluent_kafka import Message

    from txtopo.kafka.formats.registry_client import ReadingContext, RegistryClient

Setting = str | int | float | bool
T = TypeVar("T")

# A registry answers in milliseconds. If it takes longer than this, the attempt fails, and the
# runtime tries it again, with its own pauses.
_DEFAULTS: dict[str, Setting] = {"timeout": 20, "max.retries": 2, "retries.wait.ms": 100}

_CREDENTIALS = "basic.auth.user.info"

# What each process keeps: clients, deserializers, serializers. A fork creates its own.
_kept: dict[tuple[object, ...], Any] = {}

# For each type of field, the types of columns that it can hold without loss.
_WIDER = {
    "byte": ("short", "int", "long"),
    "short": ("int", "long"),
    "int": ("long", "double"),
    "float": ("double",),
}
_WIDER["byte"] += ("double", "float")
_WIDER["short"] += ("double", "float")


class SchemaFormat(RecordFormat):
    """The format of the keys or values of a topic, with its schemas in a registry.

    Picklable, with the settings of the connection. Use :class:`~txtopo.kafka.formats.Avro` or
    :class:`~txtopo.kafka.formats.Protobuf`.

    Args:
        name: The full name of the record or message.
        columns: The columns; for a schema that is not a record, one field with the name "".
        registry: URL of the registry; several, with commas, for copies of one.
        subject: The subject; None for the topic's, ``<topic>-key`` or ``<topic>-value``.
        auto_register: Whether a sink registers its schema; else it uses the latest one.
        settings: More settings of ``SchemaRegistryClient``; may hold secrets.
        identity: What differs between different schemas.
    """

    module: ClassVar[str]
    """The module that reads and writes the format."""

    def __init__(
        self,
        name: str,
        columns: Sequence[Field],
        *,
        registry: str,
        subject: str | None,
        auto_register: bool,
        settings: Mapping[str, Setting] | None,
        identity: object,
    ) -> None:
        kind = type(self).__name__
        self._name, self._columns = name, tuple(columns)
        if not columns:
            raise ConfigError(
                f"{name!r} of {kind} has no fields to become columns; expected at least one; read "
                "it as bytes",
                name=name,
            )
        given = checked_settings(settings, kind)
        self._registry, credentials = checked_url(registry, kind)
        if credentials and _CREDENTIALS in given:
            raise ConfigError(
                f"{kind} has credentials twice; got some in the URL of the registry, and the "
                f"setting {_CREDENTIALS!r}; leave one out",
                setting=_CREDENTIALS,
            )
        self._conf = {**_DEFAULTS, **given, **credentials, "url": self._registry}
        if subject is not None and (not isinstance(subject, str) or not subject):
            raise ConfigError(
                f"subject of {kind} is wrong; got {subject!r}; expected its name", setting="subject"
            )
        if not isinstance(auto_register, bool):
            raise ConfigError(
                f"auto_register of {kind} is wrong; got {auto_register!r}; expected True or False",
                setting="auto_register",
            )
        self._subject, self._auto_register = subject, auto_register
        self._identity = (kind, identity, subject, auto_register, repr(sorted(self._conf.items())))
        try:
            self.client()
        except (ValueError, TypeError, OSError) as error:
            raise ConfigError(
                f"settings of the registry of {kind} are wrong; got {sorted(self._conf)}: "
                f"{redacted_url(text_of(error))}; expected those of SchemaRegistryClient",
                setting="settings",
            ) from error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, registry={self._registry!r})"

    @property
    def modules(self) -> tuple[str, ...]:
        """The module that reads and writes the format."""
        return (self.module,)

    @property
    def connects_to(self) -> tuple[Server, ...]:
        """The schema registry."""
        port = 443 if self._registry.startswith("https:") else 80
        return (Server.of("the schema registry", self._registry, port),)

    def fields(self, part: Part) -> Fields:
        """Return the columns; a schema that is not a record is one column, named for the part."""
        return Fields.of([Field(each.name or part, each.type) for each in self._columns])

    @property
    def expected(self) -> str:
        """The form that a record must have, for messages."""
        return f"{type(self).__name__} data that fits {self._name!r}"

    def check_input(self, fields: Fields, part: Part) -> None:
        """Check that tuples with these fields can be written.

        Raises:
            FieldsError: A field is missing, or of another type.
        """
        for column in self.fields(part):
            if column.name not in fields.index:
                raise FieldsError(
                    f"{self!r} has the field {column.name!r}, but the tuples lack it; got "
                    f"{fields!r}",
                    field=column.name,
                )
            given = fields[fields.index[column.name]].type
            if given != column.type and column.type not in _WIDER.get(given, ()):
                raise FieldsError(
                    f"field {column.name!r} cannot be written as {self!r}; got {given}; expected "
                    f"{column.type}; cast it in the bolt above",
                    field=column.name,
                    got=given,
                    expected=column.type,
                )

    def reader(self, part: Part) -> RecordReader:
        """Return a decoder for the records of one reading."""
        return RecordReader(self, part)

    def writer(self, topic: str, part: Part) -> Callable[[Tuple], bytes]:
        """Return a function that encodes tuples for a topic; each process creates it once.

        The first use may query the registry.

        Raises:
            InfrastructureError: The registry does not answer; try again.
            AuthError: The registry refuses the credentials.
            ConfigError: The registry refuses the schema, or has none to write with.
        """
        from txtopo.kafka.formats.registry_client import UnknownSchema

        try:
            return self.once(lambda: self._writer(topic, part), "writer", topic, part)
        except UnknownSchema as error:
            raise ConfigError(
                f"{error}; register a schema, or remove auto_register", topic=topic
            ) from error

    def _writer(self, topic: str, part: Part) -> Callable[[Tuple], bytes]:
        encode = self.encoder(self.client(), topic, part)
        names = self.fields(part).names

        def write(tuple: Tuple) -> bytes:
            try:
                return encode([tuple[name] for name in names])
            except (TxtopoError, ImportError, MemoryError):
                raise
            except Exception as error:  # each library has its own for unfit values
                raise ValueRefusedError(
                    f"a {part} cannot be written as {self!r}; got {tuple!r:.200} "
                    f"({text_of(error)}); nothing of its batch was written; fix it in the bolt "
                    "above",
                    topic=topic,
                    column=part,
                ) from error

        return write

    @abstractmethod
    def check_writable(self) -> None:
        """Check that each field of the schema can be written from a column.

        Raises:
            ConfigError: One cannot; the message says which.
        """

    @abstractmethod
    def encoder(
        self, client: RegistryClient, topic: str, part: Part
    ) -> Callable[[Sequence[Any]], bytes]:
        """Register or look up the schema; return a function that encodes the columns' values."""

    @abstractmethod
    def decoder(self, client: RegistryClient, part: Part) -> Callable[[bytes, ReadingContext], Row]:
        """Return a function that decodes the bytes of a record; it may raise anything."""

    def subject_conf(self) -> dict[str, Any]:
        """Return the setting of a (de)serializer that names the subject."""
        from confluent_kafka.schema_registry import topic_subject_name_strategy

        named = self._subject
        strategy = topic_subject_name_strategy if named is None else lambda ctx, name: named
        return {"subject.name.strategy": strategy}

    def subject(self, topic: str, part: Part) -> str:
        """Return the subject of a topic's schema."""
        return self._subject or f"{topic}-{part}"

    def client(self) -> RegistryClient:
        """Return the client of this process."""
        require(self.module, type(self).__name__)
        from txtopo.kafka.formats.registry_client import RegistryClient

        return self.once(lambda: RegistryClient(dict(self._conf)), "client")

    def once(self, make: Callable[[], T], *what: str) -> T:
        """Return the object that this process keeps for equal formats, made on first use."""
        key = (os.getpid(), self._identity, *what)
        if key not in _kept:
            _kept.setdefault(key, make())  # another thread may have made one
        kept: T = _kept[key]
        return kept


class RecordReader:
    """Decodes the keys or values of records, in one reading."""

    def __init__(self, format: SchemaFormat, part: Part) -> None:
        client = format.client()
        self.expected = format.expected
        self._part = part
        self._decode = format.once(lambda: format.decoder(client, part), "reader", part)
        self._topics: dict[str, ReadingContext] = {}
        self._unknown: dict[object, str] = {}

    def read(self, record: Message) -> Row:
        """Return the values of the columns; all are NULL if there is no key or value.

        Raises:
            ValueError: It cannot be decoded; the text explains why.
            InfrastructureError: The registry does not answer; try again.
            AuthError: The registry refuses the credentials.
        """
        data = record.key() if self._part == "key" else record.value()
        if data is None:
            return {}
        reading = self._reading(str(record.topic()))
        reading.headers = record.headers()
        try:
            return self._decode(data, reading)
        except (TxtopoError, ImportError, MemoryError):
            raise
        except Exception as error:  # bytes of strangers may make a library raise anything
            reading.note(error)
            raise ValueError(text_of(error) or type(error).__name__) from error

    def _reading(self, topic: str) -> ReadingContext:
        if topic not in self._topics:
            from txtopo.kafka.formats.registry_client import ReadingContext

            self._topics[topic] = ReadingContext(topic, self._part, self._unknown)
        return self._topics[topic]


def checked_url(url: object, kind: str) -> tuple[str, dict[str, Setting]]:
    """Return the URL of a registry, if valid, and the setting with its credentials, if any.

    A URL without credentials can be logged, as the HTTP library does.

    Raises:
        ConfigError: It is not a URL of a registry.
    """
    credentials: dict[str, Setting] = {}
    plain = []
    for each in url.split(",") if isinstance(url, str) else [""]:
        try:
            parts = urlsplit(each.strip())
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
                raise ValueError
        except ValueError as error:
            raise ConfigError(
                f"registry of {kind} is wrong; got {redacted_url(str(url))!r}; expected its URL, "
                "http://host:port or https://host:port",
                setting="registry",
            ) from error
        user_info, _, host = parts.netloc.rpartition("@")
        if user_info:
            credentials.setdefault(_CREDENTIALS, unquote(user_info))
        plain.append(parts._replace(netloc=host).geturl())
    return ",".join(plain), credentials


def checked_settings(settings: object, kind: str) -> Mapping[str, Setting]:
    """Return the settings of a client, if valid.

    Raises:
        ConfigError: They are not.
    """
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"settings of {kind} are wrong; got a {type(settings).__name__}; expected a dict",
            setting="settings",
            got=type(settings).__name__,
        )
    if "url" in settings:
        raise ConfigError(f"setting 'url' of {kind} cannot be set; use registry", setting="url")
    timeout = settings.get("timeout", 1)
    if type(timeout) not in (int, float) or not timeout > 0:
        raise ConfigError(
            f"setting 'timeout' of {kind} is wrong; got {timeout!r}; expected a number of seconds "
            "greater than 0",
            setting="timeout",
        )
    return settings
