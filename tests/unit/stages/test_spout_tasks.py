"""Emitters in tasks: who has which partition, where a batch starts, and what is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.harness.metadata import of_one
from tests.unit.stages.bolts import Recorder
from tests.unit.stages.running import Ran, Topology, bolt, gathered, recording, run_of, spout
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import EmitError
from txtopo.metadata import BatchMetadata, Json
from txtopo.spouts.spout import (
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedTransactionalSpout,
)
from txtopo.stages import columns
from txtopo.stages.compiled_topology import Run
from txtopo.stages.replays import Digest
from txtopo.topology.spout_kinds import OpaqueKind, PartitionedKind
from txtopo.tuples import Fields

TAKE = 2


class Ranges(PartitionedTransactionalSpout):
    """Each batch takes the next two numbers of each partition; metadata is [start, end]."""

    output_fields = Fields("partition long, n long")

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        raise NotImplementedError

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return RangesEmitter(context)


class RangesEmitter:
    def __init__(self, context: TaskContext) -> None:
        self.context = context

    def emit_partition_batch_new(
        self, attempt: Any, collector: Any, partition: int, last: Any
    ) -> Any:
        assert partition % self.context.tasks == self.context.task_index
        metadata = [last[1], last[1] + TAKE] if last else [0, TAKE]
        self.emit_partition_batch(attempt, collector, partition, metadata)
        return metadata

    def emit_partition_batch(
        self, attempt: Any, collector: Any, partition: int, metadata: Any
    ) -> Any:
        for n in range(*metadata):
            collector.emit([partition, n])

    def close(self) -> None:
        pass


class Opaque(OpaquePartitionedTransactionalSpout):
    """As ``Ranges``, but a partition may be down for some attempts."""

    output_fields = Fields("partition long, n long")

    def __init__(self, down: set[tuple[int, int]] | None = None) -> None:
        self.down = down or set()

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        raise NotImplementedError

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return OpaqueEmitter(self.down)


class OpaqueEmitter:
    def __init__(self, down: set[tuple[int, int]]) -> None:
        self.down = down

    def emit_partition_batch(self, attempt: Any, collector: Any, partition: int, last: Any) -> Any:
        if (attempt.txid, partition) in self.down:
            return None
        start = last.pop() if last else 0
        for n in range(start, start + TAKE):
            collector.emit([partition, n])
        return [start, start + TAKE]

    def close(self) -> None:
        pass


class Returning(Opaque):
    """Returns any metadata at all, with or without a tuple."""

    def __init__(self, metadata: Any, emits: bool) -> None:
        self.metadata, self.emits = metadata, emits

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return self

    def emit_partition_batch(self, attempt: Any, collector: Any, partition: int, last: Any) -> Any:
        if self.emits:
            collector.emit([partition, 0])
        return self.metadata


def ran(
    prototype: Any, run: Run, *, tasks: int = 1, slots: int = 1
) -> tuple[Ran, dict[int, list[Any]]]:
    """Run a spout; return the outcome and what was emitted by txid."""
    opaque = isinstance(prototype, OpaquePartitionedTransactionalSpout)
    kind = OpaqueKind() if opaque else PartitionedKind()
    topology = Topology(
        spout(prototype, tasks, kind), bolt("record", Recorder(), gathered()), slots=slots
    )
    with recording() as recorded:
        outcome = topology.run(run)
        emitted: dict[int, list[Any]] = {attempt.txid: [] for attempt in run.attempts}
        for row in recorded:
            emitted[row[2]].append(row[-2:])
    return outcome, {txid: sorted(rows) for txid, rows in emitted.items()}


class Uneven(Ranges):
    """Each partition has this many long texts; *whole* are emitted as record batches."""

    output_fields = Fields("text string")

    def __init__(self, sizes: Sequence[int], whole: Sequence[int] = ()) -> None:
        self.sizes, self.whole = sizes, whole

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return self

    def texts_of(self, partition: int) -> list[str]:
        return [f"{partition} {n} ".ljust(LONG, ".") for n in range(self.sizes[partition])]

    def emit_partition_batch_new(
        self, attempt: Any, collector: Any, partition: int, last: Any
    ) -> Any:
        texts = self.texts_of(partition)
        if partition in self.whole:
            collector.emit_batch(pa.RecordBatch.from_pydict({"text": texts}))
        else:
            for text in texts:
                collector.emit([text])
        return len(texts)

    def close(self) -> None:
        pass


LONG = 100


def cuts(outcome: Ran) -> list[Any]:
    return [batch.metadata.of("spout").cut for batch in outcome.outcome.processed]


def numbers(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, n) for n in range(start, end)]


@pytest.mark.parametrize("prototype", [Ranges(), Opaque()], ids=["transactional", "opaque"])
@pytest.mark.parametrize(("tasks", "slots"), [(1, 1), (3, 2), (7, 3)])
def test_inside_a_run_each_batch_starts_where_the_one_before_ended(
    prototype: Any, tasks: int, slots: int
) -> None:
    outcome, emitted = ran(prototype, run_of(3, planned=5), tasks=tasks, slots=slots)

    for txid in (1, 2, 3):
        expected = [row for p in range(5) for row in numbers(p, TAKE * (txid - 1), TAKE * txid)]
        assert emitted[txid] == expected
    assert cuts(outcome)[2] == {str(p): [4, 6] for p in range(5)}


def test_a_run_starts_where_its_predecessor_ended() -> None:
    previous = of_one(2, {"0": [8, 10], "1": [2, 4]})

    _, emitted = ran(Opaque(), run_of(1, first=6, planned=2, previous=previous))

    assert emitted[6] == numbers(0, 10, 12) + numbers(1, 4, 6)


def test_check_34_a_replay_brings_exactly_the_ranges_that_were_kept() -> None:
    """By effect: Storm keeps them in znodes; here they come with the run."""
    outcome, first = ran(Ranges(), run_of(3, planned=1))

    replayed, again = ran(Ranges(), run_of(3, planned=1, cuts=cuts(outcome)))

    assert again == first == {n: numbers(0, 2 * n - 2, 2 * n) for n in (1, 2, 3)}
    assert cuts(replayed) == cuts(outcome)


@pytest.mark.row(12)
def test_check_35_a_replay_does_not_touch_partitions_that_were_added_later() -> None:
    _, third = ran(Ranges(), run_of(1, first=3, planned=1, cuts=[{"0": [4, 6]}]))
    previous = of_one(1, {"0": [4, 6]})
    grown, fourth = ran(Ranges(), run_of(1, first=4, planned=2, previous=previous))
    _, replayed = ran(Ranges(), run_of(1, first=3, planned=1, cuts=[{"0": [4, 6]}]))

    assert fourth[4] == numbers(0, 6, 8) + numbers(1, 0, 2)
    assert cuts(grown) == [{"0": [6, 8], "1": [0, 2]}]
    assert replayed == third == {3: numbers(0, 4, 6)}


@pytest.mark.parametrize(
    ("planned", "cut"),
    [(2, {"0": [0, 2]}), (1, {"0": [0, 2], "1": [6, 8]})],
    ids=["came later", "was gone"],
)
def test_a_replay_emits_the_partitions_that_were_in_the_batch_only(
    planned: int, cut: dict[str, Json]
) -> None:
    """A partition that was gone is in the cut with the position that it keeps."""
    _, emitted = ran(Ranges(), run_of(1, planned=planned, cuts=[cut]))

    assert emitted == {1: numbers(0, 0, 2)}


def test_a_run_of_replays_and_a_new_batch_chains_through() -> None:
    run = run_of(2, planned=1, cuts=[{"0": [0, 5]}, None])

    outcome, emitted = ran(Ranges(), run)

    assert emitted == {1: numbers(0, 0, 5), 2: numbers(0, 5, 7)}
    assert cuts(outcome) == [{"0": [0, 5]}, {"0": [5, 7]}]


@pytest.mark.integration
@pytest.mark.parametrize("whole", [(), (0, 3), (2, 4)])
@pytest.mark.parametrize(
    "sizes", [[0, 0], [1, 0, 3, 2, 0], [5, 5, 5, 5, 5], [0, 7, 25_000, 1, 990]]
)
def test_the_content_of_a_partition_does_not_depend_on_what_it_is_sent_with(
    sizes: list[int], whole: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared with that of a replay, which may have other slots and other envelopes."""
    monkeypatch.setattr(columns, "BATCH_BYTES_MAX", 10 * LONG)
    prototype = Uneven(sizes, whole)
    part = spout(prototype, 1, PartitionedKind())
    topology = Topology(part, bolt("record", Recorder(), gathered()))

    outcome = topology.run(run_of(2, planned=len(sizes)))

    expected = {}
    for partition in range(len(sizes)):
        digest, texts = Digest(), prototype.texts_of(partition)
        digest.add("default", pa.RecordBatch.from_pydict({"text": texts}), None)
        expected[str(partition)] = digest.take()
    contents = [each.metadata.content for each in outcome.outcome.processed]
    assert contents == [{"spout": expected}] * 2


@pytest.mark.row(23)
def test_check_36_an_opaque_batch_that_failed_is_cut_from_where_its_predecessor_ended() -> None:
    """1, 2 and 3 in flight, 2 fails: 2 gets [2, 4) and 3 gets [4, 6) again."""
    outcome, _ = ran(Opaque(), run_of(3, planned=1))
    first = outcome.outcome.processed[0].metadata

    _, emitted = ran(Opaque(), run_of(2, first=2, planned=1, previous=first))

    assert emitted == {2: numbers(0, 2, 4), 3: numbers(0, 4, 6)}


@pytest.mark.parametrize("runs", [1, 3], ids=["one run", "a run each"])
def test_r5_a_partition_that_is_down_keeps_its_position(runs: int) -> None:
    spout_down = Opaque({(2, 0)})
    previous, emitted, found = None, {}, []
    for first in range(1, 4, 3 // runs):
        outcome, rows = ran(
            spout_down, run_of(3 // runs, first=first, planned=2, previous=previous)
        )
        previous = outcome.outcome.processed[-1].metadata
        emitted.update(rows)
        found += cuts(outcome)

    assert emitted[2] == numbers(1, 2, 4)
    assert emitted[3] == numbers(0, 2, 4) + numbers(1, 4, 6)
    assert found[1] == {"0": [0, 2], "1": [2, 4]}


def test_partitions_that_are_gone_keep_their_position() -> None:
    previous = of_one(2, {"0": [0, 2], "1": [0, 2]})

    outcome, emitted = ran(Opaque(), run_of(1, first=2, planned=1, previous=previous))

    assert emitted == {2: numbers(0, 2, 4)}
    assert cuts(outcome) == [{"0": [2, 4], "1": [0, 2]}]


@pytest.mark.parametrize(
    ("metadata", "emits", "text"),
    [
        (None, True, "no metadata for partition 0; got None"),
        ({1, 2}, True, "partition 0 that is not JSON; got {1, 2}"),
        (float("nan"), False, "partition 0 that is not JSON; got nan"),
        ({1: 2}, True, r"partition 0 that is not JSON; got {1: 2} \(the key 1 is of type int"),
    ],
)
def test_metadata_that_cannot_say_where_a_batch_ended_is_refused(
    metadata: Any, emits: bool, text: str
) -> None:
    outcome, _ = ran(Returning(metadata, emits), run_of(1, planned=1))

    failure = outcome.outcome.failure
    assert failure is not None
    assert failure.component == "spout"
    with pytest.raises(EmitError, match=text):
        raise failure.error


def test_metadata_is_the_same_in_a_run_as_after_a_restart() -> None:
    """A tuple would come back from ZooKeeper as a list."""
    outcome, _ = ran(Returning({"1": (2, 3)}, True), run_of(1, planned=1))

    assert cuts(outcome) == [{"0": {"1": [2, 3]}}]


@pytest.mark.parametrize("planned", [None, -1, "2", True])
def test_a_number_of_partitions_that_is_none_is_refused(planned: Json) -> None:
    outcome, _ = ran(Opaque(), run_of(1, planned=planned))

    failure = outcome.outcome.failure
    assert failure is not None
    with pytest.raises(EmitError, match="expected a whole number"):
        raise failure.error


class TakingLimits(OpaqueEmitter):
    def emit_partition_batch(
        self, attempt: Any, collector: Any, partition: int, last: Any, rows_max: Any = None
    ) -> Any:
        start = last[1] if last else 0
        end = start + TAKE if rows_max is None else start + rows_max
        for n in range(start, end):
            collector.emit([partition, n])
        return [start, end]


class Limited(Opaque):
    def emitter(self, config: Config, context: TaskContext) -> Any:
        return TakingLimits(set())


def limited(first: int, *limits: list[int], previous: BatchMetadata | None = None) -> Run:
    run = run_of(len(limits), first=first, planned=2, previous=previous)
    metadata = tuple(
        replace(each, pace={"rows_max": {"spout": [*limit]}})
        for each, limit in zip(run.metadata, limits, strict=True)
    )
    return replace(run, metadata=metadata)


def test_each_partition_of_each_batch_gets_the_limit_of_its_plan() -> None:
    """Also a limit of 0, for which the position stays; and every attempt gets the same."""
    for _ in range(2):
        outcome, emitted = ran(Limited(), limited(1, [3, 0], [1, 2]), tasks=2, slots=2)

        assert emitted == {1: numbers(0, 0, 3), 2: numbers(0, 3, 4) + numbers(1, 0, 2)}
        assert cuts(outcome) == [{"0": [0, 3], "1": [0, 0]}, {"0": [3, 4], "1": [0, 2]}]


def test_a_batch_without_a_limit_has_none() -> None:
    _, emitted = ran(Limited(), run_of(1, planned=1))

    assert emitted[1] == numbers(0, 0, TAKE)


def test_an_emitter_that_takes_no_limit_emits_as_without_one() -> None:
    """The pacer lets it have one batch in flight, and what is above the limit is paid back."""
    _, emitted = ran(Opaque(), limited(1, [3, 0]))

    assert emitted == {1: numbers(0, 0, TAKE) + numbers(1, 0, TAKE)}
