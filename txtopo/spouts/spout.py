"""The interfaces that authors of spouts implement: methods, who calls them, what they promise.

Of a transactional topology, by what a replay of a txid brings:

* :class:`TransactionalSpout`: the same batch; the driver plans it, the tasks emit it.
* :class:`PartitionedTransactionalSpout`: the same batch; the tasks decide where it ends.
* :class:`OpaquePartitionedTransactionalSpout`: perhaps another batch.

:class:`StreamSpout` is not for subclasses: a Structured Streaming query brings its batches.

:mod:`txtopo.plugins.spouts` exports all that an implementation needs. Prove one with
:class:`txtopo.testing.conformance.SpoutSuite`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, TopologyChanged, TopologyError
from txtopo.metadata import Json, shown
from txtopo.traits import HasTraits, Traits
from txtopo.tuples import Fields, Stream


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The newest batch whose metadata is known when the next one is planned.

    Attributes:
        txid: Its txid; 0 if there is none yet. The spout that plans batch *t* gets *t* - 1. A
            partitioned spout may get less: batches are planned ahead, and their metadata is known
            only after the tasks have emitted them.
        metadata: Its metadata. For a partitioned spout a mapping from the partition's number, as a
            string, to the metadata of that partition.
        pending: How many batches in which the spout takes part are planned and not yet committed.
            While some are, a spout may wait for more records to gather; with none, it must be ready
            if it has any record.
        idle_s: How many seconds ago the previous txid was planned, by whichever spout; None if the
            topology does not keep that (``needs_planned_time``), and before the first txid.
    """

    txid: int = 0
    metadata: Json = None
    pending: int = 0
    idle_s: float | None = None

    def worth_a_batch(self, unread: int, full: int) -> bool:
        """Return whether to plan the next batch now, with *unread* records, where *full* fill it.

        A full batch is planned at once: the window of pending batches is there for that. One that
        has room grows while it waits, but a record waits for all batches before its own. So while
        any is in flight, the rest is left to gather: no record then waits for more than one other
        batch, and the slower the commits, the larger the batches.

        Example:
            >>> LastBatch(7, {"end": 700}, pending=1).worth_a_batch(unread=60, full=100)
            False
        """
        return unread >= full or (unread > 0 and not self.pending)


class TransactionalCoordinator(ABC):
    """The part of a spout that plans batches (Storm ``ITransactionalSpout.Coordinator``).

    Who calls it: the runtime, in the driver of the leading coordinator, one call at a time, on any
    thread; only ``lag`` and ``lost`` may run beside another call. It need not be picklable.

    Durable: nothing on return. The framework stores the returned metadata in ZooKeeper before a
    task sees it; keep no position of your own, since a plan may be dropped before it is stored, and
    the next leader plans the txid again.

    Not guaranteed: that ``close`` is called when the driver is killed.
    """

    @abstractmethod
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether batch *txid* can be planned now.

        Called before each new batch, and again within ``Config.poll_interval_s`` when it returned
        False; never for a replay. It may block for a short time to wait for data. *last* is the
        batch before this one. If the source can tell how many records are unread, return what
        :meth:`LastBatch.worth_a_batch` of *last* returns: batches fill while others are in flight.
        """

    @abstractmethod
    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        """Return the metadata of batch *txid*, as JSON: all that is needed to emit it, every time.

        Called once ``is_ready`` has returned True for *txid*; never for a replay, which uses the
        stored metadata.

        A coordinator whose batches can be limited takes ``rows_max: int | None = None`` as a
        keyword argument too: the most rows of the batch, so that a replay has no more either; None
        for no limit, 0 for a batch that only stores a position. If the source cannot be divided so
        far, the batch may have more, which is paid back (``docs/explanation/pacing.md``). One that
        does not take the argument plans its batches as it does without a limit.

        Args:
            txid: The batch, from 1, in order and without gaps.
            previous_metadata: What this returned for *txid* - 1; None for the first.

        Raises:
            InfrastructureError: To have it called again after a pause.
            SourceDataLost: To end the run, because records that come next are gone.
        """

    def unread(self, last: LastBatch) -> Mapping[str, int] | None:
        """Return how many rows there are after the batch *last*; None if that is not known.

        For ``Pace(min_batch_rows=…)`` and the other settings of ``docs/explanation/pacing.md``;
        called after ``is_ready`` has returned True. The names are free, since the numbers are added
        up; all 0 asks for a batch that only stores a position. It may stop counting at the limit
        that the spout itself has for a batch. Rows that are not known are not counted, so that a
        batch waits for its delay.
        """
        return None

    def planned_rows(self, metadata: Json) -> int | None:
        """Return how many rows the batch of this metadata has; None if that is not known yet.

        Called right after ``initialize_transaction`` has returned the metadata, if the batches of
        the topology are limited. What a batch has above its limit then counts at once, not only
        when the batch is committed.
        """
        return None

    def lag(self, metadata: Json) -> Mapping[str, int]:
        """Return how many unread records each partition has after the batch of this metadata.

        Leave out partitions for which it is not known. A source whose records are not counted may
        use other units as keys, such as ``files`` and ``bytes``. Called before each commit, perhaps
        while ``is_ready`` runs on another thread.
        """
        return {}

    def lost(self, metadata: Json) -> Mapping[str, str]:
        """Return which records the batch of this metadata skipped because they were gone.

        For a spout that continues where records are gone: the text for each partition is logged and
        shown in the progress. Called as ``lag`` is.
        """
        return {}

    def ended(self, last: LastBatch) -> bool:
        """Return whether the source has nothing after the batch *last*, not even unready records.

        For the first part of a ``SequenceSpout``, whose spout sets ``ends``. Called right after
        ``is_ready`` has returned False for the same *last*, with no batch of it in flight. Whatever
        comes to the source after True was returned may never be read.
        """
        raise NotImplementedError

    def held_back(self) -> str | None:
        """Return which data of the source is not read now, and why, in words; None if all is read.

        For what waits until its time has come, or was set aside: pages, metrics and ``txtopo show``
        tell it. Called at any time, from any thread, so it must not block.
        """
        return None

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release what was opened."""


def check_commit(commit: Callable[..., object], emitter: str, arguments: int) -> None:
    """Check that an emitter's ``commit`` can be called with an attempt and its metadata.

    Args:
        commit: The method.
        emitter: Name of the emitter's class.
        arguments: Number of arguments: attempt and metadata, and before them self in a class.

    Raises:
        TopologyError: It cannot; give it these arguments.
    """
    signature = inspect.signature(commit)
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        raise TopologyError(
            f"commit of emitter {emitter} takes other arguments; got commit{signature}; expected "
            "commit(self, attempt, metadata); add the argument metadata, which is "
            "the metadata of the batch",
            name=emitter,
            got=f"commit{signature}",
        ) from None


def takes_rows_max(method: Callable[..., object]) -> bool:
    """Return whether a method of a spout takes the limit of a batch; see :mod:`txtopo.pacing`."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except ValueError:
        return False  # a function in C has no signature to look at
    return any(
        each.kind is each.VAR_KEYWORD
        or (
            each.name == "rows_max" and each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)
        )
        for each in parameters
    )


def check_min_batch_rows(config: Config, rows_max: int, partitions: int | None = None) -> None:
    """Check that batches can be as large as ``Pace(min_batch_rows=…)`` waits for.

    Args:
        config: The settings.
        rows_max: The spout's own limit, its argument ``batch_rows_max``.
        partitions: How many partitions the source has, if the limit is that of each.

    Raises:
        ConfigError: The spout's own limit is below it; raise that, or lower the other.
    """
    rows_min, most = config.pace.min_batch_rows, rows_max * (partitions or 1)
    if rows_min is not None and rows_min > most:
        limit = f"batch_rows_max={rows_max}"
        if partitions is not None:
            limit = f"{most}, which is {limit} times {partitions} partitions"
        raise ConfigError(
            f"pace.min_batch_rows is above the limit of the spout; got {rows_min}; expected at "
            f"most {limit}, because no batch has more rows; lower it, or raise batch_rows_max",
            setting="pace.min_batch_rows",
        )


def other_position(spout: str, metadata: Json) -> TopologyChanged:
    """Return the error for stored metadata that does not have the form of the spout's plans.

    Another spout, which had the same id, has planned it.

    Args:
        spout: The spout that reads it, for the message.
        metadata: The metadata.
    """
    return TopologyChanged(
        f"the stored position was not planned by {spout}; got {shown(metadata)}; expected a "
        "position that it planned itself; did another spout run under this id? start that one, "
        "or give this one another id, under which it begins from the start",
        spout=spout,
        got=shown(metadata),
    )


class Emitter:
    """What the emitters of the three kinds of transactional spouts have in common: hooks.

    Each may be left out. An emitter with a ``commit`` makes its spout a committer spout (Storm
    ``ICommitterTransactionalSpout``). Its topology commits one txid at a time: once ``commit`` is
    called for a txid, it is not called for one before it any more.

    Attributes:
        writes_nowhere_else: Whether it declares that this does not matter, because what ``commit``
            writes is a report, or nothing, which may come again for a group of txids. Txids that
            wait are then committed together.
    """

    writes_nowhere_else: bool = False

    def __init_subclass__(cls, **more: object) -> None:
        """Refuse a ``commit`` that cannot be called, before anything runs.

        Raises:
            TopologyError: It takes other arguments.
        """
        super().__init_subclass__(**more)
        commit = inspect.getattr_static(cls, "commit")
        if inspect.isfunction(commit):
            check_commit(commit, cls.__qualname__, 3)

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        """Take part in the commit phase of an attempt.

        Called in the driver, once for each attempt whose turn to commit has come, before the
        committers are called and before any state is written. Right before, the leader asks
        ZooKeeper whether it still leads, unless the emitter declares ``writes_nowhere_else``.
        (Storm calls it in each task that emitted.) It may fail the attempt, but cannot rely on the
        commit: if the attempt fails afterwards, or the driver dies before all states are written,
        the batch has another attempt, and this is called for it as well. The same holds if all
        states are written but the answer of a store was lost, or came after
        ``Config.batch_timeout_s``. If the driver dies once all states are written, this is not
        called for the txid again; a topology without states cannot know that, so there it is.
        ``cleanup_before`` says what is committed.

        Args:
            attempt: The attempt. The greatest of a txid is the one that is committed.
            metadata: The metadata of the batch: what ``initialize_transaction`` returned; of a
                partitioned spout a mapping from the partition's number, as a string, to what this
                attempt's emit method returned.

        Raises:
            FailedException: To fail the attempt. For other exceptions see
                ``docs/how-to/failures.md``.
        """

    def cleanup_before(self, txid: int) -> None:
        """Release everything kept for txids before *txid*, which are all committed.

        Called in the driver after a commit. If the driver died or the hook failed, the call for one
        txid may be missing; a later call covers it. The next commit waits for it, so it must
        be quick.
        """

    def close(self) -> None:
        """Release what was opened."""


class TransactionalEmitter(Emitter, ABC):
    """The part of a spout that emits (Storm ``ITransactionalSpout.Emitter``).

    Who calls it: the framework. ``emit_batch`` and ``close`` in a Spark task, on one thread; each
    task of each job makes an emitter of its own. ``commit`` and ``cleanup_before`` in the driver,
    on one more emitter, made for task 0, one call at a time on any thread.

    Durable: nothing on return. Not guaranteed: that an attempt which was emitted is committed, that
    it is emitted only once, or that ``close`` is called when the task is lost.
    """

    @abstractmethod
    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        """Emit this task's share of the batch: the same tuples for the same metadata, in order.

        Every task of the spout is called with the same metadata; ``context.task_index`` of
        ``context.tasks`` says which share is this task's.

        Raises:
            FailedException: To fail the attempt; the batch is emitted again after a pause, at most
                ``Config.attempts_max`` times.
            InfrastructureError: The same, as often as it takes, after pauses.
            SourceDataLost: To end the run, because the batch cannot be brought again.
        """


class HasReplays(HasTraits):
    """What the spouts of transactional topologies have in common.

    Attributes:
        repeatable: False for a spout whose metadata may stand for other tuples on a replay. It is
            opaque then, and transactional states are refused.
        ends: Whether its coordinator part has ``ended``, so that a ``SequenceSpout`` can read it
            to its end.
    """

    repeatable: bool = True
    ends: bool = False

    @property
    def traits(self) -> Traits:
        """The traits that the framework reads. Your own class sets the attributes instead."""
        return replace(super().traits, repeatable=self.repeatable)

    def beginning_at(self, place: Json) -> Self:
        """Return a copy of this spout whose first batch begins at a place of its source.

        For ``begins`` of a ``SequenceSpout``, which refuses a spout without this method. Called in
        the driver and in tasks; it must not do any I/O.

        Args:
            place: The place, as JSON. The docstring of each spout says what it takes.

        Raises:
            ConfigError: It is not a place of this source.
        """
        raise NotImplementedError


class TransactionalSpout(HasReplays, ABC):
    """A source that can bring the same batch again (Storm ``ITransactionalSpout``).

    Delivery: transactional. Every attempt of a txid has the same tuples, so states of both kinds
    are exactly once. The framework compares replays, unless ``Config(check_replays=False)``; one
    with other tuples ends the run with ``NonRepeatableBatch``. If data is gone before its txid is
    committed, raise ``SourceDataLost``: the run stops, and nothing is skipped.

    Who calls it: the framework; ``coordinator`` in the driver, ``emitter`` in each task. The spout
    must be picklable, since it travels to the tasks: open connections in its two parts.

    Prove it with :class:`txtopo.testing.conformance.SpoutSuite`.

    Attributes:
        output_fields: The fields of the default stream.
        output_streams: The other streams, by name.
        repeatable: False for a spout whose metadata may stand for other tuples on a replay. It is
            opaque then, and transactional states are refused.
        client_modules: The modules that its tasks import, such as the source's client. Before
            anything runs, each executor of a cluster is asked whether it has them.
        needs_planned_time: Whether each batch keeps the time at which it was planned, for
            ``context.planned_time``.
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    @abstractmethod
    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        """Make the planning part; called in the driver, once per start."""

    @abstractmethod
    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part; called in each task of each job."""


class PartitionedCoordinator(ABC):
    """The planning part of a partitioned spout, transactional or opaque.

    With a limit of ``docs/explanation/pacing.md`` the emitters get ``rows_max``.

    Who calls it: the runtime, in the driver of the leading coordinator, one call at a time, on any
    thread; only ``lag`` and ``lost`` may run beside another call. It need not be picklable. Not
    guaranteed: that ``close`` is called when the driver is killed.
    """

    @abstractmethod
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether a batch *txid* can be emitted now; called as for a transactional spout.

        Batches are planned ahead: count the records that the batches between *last* and this one
        will take.
        """

    @abstractmethod
    def number_of_partitions(self) -> int:
        """Return how many partitions there are now.

        Called for each txid, and stored with it: a replay of the batch uses the same number.
        """

    def unread(self, last: LastBatch) -> Mapping[str, int] | None:
        """Return how many rows each partition has after the batch *last*, by its number as text.

        None if that is not known. Do not subtract what batches after *last* will take. For
        ``Pace(min_batch_rows=…)``, which counts only what is known, and to share a limit out by it:
        partitions that are left out count as empty. Called after ``is_ready`` has returned
        True; all 0 asks for a batch that only stores positions. See ``docs/explanation/pacing.md``.
        """
        return None

    def lag(self, metadata: Mapping[str, Json]) -> Mapping[str, int]:
        """Return how many unread records each partition has after the batch of this metadata.

        Leave out partitions for which it is not known. Called before each commit, perhaps while
        ``is_ready`` runs on another thread.
        """
        return {}

    def lost(self, metadata: Mapping[str, Json]) -> Mapping[str, str]:
        """Return which records the batch of this metadata skipped because they were gone.

        For a spout that continues where records are gone: the text for each partition is logged and
        shown in the progress. Called as ``lag`` is.
        """
        return {}

    def ended(self, last: LastBatch) -> bool:
        """Return whether the source has nothing after the batch *last*, not even unready records.

        For the first part of a ``SequenceSpout``, whose spout sets ``ends``. Called right after
        ``is_ready`` has returned False for the same *last*, with no batch of it in flight. Whatever
        comes to the source after True was returned may never be read.
        """
        raise NotImplementedError

    def held_back(self) -> str | None:
        """Return which data of the source is not read now, and why, in words; None if all is read.

        For what waits until its time has come, or was set aside: pages, metrics and ``txtopo show``
        tell it. Called at any time, from any thread, so it must not block.
        """
        return None

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release what was opened."""


class PartitionedTransactionalEmitter(Emitter, ABC):
    """The emitting part (Storm ``IPartitionedTransactionalSpout.Emitter``).

    Who calls it: as a ``TransactionalEmitter``. Task i of n has the partitions i, i + n, i + 2n …

    Durable: nothing on return. The framework stores the returned metadata before the commit of the
    batch begins, and all replays use it from then on. An attempt that fails earlier is forgotten:
    the next one calls ``emit_partition_batch_new`` again.
    """

    @abstractmethod
    def emit_partition_batch_new(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        """Emit a new batch of a partition and return its metadata, as JSON.

        An emitter whose batches can be limited takes ``rows_max: int | None = None`` as a keyword
        argument too: the most tuples to emit; None for no limit. With 0 it emits nothing, and
        returns where the next batch starts. One that emits more ends the run. An emitter that does
        not take the argument emits as without a limit, and what is above it is paid back
        (``docs/explanation/pacing.md``).

        Args:
            attempt: The attempt.
            collector: Where to emit.
            partition: Number of the partition, from 0.
            last_metadata: What this returned for the previous txid; None for the first.

        Raises:
            FailedException: To fail the attempt.
            InfrastructureError: The same, without counting it.
            SourceDataLost: To end the run.
        """

    @abstractmethod
    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> None:
        """Emit the batch of a partition again: the same tuples in the same order.

        Otherwise the run ends with ``NonRepeatableBatch``.
        """


class PartitionedTransactionalSpout(HasReplays, ABC):
    """A partitioned source that can bring the same batch again.

    It is Storm's ``IPartitionedTransactionalSpout``. Delivery, calls, picklability and proof: as
    for ``TransactionalSpout``. A replay does not read partitions that were added after its batch
    was planned.

    Attributes:
        output_fields: The fields of the default stream.
        output_streams: The other streams, by name.
        repeatable: As for ``TransactionalSpout``.
        client_modules: The modules that its tasks import; see ``TransactionalSpout``.
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    @abstractmethod
    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part; called in the driver, once per start."""

    @abstractmethod
    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        """Make an emitting part; called in each task of each job."""


class OpaquePartitionedTransactionalEmitter(Emitter, ABC):
    """The emitting part (Storm ``IOpaquePartitionedTransactionalSpout.Emitter``).

    Who calls it: as a ``TransactionalEmitter``. Task i of n has the partitions i, i + n, i + 2n …
    (Storm asks the emitter for the number of partitions. Here the coordinator part is asked, so
    that all tasks see the same number.)

    Durable: nothing on return. The framework stores the returned metadata before the commit of the
    attempt begins.
    """

    @abstractmethod
    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        """Emit a batch of a partition and return its metadata, as JSON.

        The batch starts where *last_metadata* ended, and may have other tuples than an earlier
        attempt at the txid had. For a partition that is down return None: it keeps its position.

        It may take ``rows_max``, as the emitters of transactional spouts may. All attempts at a
        txid get the same one.

        Args:
            attempt: The attempt.
            collector: Where to emit.
            partition: Number of the partition, from 0.
            last_metadata: The newest metadata of this partition before the txid; None for none.

        Raises:
            FailedException: To fail the attempt.
            InfrastructureError: The same, without counting it.
            SourceDataLost: To end the run.
        """

    def repeat_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> bool:
        """Emit a batch of a partition as it was, and return whether that is possible.

        Only an operator who looks at a txid of the past asks for it (``txtopo replay``); the tuples
        are committed nowhere. The default returns False and emits nothing: then
        ``emit_partition_batch`` cuts the batch again.

        Args:
            attempt: The attempt that was committed, or is stored.
            collector: Where to emit.
            partition: Number of the partition, from 0.
            metadata: What ``emit_partition_batch`` returned for the batch.

        Raises:
            SourceDataLost: The source no longer has the records.
        """
        return False


class OpaquePartitionedTransactionalSpout(HasReplays, ABC):
    """A partitioned source that loses nothing but may cut its batches differently in a replay.

    Delivery: opaque. Each record counts in exactly one committed txid, but a failed attempt may be
    followed by another batch of the same txid; needs opaque states. Calls, picklability and proof:
    as for ``TransactionalSpout``.

    Attributes:
        output_fields: The fields of the default stream.
        output_streams: The other streams, by name.
        repeatable: False; see ``TransactionalSpout``.
        client_modules: The modules that its tasks import; see ``TransactionalSpout``.
    """

    repeatable: bool = False

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    @abstractmethod
    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        """Make the planning part; called in the driver, once per start."""

    @abstractmethod
    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        """Make an emitting part; called in each task of each job."""


class StreamSpout(HasReplays):
    """The spout of a topology that a Structured Streaming query drives; it reads nothing itself.

    Delivery: that of the query. Spark writes to its checkpoint what a micro-batch consists of
    before it computes it, so a replay has the same input. If that entry is lost, a replay may have
    other rows, and then only opaque states are right.

    A topology with this spout is not started. Give ``topology.foreach_batch()`` to
    ``stream.writeStream.foreachBatch``: Spark calls it in the driver with each micro-batch. Its
    tasks are Spark partitions of the micro-batch, one for each of the slots that
    ``foreach_batch`` is given.

    Args:
        fields: The columns of the stream that the topology uses, by name; others are left out.

    Example:
        >>> from txtopo import Fields, PersistentAggregate, TransactionalTopologyBuilder
        >>> from txtopo.spouts import StreamSpout
        >>> from txtopo.state import Count, open_state
        >>> stream = StreamSpout(Fields("word string"))
        >>> builder = TransactionalTopologyBuilder("words", "stream", stream)
        >>> count = PersistentAggregate(open_state("sqlite:///words.db"), "word", Count())
        >>> _ = builder.set_bolt("count", count).fields_grouping("stream", "word")
        >>> write = builder.build_topology().foreach_batch()
        >>> # query = words.writeStream.foreachBatch(write).option("checkpointLocation", …).start()
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    def __init__(self, fields: Fields) -> None:
        self.output_fields = fields
