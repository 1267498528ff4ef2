"""Collectors of at-least-once topologies, whose tuples belong to trees that are acked.

A collector belongs to one task and is used on the thread of that task only.

It does little for each tuple: it appends rows and anchors to lists. When an envelope is sealed,
the tasks of :mod:`txtopo.reliable.anchoring` choose the receivers and draw ids for whole columns.
That is why ``emit`` returns nothing.

Emits, acks, failures and renewals are sent when the slot has worked off its tuples, and by time
while it works: a :class:`FlushTimer` runs on another thread, and the next call of the collector,
or the end of the tuple, sees that sending is due. So no tuple costs a look at the clock.

The collectors of batches are in :mod:`txtopo.collector`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from txtopo.collector import BatchOutputCollector
from txtopo.emitted_values import BATCH_TUPLES_MAX, PLAIN_ROWS, check_values, copies_of
from txtopo.errors import BoltError, EmitError, text_of
from txtopo.tuples import DEFAULT_STREAM, Origin, Stream, Tuple

if TYPE_CHECKING:
    import pyarrow as pa

# Sending is due one to two intervals after the last time: well within any sensible timeout, and so
# much longer than a tuple takes that envelopes do not get too small.
FLUSH_INTERVAL_S = 0.05

Anchors = Tuple | Sequence[Tuple] | None
"""The inputs that a tuple is anchored to: one, several, or none."""


class _Emitting:
    """The part that the collectors of spouts and bolts share."""

    def __init__(
        self,
        component: str,
        streams: Mapping[str, Stream],
        send: Callable[[str], None],
        flush_timer: FlushTimer,
    ) -> None:
        self._component = component
        self._streams = streams
        self._send = send
        self._flush_timer = flush_timer
        self._arity = {n: len(s.fields) for n, s in streams.items() if not s.direct}
        self._copies = copies_of(streams)
        self.emitted: dict[str, Emitted] = {name: Emitted() for name in streams}
        self.errors: list[Exception] = []

    def report_error(self, error: Exception) -> None:
        """Report an error to the listeners of the run (``ErrorReported``), and continue.

        What is not an exception is reported as the text of a ``BoltError``.
        """
        self.errors.append(error if isinstance(error, Exception) else BoltError(text_of(error)))

    def _put(self, values: Sequence[Any], mark: object, stream: str) -> None:
        if self._arity.get(stream) != len(values) or type(values) not in PLAIN_ROWS:
            check_values(self._component, self._streams, values, stream, direct=False)
        emitted = self.emitted[stream]
        # A copy, since a bolt may fill one list again and again.
        emitted.rows.append(self._copies[stream](values))
        emitted.marks.append(mark)
        if len(emitted.rows) >= self._flush_timer.rows_max:
            self._send(stream)

    def _put_direct(self, task: int, values: Sequence[Any], mark: object, stream: str) -> None:
        check_values(self._component, self._streams, values, stream, direct=True)
        emitted = self.emitted[stream]
        emitted.rows.append(self._copies[stream](values))
        emitted.marks.append(mark)
        emitted.targets.append(task)
        if len(emitted.rows) >= self._flush_timer.rows_max:
            self._send(stream)


class OutputCollector(_Emitting):
    """Where a :class:`~txtopo.Bolt` emits and answers for its inputs (Storm ``OutputCollector``).

    Each input must be acked or failed once, in the same call or many calls later; otherwise its
    tree times out. Emits, acks and failures are sent within about 100 ms, even while ``execute`` is
    running, as long as it calls the collector. If it does not, the last ones may wait until it
    returns.

    Args:
        component: Id of the bolt.
        streams: The streams that it declares.
        send: Called with a stream that has enough rows for an envelope.
        flush_timer: Says when sending is due.
        leave: Called when it is, to send everything.

    Raises:
        EmitError: What is emitted was not declared (stream, number of values, type), or an anchor
            is not a tuple, or what is acked is not an input; repair the bolt. It ends the run.
    """

    def __init__(
        self,
        component: str,
        streams: Mapping[str, Stream],
        send: Callable[[str], None],
        flush_timer: FlushTimer,
        leave: Callable[[], None],
    ) -> None:
        super().__init__(component, streams, send, flush_timer)
        self._leave = leave
        self.answered: list[Inputs] = []
        """The groups of inputs of which some were acked since the last time."""
        self.failed: list[InputTuple] = []
        self.renewed: list[InputTuple] = []

    def emit(
        self, values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit one tuple.

        Args:
            values: One value for each declared field, in order.
            anchors: The inputs from which it results: their trees are complete only once this tuple
                is acked too. With None, it belongs to no tree, and its loss goes unnoticed. Anchor
                to an input before you ack it, because its ack may be sent immediately.
            stream: The stream to emit to.
        """
        if self._arity.get(stream) != len(values) or type(values) not in PLAIN_ROWS:
            check_values(self._component, self._streams, values, stream, direct=False)
        if anchors is not None and type(anchors) is not InputTuple:
            anchors = _as_they_are(anchors)
        # The body of ``_put`` again: a call would cost as much as all the rest.
        emitted = self.emitted[stream]
        emitted.rows.append(self._copies[stream](values))
        emitted.marks.append(anchors)
        if len(emitted.marks) >= self._flush_timer.rows_max:
            self._send(stream)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Anchors = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit one tuple to the given task of every bolt that subscribes to a direct stream.

        ``context.component_tasks(bolt)`` returns the numbers of the tasks.
        """
        self._put_direct(task, values, _as_they_are(anchors), stream)

    def ack(self, tuple: Tuple) -> None:
        """Ack an input that has been processed. A second ack or fail of an input does nothing."""
        # Every tuple that a bolt gets is an InputTuple; to check would cost a tenth of the call.
        try:
            inputs: Inputs = tuple.inputs  # type: ignore[attr-defined]
            row: int = tuple.row  # type: ignore[attr-defined]
        except AttributeError:
            raise self._no_input("acked", tuple) from None
        if not inputs.done[row]:
            inputs.done[row] = 1
            acked = inputs.acked
            if not acked:
                self.answered.append(inputs)
            acked.append(row)
            if self._flush_timer.due:
                self._leave()

    def fail(self, tuple: Tuple) -> None:
        """Fail the trees of an input immediately, instead of waiting for the timeout."""
        if not isinstance(tuple, InputTuple):
            raise self._no_input("failed", tuple)
        if not tuple.inputs.done[tuple.row]:
            tuple.inputs.done[tuple.row] = 1
            self.failed.append(tuple)
            if self._flush_timer.due:
                self._leave()

    def reset_timeout(self, tuple: Tuple) -> None:
        """Restart the timeout of the trees of an input, for work that takes a long time."""
        if not isinstance(tuple, InputTuple):
            raise self._no_input("renewed", tuple)
        self.renewed.append(tuple)
        if self._flush_timer.due:
            self._leave()

    def _no_input(self, done: str, given: object) -> EmitError:
        return EmitError(
            f"{self._component!r} {done} what is not an input; got {given!r:.200}; expected one "
            "tuple that was passed to its execute",
            component=self._component,
        )


class SpoutOutputCollector(_Emitting):
    """Where a :class:`~txtopo.Spout` emits (Storm ``SpoutOutputCollector``).

    Args:
        ack: Called at once with the message id of each tuple, where trees are not tracked; else
            None.
    """

    def __init__(
        self,
        component: str,
        streams: Mapping[str, Stream],
        send: Callable[[str], None],
        ack: Callable[[Any], None] | None,
    ) -> None:
        # Nobody drives this timer, since turns are short.
        super().__init__(component, streams, send, FlushTimer())
        self._ack = ack
        self.tuples = 0
        """The number of tuples emitted in this turn."""
        self.pending = 0
        """The number of pending trees of this task."""

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit one tuple.

        Args:
            values: One value for each declared field, in order.
            message_id: The argument of the one call of ``ack`` or ``fail`` that follows. Without
                an id the tuple is not tracked. With ``AtLeastOnceConfig(ackers=0)``, ``ack`` is
                called before this returns.
            stream: The stream to emit to.
        """
        self._put(values, message_id if self._ack is None else None, stream)
        self._count(message_id)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        message_id: Any = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit one tuple to the given task of every bolt that subscribes to a direct stream.

        ``context.component_tasks(bolt)`` returns the numbers of the tasks.
        """
        self._put_direct(task, values, message_id if self._ack is None else None, stream)
        self._count(message_id)

    def _count(self, message_id: Any) -> None:
        self.tuples += 1
        if message_id is None:
            return
        if self._ack is None:
            self.pending += 1
        else:
            self._ack(message_id)


class BasicOutputCollector(BatchOutputCollector):
    """Where a ``BasicBolt`` emits in an at-least-once topology, anchored to the current input."""

    def __init__(
        self, component: str, streams: Mapping[str, Stream], collector: OutputCollector
    ) -> None:
        super().__init__(component, streams, _unused, _unused)
        self._collector = collector
        self._flush_timer = collector._flush_timer
        self._emitted = collector.emitted
        self._put = collector._put
        self.current: Tuple | None = None

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple, anchored to the input that is executed."""
        if self._arity.get(stream) != len(values) or type(values) not in PLAIN_ROWS:
            check_values(self._component, self._streams, values, stream, direct=False)
        # As in ``OutputCollector.emit``.
        emitted = self._emitted[stream]
        emitted.rows.append(self._copies[stream](values))
        emitted.marks.append(self.current)
        if len(emitted.marks) >= self._flush_timer.rows_max:
            self._collector._send(stream)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to a task, anchored to the input that is executed."""
        self._collector.emit_direct(task, values, self.current, stream)

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit many tuples, all anchored to the input that is executed."""
        given = batch.schema.names
        check_values(self._component, self._streams, given, stream, direct=False)
        names = self._streams[stream].fields.names
        if sorted(given) != sorted(names):
            raise EmitError(
                f"{self._component!r} emitted a batch with the wrong columns to stream "
                f"{stream!r}; got {', '.join(given)}; expected {', '.join(names)}",
                component=self._component,
                stream=stream,
            )
        columns = [batch.column(name).to_pylist() for name in names]
        for values in zip(*columns, strict=True):
            self._put(values, self.current, stream)


class InputTuple(Tuple):
    """A tuple that a bolt gets, which may belong to trees. Made by :func:`input_tuples`.

    Attributes:
        inputs: The group of inputs that it came with.
        row: Its position in the group.
    """

    __slots__ = ("inputs", "row")
    inputs: Inputs
    row: int
    # Not one in Python: calling it for each tuple would double the cost of a tuple.
    __init__ = object.__init__


def input_tuples(
    rows: Iterable[Sequence[Any]], origin: Origin, source_task: int, inputs: Inputs
) -> Iterator[InputTuple]:
    """Yield the tuples of a group of inputs."""
    for row, values in enumerate(rows):
        made = InputTuple()
        made.values = values
        made.origin = origin
        made.source_task = source_task
        made.inputs = inputs
        made.row = row
        yield made


class Inputs(Protocol):
    """A group of tuples that a task gets together."""

    done: bytearray
    """For each tuple, whether it was acked or failed."""
    acked: list[int]
    """The positions of the tuples whose acks are not sent yet."""


class Emitted:
    """The tuples that were emitted to one stream and are not sent yet.

    Attributes:
        rows: The values.
        marks: The anchors of each row, in a spout its message id; None for none.
        targets: The receiving task of each row, on a direct stream.
    """

    __slots__ = ("marks", "rows", "targets")

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.marks: list[Any] = []
        self.targets: list[int] = []


class FlushTimer:
    """Says when a slot must send what its bolts have done so far, although they are still working.

    The host of the slot calls ``interval_over`` every ``FLUSH_INTERVAL_S``, on any thread. The
    bolts' thread calls ``left`` whenever it has sent something. They need no lock: if they cross,
    sending is due one interval sooner or later. So it is due one to two intervals after the last
    time.

    Attributes:
        due: Whether sending is due.
        rows_max: How many rows of a stream make an envelope: one when sending is due.
    """

    __slots__ = ("_left", "due", "rows_max")

    def __init__(self) -> None:
        self.due = False
        self.rows_max = BATCH_TUPLES_MAX
        self._left = False

    def interval_over(self) -> None:
        """Make sending due, unless something was sent since the last interval."""
        if self._left:
            self._left = False
        else:
            self.due, self.rows_max = True, 1

    def left(self) -> None:
        """Record that the slot sends its results now."""
        self.due, self.rows_max, self._left = False, BATCH_TUPLES_MAX, True


def _as_they_are(anchors: Anchors) -> Anchors:
    """Return a copy of several anchors, since the bolt may change its list before it is read."""
    if isinstance(anchors, Iterable) and not isinstance(anchors, Tuple | tuple | str):
        return tuple(anchors)
    return anchors


def _unused(*_: object) -> None:
    raise EmitError("a basic bolt's tuples go through the collector of its task")
