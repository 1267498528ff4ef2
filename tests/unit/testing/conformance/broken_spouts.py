"""Spouts that break one rule each, most of them made from a memory spout that is whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tests.unit.testing.conformance.spout_sources import FIELDS, MemorySource, OpaqueMemorySource
from txtopo import Fields
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.plugins.spouts import LastBatch, TransactionalSpout
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.testing.conformance import SpoutRule

Rows = Mapping[int, list[tuple[int, int]]]


def ends_of(last: LastBatch) -> dict[str, Any]:
    return dict(last.metadata) if isinstance(last.metadata, dict) else {}


class Part:
    """A coordinator or emitter part that does what the one that is whole does."""

    def __init__(self, whole: Any, rows: Rows, context: TaskContext) -> None:
        self.whole, self.rows, self.context = whole, rows, context

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)


class BrokenSource(MemorySource):
    """Gives a memory spout with one part or both replaced."""

    rule: ClassVar[SpoutRule]
    fails: ClassVar[str] = ""
    coordinator: ClassVar[type[Part]] = Part
    emitter: ClassVar[type[Part]] = Part
    opaque: ClassVar[bool] = False

    def spout(self) -> Any:
        if not self.opaque:
            return Transactional(type(self), super().spout(), self.rows)
        spout = OpaqueMemoryTransactionalSpout(self.rows, FIELDS, self.batch_rows_max)
        return Opaque(type(self), spout, self.rows)


class Swapped:
    """The parts of a spout, with those that are broken."""

    output_fields: Fields | None = FIELDS

    def __init__(self, source: type[BrokenSource], whole: Any, rows: Rows) -> None:
        self.source, self.whole, self.rows = source, whole, rows

    def coordinator(self, config: Config, context: TaskContext) -> Any:
        whole = self.whole.coordinator(config, context)
        return self.source.coordinator(whole, self.rows, context)

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return self.source.emitter(self.whole.emitter(config, context), self.rows, context)


class Transactional(Swapped, MemoryTransactionalSpout):
    pass


class Opaque(Swapped, OpaqueMemoryTransactionalSpout):
    pass


class Whole(BrokenSource):
    """Nothing is broken here."""


class ReplayLacksATuple(BrokenSource):
    rule, fails = SpoutRule.SAME, "test_the_same_batch_twice_is_equal"

    class emitter(Part):
        def emit_partition_batch(self, attempt: Any, out: Any, partition: int, cut: Any) -> None:
            self.whole.emit_partition_batch(attempt, out, partition, [cut[0], max(0, cut[1] - 1)])


class ReplayReadsOn(BrokenSource):
    """It knows where a batch starts, and reads until the batch is full."""

    rule, fails = SpoutRule.SAME, "test_a_replay_has_nothing_that_came_later"

    class emitter(Part):
        def emit_partition_batch(self, attempt: Any, out: Any, partition: int, cut: Any) -> None:
            left = len(self.rows[partition]) - cut[0]
            full = min(left, BrokenSource.batch_rows_max)
            self.whole.emit_partition_batch(attempt, out, partition, [cut[0], full])


class StartsTooEarly(BrokenSource):
    rule, fails = SpoutRule.CHAIN, "test_batches_of_one_run_are_chained"

    class emitter(Part):
        def emit_partition_batch_new(
            self, attempt: Any, out: Any, partition: int, last: Any
        ) -> Any:
            last = last and [last[0], max(0, last[1] - 1)]
            return self.whole.emit_partition_batch_new(attempt, out, partition, last)


class LeavesARest(BrokenSource):
    """It waits for a batch to be full."""

    rule, fails = SpoutRule.UNION, "test_the_batches_are_the_input_each_record_once"

    class coordinator(Part):
        def is_ready(self, txid: int, last: LastBatch) -> bool:
            left = self.whole.lag(ends_of(last)).values()
            return max(map(int, left)) >= (txid - last.txid) * BrokenSource.batch_rows_max


class RemembersByItself(BrokenSource):
    """Where a partition stands is kept in the process, so that a lost batch is skipped."""

    rule, fails = SpoutRule.RESTART, "test_a_batch_that_was_not_committed_comes_again"
    opaque = True

    def __init__(self) -> None:
        super().__init__()
        REMEMBERED.clear()

    class emitter(Part):
        def emit_partition_batch(self, attempt: Any, out: Any, partition: int, last: Any) -> Any:
            known = REMEMBERED.get(partition)
            end = self.whole.emit_partition_batch(attempt, out, partition, known)
            REMEMBERED[partition] = end
            return end


REMEMBERED: dict[int, Any] = {}


class MovesWhileDown(OpaqueMemorySource):
    """It says that it read what it could not read."""

    rule, fails = SpoutRule.DOWN, "test_a_partition_that_is_down_keeps_its_position"

    def spout(self) -> Any:
        return Moving(super().spout(), self.batch_rows_max)


class Moving(OpaqueMemoryTransactionalSpout):
    def __init__(self, whole: Any, take: int) -> None:
        self.whole, self.take, self.output_fields = whole, take, FIELDS

    def coordinator(self, config: Config, context: TaskContext) -> Any:
        return self.whole.coordinator(config, context)

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return MovingEmitter(self.whole.emitter(config, context), self.take)


class MovingEmitter:
    def __init__(self, whole: Any, take: int) -> None:
        self.whole, self.take = whole, take
        self.close = whole.close

    def emit_partition_batch(self, attempt: Any, out: Any, partition: int, last: Any) -> Any:
        end = self.whole.emit_partition_batch(attempt, out, partition, last)
        return end if end is not None else [sum(last or [0]), 1]


class KeysAreNumbers(BrokenSource):
    """They would come back as strings, and the spout would not find what it stored."""

    rule, fails = SpoutRule.JSON, "test_metadata_comes_back_from_json_as_it_was"

    class emitter(Part):
        def emit_partition_batch_new(
            self, attempt: Any, out: Any, partition: int, last: Any
        ) -> Any:
            last = last and last.get(partition)
            end = self.whole.emit_partition_batch_new(attempt, out, partition, last)
            return {partition: end}


class NeedsEveryPartition(BrokenSource):
    rule, fails = SpoutRule.GONE, "test_when_a_partition_has_gone_the_others_are_read_on"

    class coordinator(Part):
        def is_ready(self, txid: int, last: LastBatch) -> bool:
            for partition in ends_of(last):
                assert self.rows[int(partition)] is not None
            return bool(self.whole.is_ready(txid, last))


class PassesOverWhatIsLost(BrokenSource):
    rule, fails = SpoutRule.LOST, "test_unread_data_that_has_gone_is_not_passed_over"

    class coordinator(Part):
        def is_ready(self, txid: int, last: LastBatch) -> bool:
            ends = ends_of(last)
            return any(len(rows) > sum(ends.get(str(p), [0])) for p, rows in self.rows.items())


class ForgetsItsLimit(BrokenSource):
    """Its new batches are full, and the framework refuses what is above the limit."""

    rule, fails = SpoutRule.LIMIT, "test_a_replay_has_the_limit_of_the_first_attempt"

    class emitter(Part):
        def emit_partition_batch_new(
            self, attempt: Any, out: Any, partition: int, last: Any, rows_max: Any = None
        ) -> Any:
            return self.whole.emit_partition_batch_new(attempt, out, partition, last)


class SkipsBehindItsLimit(BrokenSource):
    """A limited batch ends where one without a limit would have ended."""

    rule, fails = SpoutRule.LIMIT, "test_limited_batches_of_one_run_are_chained"

    class emitter(Part):
        def emit_partition_batch_new(
            self, attempt: Any, out: Any, partition: int, last: Any, rows_max: Any = None
        ) -> Any:
            start, taken = self.whole.emit_partition_batch_new(
                attempt, out, partition, last, rows_max=rows_max
            )
            full = min(len(self.rows[partition]) - start, BrokenSource.batch_rows_max)
            return [start, taken if rows_max is None else full]


class LagNeverEnds(BrokenSource):
    rule, fails = SpoutRule.LAG, "test_the_lag_is_nothing_when_all_is_read"

    class coordinator(Part):
        def lag(self, metadata: Any) -> Any:
            return {str(partition): len(rows) for partition, rows in self.rows.items()}


class EachTaskEmitsAll(BrokenSource):
    """And it reads from whatever partitions there are, whatever was planned."""

    rule, fails = SpoutRule.TASKS, "test_its_tasks_share_a_batch"

    def spout(self) -> Any:
        return Ranges(self.rows)


class ReadsWhatIsThere(EachTaskEmitsAll):
    rule, fails = SpoutRule.ADDED, "test_a_replay_has_nothing_of_an_added_partition"


class Ranges(TransactionalSpout):
    """The metadata is one range for all partitions."""

    output_fields = FIELDS

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def coordinator(self, config: Config, context: TaskContext) -> Any:
        return self

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return self

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        end = last.metadata[1] if isinstance(last.metadata, list) else 0
        return any(len(rows) > int(str(end)) for rows in self.rows.values())

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        start = previous[1] if previous else 0
        return [start, start + BrokenSource.batch_rows_max]

    def lag(self, metadata: Any) -> Mapping[str, int]:
        return {}

    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None:
        for rows in self.rows.values():
            for row in rows[slice(*metadata)]:
                collector.emit(row)

    def close(self) -> None:
        pass
