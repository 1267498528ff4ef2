"""SpoutDriver: runs the batches of a spout as the framework does, without Spark or a loop.

Planning, tasks, envelopes and the outcome of a run are the framework's own: ``BatchPlanner``,
``SpoutTask`` on the carrier ``local``, ``judge``. Instead of ZooKeeper, it keeps metadata as text.

:class:`Intake` writes to a source and checks what is read from it. :class:`SpoutFixtures` is what
all suites of spouts have in common.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import BatchBolt
from txtopo.builders.prototypes import snapshot
from txtopo.carriers.carrier import LocalCarrier
from txtopo.config import Config
from txtopo.coordinator.protocol import Failed, NotReady, PlanBatch
from txtopo.ensemble.nodes import (
    check_metadata_size,
    metadata_from_json,
    metadata_to_json,
)
from txtopo.groupings import DirectGrouping, GlobalGrouping
from txtopo.metadata import BatchMetadata
from txtopo.pacing import Pace
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.spouts.spout import OpaquePartitionedTransactionalEmitter
from txtopo.stages.compiled_topology import Run, compile_topology
from txtopo.stages.envelopes import open_envelope
from txtopo.stages.outcome import BatchOutcome, judge
from txtopo.testing.conformance.pace import announce
from txtopo.testing.conformance.spout_source import Row, Spout, SpoutSource
from txtopo.topology.bolt_kinds import BATCH_BOLT
from txtopo.topology.component import Component, Subscription, cutting, declared_streams, spout_kind
from txtopo.topology.graph import Graph

_TOPOLOGY = "conformance"


@dataclass(frozen=True, slots=True)
class Batch:
    """A processed batch.

    Attributes:
        attempt: The attempt.
        rows: The tuples of all streams in the order in which they were emitted, task by task.
        metadata: Its stored metadata.
    """

    attempt: TransactionAttempt
    rows: tuple[Row, ...]
    metadata: BatchMetadata

    @property
    def txid(self) -> int:
        """The txid of the batch."""
        return self.attempt.txid


@dataclass
class StoredMetadata:
    """The data that outlives a driver.

    Attributes:
        metadata: The metadata of each txid, as text.
        committed: The last committed txid.
        epoch: The epoch of the last driver.
    """

    metadata: dict[int, str] = field(default_factory=dict)
    committed: int = 0
    epoch: int = 0

    def of(self, txid: int) -> BatchMetadata:
        """Return the metadata of a txid."""
        return metadata_from_json(txid, json.loads(self.metadata[txid]))

    def put(self, txid: int, metadata: BatchMetadata) -> None:
        """Store the metadata of a txid; raise if it does not fit into a znode."""
        check_metadata_size(txid, metadata)
        self.metadata[txid] = json.dumps(metadata_to_json(metadata), allow_nan=False)


class SpoutDriver:
    """One start of a topology with a spout and no bolts.

    Args:
        spout: The spout.
        tasks: Its parallelism.
        stored: What an earlier start has stored; None for a first start.
        slots: How many slots host the tasks.
        limit: The most rows of each new batch; None for no limit.
    """

    def __init__(
        self,
        spout: Spout,
        tasks: int = 1,
        stored: StoredMetadata | None = None,
        slots: int = 2,
        limit: int | None = None,
    ) -> None:
        self.kind = spout_kind("spout", spout)
        component = snapshot(Component("spout", self.kind, spout, tasks, declared_streams(spout)))
        config = Config(carrier="local", zookeeper="memory", pace=Pace(max_rows_per_second=limit))
        graph = Graph.of(_TOPOLOGY, _behind(component))
        self._compiled = compile_topology(graph, config, slots)
        self._carrier = LocalCarrier(slots)
        self._carrier.start(self._compiled)
        self.stored = stored or StoredMetadata()
        self.stored.epoch += 1
        # A second passes before each batch, so each may have what the rate allows in a second.
        times = _Seconds(1_000 * self.stored.epoch)
        self._planner = BatchPlanner(graph, config, times)
        (self._spout,), self._cutting = self._planner.parts, cutting([component])
        known = {txid: self.stored.of(txid) for txid in self.stored.metadata}
        self._planner.begin(known, self.stored.committed + 1)
        self.processed = self.stored.committed
        """The last processed txid. A new start processes what was not committed again."""
        self._attempts: dict[int, int] = {}
        self._done: dict[int, TransactionAttempt] = {}

    @property
    def repeatable(self) -> bool:
        """Whether the spout is transactional."""
        return self.kind.repeats

    @property
    def divides(self) -> bool:
        """Whether the spout takes a limit."""
        return self._spout.divides

    def next(self, batches: int = 1) -> list[Batch]:
        """Process the next batches as one run: planned ones first, then as many as are ready.

        Raises:
            Exception: The error of the planning or of a task. Call it again to try again.
        """
        first = self.processed + 1
        txids = list(range(first, first + batches))
        for txid in txids:
            if txid not in self.stored.metadata and not self._plan(txid):
                txids = txids[: txid - first]
                break
        return self._run(txids) if txids else []

    def again(self, txid: int) -> Batch:
        """Process a txid again that was processed but not committed.

        If the spout is opaque, this abandons all later txids, and forgets where
        this txid and they ended.
        """
        assert self.stored.committed < txid <= self.processed, "there is nothing to replay"
        newest = self.processed
        if not self.repeatable:
            for later in range(txid, newest + 1):
                self.stored.put(later, self.stored.of(later).cut_again())
        self.processed = txid - 1
        (batch,) = self._run([txid])
        if self.repeatable:
            self.processed = newest
        return batch

    def look_back(self, txid: int) -> Batch | None:
        """Process a txid again as an operator looks at it; None if an opaque spout cannot repeat.

        It changes nothing that is known of the txid.
        """
        component = self._compiled.components["spout"]
        emitter = component.prototype.copy().emitter(
            self._compiled.config, self._compiled.context(component, 0)
        )
        repeat = getattr(type(emitter), "repeat_partition_batch", None)
        emitter.close()
        if repeat is OpaquePartitionedTransactionalEmitter.repeat_partition_batch:
            return None
        known = {each: self.stored.of(each) for each in range(max(txid - 1, 1), txid + 1)}
        run = Run(
            f"txtopo:{_TOPOLOGY}:{txid}", (self._done[txid],), (known[txid],), known.get(txid - 1)
        )
        outcome = judge(self._compiled, run, self._carrier.process(run).records)
        if outcome.failure is not None:
            raise outcome.failure.error
        (batch,) = outcome.processed
        return Batch(batch.attempt, tuple(self._rows(batch)), known[txid])

    def commit(self) -> None:
        """Commit all processed txids, and notify the spout as the framework does."""
        while self.stored.committed < self.processed:
            txid = self.stored.committed + 1
            self._spout.commit(self._done[txid], self.stored.of(txid).of("spout"))
            self.stored.committed = txid
            for old in [each for each in self.stored.metadata if each < txid]:
                del self.stored.metadata[old]
            self._spout.cleanup_before(txid + 1)

    def lag(self) -> dict[str, int]:
        """Return the lag behind the last batch."""
        return dict(self._planner.lag(self.stored.of(self.processed)))

    def close(self) -> None:
        """Close the spout."""
        self._planner.close()

    def _plan(self, txid: int) -> bool:
        known = txid - 1
        while known and not self._is_known(known):
            known -= 1
        last = self.stored.of(known) if known else None
        previous = self.stored.of(txid - 1) if known < txid - 1 else None
        action = PlanBatch(self._attempt(txid), known, last, previous)
        in_flight = [self.stored.of(each) for each in range(self.stored.committed + 1, txid)]
        planned = self._planner.plan(action, in_flight)
        if isinstance(planned, Failed):
            raise planned.failure.error
        if isinstance(planned, NotReady):
            return False
        self.stored.put(txid, planned.metadata)
        return True

    def _is_known(self, txid: int) -> bool:
        return self.stored.of(txid).is_cut(self._cutting)

    def _run(self, txids: Sequence[int]) -> list[Batch]:
        attempts = tuple(self._attempt(txid) for txid in txids)
        metadata = tuple(self.stored.of(txid) for txid in txids)
        if not self.repeatable:
            metadata = tuple(each.cut_again() for each in metadata)
        first = txids[0]
        previous = self.stored.of(first - 1) if first > 1 else None
        run = Run(f"txtopo:{_TOPOLOGY}:{first}", attempts, metadata, previous)
        for txid in txids:
            self._attempts[txid] = self._attempts.get(txid, 0) + 1
        outcome = judge(self._compiled, run, self._carrier.process(run).records)
        for batch in outcome.processed:
            self.processed = batch.attempt.txid
            self._done[self.processed] = batch.attempt
            self.stored.put(self.processed, batch.metadata)
        if outcome.failure is not None:
            raise outcome.failure.error
        return [
            Batch(each.attempt, tuple(self._rows(each)), self.stored.of(each.attempt.txid))
            for each in outcome.processed
        ]

    def _attempt(self, txid: int) -> TransactionAttempt:
        return TransactionAttempt(txid, self._attempts.get(txid, 0), self.stored.epoch)

    def _rows(self, batch: BatchOutcome) -> Iterator[Row]:
        """Yield the tuples in the order of their tasks."""
        found = []
        for envelope in map(open_envelope, batch.handover):
            edge = self._compiled.edges[envelope.edge]
            tuples, start = envelope.batch(edge.schema), 0
            for segment in envelope.segments:
                rows = tuples.slice(start, segment.tuples).to_pylist()
                found.append(((edge.stream, segment.sender, envelope.number, start), rows))
                start += segment.tuples
        for _, rows in sorted(found, key=lambda each: each[0]):
            yield from (tuple(row.values()) for row in rows)


class _Seconds:
    """A clock that advances by a second whenever it is read."""

    def __init__(self, start_s: float) -> None:
        self._now_s = start_s

    def now(self) -> float:
        self._now_s += 1
        return self._now_s

    def wall_clock(self) -> float:
        return self._now_s


class _Gather(BatchBolt):
    """A committer that never runs. Its input stays in the envelopes, where the driver reads it."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        """Never called."""

    def execute(self, tuple: Any) -> None:
        """Never called."""

    def finish_batch(self) -> None:
        """Never called."""


def _behind(spout: Component) -> list[Component]:
    inputs = tuple(
        Subscription(spout.id, name, DirectGrouping() if stream.direct else GlobalGrouping())
        for name, stream in spout.streams.items()
    )
    return [
        spout,
        Component("gather", BATCH_BOLT, _Gather(), 1, {}, inputs, committer=True),
    ]


class Intake:
    """Writes to a source, and checks the batches that are read from it.

    Pass each batch once, in txid order; of a replayed txid only the last attempt.

    Args:
        source: The source.
    """

    def __init__(self, source: SpoutSource) -> None:
        self._source = source
        self._written: dict[int, list[Hashable]] = {p: [] for p in range(source.partitions)}
        self._read: dict[int, int] = dict.fromkeys(self._written, 0)
        self._lost: dict[int, int] = dict.fromkeys(self._written, 0)

    def append(self, count: int, *partitions: int) -> None:
        """Write *count* records to each of the given partitions, or to all."""
        for partition in partitions or tuple(self._written):
            records = list(self._source.append(partition, count))
            assert len(records) == count, "append has to return one value for each record"
            known = {record for each in self._written.values() for record in each}
            assert len(known | set(records)) == len(known) + count, "records have to be distinct"
            self._written[partition] += records

    def add_partition(self) -> int:
        """Add a partition and return its number."""
        self._source.add_partition()
        partition = len(self._written)
        self._written[partition], self._read[partition], self._lost[partition] = [], 0, 0
        return partition

    def remove_partition(self) -> None:
        """Remove the last partition, which must have been read to its end."""
        last = max(self._written)
        assert self._read[last] == len(self._written[last]), "what goes has to be read"
        self._source.remove_partition()
        del self._written[last]

    def lose(self, partition: int) -> None:
        """Lose all records that a partition has now."""
        self._source.lose(partition)
        self._lost[partition] = len(self._written[partition])

    def records(self, batch: Batch) -> list[Hashable]:
        """Return the records of a batch."""
        return [self._source.record(row) for row in batch.rows]

    def places(self, batch: Batch) -> dict[int, list[int]]:
        """Return the positions of the records of a batch by partition, in the order of emission."""
        where = {
            record: (partition, at)
            for partition, records in self._written.items()
            for at, record in enumerate(records)
        }
        places: dict[int, list[int]] = {}
        for record in self.records(batch):
            assert record in where, f"it emitted {record!r}, which was never written"
            partition, at = where[record]
            places.setdefault(partition, []).append(at)
        return places

    def take(self, batches: Iterable[Batch]) -> None:
        """Count batches; check that in each partition each starts where the previous one ended."""
        for batch in batches:
            for partition, places in self.places(batch).items():
                start = self._read[partition]
                if places and min(places) >= self._lost[partition] > start:
                    start = self._lost[partition]
                wanted = list(range(start, start + len(places)))
                assert sorted(places) == wanted, (
                    f"txid {batch.txid} has the records {places} of partition {partition}; "
                    f"expected {wanted}"
                )
                self._read[partition] = start + len(places)

    def check_all_read(self) -> None:
        """Check that every record was read, except those that were lost."""
        left = {
            partition: len(records) - max(self._read[partition], self._lost[partition])
            for partition, records in self._written.items()
        }
        assert not any(left.values()), f"numbers of unread records, by partition: {left}"


def same_batch(intake: Intake, once: Batch, again: Batch, *, ordered: bool) -> None:
    """Check that two attempts have the same tuples."""
    if ordered:
        assert again.rows == once.rows, f"another attempt of txid {once.txid} has other tuples"
    else:
        counts = [Counter(intake.records(each)) for each in (once, again)]
        assert counts[0] == counts[1], f"another attempt of txid {once.txid} has other tuples"


# A spout that returns more empty batches than this in a row is considered endless.
_IDLE_BATCHES_MAX = 30

# A test takes about as long as this many starts that read and commit a record.
_STARTS = 3


class Start(Protocol):
    """Starts the spout again, with what an earlier start has stored or from the beginning."""

    def __call__(
        self, after: SpoutDriver | None = None, tasks: int = 1, limit: int | None = None
    ) -> SpoutDriver:
        """Start the spout, and close the start before."""
        ...


class SpoutFixtures:
    """What the suites of spouts have in common; a subclass provides a fixture ``source``."""

    def test_a_start_is_timed_and_the_suite_says_how_long_it_takes(
        self, request: pytest.FixtureRequest, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        """This runs first. Other tests report what is wrong with the spout."""
        with suppress(Exception):
            begun = time.perf_counter()
            intake.append(1, 0)
            drained(source, intake, start())
            once_s = time.perf_counter() - begun
            own = [item for item in request.session.items if item.parent is request.node.parent]
            announce(
                request,
                f"{type(self).__name__}: about {_STARTS * len(own) * once_s:.0f} s for {len(own)} "
                f"tests, at {once_s:.2f} s to start, read a record and commit its batch",
            )

    @pytest.fixture
    def intake(self, source: SpoutSource) -> Iterator[Intake]:
        """The records that were written to the source, and those that were read."""
        yield Intake(source)
        source.close()

    @pytest.fixture
    def start(self, source: SpoutSource) -> Iterator[Start]:
        """Return a function that starts the spout; all starts are closed at the end."""
        with ExitStack() as stack:

            def started(
                after: SpoutDriver | None = None, tasks: int = 1, limit: int | None = None
            ) -> SpoutDriver:
                if after is not None:
                    after.close()
                stored = after.stored if after else None
                driver = SpoutDriver(source.spout(), tasks, stored, limit=limit)
                stack.callback(driver.close)
                return driver

            yield started

    @pytest.fixture
    def changed(self, source: SpoutSource, start: Start) -> Start:
        """Return a function that shows the spout a change of the source, by a restart if needed."""

        def seen(
            after: SpoutDriver | None = None, tasks: int = 1, limit: int | None = None
        ) -> SpoutDriver:
            assert after is not None
            return after if source.live else start(after, tasks, limit)

        return seen


def next_batches(source: SpoutSource, driver: SpoutDriver, batches: int = 1) -> list[Batch]:
    """Return the next batches, not committed; none if the spout stays not ready."""
    for _ in range(source.asks):
        if done := driver.next(batches):
            return done
    return []


def drained(
    source: SpoutSource, intake: Intake, driver: SpoutDriver, batches: int = 1
) -> list[Batch]:
    """Process, count and commit everything that the spout has, *batches* per run."""
    found: list[Batch] = []
    idle = 0
    while done := next_batches(source, driver, batches):
        intake.take(done)
        driver.commit()
        found += done
        idle = 0 if any(batch.rows for batch in done) else idle + 1
        assert idle < _IDLE_BATCHES_MAX, "the spout is always ready, and its batches are empty"
    return found
