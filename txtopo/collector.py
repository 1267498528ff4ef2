"""Collectors: where spouts and bolts emit, bound to one task of one attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txtopo.errors import EmitError
from txtopo.tuples import DEFAULT_STREAM, Stream

if TYPE_CHECKING:
    import pyarrow as pa

# Arrow batches of this many rows are the fastest for Python code (measured on words; smaller ones
# pay for each batch, larger ones leave the processor's caches).
BATCH_TUPLES_MAX = 10_000

RowSink = Callable[[str, list[Sequence[Any]], list[int] | None], None]
"""Takes (stream, rows, receiving task of each row for a direct stream)."""
BatchSink = Callable[[str, "pa.RecordBatch"], None]
"""Takes (stream, record batch of the declared fields)."""


class BatchOutputCollector:
    """Where a task emits (Storm ``BatchOutputCollector``).

    There is nothing to anchor or ack: a batch succeeds or fails as a whole. The attempt of a tuple
    is put there by the framework. ``emit`` returns nothing, since the receiving tasks are chosen
    later, for a whole column at once.

    Raises:
        EmitError: What is emitted was not declared (stream, number of values, type), or the batch
            is finished already; mend the bolt. It ends the run.
    """

    def __init__(
        self, component: str, streams: Mapping[str, Stream], rows: RowSink, batches: BatchSink
    ) -> None:
        self._component = component
        self._streams = streams
        self._row_sink = rows
        self._batch_sink = batches
        self._rows: dict[str, list[Sequence[Any]]] = {name: [] for name in streams}
        self._targets: dict[str, list[int]] = {n: [] for n, s in streams.items() if s.direct}
        self._arity = {n: len(s.fields) for n, s in streams.items() if not s.direct}
        self._open = True

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple: one value for each declared field, in order."""
        if self._arity.get(stream) != len(values):
            self._refuse(values, stream, direct=False)
        rows = self._rows[stream]
        # A copy, since a bolt may fill one list again and again.
        rows.append(tuple(values))
        if len(rows) >= BATCH_TUPLES_MAX:
            self._flush(stream)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to the given task of every bolt that subscribes to a direct stream."""
        if stream not in self._targets or not self._open:
            self._refuse(values, stream, direct=True)
        if len(self._streams[stream].fields) != len(values):
            self._refuse(values, stream, direct=True)
        self._targets[stream].append(task)
        rows = self._rows[stream]
        rows.append(tuple(values))
        if len(rows) >= BATCH_TUPLES_MAX:
            self._flush(stream)

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit many tuples as one Arrow record batch; columns are matched by name."""
        if stream not in self._arity or not self._open:
            self._refuse(batch.schema.names, stream, direct=False)
        self._flush(stream)
        self._batch_sink(stream, batch)

    @property
    def buffered(self) -> int:
        """How many tuples were emitted and are not handed on yet."""
        return sum(map(len, self._rows.values()))

    def flush(self) -> None:
        """Hand on what is buffered. Called by the framework."""
        for stream in self._streams:
            self._flush(stream)

    def close(self) -> None:
        """Hand on what is buffered and refuse everything after it. Called by the framework."""
        self.flush()
        self._open = False
        # So that emit need not look at two things for each tuple.
        self._arity.clear()

    def _flush(self, stream: str) -> None:
        rows = self._rows[stream]
        if not rows:
            return
        targets = self._targets.get(stream)
        self._row_sink(stream, rows, targets)
        self._rows[stream] = []
        if targets is not None:
            self._targets[stream] = []

    def _refuse(self, values: Sequence[Any], stream: str, *, direct: bool) -> None:
        if not self._open:
            raise EmitError(
                f"{self._component!r} emitted after its batch was finished; emit in finish_batch"
            )
        raise refusal(self._component, self._streams, values, stream, direct=direct)


class ArrowOutputCollector:
    """Where an ``ArrowBolt`` emits: ``emit`` takes a ``pyarrow.RecordBatch``."""

    def __init__(self, collector: BatchOutputCollector) -> None:
        self._collector = collector

    def emit(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit many tuples as one record batch; columns are matched by name."""
        self._collector.emit_batch(batch, stream)


def refusal(
    component: str,
    streams: Mapping[str, Stream],
    values: Sequence[Any],
    stream: str,
    *,
    direct: bool,
) -> EmitError:
    """Return the error for values that do not fit the stream that they were emitted to."""
    declared = streams.get(stream)
    if declared is None:
        known = ", ".join(sorted(streams)) or "none"
        return EmitError(
            f"{component!r} emitted to undeclared stream {stream!r}; declared are {known}"
        )
    if declared.direct != direct:
        need = "emit_direct(task, values)" if declared.direct else "emit(values)"
        return EmitError(f"{component!r} must use {need} for stream {stream!r}, as it is declared")
    return EmitError(
        f"{component!r} emitted {len(values)} values to stream {stream!r}; got "
        f"{list(values)!r:.200}; "
        f"expected {len(declared.fields)}: {', '.join(declared.fields.names)}"
    )
