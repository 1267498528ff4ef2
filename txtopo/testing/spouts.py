"""FeederSpout and scripted spouts: spouts for tests, which emit what the test specifies.

A :class:`FeederSpout` is fed by the test, one tuple at a time, while the topology runs (Storm's
``FeederSpout``).

The batches, outages, delays, changed replays and poison records of a :class:`ScriptedSpout` are
data: a script. The records of a partition are those of its batches, one after the other. A batch
takes as many as the script specifies, from where the previous batch ended. Whatever is left at the
end, after an outage or a smaller replay, comes in an additional batch. So each record counts once,
whatever the script.

Spouts and bolts are copied for each task. A :class:`Shared` object stays the same object when it is
pickled and unpickled in this process, so a test can talk to a running spout.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import AtLeastOnceConfig, Config
from txtopo.context import TaskContext
from txtopo.errors import FailedException, SourceDataLost, TopologyError
from txtopo.metadata import Json
from txtopo.reliable.collector import SpoutOutputCollector
from txtopo.reliable.spout import Spout
from txtopo.spouts.memory import Outage, Recut
from txtopo.spouts.spout import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
)
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from txtopo.testing.cluster import SimulatedCluster


class FeederSpout(Spout):
    """Emits the tuples that a test feeds it, and lists which were acked and which failed.

    It works only in the process of the test: with the carrier ``local``, or in a
    :class:`~txtopo.testing.SimulatedCluster`.

    It never replays a tuple by itself; feed it again. All its tasks share the tuples. The methods
    for tests may be called from any thread.

    Args:
        fields: Fields of its tuples.
    """

    def __init__(self, fields: Fields) -> None:
        self.output_fields = fields
        self._feed = _Feed()

    @property
    def acked(self) -> list[Any]:
        """Message ids in the order in which they were acked."""
        return self._feed.acked

    @property
    def failed(self) -> list[Any]:
        """Message ids in the order in which they failed."""
        return self._feed.failed

    @property
    def opened(self) -> int:
        """How many times tasks of this spout were opened."""
        return self._feed.opened

    def feed(self, values: Sequence[Any], message_id: Any = None) -> None:
        """Let a tuple be emitted; it is tracked if *message_id* is given."""
        self._feed.waiting.append((values, message_id))

    def attach(self, cluster: SimulatedCluster) -> None:
        """From now on, wait in the simulated time of *cluster*, which calls this."""
        self._feed.cluster = cluster

    def wait_until_acked(self, *message_ids: Any, timeout_s: float = 60.0) -> None:
        """Wait until all of these messages are acked; in a ``SimulatedCluster`` in simulated time.

        Raises:
            TimeoutError: Some are not acked within *timeout_s*; the message lists them.
        """
        feed = self._feed

        def missing() -> list[Any]:
            return [each for each in message_ids if each not in feed.acked]

        try:
            if feed.cluster is not None:
                feed.cluster.run_until(lambda: not missing(), timeout_s)
                return
            with feed.changed:
                if feed.changed.wait_for(lambda: not missing(), timeout_s):
                    return
            raise TimeoutError
        except TimeoutError:
            raise TimeoutError(
                f"not acked within {timeout_s:g} s: {missing()!r:.200}; failed are "
                f"{feed.failed!r:.200}"
            ) from None

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        """Keep the collector of the task."""
        self._feed.opened += 1
        self._collector = collector

    def next_tuple(self) -> None:
        """Emit the oldest fed tuple."""
        if self._feed.waiting:
            values, message_id = self._feed.waiting.popleft()
            self._collector.emit(values, message_id)

    def ack(self, message_id: Any) -> None:
        """Record the message id."""
        with self._feed.changed:
            self._feed.acked.append(message_id)
            self._feed.changed.notify_all()

    def fail(self, message_id: Any) -> None:
        """Record the message id."""
        with self._feed.changed:
            self._feed.failed.append(message_id)
            self._feed.changed.notify_all()


class ScriptedSpout(OpaquePartitionedTransactionalSpout):
    """An opaque spout that follows a script, for tests of topologies.

    Delivery: opaque. Each record counts in exactly one committed txid, whatever the script. The
    records are in memory and the tasks read them. If a later start has a script with fewer records
    than were read, it ends with ``SourceDataLost``.

    Args:
        fields: The fields.
        batches: The rows of txid 1, 2, 3 …: a list for one partition, or lists by partition.
        script: The events: ``Outage`` (a partition is down and keeps its position), ``Recut`` (an
            attempt takes another number of rows), ``Late`` and ``Poison``.

    Raises:
        TopologyError: The batches or the script are wrong; repair them.

    Example:
        >>> from txtopo import Fields
        >>> from txtopo.spouts import Outage
        >>> from txtopo.testing import Late, Poison, ScriptedSpout
        >>> spout = ScriptedSpout(
        ...     Fields("word string"),
        ...     batches=[{0: [["a"], ["b"]], 1: [["c"]]}, [["d"]]],
        ...     script=[Outage(partition=1, txid=1), Late(txid=2), Poison(record=2, attempts=1)],
        ... )
    """

    def __init__(self, fields: Fields, batches: Batches, script: Sequence[Event] = ()) -> None:
        self.output_fields = fields
        self._script = Script.of(fields, batches, script)

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part."""
        return _ScriptedCoordinator(self._script)

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _OpaqueScriptedEmitter(self._script)


class ScriptedTransactionalSpout(PartitionedTransactionalSpout):
    """A :class:`ScriptedSpout` whose replays always have the same tuples.

    Delivery: transactional. An attempt that meets an ``Outage`` fails and is tried again.

    Args:
        fields: The fields.
        batches: The rows of txid 1, 2, 3 …: a list for one partition, or lists by partition.
        script: The events: ``Outage``, ``Late`` and ``Poison``.

    Raises:
        TopologyError: The batches or the script are wrong, e.g. it has a ``Recut``; repair them.
    """

    def __init__(
        self, fields: Fields, batches: Batches, script: Sequence[Outage | Late | Poison] = ()
    ) -> None:
        self.output_fields = fields
        self._script = Script.of(fields, batches, script)
        if any(isinstance(event, Recut) for event in self._script.events):
            raise TopologyError(
                f"a transactional spout cannot change a replay; got {script!r:.200}; expected no "
                "Recut; use ScriptedSpout",
                setting="script",
            )

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part."""
        return _ScriptedCoordinator(self._script)

    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _ScriptedEmitter(self._script)


@dataclass(frozen=True, slots=True)
class Late:
    """A batch is not ready the first few times that the spout is asked, in each start.

    ``process_all_available`` may return meanwhile, since that looks like the end of the source.
    Wait for the expected contents of the state instead.

    Attributes:
        txid: The txid of the batch.
        asks: How many times it is not ready.
    """

    txid: int
    asks: int = 1


@dataclass(frozen=True, slots=True)
class Poison:
    """A record that cannot be read: an attempt that reaches it fails.

    Attributes:
        record: Number of the record in its partition, from 0.
        partition: Number of the partition.
        attempts: Only attempts 0 to *attempts* - 1 of a batch fail; None for all of them.
        error: The error that is raised. By default a ``FailedException``, after which the batch is
            tried again. Any other error ends the run.
    """

    record: int
    partition: int = 0
    attempts: int | None = None
    error: Exception | None = None


class Shared:
    """Base of objects that a test shares with its topology, on the carrier ``local`` only."""

    def __reduce__(self) -> tuple[Any, ...]:
        number = self.__dict__.get("_shared_number")
        if number is None:
            number = self.__dict__["_shared_number"] = next(_numbers)
            _objects[number] = self
        return _found, (number,)


class _Feed(Shared):
    """What the tasks of a spout and the test share."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Sequence[Any], Any]] = deque()
        self.acked: list[Any] = []
        self.failed: list[Any] = []
        self.opened = 0
        self.changed = threading.Condition()
        self.cluster: SimulatedCluster | None = None


Row = Sequence[Any]

Batches = Sequence[Sequence[Row] | Mapping[int, Sequence[Row]]]

Event = Outage | Recut | Late | Poison


@dataclass(frozen=True, slots=True)
class Script:
    """The checked script of a scripted spout.

    Attributes:
        records: The records of each partition, of all batches one after the other.
        takes: How many records each batch takes from each partition.
        events: The events of the script.
    """

    records: tuple[tuple[Row, ...], ...]
    takes: tuple[tuple[int, ...], ...]
    events: tuple[Event, ...]

    @classmethod
    def of(cls, fields: Fields, batches: Batches, events: Sequence[Event]) -> Script:
        """Check batches and events, and return them as a script.

        Raises:
            TopologyError: They are wrong; repair them.
        """
        if not isinstance(fields, Fields):
            raise TopologyError(
                f"fields of a scripted spout are wrong; got {fields!r:.200}; expected Fields",
                setting="fields",
            )
        cut = [batch if isinstance(batch, Mapping) else {0: batch} for batch in batches]
        numbers = {partition for batch in cut for partition in batch}
        if any(type(number) is not int or number < 0 for number in numbers):
            raise TopologyError(
                f"partitions of a scripted spout are wrong; got {sorted(map(repr, numbers))}; "
                "expected whole numbers from 0",
                setting="batches",
            )
        partitions = range(max(numbers, default=0) + 1)
        records = tuple(
            tuple(_checked(fields, row) for batch in cut for row in batch.get(partition, ()))
            for partition in partitions
        )
        takes = tuple(
            tuple(len(batch.get(partition, ())) for partition in partitions) for batch in cut
        )
        for event in events:
            _check(event, [len(each) for each in records])
        return cls(records, takes, tuple(events))

    def left(self, partition: int, start: int) -> int:
        """Return how many records a partition has from *start* on.

        Raises:
            SourceDataLost: The script of an earlier start had more records.
        """
        left = len(self.records[partition]) - start
        if left < 0:
            raise SourceDataLost(
                f"partition {partition} of the script has {len(self.records[partition])} records, "
                f"but a batch ends at {start}; expected at least {start}; start with the earlier "
                "script, or with a new topology id",
                partition=partition,
            )
        return left

    def take(self, attempt: TransactionAttempt, partition: int, start: int) -> int | None:
        """Return how many records an attempt takes from a partition; None if it is down."""
        left = take = self.left(partition, start)
        if attempt.txid <= len(self.takes):
            take = min(take, self.takes[attempt.txid - 1][partition])
        for event in self.events:
            if not isinstance(event, Outage | Recut) or event.txid != attempt.txid:
                continue
            if event.attempt not in (None, attempt.attempt):
                continue
            if event.partition not in (None, partition):
                continue
            if isinstance(event, Outage):
                return None
            take = min(event.take, left)
        return take

    def emit(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        cut: tuple[int, int],
    ) -> None:
        """Emit a range of records, unless one of them is poison or gone."""
        self.left(partition, cut[1])
        for record in range(*cut):
            self._check_poison(attempt, partition, record)
            collector.emit(self.records[partition][record])

    def _check_poison(self, attempt: TransactionAttempt, partition: int, record: int) -> None:
        for event in self.events:
            if not isinstance(event, Poison):
                continue
            here = (event.partition, event.record) == (partition, record)
            if here and (event.attempts is None or attempt.attempt < event.attempts):
                raise event.error or FailedException(
                    f"record {record} of partition {partition} is poison according to the script",
                    partition=partition,
                    row=record,
                )


def _check(event: Event, records: Sequence[int]) -> None:
    """Refuse an event that cannot happen, since a test with it would prove nothing."""
    flaw = None
    if not isinstance(event, Event):
        flaw = "expected Outage, Recut, Late or Poison"
    elif not isinstance(event, Poison) and not _counts(event.txid, 1):
        flaw = "expected a txid, from 1"
    elif isinstance(event, Late):
        flaw = None if _counts(event.asks, 1) else "expected asks of at least 1"
    elif event.partition not in range(len(records)) and not (
        isinstance(event, Recut) and event.partition is None
    ):
        flaw = f"expected a partition below {len(records)}: there are no others in the batches"
    elif isinstance(event, Recut) and not (_counts(event.take) and _counts(event.attempt)):
        flaw = "expected an attempt and a number of rows to take, from 0"
    elif isinstance(event, Outage) and not (event.attempt is None or _counts(event.attempt)):
        flaw = "expected the number of an attempt, from 0, or None for all"
    elif isinstance(event, Poison):
        flaw = _flaw_of_poison(event, records[event.partition])
    if flaw is not None:
        raise TopologyError(
            f"the script of a scripted spout is wrong; got {event!r}; {flaw}",
            setting="script",
            got=type(event).__name__,
        )


def _flaw_of_poison(event: Poison, records: int) -> str | None:
    if not _counts(event.record) or event.record >= records:
        return f"expected one of the {records} records of the partition, from 0"
    if event.attempts is not None and not _counts(event.attempts, 1):
        return "expected at least 1 attempt that fails, or None for all"
    if event.error is not None and not isinstance(event.error, Exception):
        return "expected an exception, such as ValueError('…')"
    return None


def _counts(number: object, least: int = 0) -> bool:
    return type(number) is int and number >= least


def _checked(fields: Fields, row: Row) -> Row:
    if not isinstance(row, list | tuple) or len(row) != len(fields):
        raise TopologyError(
            f"a row of a scripted spout does not fit the fields; got {row!r:.200}; expected "
            f"{len(fields)} values: {', '.join(fields.names)}",
            setting="batches",
            expected=fields.names,
        )
    return tuple(row)


class _ScriptedCoordinator(PartitionedCoordinator):
    def __init__(self, script: Script) -> None:
        self._script = script
        self._late = {event.txid: event.asks for event in script.events if isinstance(event, Late)}

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Be ready for the batches of the script, and for leftovers."""
        if self._late.get(txid, 0) > 0:
            self._late[txid] -= 1
            return False
        if txid <= len(self._script.takes):
            return True
        left = self.lag(last.metadata if isinstance(last.metadata, dict) else {})
        return last.txid == txid - 1 and any(left.values())

    def number_of_partitions(self) -> int:
        return len(self._script.records)

    def unread(self, last: LastBatch) -> Mapping[str, int]:
        return self.lag(last.metadata if isinstance(last.metadata, dict) else {})

    def lag(self, metadata: Mapping[str, Json]) -> Mapping[str, int]:
        return {
            str(partition): self._script.left(partition, _end(metadata.get(str(partition))))
            for partition in range(len(self._script.records))
        }


class _OpaqueScriptedEmitter(OpaquePartitionedTransactionalEmitter):
    def __init__(self, script: Script) -> None:
        self._script = script

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        *,
        rows_max: int | None = None,
    ) -> Json:
        start = _end(last_metadata)
        take = self._script.take(attempt, partition, start)
        if take is None:
            return None
        take = take if rows_max is None else min(take, rows_max)
        self._script.emit(attempt, collector, partition, (start, start + take))
        return [start, start + take]


class _ScriptedEmitter(PartitionedTransactionalEmitter):
    def __init__(self, script: Script) -> None:
        self._script = script

    def emit_partition_batch_new(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        *,
        rows_max: int | None = None,
    ) -> Json:
        start = _end(last_metadata)
        take = self._take(attempt, partition, start)
        metadata: Json = [start, start + (take if rows_max is None else min(take, rows_max))]
        self.emit_partition_batch(attempt, collector, partition, metadata)
        return metadata

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> None:
        assert isinstance(metadata, list)
        start, end = metadata
        assert isinstance(start, int)
        assert isinstance(end, int)
        self._take(attempt, partition, start)
        self._script.emit(attempt, collector, partition, (start, end))

    def _take(self, attempt: TransactionAttempt, partition: int, start: int) -> int:
        take = self._script.take(attempt, partition, start)
        if take is None:
            raise FailedException(
                f"partition {partition} is down according to the script", partition=partition
            )
        return take


def _end(metadata: Json) -> int:
    end = metadata[1] if isinstance(metadata, list) else 0
    assert isinstance(end, int)
    return end


_numbers = itertools.count()

_objects: WeakValueDictionary[int, Shared] = WeakValueDictionary()


def _found(number: int) -> Shared:
    found = _objects.get(number)
    if found is None:
        raise LookupError(
            "an object that a test shares with its topology, such as a FeederSpout, does not "
            "exist here; this is another process, or the test has ended; expected the process of "
            "the test; use AtLeastOnceConfig(carrier='local')"
        )
    return found
