"""The client of a schema registry: confluent-kafka's own, with the meaning of its errors.

It is imported when a format is first used, since it needs the packages of an extra.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from confluent_kafka.schema_registry import (
    RegisteredSchema,
    Schema,
    SchemaRegistryClient,
    SchemaRegistryError,
    dual_schema_id_deserializer,
)
from confluent_kafka.serialization import SerializationContext

from txtopo.errors import AuthError, ConfigError, InfrastructureError, TxtopoError, text_of
from txtopo.kafka.formats.avro_nesting import why_not_read

T = TypeVar("T")

# Error codes of the registry: https://docs.confluent.io/platform/current/schema-registry/develop/api.html
# 40401 is a subject that it does not have, 40402 a version, 40403 a schema.
_UNKNOWN = (40401, 40402, 40403)
# Bytes that begin with a 1 by chance look like a GUID. A registry without GUIDs (before version 8)
# answers as it does for any unknown path.
_UNKNOWN_GUID = (404, *_UNKNOWN)
_REFUSED = (401, 403)
_WRONG_SCHEMA = (409, 422)


class UnknownSchema(LookupError):
    """The registry lacks a schema, subject or version; this error never leaves the formats."""


class RegistryClient(SchemaRegistryClient):
    """Asks a registry, once for each schema; its errors are ours.

    Raises:
        UnknownSchema: The registry answers that it does not have it.
        AuthError: It refuses the credentials.
        ConfigError: It refuses a schema.
        InfrastructureError: It does not answer, or not as a registry does; try again.
        ValueError: It answers a schema whose records are not read.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        super().__init__(conf)
        self.shown = str(conf["url"])

    def get_schema(self, schema_id: int, *args: Any, **more: Any) -> Schema:
        """Return the schema of an id."""
        ask = super().get_schema
        doing = f"fetch schema {schema_id}"
        return _readable(self._asked(doing, lambda: ask(schema_id, *args, **more)))

    def get_schema_by_guid(self, guid: str, *args: Any, **more: Any) -> Schema:
        """Return the schema of a GUID."""
        ask = super().get_schema_by_guid
        doing = f"fetch schema {guid}"
        return _readable(
            self._asked(doing, lambda: ask(guid, *args, **more), unknown=_UNKNOWN_GUID)
        )

    def get_version(self, subject_name: str, *args: Any, **more: Any) -> RegisteredSchema:
        """Return a version of a subject."""
        ask, doing = super().get_version, f"fetch a version of subject {subject_name!r}"
        version = self._asked(doing, lambda: ask(subject_name, *args, **more))
        _readable(version.schema)  # which another one names
        return version

    def get_latest_version(self, subject_name: str, *args: Any, **more: Any) -> RegisteredSchema:
        """Return the latest version of a subject."""
        ask, doing = super().get_latest_version, f"fetch the schema of subject {subject_name!r}"
        return self._asked(doing, lambda: ask(subject_name, *args, **more))

    def register_schema_full_response(
        self, subject_name: str, *args: Any, **more: Any
    ) -> RegisteredSchema:
        """Register a schema, or find it if it is registered."""
        ask, doing = super().register_schema_full_response, f"register a schema of {subject_name!r}"
        return self._asked(doing, lambda: ask(subject_name, *args, **more))

    def lookup_schema(self, subject_name: str, *args: Any, **more: Any) -> RegisteredSchema:
        """Return the version of a schema."""
        ask, doing = super().lookup_schema, f"look up a schema of subject {subject_name!r}"
        return self._asked(doing, lambda: ask(subject_name, *args, **more))

    def _asked(self, doing: str, ask: Callable[[], T], unknown: Sequence[int] = _UNKNOWN) -> T:
        where = f"the schema registry {self.shown}"
        try:
            answer = ask()
        except TxtopoError:
            raise
        except SchemaRegistryError as error:
            raise _meant(error, doing, self.shown, unknown) from error
        except Exception as error:  # a library of HTTP, of the user's choice, may raise anything
            raise InfrastructureError(
                f"cannot {doing}: no usable answer from {where}; got {type(error).__name__}: "
                f"{text_of(error)}; is it down, or is this another server?",
                registry=self.shown,
            ) from error
        if not _is_whole(answer):
            self.clear_caches()  # type: ignore[no-untyped-call]  # they have it already
            raise InfrastructureError(
                f"cannot {doing}: no usable answer from {where}; got JSON without a schema; is "
                "this another server?",
                registry=self.shown,
            )
        return answer


def _readable(schema: Schema) -> Schema:
    """Return the schema itself if its records can be read.

    Raises:
        ValueError: They are not read, since they could end the process.
    """
    avro = schema.schema_type in (None, "AVRO") and schema.schema_str is not None
    if avro and (flaw := why_not_read(schema.schema_str)):
        raise ValueError(
            f"the schema that it was written with is refused: {flaw}; a record could crash the "
            "process"
        )
    return schema


def _is_whole(answer: object) -> bool:
    """Return whether an answer has what was asked for; a client takes any JSON."""
    if isinstance(answer, RegisteredSchema) and answer.schema_id is not None:
        return type(answer.schema_id) is int
    schema = answer.schema if isinstance(answer, RegisteredSchema) else answer
    return isinstance(schema, Schema) and isinstance(schema.schema_str, str)


def _meant(
    error: SchemaRegistryError, doing: str, registry: str, unknown: Sequence[int]
) -> Exception:
    where = f"the schema registry {registry}"
    status, said = error.http_status_code, f"{error.error_message}"[:1000]
    if status == 404 and error.error_code in unknown:
        return UnknownSchema(f"cannot {doing}: {where} does not have it; got {said!r}")
    if status in _REFUSED:
        return AuthError(
            f"{where} refused to {doing}; got {said!r}; expected credentials with the right to do "
            "it; check the setting basic.auth.user.info",
            registry=registry,
            got=said,
        )
    if status in _WRONG_SCHEMA:
        return ConfigError(
            f"{where} refused to {doing}; got {said!r}; fix the schema, or change the "
            "compatibility of the subject",
            registry=registry,
            got=said,
        )
    return InfrastructureError(
        f"cannot {doing}: {where} answered with status {status}; got {said!r}; is it in trouble, "
        "or is the path of its URL wrong?",
        registry=registry,
        status=status,
        got=said,
    )


def context_of(topic: str, part: Any) -> SerializationContext:
    """Return the context that a serializer gets for the records of a topic."""
    return SerializationContext(topic, part)


class ReadingContext(SerializationContext):
    """The context that a deserializer gets for the records of one topic, in one reading.

    Attributes:
        unknown: The ids of schemas that the registry does not have, each with its answer.
        schema_id: The id of the schema of the last record, with whatever else precedes the data.
    """

    def __init__(self, topic: str, part: Any, unknown: dict[object, str]) -> None:
        super().__init__(topic, part)
        self.unknown = unknown
        self.schema_id: Any = None

    def note(self, error: Exception) -> None:
        """Remember why the last record could not be decoded, if the registry lacks its schema."""
        if isinstance(error, UnknownSchema):
            self.unknown[id_of(self.schema_id)] = str(error)


def read_schema_id(data: bytes, reading: Any, schema_id: Any) -> Any:
    """Read the id of a record's schema into *reading*, and return the data that follows it.

    The id is in the headers or in the first bytes.

    Raises:
        UnknownSchema: The registry has already answered in this reading that it lacks the schema.
    """
    rest = dual_schema_id_deserializer(data, reading, schema_id)
    reading.schema_id = schema_id
    answer = reading.unknown.get(id_of(schema_id))
    if answer is not None:
        raise UnknownSchema(answer)
    return rest


def id_of(schema_id: Any) -> object:
    """Return the number of a schema, or its GUID."""
    return schema_id.guid if schema_id.id is None else schema_id.id
