"""Checks of the arguments of operators: fields, names of columns, functions, parallelisms."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from txtopo.durations import Duration, duration
from txtopo.errors import FieldsError, TopologyError, nearest
from txtopo.state.registry import State
from txtopo.streams.event_time import SourceTime
from txtopo.topology.checks import check_parallelism
from txtopo.topology.component import ASYNC, runs_later
from txtopo.tuples import Field, Fields


def declared_fields(operator: str, given: object) -> Fields:
    """Return as ``Fields`` what an operator was given: a text or ``Fields``.

    Raises:
        FieldsError: It is neither, it cannot be parsed, or a stream cannot have one of the types.
    """
    if not isinstance(given, str | Fields):
        raise FieldsError(
            f"the fields of {operator} are of the wrong type; got {given!r:.100}; expected a "
            "string with names and types; write e.g. 'word string, amount long'",
            name=operator,
            setting="fields",
        )
    fields = Fields(given) if isinstance(given, str) else given
    for field in fields:
        if field.type == "json":
            raise FieldsError(
                f"field {field.name!r} of {operator} has the type json, which is only for the "
                "values of a state; expected another type; declare it as a string, and use "
                "json.dumps",
                field=field.name,
            )
    if fields.required:
        raise FieldsError(
            f"field {fields.required[0]!r} of {operator} is required, which only fields of spouts "
            f"and bolts are; leave out its !, and drop such rows with filter()",
            field=fields.required[0],
        )
    if not len(fields):
        raise FieldsError(f"{operator} declares no fields; expected at least one", name=operator)
    return fields


def column_names(operator: str, given: object, fields: Fields) -> tuple[str, ...]:
    """Return names of columns that were given as one name or several.

    Raises:
        FieldsError: A column is missing, or occurs twice.
    """
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Iterable) or isinstance(names, bytes):
        raise FieldsError(
            f"{operator} needs names of columns; got {given!r:.100}; expected one name or a list",
            name=operator,
        )
    found: list[str] = []
    for name in names:
        if not isinstance(name, str):
            raise FieldsError(
                f"{operator} needs names of columns; got {name!r:.100} among them; expected names "
                f"among {', '.join(fields.names)}",
                name=operator,
            )
        if name not in fields.index:
            raise FieldsError(
                f"{operator} names unknown column {name!r}; {nearest(name, fields.names)}",
                field=name,
            )
        if name in found:
            raise FieldsError(f"{operator} names column {name!r} twice; remove one", field=name)
        found.append(name)
    return tuple(found)


def column_name(operator: str, given: object, fields: Fields) -> str:
    """Return the name of a column that was given as one name.

    Raises:
        FieldsError: It is not a name, or there is no such column.
    """
    if not isinstance(given, str):
        raise FieldsError(
            f"{operator} needs the name of a column; got {given!r:.100}; expected one of "
            f"{', '.join(fields.names)}",
            name=operator,
        )
    (name,) = column_names(operator, given, fields)
    return name


def check_same_types(operator: str, got: Fields, expected: Fields) -> None:
    """Check that columns have the types of those that they are compared with.

    Raises:
        FieldsError: The number or a type differs.
    """
    if [field.type for field in got] != [field.type for field in expected]:
        raise FieldsError(
            f"the columns of {operator} do not fit the key; got {got!r}; expected "
            f"{len(expected)} of the types of {expected!r}, in its order; convert them with map()",
            name=operator,
        )


def check_new_columns(operator: str, fields: Fields, more: Iterable[Field]) -> Fields:
    """Return *fields* with further ones.

    Raises:
        FieldsError: A name is used already.
    """
    more = list(more)
    for field in more:
        if field.name in fields.index:
            raise FieldsError(
                f"{operator} would make column {field.name!r} twice; got it in the stream "
                f"({', '.join(fields.names)}) as well; rename one of them, e.g. with select(…, "
                f"other={field.name!r})",
                field=field.name,
            )
    return Fields.of([*fields, *more])


@dataclass(frozen=True, slots=True)
class EventTime:
    """The arguments of ``StreamBuilder.source`` about event time, as they were given."""

    column: str | None
    delay: Duration
    by: str | Sequence[str]
    idle_after: Duration | None
    clock: Duration | None
    max_ahead: Duration | None
    unusable: State | None = None


def declared_time(source: str, fields: Fields, given: EventTime) -> SourceTime | None:
    """Return what a source declares about its event time; None if it has none.

    Raises:
        TopologyError: An argument is wrong; the message says which.
    """
    operator = f"source {source!r}"
    if given.column is None:
        for name in ("delay", "by", "idle_after", "max_ahead", "clock", "unusable"):
            if value := getattr(given, name):
                raise TopologyError(
                    f"{operator} has {name}, but no event_time; got {name}={value!r}; expected "
                    "event_time= with the name of a column of type timestamp",
                    component=source,
                    setting=name,
                )
        return None
    column = _time_column(operator, given.column, fields)
    if given.clock is not None and given.idle_after is not None:
        raise TopologyError(
            f"{operator} has idle_after and clock; got {given.idle_after!r} and {given.clock!r}; "
            "expected only one: either a silent part no longer counts, or time continues for it",
            component=source,
            setting="clock",
        )

    by = column_names(f"{operator}, for by,", given.by, fields)
    if column in by:
        raise FieldsError(
            f"the parts of {operator} are identified by its event time; got by={given.by!r:.100}; "
            f"expected other columns than {column!r}: each time would be a separate part, and "
            "the watermark would stay at the earliest",
            field=column,
        )

    def length(name: str) -> datetime.timedelta | None:
        value = getattr(given, name)
        return None if value is None else duration(f"{name} of {operator}", value)

    return SourceTime(
        source,
        column,
        duration(f"the delay of {operator}", given.delay, zero=True),
        by,
        length("idle_after"),
        length("max_ahead"),
        length("clock"),
    )


def _time_column(operator: str, given: object, fields: Fields) -> str:
    """Return the column of the event time of a source."""
    if not isinstance(given, str):
        raise FieldsError(
            f"the event time of {operator} is one column; got {given!r:.100}; expected its "
            "name, e.g. event_time='ts'",
            name=operator,
            setting="event_time",
        )
    (column,) = column_names(f"{operator}, for its event time,", given, fields)
    kind = fields[fields.index[column]].type
    if kind != "timestamp":
        raise FieldsError(
            f"the event time of {operator} is of the wrong type; got {column!r}, {kind}; "
            "expected a timestamp; let the spout declare one",
            field=column,
        )
    return column


def check_function(
    operator: str,
    function: object,
    *arguments: str,
    may_yield: bool = False,
    may_await: bool = False,
) -> None:
    """Check that a function can be called with what an operator passes.

    Args:
        operator: The operator, for messages.
        function: The function.
        arguments: The names of what it is called with.
        may_yield: Whether it may be a generator function.
        may_await: Whether it may be a coroutine function.

    Raises:
        TopologyError: It is not a function, or takes other arguments.
    """
    if not callable(function) or isinstance(function, type):
        raise TopologyError(
            f"{operator} needs a function; got {function!r:.100}; expected one of "
            f"({', '.join(arguments)})",
            name=operator,
        )
    why = runs_later(function)
    fits = (may_yield and why != ASYNC) or (may_await and is_coroutine_function(function))
    if why and not fits:
        raise TopologyError(
            f"the function of {operator} does not return a value; got "
            f"{getattr(function, '__name__', 'a function')}, which is {why}; expected a function "
            "that returns what the operator needs; only the function of flat_map may yield",
            name=operator,
            got=why,
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a function in C may have no signature
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise TopologyError(
            f"the function of {operator} does not fit its call; got "
            f"{getattr(function, '__name__', 'a function')}{signature}; expected "
            f"({', '.join(arguments)})",
            name=operator,
        ) from error


def is_coroutine_function(function: object) -> bool:
    """Return whether a call of a function returns a coroutine; an object has it in __call__."""
    called = (function, getattr(function, "__call__", None))  # noqa: B004
    return any(map(inspect.iscoroutinefunction, called))


def parallelism_of(operator: str, given: int | None, inherited: int) -> int:
    """Return the parallelism of an operator.

    Raises:
        TopologyError: It is not a whole number of at least 1.
    """
    if given is None:
        return inherited
    check_parallelism(operator, given)
    return given
