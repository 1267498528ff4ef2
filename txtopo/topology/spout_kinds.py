"""Kinds of spouts: all that the framework does differently for one kind of spout than for another.

A kind is one class. It says for which class of the user it is, how a batch is planned and emitted,
what a replay brings, what may stand beside such a spout, and its words. The planner, the tasks, the
checks and the explanation ask the kind for an answer or call it; none of them asks which kind it
is. So a new kind is a class here and its line in :data:`SPOUTS`; see
``docs/contributing/add-a-spout-kind.md``.

A kind has no fields, so each copy of it is equal to the others: it travels to the tasks in the
program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.metadata import Json, SpoutShare, json_copy
from txtopo.spouts.dataframe import DataFrameTransactionalSpout
from txtopo.spouts.sequence import (
    SequenceSpout,
    after_of,
    has_batch,
    is_switch,
    planned_by_part,
)
from txtopo.spouts.spout import (
    LastBatch,
    OpaquePartitionedTransactionalSpout,
    PartitionedTransactionalSpout,
    StreamSpout,
    TransactionalSpout,
    takes_rows_max,
)
from txtopo.traits import Traits

if TYPE_CHECKING:
    import pyarrow as pa

Driven = Literal["coordinator", "query", "ackers"]
"""Who brings the tuples of a topology forward: the coordinator of batches, which a start begins; a
streaming query, which calls ``foreach_batch``; or the ackers of an at-least-once topology."""

KnownShare = tuple[int, SpoutShare | None]
"""A txid, and the share of the spout in it; None before the first txid."""

_PARTS = {"coordinator": ("config", "context"), "emitter": ("config", "context")}


class TaskShare(Protocol):
    """The share of one task in a batch of its spout; ``emit`` of a kind emits it.

    The methods yield where the outbox may be emptied.
    """

    @property
    def attempt(self) -> TransactionAttempt:
        """The attempt."""

    @property
    def share(self) -> SpoutShare:
        """The share of the spout in the batch."""

    @property
    def emitter(self) -> Any:
        """The emitter of the task; None for a kind without emitters."""

    @property
    def collector(self) -> BatchOutputCollector:
        """The collector that receives the tuples."""

    @property
    def rows(self) -> Iterable[pa.RecordBatch]:
        """The rows of the batch that have come to the slot of the task, if others brought any."""

    @property
    def task(self) -> int:
        """Number of the task."""

    @property
    def tasks(self) -> int:
        """How many tasks the spout has."""

    def of_part(self, share: SpoutShare, *, begins_again: bool) -> TaskShare:
        """Return the same with another share: that of one of several spouts that are in the spout.

        Args:
            share: The share.
            begins_again: Whether the previous batch ended nowhere, for each partition.
        """

    def end_part(self, part: int) -> None:
        """End a part of the batch, which replays are compared by: all that was emitted for it."""

    def repeat_partitions(self, emit: Callable[..., None]) -> Iterator[None]:
        """Call *emit* with each partition that the batch had, and its metadata in the batch."""

    def look_back(self, repeat: Callable[..., bool], emit: Callable[..., Json]) -> Iterator[None]:
        """Call *repeat* as ``repeat_partitions`` does, or *emit* where it returns False.

        Partitions that emitted nothing in the batch are left out.
        """

    def cut_partitions(
        self, emit: Callable[..., Json], *, may_be_silent: bool = False
    ) -> Iterator[None]:
        """Call *emit* with each partition and the metadata where the previous batch ended.

        Args:
            emit: Emits a batch of a partition and returns its metadata.
            may_be_silent: Whether it may return None for a partition that emitted nothing.
        """


@dataclass(frozen=True)
class SpoutKind:
    """What the framework does with one kind of spout.

    Attributes:
        base: The class from which a user derives such a spout.
        text: Its name in messages, explanations and fingerprints. A stored fingerprint has it, so
            it must not change.
        short_text: Its name in drawings.
        calls: The methods of the spout that the framework calls, with their arguments.
        coordinator_calls: The methods of its coordinator that must have run when they return.
        emitter_calls: The same of its emitter. Without any, the kind has no emitters.
        driven_by: Who drives its topology.
        plans_batches: Whether the driver plans where a batch ends; else its emitters decide.
        repeats: Whether a replay keeps where the batch ended once that is known.
        part: What a replay is compared by.
        alone: Why no other spout may share its txids; None if others may.
        unplanned: Why its batches have no stamp, and so no planned time; None if they may have one.
        one_task: Why it has no parallelism of its own; None if it has.
        run_txids_max: The most of its txids that one job processes; None for no limit.
        frame: Whether Spark runs it as a plan, without tasks, on a carrier that carries DataFrames.
        makes_dead_letters: Whether its tasks may make dead letters of bad records.
        runs: Where it runs, in words, if that does not depend on the carrier; else None.
    """

    base: ClassVar[type]
    text: ClassVar[str]
    short_text: ClassVar[str]
    calls: ClassVar[Mapping[str, tuple[str, ...]]] = _PARTS
    coordinator_calls: ClassVar[tuple[str, ...]] = ()
    emitter_calls: ClassVar[tuple[str, ...]] = ()
    driven_by: ClassVar[Driven] = "coordinator"
    plans_batches: ClassVar[bool]
    repeats: ClassVar[bool] = True
    part: ClassVar[str] = "task"
    alone: ClassVar[str | None] = None
    unplanned: ClassVar[str | None] = None
    one_task: ClassVar[str | None] = None
    run_txids_max: ClassVar[int | None] = None
    frame: ClassVar[bool] = False
    makes_dead_letters: ClassVar[bool] = True
    runs: ClassVar[str | None] = None

    @property
    def spout(self) -> Literal[True]:
        """Always true, since this is a kind of spouts."""
        return True

    def of(self, spout: object) -> SpoutKind:
        """Return the kind of a spout that is derived from *base*; this one, as a rule."""
        return self

    def partitions(self, coordinator: Any) -> int:
        """Return how many partitions the next batch has; 0 if it has none."""
        return 0

    def newest(self, before: KnownShare, complete: KnownShare) -> KnownShare:
        """Return the newest txid after which the next batch can be planned.

        Only a kind that the coordinator drives is asked.

        Args:
            before: The previous txid, whose plan is known.
            complete: The newest txid whose batch is known in full; perhaps the same.
        """
        raise NotImplementedError

    def carried(self, share: SpoutShare) -> Json:
        """Return the plan that carries forward from a txid while the spout is absent."""
        return share.planned if self.plans_batches else None

    def begins_again(self, share: SpoutShare) -> bool:
        """Return whether the positions of all partitions end before this batch of the spout."""
        return False

    def plan(
        self, coordinator: Any, txid: int, last: LastBatch, partitions: int, rows_max: int | None
    ) -> Json:
        """Return the metadata that the driver stores of a batch before any task sees it.

        Only a kind that the coordinator drives plans, and takes a limit.

        Args:
            coordinator: The coordinator of the spout, which is ready.
            txid: The batch.
            last: The newest batch whose metadata is known.
            partitions: What ``partitions`` has returned.
            rows_max: The most rows of the batch; None for no limit.
        """
        raise NotImplementedError

    def known(self, share: SpoutShare) -> Json:
        """Return the part of a batch's metadata that the spout itself made."""
        raise NotImplementedError

    def limited(self, coordinator: Any, emitter: Callable[[], Any]) -> tuple[Any, str]:
        """Return which object receives the limit of a batch: itself, its method."""
        raise NotImplementedError

    def divides(self, coordinator: Any, emitter: Callable[[], Any]) -> bool:
        """Return whether the spout takes the limit of a batch."""
        owner, method = self.limited(coordinator, emitter)
        return takes_rows_max(getattr(owner, method))

    def counted(self, coordinator: Any, planned: Json) -> int | None:
        """Return how many rows a planned batch has; None if that is not known yet."""
        return None

    def emit(self, share: TaskShare) -> Iterator[None]:
        """Emit the share of one task in a batch, for the first time or again.

        Not called for a kind that has no tasks of batches: of a plan of Spark, or of the ackers.
        """
        raise NotImplementedError

    def compared(self, traits: Traits) -> bool:
        """Return whether the tuples of a replay are compared with those of the first attempt."""
        return False

    def differing(self, known: Mapping[str, Json], brought: Mapping[str, Json]) -> str | None:
        """Return the first part in which a replay differs; None if there is none.

        Args:
            known: The content of the first attempt, by part.
            brought: The content of the replay.
        """
        parts = sorted(known.keys() & brought.keys(), key=int)
        return next((part for part in parts if known[part] != brought[part]), None)


class PlannedByDriver(SpoutKind):
    """The driver plans a whole batch: its metadata says all that is needed to emit it."""

    coordinator_calls = ("is_ready", "initialize_transaction")
    plans_batches = True

    def plan(
        self, coordinator: Any, txid: int, last: LastBatch, partitions: int, rows_max: int | None
    ) -> Json:
        """Return the metadata that is stored of a batch."""
        limit = {} if rows_max is None else {"rows_max": rows_max}
        planned: Json = coordinator.initialize_transaction(txid, last.metadata, **limit)
        return planned

    def newest(self, before: KnownShare, complete: KnownShare) -> KnownShare:
        """Return the previous txid: its plan says where it ends."""
        return before

    def known(self, share: SpoutShare) -> Json:
        """Return the metadata that the spout made."""
        return share.planned

    def limited(self, coordinator: Any, emitter: Callable[[], Any]) -> tuple[Any, str]:
        """Return which object receives the limit of a batch."""
        return coordinator, "initialize_transaction"

    def counted(self, coordinator: Any, planned: Json) -> int | None:
        """Return what the coordinator counts."""
        # A coordinator of a user need not be derived from ours, and then may lack the method.
        rows: int | None = getattr(coordinator, "planned_rows", lambda _: None)(planned)
        return rows


class CutByEmitters(SpoutKind):
    """The driver plans how many partitions a batch has, and the emitters decide where each ends."""

    coordinator_calls = ("is_ready", "number_of_partitions")
    plans_batches = False
    part = "partition"
    emits_new: ClassVar[str]

    def partitions(self, coordinator: Any) -> int:
        """Return the number of partitions that the coordinator reports."""
        number: int = coordinator.number_of_partitions()
        return number

    def plan(
        self, coordinator: Any, txid: int, last: LastBatch, partitions: int, rows_max: int | None
    ) -> Json:
        """Return the metadata that is stored of a batch."""
        return partitions

    def newest(self, before: KnownShare, complete: KnownShare) -> KnownShare:
        """Return the newest txid whose emitters have said where it ends."""
        return complete

    def known(self, share: SpoutShare) -> Json:
        """Return the metadata that the spout made."""
        return share.cut or {}

    def limited(self, coordinator: Any, emitter: Callable[[], Any]) -> tuple[Any, str]:
        """Return which object receives the limit of a batch."""
        return emitter(), self.emits_new


class TransactionalKind(PlannedByDriver):
    """A spout that the driver plans and whose tasks emit the same batch again."""

    base = TransactionalSpout
    text = short_text = "transactional spout"
    emitter_calls = ("emit_batch",)

    def emit(self, share: TaskShare) -> Iterator[None]:
        """Emit the share of one task in a batch."""
        planned = json_copy(share.share.planned)
        share.emitter.emit_batch(share.attempt, planned, share.collector)
        share.end_part(share.task)
        yield

    def compared(self, traits: Traits) -> bool:
        """Return whether replays are compared."""
        return traits.repeatable

    def differing(self, known: Mapping[str, Json], brought: Mapping[str, Json]) -> str | None:
        """Return the first part in which a replay differs; None if there is none."""
        # After a change of the parallelism the tasks emit other shares than before.
        return super().differing(known, brought) if known.keys() == brought.keys() else None


class PartitionedKind(CutByEmitters):
    """A partitioned spout whose tasks cut a batch once, and emit the same batch again."""

    base = PartitionedTransactionalSpout
    text = "partitioned transactional spout"
    short_text = "partitioned spout"
    emits_new = "emit_partition_batch_new"
    emitter_calls = ("emit_partition_batch", emits_new)

    def emit(self, share: TaskShare) -> Iterator[None]:
        """Emit the share of one task in a batch."""
        if share.share.cut is not None:
            return share.repeat_partitions(share.emitter.emit_partition_batch)
        return share.cut_partitions(share.emitter.emit_partition_batch_new)

    def compared(self, traits: Traits) -> bool:
        """Return whether replays are compared."""
        return True


class OpaqueKind(CutByEmitters):
    """A partitioned spout whose replay is cut again, perhaps with other tuples."""

    base = OpaquePartitionedTransactionalSpout
    text = "opaque partitioned transactional spout"
    short_text = "opaque spout"
    emits_new = "emit_partition_batch"
    emitter_calls = (emits_new,)
    repeats = False

    def emit(self, share: TaskShare) -> Iterator[None]:
        """Emit the share of one task in a batch."""
        if share.share.cut is not None:  # only an operator who looks at the past knows it
            return share.look_back(
                share.emitter.repeat_partition_batch, share.emitter.emit_partition_batch
            )
        return share.cut_partitions(share.emitter.emit_partition_batch, may_be_silent=True)


class StreamKind(PlannedByDriver):
    """A spout whose batches are the micro-batches of a streaming query."""

    base = StreamSpout
    text = short_text = "stream spout"
    calls: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    driven_by = "query"
    alone = "a streaming query delivers its batches, so they are not planned"
    unplanned = "a streaming query (foreach_batch) delivers its batches, so no plan is stored"
    one_task = "its tasks are Spark partitions, one for each of Config.slots"
    makes_dead_letters = False
    runs = "with a task in each slot"

    def emit(self, share: TaskShare) -> Iterator[None]:
        """Emit the share of one task in a batch."""
        for batch in share.rows:
            share.collector.emit_batch(batch)
            yield


class DataFrameKind(PlannedByDriver):
    """A spout whose batch is a plan of Spark, which the carrier computes."""

    base = DataFrameTransactionalSpout
    text = "DataFrame transactional spout"
    short_text = "DataFrame spout"
    calls: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "coordinator": ("config", "context"),
        "read": ("spark", "attempt", "metadata"),
    }
    alone = "its batches are plans of Spark, which have no tasks"
    unplanned = "its batches are plans of Spark, which have no time and no versions"
    one_task = "it has no tasks, since Spark divides the work of a plan"
    run_txids_max = 1  # A plan of Spark returns the rows of one batch.
    frame = True
    makes_dead_letters = False


class SequenceKind(PlannedByDriver):
    """A spout with two parts that both plan whole batches: one after the other."""

    base = SequenceSpout
    text = "sequence spout"
    short_text = "sequence"
    emitter_calls = ("emit_batch", "emit_partition_batch", "emit_partition_batch_new")

    def of(self, spout: object) -> SpoutKind:
        """Return the kind by the weaker of both parts."""
        assert isinstance(spout, SequenceSpout)
        kinds = [SPOUTS[kind] for kind in spout.kinds]
        if all(kind.plans_batches for kind in kinds):
            return self
        repeats = all(kind.repeats for kind in kinds)
        return PartitionedSequenceKind() if repeats else OpaqueSequenceKind()

    def partitions(self, coordinator: Any) -> int:
        """Return the number of partitions of the part that plans the batch."""
        number: int = coordinator.number_of_partitions()
        return number

    def known(self, share: SpoutShare) -> Json:
        """Return the plan and the cut, of which the spout takes what belongs to its part."""
        return None if share.planned is None else {"planned": share.planned, "cut": share.cut}

    def divides(self, coordinator: Any, emitter: Callable[[], Any]) -> bool:
        """Return whether the part that plans the batch takes its limit."""
        divides: bool = coordinator.divides()
        return divides

    def begins_again(self, share: SpoutShare) -> bool:
        """Return whether the batch is the switch, after which the partitions are other ones."""
        return not share.absent and is_switch(share.planned)

    def emit(self, share: TaskShare) -> Iterator[None]:
        """Emit the share of one task in a batch, as the kind of its part does."""
        planned = share.share.planned
        begins_again = self.begins_again(share.share)
        kind = SPOUTS[share.emitter.begin(planned)]
        own = SpoutShare(planned_by_part(planned), share.share.cut)
        one = share.of_part(own, begins_again=begins_again)
        if begins_again:
            one.end_part(one.task)  # so that a replay, which emits nothing either, is compared
            return iter(())
        return kind.emit(one)

    def compared(self, traits: Traits) -> bool:
        """Return whether replays are compared."""
        return traits.repeatable

    def differing(self, known: Mapping[str, Json], brought: Mapping[str, Json]) -> str | None:
        """Return the first part in which a replay differs; None if there is none."""
        # As for a transactional spout. The partitions of a cut are the same in each replay.
        return super().differing(known, brought) if known.keys() == brought.keys() else None


class PartitionedSequenceKind(SequenceKind):
    """A sequence in which the emitters of a part decide where a batch ends."""

    text = "partitioned sequence spout"
    plans_batches = False

    def newest(self, before: KnownShare, complete: KnownShare) -> KnownShare:
        """Return the newest txid whose end is known, with the newest plan."""
        share = before[1]
        if share is None or has_batch(share.planned) or is_switch(share.planned):
            return before
        # A cut of the first part says nothing of the second.
        after = after_of(share.planned)
        cut = None if complete[1] is None or complete[0] <= after else complete[1].cut
        return max(complete[0], after), SpoutShare(share.planned, cut)

    def carried(self, share: SpoutShare) -> Json:
        """Return the plan: it has the part, and of a part that plans batches its position."""
        return share.planned


class OpaqueSequenceKind(PartitionedSequenceKind):
    """A sequence with an opaque part: opaque for its whole life."""

    text = "opaque sequence spout"
    repeats = False


SPOUTS: dict[type, SpoutKind] = {
    kind.base: kind
    for kind in (
        TransactionalKind(),
        PartitionedKind(),
        OpaqueKind(),
        StreamKind(),
        DataFrameKind(),
        SequenceKind(),
    )
}
"""The kinds that a ``TransactionalTopologyBuilder`` takes, by the class of the user."""


def short_text(role: str) -> str:
    """Return the name in drawings of the kind with this text: the text itself, if it is short."""
    return next((kind.short_text for kind in SPOUTS.values() if kind.text == role), role)
