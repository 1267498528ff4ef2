"""What becomes of emitted values: they are checked against their stream, then copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from txtopo.errors import EmitError, count_text
from txtopo.tuples import Stream

# Arrow batches of this many rows are the fastest for Python code (measured on words; smaller ones
# pay for each batch, larger ones leave the processor's caches).
BATCH_TUPLES_MAX = 10_000

PLAIN_ROWS = frozenset((tuple, list))
"""The types of nearly all values that are emitted; others are looked at more closely."""

Copy = Callable[[Sequence[Any]], tuple[Any, ...]]
"""Returns emitted values that do not change when the bolt uses their list or buffers again."""


def check_values(
    component: str,
    streams: Mapping[str, Stream],
    values: Sequence[Any],
    stream: str,
    *,
    direct: bool,
) -> None:
    """Check that values fit the stream that they are emitted to.

    Raises:
        EmitError: They do not fit, or they are a text, a mapping or a set, which would be taken
            apart into other values than those that were meant.
    """
    declared = streams.get(stream)
    if declared is None:
        known = ", ".join(sorted(streams)) or "none"
        raise EmitError(
            f"{component!r} emitted to undeclared stream {stream!r}; the declared streams are "
            f"{known}",
            component=component,
            stream=str(stream),
            expected=tuple(sorted(streams)),
        )
    if declared.direct != direct:
        need = "emit_direct(task, values)" if declared.direct else "emit(values)"
        raise EmitError(
            f"{component!r} must use {need} for stream {stream!r}, as it is declared",
            component=component,
            stream=stream,
            expected=need,
        )
    names = ", ".join(declared.fields.names)
    if isinstance(values, str | bytes | bytearray):
        raise EmitError(
            f"{component!r} emitted a string to stream {stream!r}; got {values!r:.200}; expected "
            f"a list of values: {names}; write emit([value])",
            component=component,
            stream=stream,
            got=f"{values!r:.200}",
        )
    if isinstance(values, Mapping | Set):
        raise EmitError(
            f"{component!r} emitted a {type(values).__name__} to stream {stream!r}; got "
            f"{values!r:.200}; expected a list of values, in this order: {names}",
            component=component,
            stream=stream,
            got=f"{values!r:.200}",
        )
    if len(values) != len(declared.fields):
        raise EmitError(
            f"{component!r} emitted {count_text(len(values), 'value')} to stream {stream!r}; got "
            f"{list(values)!r:.200}; expected {len(declared.fields)} ({names})",
            component=component,
            stream=stream,
            got=len(values),
            expected=len(declared.fields),
        )


def copies_of(streams: Mapping[str, Stream]) -> dict[str, Copy]:
    """Return for each stream how its tuples are copied when they are emitted.

    Only a ``binary`` field takes values that can change, so other streams pay nothing.
    """
    return {
        name: copied_row if any(f.type == "binary" for f in stream.fields) else tuple
        for name, stream in streams.items()
    }


def copied_row(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return a copy of a row's values, so that its list and buffers can be used again."""
    return tuple(
        memoryview(value).tobytes() if isinstance(value, bytearray | memoryview) else value
        for value in values
    )
