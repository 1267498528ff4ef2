"""StreamRun: one start of a streaming query, with the states that it has claimed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.errors import (
    ForeignStateError,
    StoreAheadOfCoordinator,
    StoreBehindCoordinator,
    TopologyError,
)
from txtopo.metadata import BatchMetadata
from txtopo.planning.outcome import judge
from txtopo.planning.program import Program, compile_program
from txtopo.planning.run import Run
from txtopo.runtime.closing import close_backends
from txtopo.runtime.commit_phase import CommitPhase
from txtopo.runtime.dataframe_carrier import DataFrameCarrier
from txtopo.runtime.executor_probe import probe_executors
from txtopo.runtime.jobs import BatchResult
from txtopo.runtime.local import LocalCarrier
from txtopo.runtime.scheduler import Scheduler
from txtopo.runtime.spark_jobs import NoLabels
from txtopo.runtime.start import check_states
from txtopo.runtime.takeover import StateName, open_states
from txtopo.state.backend import StateBackend
from txtopo.state.ledger import Ledger
from txtopo.state.plug_in import checked_ledger
from txtopo.topology.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class NoPlanner:
    """The driver's side of a stream spout: Spark plans, and notes what is done."""

    def commit(self, attempt: TransactionAttempt) -> None:
        """Do nothing."""

    def lag(self, metadata: BatchMetadata) -> Mapping[str, int]:
        """Know nothing: the query's own progress tells."""
        return {}

    def lost(self, metadata: BatchMetadata) -> Mapping[str, str]:
        """Return nothing; it is the query that knows what its source lost."""
        return {}


@dataclass(frozen=True, slots=True)
class StreamParts:
    """What the commits of a query need; see :class:`~txtopo.runtime.parts.CommitParts`."""

    graph: Graph
    program: Program
    carrier: DataFrameCarrier | LocalCarrier
    planner: NoPlanner
    scheduler: Scheduler


class StreamRun:
    """One start of a query.

    Args:
        graph: The topology.
        config: How it runs.
        owner: What the ledgers have to name as their topology.
        frame: The first micro-batch.
        scheduler: Where durable steps are marked.
    """

    def __init__(
        self, graph: Graph, config: Config, owner: str, frame: DataFrame, scheduler: Scheduler
    ) -> None:
        self._graph, self._owner = graph, owner
        carrier: DataFrameCarrier | LocalCarrier
        if config.carrier == "local":
            carrier = LocalCarrier(config.slots)
        else:
            probe_executors(frame.sparkSession.sparkContext, graph.spout)
            carrier = DataFrameCarrier(frame.sparkSession, NoLabels())
        slots = config.slots or carrier.default_slots()
        program = compile_program(_with_tasks(graph, slots), config, slots)
        check_states(graph, config, commit_in_driver=program.commit_in_driver)
        carrier.start(program)
        self._parts = StreamParts(graph, program, carrier, NoPlanner(), scheduler)
        self._backends: Mapping[StateName, StateBackend] = {}
        self._epoch = 0
        self._calls: dict[int, int] = {}

    def claim(self, txid: int, *, first_txid: int) -> None:
        """Claim all states for a new epoch, and check that they stand where the query does.

        Args:
            txid: The txid of the first call.
            first_txid: The txid of the query's batch 0.

        Raises:
            ForeignStateError: A state belongs to another topology, or another checkpoint.
            StoreAheadOfCoordinator: A state holds a later txid than the query comes with.
            StoreBehindCoordinator: A state lacks txids that the query has done.
            FencedError: A later start of the query has claimed a state meanwhile.
        """
        self._backends = open_states(self._parts)
        ledgers: dict[str, Ledger | None] = {}
        for (component, state), backend in self._backends.items():
            backend.create()
            with backend.snapshot() as snapshot:
                ledgers[f"{component}.{state}"] = snapshot.ledger
        for name, ledger in ledgers.items():
            self._check(name, ledger, txid, first_txid)
        self._epoch = 1 + max((each.epoch for each in ledgers.values() if each), default=0)
        for backend in self._backends.values():
            checked_ledger(backend, backend.claim(self._owner, self._epoch), epoch=self._epoch)

    def commit(self, frame: DataFrame, txid: int) -> None:
        """Process a micro-batch and commit it; what earlier attempts of the txid left is undone."""
        if self._held_by_all(txid):
            return
        attempt = TransactionAttempt(txid, self._calls.get(txid, 0), self._epoch)
        self._calls = {txid: attempt.attempt + 1}
        parts = self._parts
        tag = f"txtopo:{self._graph.id}:{self._epoch}:{txid}-{txid}:{attempt.attempt}"
        run = Run(tag, (attempt,), (BatchMetadata(),), None)
        processed = parts.carrier.process_frame(run, self._columns(frame))
        outcome = judge(parts.program, run, processed.records)
        if outcome.failure is not None:
            raise outcome.failure.error
        result = BatchResult(attempt, outcome.processed[0], processed, 0.0)
        report = CommitPhase(parts, self._backends).run(result, lambda: True)
        parts.carrier.release(processed)
        if report.failure is not None:
            raise report.failure.error

    def close(self) -> None:
        """Close the states."""
        close_backends(self._backends)

    def _check(self, name: str, ledger: Ledger | None, txid: int, first_txid: int) -> None:
        """Check one state before anything is claimed."""
        if ledger is not None and ledger.topology != self._owner:
            raise _foreign(name, ledger, self._graph.id, self._owner)
        held = ledger.txid if ledger is not None else 0
        batch = f"the query comes with its batch {txid - first_txid}, which is txid {txid}"
        if held > txid:
            raise StoreAheadOfCoordinator(
                f"state {name!r} holds txid {held}, but {batch}; was an older checkpoint restored? "
                "go on with the newest one",
                state=name,
                txid=held,
            )
        if held < txid - 1:
            raise StoreBehindCoordinator(
                f"state {name!r} holds txid {held}, but {batch}; was the store restored from a "
                "backup, or did the query run without this topology? restore both, or begin with a "
                "new checkpoint and new tables",
                state=name,
                txid=held,
            )

    def _held_by_all(self, txid: int) -> bool:
        """Return whether there is nothing to do: all states hold the txid and keep what they hold.

        An opaque state does not: its replay may be another batch.
        """
        components = self._graph.components
        for (component, name), backend in self._backends.items():
            if components[component].states[name].kind != "transactional":
                return False
            with backend.snapshot() as snapshot:
                if snapshot.ledger is None or snapshot.ledger.txid < txid:
                    return False
        return bool(self._backends)

    def _columns(self, frame: DataFrame) -> DataFrame:
        spout = self._graph.spout
        (stream,) = spout.streams.values()
        lacking = [name for name in stream.fields.names if name not in frame.columns]
        if lacking:
            raise TopologyError(
                f"the stream lacks columns of {spout.id!r}: {', '.join(lacking)}; got "
                f"{', '.join(frame.columns)}; select them in the query",
                component=spout.id,
            )
        twice = [name for name in stream.fields.names if frame.columns.count(name) > 1]
        if twice:
            raise TopologyError(
                f"the stream has columns of {spout.id!r} more than once: {', '.join(twice)}; got "
                f"{', '.join(frame.columns)}; rename them in the query",
                component=spout.id,
            )
        quoted = [f"`{name.replace('`', '``')}`" for name in stream.fields.names]
        return frame.select(*quoted)


def _with_tasks(graph: Graph, slots: int) -> Graph:
    """Return the graph with a task of its spout in each slot."""
    spout = replace(graph.spout, parallelism=slots)
    return replace(graph, spout=spout, components={**graph.components, spout.id: spout})


def _foreign(name: str, ledger: Ledger, id: str, owner: str) -> ForeignStateError:
    query = ledger.topology.removeprefix(f"{id}@")
    if ledger.topology == id or query == ledger.topology:
        remedy = "give each topology tables of its own"
    else:
        remedy = (
            "it was written by a query with another checkpoint, whose batches are others; go on "
            "with that checkpoint, or give this one tables of its own, or, if this query begins "
            f"where that one ended, say foreach_batch(continues={query!r}, "
            f"after_txid={ledger.txid}), now and at each later start"
        )
    return ForeignStateError(
        f"state {name!r} belongs to {ledger.topology!r}, up to txid {ledger.txid}; got {owner!r}; "
        f"{remedy}",
        topology=owner,
        owner=ledger.topology,
        txid=ledger.txid,
    )
