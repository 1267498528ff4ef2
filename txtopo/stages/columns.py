"""Columns: converts emitted rows to Arrow columns of the declared types, and checks their size.

Arrow is too lenient: it stores 1.5 in a column of ``long`` as 1, a datetime in a ``date`` without
its time, a ``Timestamp`` of pandas without its nanoseconds, and bytes in a ``string``. So the
Python types of each column are looked at first, which takes 0.2 ms for 10,000 values. Those that
Arrow takes exactly go to it as they are; of others :mod:`txtopo.fitting` says what a field holds.

Sizes
-----
Arrow counts the bytes of a text column in 31 bits, and Spark does so for whatever it moves. Larger
types in Arrow would not lift the limit of Spark. So rows are divided into record batches of at most
``BATCH_BYTES_MAX`` before they are converted. Bolts do not notice, because the order of tuples does
not change. A single tuple cannot be divided. One that exceeds ``TUPLE_BYTES_MAX`` is refused here,
where the component is known, and on all carriers. So a topology that works on ``local`` works on
Spark.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.errors import EmitError
from txtopo.fitting import NotExact, check_floats, exact_of, fitted_array, moment, without_zone
from txtopo.tuples import Field, Fields

# Far below the limit of a column, because a grouping may send each tuple to a hundred tasks. Yet
# batches of ordinary tuples stay whole: 10,000 tuples of 1.6 kB.
BATCH_BYTES_MAX = 1 << 24
# Half the limit of Arrow and of Spark's arrays of bytes, because a message also has other content.
TUPLE_BYTES_MAX = 1 << 30
# A record batch of up to this many bytes need not be weighed exactly.
SMALL_BYTES_MAX = 1 << 12
# With more rows, Arrow's calls for each column do not count.
AT_ONCE_ROWS_MAX = 1_000

_ROWS: frozenset[type] = frozenset({tuple})

_WHOLE: tuple[type, ...] = (
    *(int, np.int8, np.int16, np.int32, np.int64),
    *(np.uint8, np.uint16, np.uint32, np.uint64),
)
_NUMBERS: tuple[type, ...] = (float, np.float16, np.float32, np.float64, *_WHOLE)
# What Arrow takes exactly or refuses, by the type of the field. A ``float`` is looked at as well.
_PLAIN: dict[str, frozenset[type]] = {
    name: frozenset((*kinds, type(None)))
    for name, kinds in {
        "string": (str,),
        "binary": (bytes, bytearray, memoryview),
        "boolean": (bool, np.bool_),
        **dict.fromkeys(("byte", "short", "int", "long"), _WHOLE),
        "float": _NUMBERS,
        "double": _NUMBERS,
        "decimal": (decimal.Decimal, int),
        "date": (datetime.date,),
        "timestamp": (datetime.datetime,),
        "timestamp_ntz": (datetime.datetime,),
    }.items()
}
# A column of a record batch may be cast to another type of the same family.
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
    """Yield rows as record batches of the declared types, in order. Usually there is only one.

    Raises:
        EmitError: A value does not fit its column, or is too long; repair the component.
    """
    if not fields:
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        return
    batch = _at_once(fields, schema, rows)
    if batch is not None:
        yield batch
        return
    arrays = []
    for at, field in enumerate(fields):
        values = [row[at] for row in rows]
        try:
            arrays.append(_array(field, values, schema.field(at).type))
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


def _at_once(
    fields: Fields, schema: pa.Schema, rows: Sequence[Sequence[Any]]
) -> pa.RecordBatch | None:
    """Return a few rows as a record batch, with one call of Arrow, which takes half the time.

    Returns None where each column has to be tried by itself: a value does not fit, or is too long.
    """
    if len(rows) > AT_ONCE_ROWS_MAX or not _ROWS.issuperset(map(type, rows)):
        return None
    try:
        for field, values in zip(fields, zip(*rows, strict=True), strict=True):
            if _exact(field, values) is not values:
                return None
        array = pa.array(rows, pa.struct(schema))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    if not isinstance(array, pa.StructArray):
        return None  # what exceeds a column comes in chunks
    batch = pa.RecordBatch.from_struct_array(array)
    return batch if nbytes_of(batch) <= BATCH_BYTES_MAX else None


def nbytes_of(batch: pa.RecordBatch) -> int:
    """Return the size of a record batch.

    For a small one it is that of its buffers, which may hold other rows, too. That takes a fortieth
    of the time.
    """
    buffers: int = batch.get_total_buffer_size()
    return buffers if buffers <= SMALL_BYTES_MAX else batch.nbytes


def parts_of(component: str, stream: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield parts of a record batch that are small enough, in order. Usually there is only one.

    Raises:
        EmitError: A tuple is too long; repair the component.
    """
    if nbytes_of(batch) <= BATCH_BYTES_MAX:
        yield batch
    elif batch.num_rows > 1:
        middle = batch.num_rows // 2
        yield from parts_of(component, stream, batch.slice(0, middle))
        yield from parts_of(component, stream, batch.slice(middle))
    else:
        check_size(component, stream, batch)
        yield batch


def check_size(component: str, stream: str, batch: pa.RecordBatch) -> None:
    """Check that a record batch of one tuple is small enough to be moved.

    Raises:
        EmitError: The tuple is too long; repair the component.
    """
    if nbytes_of(batch) > TUPLE_BYTES_MAX:
        columns = zip(batch.columns, batch.schema.names, strict=True)
        raise _over(component, stream, batch.nbytes, *max((c.nbytes, name) for c, name in columns))


def conform(
    component: str, stream: str, fields: Fields, schema: pa.Schema, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """Return a record batch with the declared columns, which are matched by name.

    A column may have another width than declared if every value fits.

    Raises:
        EmitError: A column is missing, unknown or of another type; repair the component.
    """
    if batch.schema.equals(schema):
        return batch
    where = f"{component!r} emitted a record batch to stream {stream!r}"
    if sorted(batch.schema.names) != sorted(fields.names):
        raise EmitError(
            f"{where} with the wrong columns; got {', '.join(batch.schema.names) or 'none'}; "
            f"expected {', '.join(fields.names) or 'none'}",
            component=component,
            stream=stream,
        )
    arrays = []
    for field, declared in zip(fields, schema, strict=True):
        column = batch.column(field.name)
        try:
            arrays.append(_cast(column, declared.type))
        except (pa.ArrowException, ValueError, TypeError) as error:
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


def check_required(component: str, stream: str, fields: Fields, batch: pa.RecordBatch) -> None:
    """Check that no required field of a record batch has a NULL.

    Raises:
        EmitError: One has; repair what the component reads, or its declaration.
    """
    for name in fields.required:
        nulls = batch.column(name).null_count
        if nulls:
            raise EmitError(
                f"{component!r} emitted NULL to stream {stream!r} in field {name!r}, which is "
                f"required; got it in {nulls} of {batch.num_rows} tuples; expected a value; leave "
                "out the ! of the field, or drop such tuples",
                component=component,
                stream=stream,
                field=name,
            )


def _cast(column: pa.Array, declared: pa.DataType) -> pa.Array:
    if column.type == declared:
        return column
    if pa.types.is_dictionary(column.type):
        return _cast(column.cast(column.type.value_type), declared)
    same_family = any(family(column.type) and family(declared) for family in _FAMILIES)
    if not same_family and not pa.types.is_null(column.type):
        raise TypeError("the types are incompatible; cast the column first")
    return fitted_array(column, declared)


def _array(field: Field, values: Sequence[Any], declared: pa.DataType) -> pa.Array:
    try:
        return pa.array(_exact(field, values), declared)
    except pa.ArrowInvalid:
        if field.type not in ("float", "double"):
            raise
        # Arrow refuses every whole number that is so large, also those that are one of the field.
        hold = exact_of(field.type)
        return pa.array([None if each is None else hold(each) for each in values], declared)


def _exact(field: Field, values: Sequence[Any]) -> Sequence[Any]:
    """Return values that Arrow takes exactly; the same object if they are as they were given.

    Raises:
        TypeError: A value is of another type than its field.
        NotExact: The field cannot hold it exactly.
    """
    kind = field.type
    name = kind.partition("(")[0]
    if _PLAIN[name].issuperset(map(type, values)):
        if name == "float":
            check_floats(values)
        elif name == "timestamp_ntz":
            for value in values:
                if value is not None and value.tzinfo is not None:
                    without_zone(value)
        return values
    hold = _MOMENTS[name] if name in _MOMENTS else exact_of(kind)
    return [None if value is None else hold(value) for value in values]


def _instant(value: Any) -> datetime.datetime | None:
    """Return a moment; a time without a zone is one in UTC."""
    found = moment(value)
    if found is None or found.tzinfo is not None:
        return found
    return found.replace(tzinfo=datetime.UTC)


_MOMENTS: dict[str, Callable[[Any], datetime.datetime | None]] = {
    "timestamp": _instant,
    "timestamp_ntz": lambda value: without_zone(moment(value)),
}


def _refused(
    component: str, stream: str, schema: pa.Schema, at: int, field: Field, values: Sequence[Any]
) -> EmitError:
    value, why = next(
        (value, why) for value in values if (why := _unfit(field, schema, at, value)) is not None
    )
    return EmitError(
        f"{component!r} emitted a value that does not fit column {field.name!r} of stream "
        f"{stream!r}; got {value!r:.200} ({type(value).__name__}); expected {field.type}{why}",
        component=component,
        stream=stream,
        column=field.name,
    )


def _too_long(
    component: str, stream: str, schema: pa.Schema, rows: Sequence[Sequence[Any]]
) -> EmitError:
    """Return the error for rows with a value that is too long for any column."""
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
        f"{TUPLE_BYTES_MAX}; no setting raises this limit; emit the value in pieces, or a "
        "reference to it",
        component=component,
        stream=stream,
        column=column,
        bytes=total,
    )


def _unfit(field: Field, schema: pa.Schema, at: int, value: Any) -> str | None:
    """Return why a value does not fit, if there is more to say than its type; None if it fits."""
    try:
        _array(field, [value], schema.field(at).type)
    except NotExact as error:
        return f"; {error}"
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return ""
    return None
