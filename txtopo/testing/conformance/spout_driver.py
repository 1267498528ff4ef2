"""SpoutDriver: runs the batches of a spout as the framework does, without Spark or a loop.

Planning, the tasks, envelopes, and the judgement of what came of a run are the framework's own:
``BatchPlanner``, ``SpoutTask`` on the carrier ``local``, ``judge``. What this keeps instead of the
coordinator is what ZooKeeper would hold, as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import BatchBolt
from txtopo.builders.prototypes import snapshot
from txtopo.config import Config
from txtopo.coordinator.protocol import NotReady, PlanBatch
from txtopo.groupings import DirectGrouping, GlobalGrouping
from txtopo.metadata import BatchMetadata
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.runtime.carrier import LocalCarrier
from txtopo.runtime.journaling import check_size, from_json, to_json
from txtopo.stages.envelopes import open_envelope
from txtopo.stages.outcome import BatchOutcome, judge
from txtopo.stages.program import Run, compile_program
from txtopo.testing.conformance.spout_source import Row, Spout
from txtopo.topology.component import Component, Role, Subscription, declared_streams, spout_role
from txtopo.topology.graph import Graph

_TOPOLOGY = "conformance"


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that was processed.

    Attributes:
        attempt: The attempt.
        rows: The tuples of all streams, as they were emitted, task by task.
        metadata: Its metadata, as it is stored.
    """

    attempt: TransactionAttempt
    rows: tuple[Row, ...]
    metadata: BatchMetadata

    @property
    def txid(self) -> int:
        """Its txid."""
        return self.attempt.txid


@dataclass
class Stored:
    """What outlives a driver: the metadata of each txid as text, and how far the commits are."""

    metadata: dict[int, str] = field(default_factory=dict)
    committed: int = 0
    epoch: int = 0

    def of(self, txid: int) -> BatchMetadata:
        """Return the metadata of a txid."""
        return from_json(txid, json.loads(self.metadata[txid]))

    def put(self, txid: int, metadata: BatchMetadata) -> None:
        """Store the metadata of a txid, if there is room for it."""
        check_size(txid, metadata)
        self.metadata[txid] = json.dumps(to_json(metadata), allow_nan=False)


class SpoutDriver:
    """One start of a topology that has nothing but a spout.

    Args:
        spout: The spout.
        tasks: Its parallelism.
        stored: What an earlier start left.
        slots: How many slots host the tasks.
    """

    def __init__(
        self, spout: Spout, tasks: int = 1, stored: Stored | None = None, slots: int = 2
    ) -> None:
        self.role = spout_role("spout", spout)
        component = snapshot(Component("spout", self.role, spout, tasks, declared_streams(spout)))
        config = Config(carrier="local", zookeeper="memory")
        self._program = compile_program(Graph.of(_TOPOLOGY, _behind(component)), config, slots)
        self._carrier = LocalCarrier(slots)
        self._carrier.start(self._program)
        self._planner = BatchPlanner(_TOPOLOGY, component, config)
        self.stored = stored or Stored()
        self.stored.epoch += 1
        self.processed = self.stored.committed
        """The last txid that is processed; what an earlier start had processed is to do again."""
        self._attempts: dict[int, int] = {}
        self._done: dict[int, TransactionAttempt] = {}

    @property
    def repeatable(self) -> bool:
        """Whether the spout is transactional."""
        return self.role is not Role.OPAQUE_SPOUT

    def next(self, batches: int = 1) -> list[Batch]:
        """Process the next batches as one run: those planned already, then as many as are ready.

        Raises:
            Exception: What planning or a task raised; all txids that failed are tried again.
        """
        first = self.processed + 1
        txids = list(range(first, first + batches))
        for txid in txids:
            if txid not in self.stored.metadata and not self._plan(txid):
                txids = txids[: txid - first]
                break
        return self._run(txids) if txids else []

    def again(self, txid: int) -> Batch:
        """Process a txid once more, which was processed but not committed.

        An opaque one abandons all later ones, whose metadata loses where they ended.
        """
        assert self.stored.committed < txid <= self.processed, "there is nothing to replay"
        newest = self.processed
        if not self.repeatable:
            for later in range(txid, newest + 1):
                self.stored.put(later, replace(self.stored.of(later), cut=None))
        self.processed = txid - 1
        (batch,) = self._run([txid])
        if self.repeatable:
            self.processed = newest
        return batch

    def commit(self) -> None:
        """Commit all that is processed, and tell the spout as the framework does."""
        while self.stored.committed < self.processed:
            txid = self.stored.committed + 1
            self._planner.commit(self._done[txid])
            self.stored.committed = txid
            for old in [each for each in self.stored.metadata if each < txid]:
                del self.stored.metadata[old]
            self._planner.cleanup_before(txid + 1)

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
        planned = self._planner.plan(PlanBatch(self._attempt(txid), known, last))
        if isinstance(planned, NotReady):
            return False
        self.stored.put(txid, BatchMetadata(planned.planned))
        return True

    def _is_known(self, txid: int) -> bool:
        generic = self.role is Role.TRANSACTIONAL_SPOUT
        return generic or self.stored.of(txid).cut is not None

    def _run(self, txids: Sequence[int]) -> list[Batch]:
        attempts = tuple(self._attempt(txid) for txid in txids)
        metadata = tuple(self.stored.of(txid) for txid in txids)
        if not self.repeatable:
            metadata = tuple(replace(each, cut=None) for each in metadata)
        first = txids[0]
        previous = self.stored.of(first - 1) if first > 1 else None
        run = Run(f"txtopo:{_TOPOLOGY}:{first}", attempts, metadata, previous)
        for txid in txids:
            self._attempts[txid] = self._attempts.get(txid, 0) + 1
        outcome = judge(self._program, run, self._carrier.process(run).records)
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
        for envelope in map(open_envelope, batch.cut):
            edge = self._program.edges[envelope.edge]
            tuples, start = envelope.batch(edge.schema), 0
            for segment in envelope.segments:
                rows = tuples.slice(start, segment.tuples).to_pylist()
                found.append(((edge.stream, segment.sender, envelope.number, start), rows))
                start += segment.tuples
        for _, rows in sorted(found, key=lambda each: each[0]):
            yield from (tuple(row.values()) for row in rows)


class _Gather(BatchBolt):
    """Never runs: what is sent to it waits for its commit, and is read there."""

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
    return [spout, Component("gather", Role.BATCH_BOLT, _Gather(), 1, {}, inputs, committer=True)]
