"""Columns: emitted rows become Arrow columns of the declared types, or an error that names why not.

Arrow itself is too kind: it stores 1.5 in a column of ``long`` as 1, a datetime in a ``date``
without its time, bytes in a ``string``. So the Python types of each column are looked at first
(0.2 ms for 10,000 values).

Sizes
-----
Arrow counts the bytes of a column of text in 31 bits, and Spark those of whatever it moves. Larger
types would not help: the next message has the same limit. So rows are cut *before*, into record
batches of at most ``BATCH_BYTES_MAX``: bolts do not see where, since tuples stay in order. What
cannot be cut is one tuple; beyond ``TUPLE_BYTES_MAX`` it is refused by name here, where the
component is known, on all carriers alike: what works on ``local`` works on Spark.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.errors import EmitError
from txtopo.tuples import Field, Fields

# Far below what a column holds, since a grouping may send each tuple to a hundred tasks, and large
# enough that batches of ordinary tuples stay whole: 10,000 tuples of 1.6 kB.
BATCH_BYTES_MAX = 1 << 24
# Half of what Arrow and Spark's arrays of bytes hold: a message has more in it than the tuple.
TUPLE_BYTES_MAX = 1 << 30

_WHOLE: tuple[type, ...] = (int, np.integer)
_ALLOWED: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "binary": (bytes, bytearray, memoryview),
    "boolean": (bool, np.bool_),
    "byte": _WHOLE,
    "short": _WHOLE,
    "int": _WHOLE,
    "long": _WHOLE,
    "float": (float, np.floating, *_WHOLE),
    "double": (float, np.floating, *_WHOLE),
    "decimal": (decimal.Decimal, *_WHOLE),
    "date": (datetime.date,),
    "timestamp": (datetime.datetime, np.datetime64),
    "timestamp_ntz": (datetime.datetime, np.datetime64),
}
# What a record batch may bring for a declared type: (test of the type, tests that match it).
_FAMILIES = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
)


def to_batches(
    component: str, stream: str, fields: Fields, schema: pa.Schema, rows: Sequence[Sequence[Any]]
) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches of the declared types, in order; mostly it is one.

    Raises:
        EmitError: A value does not fit its column, or is too long; mend the component.
    """
    if not fields:
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        return
    arrays = []
    for at, field in enumerate(fields):
        values = [row[at] for row in rows]
        try:
            _check_types(field, values)
            arrays.append(pa.array(values, schema.field(at).type))
        except pa.ArrowCapacityError as error:
            raise _too_long(component, stream, schema, rows) from error
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise _refused(component, stream, schema, at, field, values) from error
    if sum(array.nbytes for array in arrays) <= BATCH_BYTES_MAX:
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    elif len(rows) > 1:
        del arrays
        middle = len(rows) // 2
        yield from to_batches(component, stream, fields, schema, rows[:middle])
        yield from to_batches(component, stream, fields, schema, rows[middle:])
    else:
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        check_size(component, stream, batch)
        yield batch


def parts_of(component: str, stream: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a record batch in parts that are not too large, in order; mostly it is one.

    Raises:
        EmitError: A tuple is too long; mend the component.
    """
    if batch.nbytes <= BATCH_BYTES_MAX:
        yield batch
    elif batch.num_rows > 1:
        middle = batch.num_rows // 2
        yield from parts_of(component, stream, batch.slice(0, middle))
        yield from parts_of(component, stream, batch.slice(middle))
    else:
        check_size(component, stream, batch)
        yield batch


def check_size(component: str, stream: str, batch: pa.RecordBatch) -> None:
    """Check that a single tuple can be moved.

    Raises:
        EmitError: It is too long; mend the component.
    """
    if batch.nbytes > TUPLE_BYTES_MAX:
        columns = zip(batch.columns, batch.schema.names, strict=True)
        raise _over(component, stream, batch.nbytes, *max((c.nbytes, name) for c, name in columns))


def conform(
    component: str, stream: str, fields: Fields, schema: pa.Schema, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """Return a record batch with the declared columns, matched by name.

    A column may have another width than declared as long as every value fits.

    Raises:
        EmitError: A column is missing, unknown or of another type; mend the component.
    """
    if batch.schema.equals(schema):
        return batch
    where = f"{component!r} emitted a record batch to stream {stream!r}"
    if sorted(batch.schema.names) != sorted(fields.names):
        raise EmitError(
            f"{where} with other columns; got {', '.join(batch.schema.names) or 'none'}; "
            f"expected {', '.join(fields.names) or 'none'}",
            component=component,
            stream=stream,
        )
    arrays = []
    for field, declared in zip(fields, schema, strict=True):
        column = batch.column(field.name)
        try:
            arrays.append(_cast(column, declared.type))
        except (pa.ArrowException, TypeError) as error:
            raise EmitError(
                f"{where} whose column {field.name!r} does not fit; got {column.type}; "
                f"expected {field.type}: {error}",
                component=component,
                stream=stream,
                column=field.name,
            ) from error
    if not arrays:
        return batch
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(column: pa.Array, declared: pa.DataType) -> pa.Array:
    if column.type == declared:
        return column
    if pa.types.is_dictionary(column.type):
        return _cast(column.cast(column.type.value_type), declared)
    same_family = any(family(column.type) and family(declared) for family in _FAMILIES)
    if not same_family and not pa.types.is_null(column.type):
        raise TypeError("the types have nothing in common; cast the column first")
    return column.cast(declared)


def _check_types(field: Field, values: Sequence[Any]) -> None:
    allowed = _ALLOWED[field.type.partition("(")[0]]
    for kind in set(map(type, values)):
        if kind in allowed or kind is type(None):
            continue
        refused = not issubclass(kind, allowed)
        refused |= kind is bool and bool not in allowed
        refused |= field.type == "date" and issubclass(kind, datetime.datetime)
        if refused:
            raise TypeError(kind.__name__)


def _refused(
    component: str, stream: str, schema: pa.Schema, at: int, field: Field, values: Sequence[Any]
) -> EmitError:
    value = next((value for value in values if not _fits(field, schema, at, value)), None)
    return EmitError(
        f"{component!r} emitted a value that does not fit column {field.name!r} of stream "
        f"{stream!r}; got {value!r:.200} ({type(value).__name__}); expected {field.type}",
        component=component,
        stream=stream,
        column=field.name,
    )


def _too_long(
    component: str, stream: str, schema: pa.Schema, rows: Sequence[Sequence[Any]]
) -> EmitError:
    """Return the error for rows with a value that no column holds."""
    longest = (0, "")
    for row in rows:
        for name, value in zip(schema.names, row, strict=True):
            if isinstance(value, str | bytes | bytearray | memoryview):
                longest = max(longest, (len(value), name))
    return _over(component, stream, longest[0], *longest)


def _over(component: str, stream: str, total: int, nbytes: int, column: str) -> EmitError:
    return EmitError(
        f"{component!r} emitted a tuple that is too large to be moved to stream {stream!r}; got "
        f"{total} bytes, of which column {column!r} has {nbytes}; expected at most "
        f"{TUPLE_BYTES_MAX}; no setting raises that; emit the value in pieces, or where it lies",
        component=component,
        stream=stream,
        column=column,
        bytes=total,
    )


def _fits(field: Field, schema: pa.Schema, at: int, value: Any) -> bool:
    try:
        _check_types(field, [value])
        pa.array([value], schema.field(at).type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True
