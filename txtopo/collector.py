"""Collectors: where spouts and bolts emit, and where bolts ack and fail.

A collector belongs to one task and is used on the thread of that task only. Those of batches
(``BatchOutputCollector``, ``ArrowOutputCollector``) belong to one attempt as well.

A collector does little for each tuple: it appends rows and anchors to lists. When an envelope is
sealed, the tasks of :mod:`txtopo.stages.anchoring` choose the receivers and draw ids for whole
columns. That is why ``emit`` returns nothing.

In an at-least-once topology the collector's emits, acks, failures and renewals are sent when the
slot has worked off its tuples, and by time while it works: a :class:`Pulse` beats on another
thread, and the next call of the collector, or the end of the tuple, sees that sending is due. So no
tuple costs a look at the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

from txtopo.dead_letters import STREAM, Row, dead_letter, too_many
from txtopo.errors import BoltError, EmitError, text_of
from txtopo.fitting import owned
from txtopo.tuples import DEFAULT_STREAM, Origin, Stream, Tuple

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.metadata import Json

# Arrow batches of this many rows are the fastest for Python code (measured on words; smaller ones
# pay for each batch, larger ones leave the processor's caches).
BATCH_TUPLES_MAX = 10_000

# Sending is due one to two beats after the last time: well within any sensible timeout, and so much
# longer than a tuple takes that envelopes do not get too small.
BEAT_S = 0.05

RowSink = Callable[[str, list[Sequence[Any]], list[int] | None], None]
"""Takes (stream, rows, receiving task of each row for a direct stream)."""

BatchSink = Callable[[str, "pa.RecordBatch"], None]
"""Takes (stream, record batch of the declared fields)."""

Fit = Callable[["Sequence[Sequence[Any]] | pa.RecordBatch"], "list[pa.RecordBatch]"]
"""Returns tuples of the stream ``default`` as record batches of the declared types."""

_ROWS = frozenset((tuple, list))
"""The types of nearly all values that are emitted; others are looked at more closely."""

Copy = Callable[[Sequence[Any]], tuple[Any, ...]]
"""Returns emitted values that do not change when the bolt uses their list or buffers again."""

Anchors = Tuple | Sequence[Tuple] | None
"""The inputs that a tuple is anchored to: one, several, or none."""


class BatchOutputCollector:
    """Where a task emits (Storm ``BatchOutputCollector``).

    There is nothing to anchor or ack: a batch succeeds or fails as a whole. The attempt of a tuple
    is put there by the framework. ``emit`` returns nothing, since the receiving tasks are chosen
    later, for a whole column at once.

    Raises:
        EmitError: What is emitted was not declared (stream, number of values, type), or the batch
            is finished already; repair the bolt. It ends the run.
    """

    def __init__(
        self,
        component: str,
        streams: Mapping[str, Stream],
        rows: RowSink,
        batches: BatchSink,
        dead_letters_max: int | None = None,
        fit: Fit | None = None,
    ) -> None:
        self._component = component
        self._streams = streams
        self._row_sink = rows
        self._batch_sink = batches
        self._rows: dict[str, list[Sequence[Any]]] = {name: [] for name in streams}
        self._dead_letters_max = dead_letters_max
        self._fit = fit
        self._thread, self._shared = get_ident(), False
        self._dead_letters: list[Row] = []
        self._dead_letters_sent = 0
        self._targets: dict[str, list[int]] = {n: [] for n, s in streams.items() if s.direct}
        self._arity = {n: len(s.fields) for n, s in streams.items() if not s.direct}
        self._copies = copies_of(streams)
        self._open = True

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple: one value for each declared field, in order."""
        if self._arity.get(stream) != len(values) or type(values) not in _ROWS:
            self._check(values, stream, direct=False)
        rows = self._rows[stream]
        # A copy, since a bolt may fill one list again and again.
        rows.append(self._copies[stream](values))
        if len(rows) >= BATCH_TUPLES_MAX:
            self._flush(stream)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to the given task of every bolt that subscribes to a direct stream.

        ``context.component_tasks(bolt)`` has the numbers of the tasks.
        """
        self._check(values, stream, direct=True)
        self._targets[stream].append(task)
        rows = self._rows[stream]
        rows.append(self._copies[stream](values))
        if len(rows) >= BATCH_TUPLES_MAX:
            self._flush(stream)

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit many tuples as one Arrow record batch; columns are matched by name.

        It is copied, so the memory of its columns may be used again.
        """
        if stream not in self._arity:
            self._check(batch.schema.names, stream, direct=False)
        self._flush(stream)
        self._batch_sink(stream, owned(batch))

    def fitted(self, rows: Sequence[Sequence[Any]] | pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return tuples for the stream ``default`` in the form in which ``emit_batch`` takes them.

        Called by spouts that set tuples aside which do not fit; nothing is emitted.

        Raises:
            EmitError: A tuple has other values than declared.
        """
        assert self._fit is not None
        for values in rows if isinstance(rows, list) else ():
            if self._arity.get(DEFAULT_STREAM) != len(values) or type(values) not in _ROWS:
                self._check(values, DEFAULT_STREAM, direct=False)
        return self._fit(rows)

    @property
    def takes_dead_letters(self) -> bool:
        """Whether a record that cannot be processed becomes a dead letter of the topology."""
        return self._dead_letters_max is not None

    def set_aside(self, error: Exception, place: Mapping[str, Json], record: object) -> None:
        """Make a dead letter of a record. Called by spouts and by the framework.

        Args:
            error: Why the record cannot be processed. It is raised if the topology takes no dead
                letters.
            place: Where it was read.
            record: Its bytes, its tuple, or its values.

        Raises:
            TooManyDeadLetters: The task has more of them than the batch may have.
        """
        if self._dead_letters_max is None:
            raise error
        letters = self._dead_letters
        letters.append(dead_letter(self._component, error, place, record))
        if len(letters) > self._dead_letters_max:
            raise too_many(len(letters), self._dead_letters_max, letters[0])

    @property
    def buffered(self) -> int:
        """The number of emitted tuples that are not handed on yet."""
        waiting = len(self._dead_letters) - self._dead_letters_sent
        return sum(map(len, self._rows.values())) + waiting

    def flush(self) -> None:
        """Hand on the buffered tuples. Called by the framework."""
        for stream in self._streams:
            self._flush(stream)
        self._flush_dead_letters()

    def _flush_dead_letters(self) -> None:
        if self._dead_letters_sent < len(self._dead_letters):
            self._row_sink(STREAM, [*self._dead_letters[self._dead_letters_sent :]], None)
            self._dead_letters_sent = len(self._dead_letters)

    def close(self) -> None:
        """Hand on the buffered tuples and refuse all later ones. Called by the framework."""
        self.flush()
        self._open = False
        # So that emit need not check two things for each tuple.
        self._arity.clear()

    def _flush(self, stream: str) -> None:
        self._check_thread()
        rows = self._rows[stream]
        if not rows:
            return
        targets, count = self._targets.get(stream), len(rows)
        self._rows[stream] = []
        if targets is not None:
            self._targets[stream] = []
        self._row_sink(stream, rows, targets)
        if len(rows) != count:
            self._shared = True
            self._check_thread()

    def _check_thread(self) -> None:
        """Refuse rows of several threads: some of them would be lost, and others come twice.

        To look for each tuple would cost a fifth of ``emit``; to look for each envelope is enough.
        """
        self._shared = self._shared or get_ident() != self._thread
        if self._shared:
            raise EmitError(
                f"{self._component!r} emitted on several threads; expected calls of the collector "
                "on the thread that calls the bolt or spout only; let the other threads return "
                "their values, and emit them there",
                component=self._component,
            )

    def _check(self, values: Sequence[Any], stream: str, *, direct: bool) -> None:
        if not self._open:
            raise EmitError(
                f"{self._component!r} emitted after its batch was finished; emit in finish_batch"
            )
        check_values(self._component, self._streams, values, stream, direct=direct)


class RevocableOutputCollector(BatchOutputCollector):
    """Where a ``BasicBolt`` emits in a topology with dead letters.

    What it emits for a tuple waits until ``execute`` has returned, and can be dropped until then.

    Attributes:
        mark: Returns how much waits, for :meth:`drop`; called before each input.
        full: Whether so much waits that it fills an envelope.
    """

    def __init__(
        self,
        component: str,
        streams: Mapping[str, Stream],
        rows: RowSink,
        batches: BatchSink,
        dead_letters_max: int,
    ) -> None:
        super().__init__(component, streams, rows, batches, dead_letters_max)
        # These lists are emptied, not replaced. With one of them, an input needs no loop.
        lists = list(self._rows.values())
        self.mark: Callable[[], int | list[int]] = (
            lists[0].__len__ if len(lists) == 1 else lambda: list(map(len, lists))
        )
        self.full = self._has_batches = False

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit many tuples as one Arrow record batch; columns are matched by name."""
        if stream not in self._arity:
            self._check(batch.schema.names, stream, direct=False)
        # It waits among the rows, so that the order of tuples stays.
        self._rows[stream].append(owned(batch))
        self.full = self._has_batches = True

    def flush(self) -> None:
        """Hand on all that waits. Called by the framework, between two inputs."""
        for stream, rows in self._rows.items():
            self._hand_on(stream, rows)
        self.full = self._has_batches = False
        self._flush_dead_letters()

    def drop(self, mark: int | list[int]) -> None:
        """Drop what was emitted since a mark."""
        counts = [mark] if isinstance(mark, int) else mark
        for (stream, rows), count in zip(self._rows.items(), counts, strict=True):
            del rows[count:]
            if stream in self._targets:
                del self._targets[stream][count:]

    def _flush(self, stream: str) -> None:
        self.full = True  # in the middle of an input

    def _hand_on(self, stream: str, rows: list[Sequence[Any]]) -> None:
        targets = self._targets.get(stream)
        if not self._has_batches or targets is not None:
            if rows:
                self._row_sink(stream, rows, targets)
        else:
            for plain, some in groupby(rows, lambda row: type(row) is tuple):
                if plain:
                    self._row_sink(stream, list(some), None)
                else:
                    for batch in some:
                        self._batch_sink(stream, batch)
        rows.clear()
        if targets is not None:
            targets.clear()


class ArrowOutputCollector:
    """Where an ``ArrowBolt`` emits: ``emit`` takes a ``pyarrow.RecordBatch``."""

    def __init__(self, collector: BatchOutputCollector) -> None:
        self._collector = collector

    def emit(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit many tuples as one record batch; columns are matched by name."""
        self._collector.emit_batch(batch, stream)


class _Emitting:
    """The part that the collectors of spouts and bolts share."""

    def __init__(
        self,
        component: str,
        streams: Mapping[str, Stream],
        send: Callable[[str], None],
        pulse: Pulse,
    ) -> None:
        self._component = component
        self._streams = streams
        self._send = send
        self._pulse = pulse
        self._arity = {n: len(s.fields) for n, s in streams.items() if not s.direct}
        self._copies = copies_of(streams)
        self.emitted: dict[str, Emitted] = {name: Emitted() for name in streams}
        self.errors: list[Exception] = []

    def report_error(self, error: Exception) -> None:
        """Report an error to the listeners of the run (``ErrorReported``), and go on.

        What is no exception is reported as the text of a ``BoltError``.
        """
        self.errors.append(error if isinstance(error, Exception) else BoltError(text_of(error)))

    def _put(self, values: Sequence[Any], mark: object, stream: str) -> None:
        if self._arity.get(stream) != len(values) or type(values) not in _ROWS:
            check_values(self._component, self._streams, values, stream, direct=False)
        emitted = self.emitted[stream]
        # A copy, since a bolt may fill one list again and again.
        emitted.rows.append(self._copies[stream](values))
        emitted.marks.append(mark)
        if len(emitted.rows) >= self._pulse.rows_max:
            self._send(stream)

    def _put_direct(self, task: int, values: Sequence[Any], mark: object, stream: str) -> None:
        check_values(self._component, self._streams, values, stream, direct=True)
        emitted = self.emitted[stream]
        emitted.rows.append(self._copies[stream](values))
        emitted.marks.append(mark)
        emitted.targets.append(task)
        if len(emitted.rows) >= self._pulse.rows_max:
            self._send(stream)


class OutputCollector(_Emitting):
    """Where a :class:`~txtopo.Bolt` emits and answers for its inputs (Storm ``OutputCollector``).

    Each input must be acked or failed, once, now or many calls later; otherwise its tree times out.
    Emits, acks and failures are sent within about 100 ms, also while ``execute`` goes on, as long
    as it calls the collector. If it calls nothing for a long time, the last ones may wait until it
    ends.

    Args:
        component: Id of the bolt.
        streams: The streams that it declares.
        send: Called with a stream that has enough rows for an envelope.
        pulse: Says when sending is due.
        leave: Called when it is, to send everything.

    Raises:
        EmitError: What is emitted was not declared (stream, number of values, type), or an anchor
            is no tuple, or what is acked is no input; repair the bolt. It ends the run.
    """

    def __init__(
        self,
        component: str,
        streams: Mapping[str, Stream],
        send: Callable[[str], None],
        pulse: Pulse,
        leave: Callable[[], None],
    ) -> None:
        super().__init__(component, streams, send, pulse)
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
            anchors: The inputs that it follows from: their trees are complete only when this tuple
                is acked as well. With None it belongs to no tree, and its loss is not noticed.
                Anchor to an input before you ack it, since its ack may be sent at once.
            stream: The stream to emit to.
        """
        if self._arity.get(stream) != len(values) or type(values) not in _ROWS:
            check_values(self._component, self._streams, values, stream, direct=False)
        if anchors is not None and type(anchors) is not InputTuple:
            anchors = _as_they_are(anchors)
        # The body of ``_put`` again: a call would cost as much as all the rest.
        emitted = self.emitted[stream]
        emitted.rows.append(self._copies[stream](values))
        emitted.marks.append(anchors)
        if len(emitted.marks) >= self._pulse.rows_max:
            self._send(stream)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Anchors = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit one tuple to the given task of every bolt that subscribes to a direct stream.

        ``context.component_tasks(bolt)`` has the numbers of the tasks.
        """
        self._put_direct(task, values, _as_they_are(anchors), stream)

    def ack(self, tuple: Tuple) -> None:
        """Ack an input: it is processed. One that was acked or failed before is left as it is."""
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
            if self._pulse.due:
                self._leave()

    def fail(self, tuple: Tuple) -> None:
        """Fail the trees of an input now, so that their spouts need not wait for the timeout."""
        if not isinstance(tuple, InputTuple):
            raise self._no_input("failed", tuple)
        if not tuple.inputs.done[tuple.row]:
            tuple.inputs.done[tuple.row] = 1
            self.failed.append(tuple)
            if self._pulse.due:
                self._leave()

    def reset_timeout(self, tuple: Tuple) -> None:
        """Restart the timeout of the trees of an input, for work that takes long."""
        if not isinstance(tuple, InputTuple):
            raise self._no_input("renewed", tuple)
        self.renewed.append(tuple)
        if self._pulse.due:
            self._leave()

    def _no_input(self, done: str, given: object) -> EmitError:
        return EmitError(
            f"{self._component!r} {done} what is no input; got {given!r:.200}; expected one tuple "
            "that its execute was given",
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
        super().__init__(component, streams, send, Pulse())  # never beats, since turns are short
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
                an id the tuple is not tracked. With ``Config(ackers=0)``, ``ack`` is called before
                this returns.
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

        ``context.component_tasks(bolt)`` has the numbers of the tasks.
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
        self._pulse = collector._pulse
        self._emitted = collector.emitted
        self._put = collector._put
        self.current: Tuple | None = None

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple, anchored to the input that is executed."""
        if self._arity.get(stream) != len(values) or type(values) not in _ROWS:
            check_values(self._component, self._streams, values, stream, direct=False)
        # As in ``OutputCollector.emit``.
        emitted = self._emitted[stream]
        emitted.rows.append(self._copies[stream](values))
        emitted.marks.append(self.current)
        if len(emitted.marks) >= self._pulse.rows_max:
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
                f"{self._component!r} emitted a batch with other columns to stream {stream!r}; got "
                f"{', '.join(given)}; expected {', '.join(names)}"
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


class Pulse:
    """Says when a slot must send what its bolts have done so far, although they are still working.

    The host of the slot calls ``beat`` every ``BEAT_S``, on any thread. The bolts' thread calls
    ``left`` whenever it has sent something. They need no lock: if they cross, sending is due one
    beat sooner or later. So it is due one to two beats after the last time.

    Attributes:
        due: Whether sending is due.
        rows_max: How many rows of a stream make an envelope: one when sending is due.
    """

    __slots__ = ("_left", "due", "rows_max")

    def __init__(self) -> None:
        self.due = False
        self.rows_max = BATCH_TUPLES_MAX
        self._left = False

    def beat(self) -> None:
        """Make sending due, unless something was sent since the last beat."""
        if self._left:
            self._left = False
        else:
            self.due, self.rows_max = True, 1

    def left(self) -> None:
        """Note that something is sent now."""
        self.due, self.rows_max, self._left = False, BATCH_TUPLES_MAX, True


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
        EmitError: They do not, or they are a text, a mapping or a set, of which not the values that
            were meant would be emitted.
    """
    declared = streams.get(stream)
    if declared is None:
        known = ", ".join(sorted(streams)) or "none"
        raise EmitError(
            f"{component!r} emitted to undeclared stream {stream!r}; declared are {known}"
        )
    if declared.direct != direct:
        need = "emit_direct(task, values)" if declared.direct else "emit(values)"
        raise EmitError(f"{component!r} must use {need} for stream {stream!r}, as it is declared")
    names = ", ".join(declared.fields.names)
    if isinstance(values, str | bytes | bytearray):
        raise EmitError(
            f"{component!r} emitted a text to stream {stream!r}; got {values!r:.200}; expected a "
            f"list of values: {names}; write emit([value])"
        )
    if isinstance(values, Mapping | Set):
        raise EmitError(
            f"{component!r} emitted a {type(values).__name__} to stream {stream!r}; got "
            f"{values!r:.200}; expected a list of values, in this order: {names}"
        )
    if len(values) != len(declared.fields):
        raise EmitError(
            f"{component!r} emitted {len(values)} values to stream {stream!r}; got "
            f"{list(values)!r:.200}; expected {len(declared.fields)}: {names}"
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
    """Return values of a row that stay as they are when their list and buffers are used again."""
    return tuple(
        memoryview(value).tobytes() if isinstance(value, bytearray | memoryview) else value
        for value in values
    )


def _as_they_are(anchors: Anchors) -> Anchors:
    """Return a copy of several anchors, since the bolt may change its list before it is read."""
    if isinstance(anchors, Iterable) and not isinstance(anchors, Tuple | tuple | str):
        return tuple(anchors)
    return anchors


def _unused(*_: object) -> None:
    raise EmitError("a basic bolt's tuples go through the collector of its task")
