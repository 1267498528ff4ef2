"""Collectors of batches: where the tasks of a transactional topology emit.

A collector belongs to one task and to one attempt, and is used on the thread of that task only.

It does little for each tuple: it appends a row to a list. When an envelope is sealed, the tasks
choose the receivers for whole columns. That is why ``emit`` returns nothing.

The collectors of at-least-once topologies are in :mod:`txtopo.reliable.collector`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from txtopo.dead_letters import STREAM, Row, dead_letter, too_many
from txtopo.emitted_values import BATCH_TUPLES_MAX, PLAIN_ROWS, check_values, copies_of
from txtopo.errors import EmitError, similar
from txtopo.fitting import owned
from txtopo.tuples import DEFAULT_STREAM, Stream

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.metadata import Json

RowSink = Callable[[str, list[Sequence[Any]], list[int] | None], None]
"""Takes (stream, rows, receiving task of each row for a direct stream)."""

BatchSink = Callable[[str, "pa.RecordBatch"], None]
"""Takes (stream, record batch of the declared fields)."""

Fit = Callable[["Sequence[Sequence[Any]] | pa.RecordBatch"], "list[pa.RecordBatch]"]
"""Returns tuples of the stream ``default`` as record batches of the declared types."""


class SeenFields(NamedTuple):
    """Which declared fields the first JSON objects that a spout read have.

    Attributes:
        records: How many of them were looked at.
        missing: The declared fields that none of them has.
        others: Undeclared fields that they have.
    """

    records: int
    missing: frozenset[str]
    others: frozenset[str]

    def add(self, other: SeenFields) -> SeenFields:
        """Return what these objects and others have."""
        return SeenFields(
            self.records + other.records, self.missing & other.missing, self.others | other.others
        )

    def warnings(self, reader: str) -> Iterator[str]:
        """Yield a warning for each field that is probably misspelled."""
        for name in sorted(self.missing if self.records else ()):
            others = sorted(self.others)
            shown = [f"{other!r:.60}" for other in others[:10]] + ["…"] * (len(others) > 10)
            hint = similar(name, others)
            yield (
                f"{reader}: none of the first {self.records} JSON objects has the declared field "
                f"{name!r}, which counts as NULL; undeclared fields there are "
                f"{', '.join(shown) or 'none'}" + (f"; {hint}" if hint else "")
            )


class BatchOutputCollector:
    """Where a task emits (Storm ``BatchOutputCollector``).

    There is nothing to anchor or ack: a batch succeeds or fails as a whole. The framework adds the
    attempt to each tuple. ``emit`` returns nothing, since the receiving tasks are chosen later, for
    a whole column at once.

    Raises:
        EmitError: A tuple does not match the declaration (stream, number of values, type), or the
            batch is already finished; repair the bolt. The error ends the run.
    """

    def __init__(
        self,
        component: str,
        streams: Mapping[str, Stream],
        rows: RowSink,
        batches: BatchSink,
        dead_letters_max: int | None = None,
        fit: Fit | None = None,
        saw: Callable[[SeenFields], None] | None = None,
    ) -> None:
        self._saw = saw
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
        if self._arity.get(stream) != len(values) or type(values) not in PLAIN_ROWS:
            self._check(values, stream, direct=False)
        rows = self._rows[stream]
        # A copy, since a bolt may reuse one list for all its tuples.
        rows.append(self._copies[stream](values))
        if len(rows) >= BATCH_TUPLES_MAX:
            self._flush(stream)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to the given task of every bolt that subscribes to a direct stream.

        ``context.component_tasks(bolt)`` returns the numbers of the tasks.
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
        """Return tuples of the stream ``default`` as record batches for ``emit_batch``.

        Spouts call it to find tuples that do not fit, and set those aside. It emits nothing.

        Raises:
            EmitError: The values of a tuple do not match the declaration.
        """
        assert self._fit is not None
        for values in rows if isinstance(rows, list) else ():
            if self._arity.get(DEFAULT_STREAM) != len(values) or type(values) not in PLAIN_ROWS:
                self._check(values, DEFAULT_STREAM, direct=False)
        return self._fit(rows)

    def saw(self, seen: SeenFields) -> None:
        """Tell the driver which fields the first records of the task have. Called by spouts."""
        if self._saw is not None:
            self._saw(seen)

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
        """The number of emitted tuples that were not passed on yet."""
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
        """Send the buffered tuples, and refuse all later ones. Called by the framework."""
        self.flush()
        self._open = False
        # Without arities emit takes its slow path, which checks _open. So it makes one check, not
        # two, for each tuple.
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
        """Refuse rows of several threads: some of them would be lost, and others duplicated.

        A check per tuple would add a fifth to ``emit``; a check per envelope is enough.
        """
        self._shared = self._shared or get_ident() != self._thread
        if self._shared:
            raise EmitError(
                f"{self._component!r} emitted on several threads; expected all calls of the "
                "collector on the thread that calls the bolt or spout; let the other threads "
                "return their values, and emit them there",
                component=self._component,
            )

    def _check(self, values: Sequence[Any], stream: str, *, direct: bool) -> None:
        if not self._open:
            raise EmitError(
                f"{self._component!r} emitted after its batch was finished; emit in finish_batch",
                component=self._component,
            )
        check_values(self._component, self._streams, values, stream, direct=direct)


class RevocableOutputCollector(BatchOutputCollector):
    """Where a ``BasicBolt`` emits in a topology with dead letters.

    Tuples that are emitted for an input wait until ``execute`` has returned. Until then they can be
    dropped.

    Attributes:
        mark: Returns how many tuples wait, for :meth:`drop`; called before each input.
        full: Whether enough tuples wait to fill an envelope.
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
        # These lists are emptied, never replaced. A bolt with one stream needs no loop per input.
        lists = list(self._rows.values())
        self.mark: Callable[[], int | list[int]] = (
            lists[0].__len__ if len(lists) == 1 else lambda: list(map(len, lists))
        )
        self.full = self._has_batches = False

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit many tuples as one Arrow record batch; columns are matched by name."""
        if stream not in self._arity:
            self._check(batch.schema.names, stream, direct=False)
        # It waits among the rows, so that the tuples keep their order.
        self._rows[stream].append(owned(batch))
        self.full = self._has_batches = True

    def flush(self) -> None:
        """Send all buffered tuples. Called by the framework, between two inputs."""
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

    @property
    def takes_dead_letters(self) -> bool:
        """Whether a row that cannot be processed becomes a dead letter of the topology."""
        return self._collector.takes_dead_letters

    def set_aside(self, error: Exception, place: Mapping[str, Json], record: object) -> None:
        """Make a dead letter of a row. Called by the framework."""
        self._collector.set_aside(error, place, record)
