"""Spouts whose batches, outages, delays, changed replays and poison records are data: a script.

The records of a partition are those of its batches one behind the other. A batch takes as many as
the script gives it, from where the one before ended; what an outage or a smaller replay left over
at the end comes in one more batch. So whatever is in the script, each record counts once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import FailedException, TopologyError
from txtopo.metadata import Json
from txtopo.spouts.memory import Outage, Recut
from txtopo.spouts.spout import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
)
from txtopo.testing.script import Batches, Event, Late, Poison, Script
from txtopo.tuples import Fields


class ScriptedSpout(OpaquePartitionedTransactionalSpout):
    """An opaque spout that does what its script says, for tests of topologies.

    Delivery: opaque. Each record counts in exactly one committed txid, whatever the script holds.
    It lives in memory and is read in the tasks; a later start whose script has fewer records than
    were read ends with ``SourceDataLost``.

    Args:
        fields: The fields.
        batches: The rows of txid 1, 2, 3 …: a list for one partition, or lists by partition.
        script: What happens: ``Outage`` (a partition is down and keeps its position), ``Recut`` (an
            attempt takes another number of rows), ``Late`` and ``Poison``.

    Raises:
        TopologyError: The batches or the script are wrong; mend them.

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
    """As :class:`ScriptedSpout`, but a replay always has the same tuples.

    Delivery: transactional. An attempt that meets an ``Outage`` fails and is tried again.

    Args:
        fields: The fields.
        batches: The rows of txid 1, 2, 3 …: a list for one partition, or lists by partition.
        script: What happens: ``Outage``, ``Late`` and ``Poison``.

    Raises:
        TopologyError: The batches or the script are wrong, e.g. it has a ``Recut``; mend them.
    """

    def __init__(
        self, fields: Fields, batches: Batches, script: Sequence[Outage | Late | Poison] = ()
    ) -> None:
        self.output_fields = fields
        self._script = Script.of(fields, batches, script)
        if any(isinstance(event, Recut) for event in self._script.events):
            raise TopologyError(
                f"a transactional spout cannot change a replay; got {script!r:.200}; expected no "
                "Recut; use ScriptedSpout"
            )

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part."""
        return _ScriptedCoordinator(self._script)

    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        """Make an emitting part."""
        return _ScriptedEmitter(self._script)


class _ScriptedCoordinator(PartitionedCoordinator):
    def __init__(self, script: Script) -> None:
        self._script = script
        self._late = {event.txid: event.asks for event in script.events if isinstance(event, Late)}

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Be ready for the batches of the script, and for what they left over."""
        if self._late.get(txid, 0) > 0:
            self._late[txid] -= 1
            return False
        if txid <= len(self._script.takes):
            return True
        left = self.lag(last.metadata if isinstance(last.metadata, dict) else {})
        return last.txid == txid - 1 and any(left.values())

    def number_of_partitions(self) -> int:
        return len(self._script.records)

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
    ) -> Json:
        start = _end(last_metadata)
        take = self._script.take(attempt, partition, start)
        if take is None:
            return None
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
    ) -> Json:
        start = _end(last_metadata)
        metadata: Json = [start, start + self._take(attempt, partition, start)]
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
            raise FailedException(f"partition {partition} is down, says the script")
        return take


def _end(metadata: Json) -> int:
    end = metadata[1] if isinstance(metadata, list) else 0
    assert isinstance(end, int)
    return end
