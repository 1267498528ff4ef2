"""Runs topologies of tests on the local carrier, without store, coordinator or loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.harness.metadata import of_one
from txtopo.attempt import TransactionAttempt
from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.carriers.carrier import LocalCarrier
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.groupings import GlobalGrouping, Grouping, ShuffleGrouping
from txtopo.metadata import BatchMetadata, Json
from txtopo.spouts.spout import TransactionalCoordinator, TransactionalEmitter, TransactionalSpout
from txtopo.stages.compiled_topology import CompiledTopology, Run, compile_topology
from txtopo.stages.outcome import (
    BatchOutcome,
    CommitOutcome,
    RunOutcome,
    commit_in_driver,
    judge,
    judge_commit,
)
from txtopo.stages.partials import merge_partials
from txtopo.stages.stage_context import RunLevel, StageContext
from txtopo.state.aggregates import Aggregate
from txtopo.state.registry import State
from txtopo.topology.bolt_kinds import BATCH_BOLT, PERSISTENT_AGGREGATE, BoltKind
from txtopo.topology.component import Component, Subscription, declared_streams
from txtopo.topology.graph import Graph
from txtopo.topology.spout_kinds import SpoutKind, TransactionalKind
from txtopo.tuples import Fields

Row = Sequence[Any]


class RowsSpout(TransactionalSpout):
    """Emits the rows of each txid; task i of n emits every n-th row, from the i-th on."""

    def __init__(self, batches: Sequence[Sequence[Row]], fields: str) -> None:
        self.batches = batches
        self.output_fields = Fields(fields) if fields else Fields()

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        raise NotImplementedError

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return RowsEmitter(self.batches, context)


class RowsEmitter(TransactionalEmitter):
    def __init__(self, batches: Sequence[Sequence[Row]], context: TaskContext) -> None:
        self.batches, self.context = batches, context

    def emit_batch(self, attempt: TransactionAttempt, metadata: Json, collector: Any) -> None:
        rows = self.batches[attempt.txid - 1]
        for row in rows[self.context.task_index :: self.context.tasks]:
            collector.emit(row)


def spout(prototype: object, parallelism: int = 1, kind: SpoutKind | None = None) -> Component:
    streams = declared_streams(prototype)
    return Component("spout", kind or TransactionalKind(), prototype, parallelism, streams)


def bolt(
    id: str,
    prototype: object,
    *inputs: Subscription,
    parallelism: int = 1,
    kind: BoltKind = BATCH_BOLT,
    committer: bool = False,
    states: Mapping[str, State] | None = None,
) -> Component:
    streams = declared_streams(prototype)
    return Component(
        id, kind, prototype, parallelism, streams, inputs, committer, dict(states or {})
    )


def aggregate(
    id: str,
    key: str | Sequence[str],
    aggregates: Aggregate | Mapping[str, Aggregate],
    *inputs: Subscription,
    parallelism: int = 1,
    retracted: str | None = None,
) -> Component:
    prototype = PersistentAggregate(State("memory:"), key, aggregates, retracted=retracted)
    return Component(id, PERSISTENT_AGGREGATE, prototype, parallelism, {}, inputs, committer=True)


def shuffled(source: str = "spout", stream: str = "default") -> Subscription:
    return Subscription(source, stream, ShuffleGrouping())


def gathered(source: str = "spout", stream: str = "default") -> Subscription:
    return Subscription(source, stream, GlobalGrouping())


def grouped(grouping: Grouping, source: str = "spout", stream: str = "default") -> Subscription:
    return Subscription(source, stream, grouping)


def compile_components(*components: Component, slots: int = 1) -> CompiledTopology:
    return compile_topology(Graph.of("test", components), Config(), slots)


def run_of(
    txids: int,
    *,
    first: int = 1,
    planned: Json = None,
    cuts: Sequence[dict[str, Json] | None] | None = None,
    previous: BatchMetadata | None = None,
) -> Run:
    attempts = tuple(TransactionAttempt(txid, 0, 1) for txid in range(first, first + txids))
    metadata = tuple(of_one(planned, cut) for cut in cuts or [None] * txids)
    return Run(f"txtopo:test:1:{first}", attempts, metadata, previous)


def stage_of(
    compiled: CompiledTopology, run: Run, level: int, slot: int = 0, task_id: int = 0
) -> StageContext:
    """A level of the processing phase in one slot."""
    return RunLevel("processing", run, level).in_slot(compiled, slot, task_id)


@dataclass
class Ran:
    """What came of a run."""

    outcome: RunOutcome
    commits: list[CommitOutcome] = field(default_factory=list)

    @property
    def txids(self) -> list[int]:
        return [batch.attempt.txid for batch in self.outcome.processed]


class Topology:
    """A compiled topology on a local carrier."""

    def __init__(self, *components: Component, slots: int = 1) -> None:
        self.compiled = compile_components(*components, slots=slots)
        self.carrier = LocalCarrier(slots)
        self.carrier.start(self.compiled)

    def run(
        self,
        run: Run,
        states: Callable[[str, str], Any] | None = None,
        committed: Callable[[Ran, int], None] | None = None,
    ) -> Ran:
        """Process a run and commit its batches; *committed* is told of each by its place."""
        processed = self.carrier.process(run)
        ran = Ran(judge(self.compiled, run, processed.records))
        for batch in ran.outcome.processed:
            only = run.only(batch.attempt)
            if self.compiled.commit_in_driver:
                commit = commit_in_driver(self.compiled, batch, only, states or no_states)
            else:
                records = self.carrier.commit(processed, batch.attempt)
                commit = judge_commit(self.compiled, batch, only, records)
            ran.commits.append(commit)
            if committed is not None:
                committed(ran, len(ran.commits) - 1)
        return ran

    def merged_of(self, component: str, records: Mapping[int, Iterable[bytes]]) -> pa.Table:
        """Merge partial aggregates: the envelopes of each txid."""
        pairs = ((txid, record) for txid, each in records.items() for record in each)
        return merge_partials(self.compiled, component, pairs)

    def merged(self, component: str, batch: BatchOutcome, commit: CommitOutcome) -> list[Any]:
        records = [*batch.partials[component], *commit.partials.get(component, ())]
        table = self.merged_of(component, {batch.attempt.txid: records})
        return [tuple(row.values()) for row in table.to_pylist()]


def no_states(component: str, name: str) -> Any:
    raise AssertionError(f"{component} asked for state {name}")


@contextmanager
def recording() -> Any:
    """Collect what the bolts of this process record; see :func:`record`."""
    RECORDED.clear()
    yield RECORDED
    RECORDED.clear()


RECORDED: list[Any] = []


def record(*what: Any) -> None:
    RECORDED.append(what)
