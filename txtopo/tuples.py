"""Tuples, streams and the fields that they are declared with.

Fields have types, since columns have types. A type is one of Spark's names from a listed set; the
parser is our own, since Spark's needs a session. ``json`` is ours, for the values of states only.

A bolt with a ``tick_interval_s`` gets tick tuples (Storm's ``__tick``, :func:`is_tick`). A tick
comes from no spout, belongs to no tree and need not be acked.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from txtopo.errors import FieldsError, nearest, similar
from txtopo.instead import no_attribute

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.attempt import TransactionAttempt

DEFAULT_STREAM = "default"

# Spark's names, with the synonyms of its SQL parser.
_TYPES = {
    "string": "string",
    "binary": "binary",
    "boolean": "boolean",
    "bool": "boolean",
    "byte": "byte",
    "tinyint": "byte",
    "short": "short",
    "smallint": "short",
    "int": "int",
    "integer": "int",
    "long": "long",
    "bigint": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "json": "json",
}

_PYTHON_TYPES: dict[type, str] = {
    str: "string",
    int: "long",
    float: "double",
    bool: "boolean",
    bytes: "binary",
    datetime.date: "date",
    datetime.datetime: "timestamp",
    decimal.Decimal: "decimal(38,18)",
    dict: "json",
    list: "json",
}

_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", re.I)

_DECLARATION = re.compile(
    r"\s*(?:`([^`]+)`|(\w+)\b)\s*:?\s*([A-Za-z_]\w*\s*(?:\([^)]*\)|<\S*>)?(?:\s*!)?)?\s*"
)

# What other systems call these types.
_ELSEWHERE = {
    "str": "string",
    "text": "string",
    "varchar": "string",
    "char": "string",
    "bytes": "binary",
    "blob": "binary",
    "int8": "byte",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "datetime": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamptz": "timestamp",
    "dict": "json",
    "array": "json",
    "map": "json",
    "struct": "json",
}


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed column of a stream.

    Attributes:
        name: Name of the field.
        type: Spark's name of its type: ``string``, ``long``, ``decimal(10,2)`` …
        required: Whether a spout or bolt may not emit NULL in it. Two fields are equal without it:
            it is a rule for what is emitted, not a part of the type.
    """

    name: str
    type: str
    required: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        """Return the field as it is declared."""
        return f"{self.name} {self.type}{'!' if self.required else ''}"

    def __reduce__(self) -> tuple[object, tuple[str, str, bool]]:
        """Pickle a field as a constructor call, which each task of each batch can read quickly."""
        return Field, (self.name, self.type, self.required)


class Fields:
    """The declared fields of a stream, or the columns of a key or value.

    Three forms mean the same: ``Fields("word string, amt long")``, ``Fields(word=str, amt=int)``
    and ``Fields(struct_type)`` with a ``pyspark.sql.types.StructType``. ``Fields()`` declares none,
    for tuples without values.

    A ``!`` after the type makes a field of a spout or bolt required: ``Fields("user string!")``, or
    ``Fields(user="string!")``. A record without it, or with NULL in it, is a record that cannot be
    read: it becomes a dead letter where the topology has them, and otherwise ends the run. The
    fields of streams that operators make of it are not required.

    Attributes:
        names: The names of the fields, in order.
        index: The place of each field, by its name.
        required: The names of the required fields.

    Raises:
        FieldsError: The declaration cannot be read, or has a name twice; repair it.
    """

    def __init__(self, declaration: object = None, /, *more: object, **columns: object) -> None:
        if more:
            raise _not_one_text((declaration, *more))
        if columns and declaration is not None:
            raise FieldsError("fields are declared twice; give a string, a StructType or keywords")
        if isinstance(declaration, str):
            fields = _parse(declaration)
        elif declaration is None:
            fields = [_field(name, kind) for name, kind in columns.items()]
        else:
            fields = _from_struct_type(declaration)
        names = [field.name for field in fields]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise FieldsError(
                f"field names must be distinct; used twice: {', '.join(doubled)}; rename one",
                field=doubled[0],
            )
        self._fields = tuple(fields)
        self.names: tuple[str, ...] = tuple(names)
        self.index: dict[str, int] = {name: at for at, name in enumerate(names)}
        self.required: tuple[str, ...] = tuple(field.name for field in fields if field.required)

    @classmethod
    def of(cls, fields: Sequence[Field]) -> Fields:
        """Return the fields of some :class:`Field` objects; none of them is required."""
        if not fields:
            return cls()
        return cls(", ".join(f"`{field.name}` {field.type}" for field in fields))

    def select(self, names: Sequence[str]) -> Fields:
        """Return the named fields, in the order given.

        Raises:
            FieldsError: A name is not declared; the message lists those that are.
        """
        unknown = [name for name in names if name not in self.index]
        if unknown:
            raise FieldsError(
                f"unknown field {unknown[0]!r}; {_declared(unknown[0], self.names)}",
                field=str(unknown[0]),
                expected=self.names,
            )
        return Fields.of([self._fields[self.index[name]] for name in names])

    def arrow_schema(self) -> pa.Schema:
        """Return the Arrow schema of these fields (Spark's own mapping of types)."""
        import pyarrow as pa

        return pa.schema([pa.field(field.name, _arrow_type(field.type)) for field in self])

    def read_schema(self) -> pa.Schema:
        """Return the Arrow schema for readers of records: required fields are not nullable in it.

        Arrow does not check that; ``check_required`` of ``txtopo/sources/values.py`` does.
        """
        schema = self.arrow_schema()
        for name in self.required:
            at = self.index[name]
            schema = schema.set(at, schema.field(at).with_nullable(False))
        return schema

    def __getitem__(self, at: int) -> Field:
        return self._fields[at]

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fields) and self._fields == other._fields

    def __hash__(self) -> int:
        return hash(self._fields)

    def __repr__(self) -> str:
        declared = ", ".join(map(str, self))
        return f"Fields({declared!r})" if declared else "Fields()"


@dataclass(frozen=True, slots=True)
class Stream:
    """A declared output of a component.

    Attributes:
        fields: The fields of its tuples.
        direct: Whether the emitter picks the receiving task itself (``emit_direct``).
    """

    fields: Fields
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """The component, stream, fields and attempt (if any) of the tuples of one envelope."""

    attempt: TransactionAttempt | None
    component: str
    stream: str
    fields: Fields


class Tuple:
    """One tuple; ``tuple["word"]``, ``tuple[0]`` and ``tuple.values`` read it.

    Attributes:
        values: The values of the declared fields, in order.
        origin: The component and stream that it comes from.
        source_task: Index of the task that emitted it.
    """

    __slots__ = ("origin", "source_task", "values")

    def __init__(self, values: Sequence[Any], origin: Origin, source_task: int = 0) -> None:
        self.values = values
        self.origin = origin
        self.source_task = source_task

    @property
    def attempt(self) -> TransactionAttempt:
        """The attempt that this tuple belongs to.

        Raises:
            FieldsError: The topology is one of ``TopologyBuilder``, which has no batches.
        """
        if self.origin.attempt is None:
            raise FieldsError("a TopologyBuilder's topology has no batches, so it has no attempts")
        return self.origin.attempt

    @property
    def fields(self) -> Fields:
        """The declared fields of the stream."""
        return self.origin.fields

    @property
    def source_component(self) -> str:
        """Id of the component that emitted the tuple."""
        return self.origin.component

    @property
    def source_stream(self) -> str:
        """Name of the stream that the tuple was emitted to."""
        return self.origin.stream

    def __getitem__(self, field: str | int) -> Any:
        if type(field) is int:
            return self.values[field]
        try:
            return self.values[self.origin.fields.index[field]]  # type: ignore[index]
        except KeyError:
            raise FieldsError(
                f"unknown field {field!r} of stream {self.origin.stream!r} of "
                f"{self.origin.component!r}; {_declared(field, self.origin.fields.names)}",
                component=self.origin.component,
                stream=self.origin.stream,
                field=str(field),
            ) from None

    if not TYPE_CHECKING:  # mypy would take every attribute for one that exists

        def __getattr__(self, name: str) -> object:
            # While it is unpickled or copied, it has no attributes yet.
            known = () if name in Tuple.__slots__ else self.origin.fields.names
            written = f"tuple[{name!r}]" if name in known else None
            raise AttributeError(no_attribute(self, name, written))

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{n}={v!r}" for n, v in zip(self.fields.names, self.values, strict=True))
        return f"Tuple({pairs})"


def _declared(unknown: object, names: Sequence[str]) -> str:
    hint = similar(unknown, names)
    return f"declared are {', '.join(names) or 'none'}" + (f"; {hint}" if hint else "")


def _parse(declaration: str) -> list[Field]:
    if not declaration.strip():
        raise FieldsError(
            f"no fields are declared; got {declaration!r}; expected 'name type, name type', or "
            "Fields() for tuples without values",
            got=declaration,
        )
    fields = []
    position = 0
    while True:
        match = _DECLARATION.match(declaration, position)
        if match is None:
            rest = declaration[position:].strip()
            what = f"at {rest!r}" if rest else "after its last comma; remove that comma"
            raise FieldsError(
                f"cannot read the fields {declaration!r} {what}; expected 'name type, name type'",
                got=declaration,
            )
        name, kind, position = match.group(1) or match.group(2), match.group(3), match.end()
        at_end = position == len(declaration)
        if not at_end and declaration[position] != ",":
            raise FieldsError(
                f"cannot read the fields {declaration!r} at {declaration[position:]!r}; "
                f"expected {_instead(declaration[position:], name)}",
                got=declaration,
            )
        if kind is None:
            raise FieldsError(
                f"field {name!r} has no type; write '{name} string', or another type than string; "
                "a grouping takes the plain name, without Fields",
                field=name,
            )
        fields.append(_field(name, kind))
        if at_end:
            return fields
        position += 1


def _instead(rest: str, name: str) -> str:
    if rest.startswith("!"):
        return f"the mark of a required field after its type; write '{name} string!'"
    return "a comma"


def _field(name: str, kind: object) -> Field:
    if isinstance(kind, str) and kind.rstrip().endswith("!"):
        return Field(name, _type_name(name, kind.rstrip()[:-1]), required=True)
    return Field(name, _type_name(name, kind))


def _type_name(name: str, kind: object) -> str:
    if isinstance(kind, type) and kind in _PYTHON_TYPES:
        return _PYTHON_TYPES[kind]
    if isinstance(kind, str):
        plain = kind.strip().lower()
        if plain in _TYPES:
            return _TYPES[plain]
        match = _DECIMAL.fullmatch(plain)
        if match:
            precision, scale = int(match.group(1) or 10), int(match.group(2) or 0)
            if 1 <= precision <= 38 and scale <= precision:
                return f"decimal({precision},{scale})"
    raise FieldsError(f"field {name!r} has unknown type {kind!r}; {_type_hint(kind)}", field=name)


def _type_hint(kind: object) -> str:
    known = [*_TYPES, "decimal(p,s)"]
    word = re.match(r"\w*", str(kind).strip().lower())
    assert word is not None
    if word[0] in ("decimal", "dec", "numeric"):
        return (
            "expected decimal(p,s), with p from 1 to 38 digits in total and s of them after the "
            "point"
        )
    if word[0] in _ELSEWHERE:
        return f"did you mean {_ELSEWHERE[word[0]]!r}?"
    return nearest(word[0], known)


def _not_one_text(parts: Sequence[object]) -> FieldsError:
    """Return the error for names in Storm's way, ``Fields("word", "count")``, or in a list."""
    named = all(isinstance(part, str) and part.strip() for part in parts)
    typed = [str(part) if " " in str(part).strip() else f"{part} string" for part in parts]
    hint = f"write Fields({', '.join(typed)!r})" if named else "pass one string, with types"
    return FieldsError(
        "fields are declared in one string, each with its type; got "
        f"{', '.join(map(repr, parts))}; {hint}",
        got=", ".join(map(repr, parts)),
    )


def _from_struct_type(declaration: object) -> list[Field]:
    if isinstance(declaration, list | tuple):
        raise _not_one_text(declaration)
    if isinstance(declaration, Mapping):
        raise FieldsError(
            f"cannot read fields from a mapping; got {declaration!r}; write Fields(**mapping)",
            got=repr(declaration),
        )
    columns = getattr(declaration, "fields", None)
    if not isinstance(columns, list):
        raise FieldsError(
            f"cannot read fields from {declaration!r}; expected a string, a StructType or keywords",
            got=repr(declaration),
        )
    return [Field(c.name, _type_name(c.name, c.dataType.simpleString())) for c in columns]


@cache
def _arrow_type(kind: str) -> pa.DataType:
    import pyarrow as pa

    if kind.startswith("decimal"):
        precision, scale = kind[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    types: dict[str, pa.DataType] = {
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "json": pa.string(),
    }
    return types[kind]


SYSTEM_COMPONENT = "__system"

TICK_STREAM = "__tick"

TICK = Origin(None, SYSTEM_COMPONENT, TICK_STREAM, Fields("interval_s double"))


def is_tick(tuple: Tuple) -> bool:
    """Return whether a tuple is a tick; its only value is the interval in seconds."""
    return tuple.origin.stream == TICK_STREAM and tuple.origin.component == SYSTEM_COMPONENT
