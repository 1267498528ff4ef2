"""StreamRun: one start of a streaming query, with the states that it has claimed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.errors import (
    ConfigError,
    ForeignStateError,
    StoreAheadOfCoordinator,
    StoreBehindCoordinator,
    TopologyError,
)
from txtopo.metadata import BatchMetadata
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
from txtopo.stages.outcome import judge
from txtopo.stages.program import Program, Run, compile_program
from txtopo.state.backend import StateBackend
from txtopo.state.ledger import Claim, Ledger, Owner, same_owner
from txtopo.state.plug_in import claim_state
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
        query_id: Id of the query; None for a frame that no query brought.
        frame: The first micro-batch.
        scheduler: Where durable steps are marked.
    """

    def __init__(
        self,
        graph: Graph,
        config: Config,
        query_id: str | None,
        frame: DataFrame,
        scheduler: Scheduler,
    ) -> None:
        self._graph, self._query_id = graph, query_id
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

    def claim(self, txid: int, *, continues: str | None, after_txid: int) -> None:
        """Claim all states for a new epoch, and check that they stand where the query does.

        Args:
            txid: The txid of the first call.
            continues: Id of the query that this one continues.
            after_txid: The last txid of that query; batch 0 of this one comes next.

        Raises:
            ForeignStateError: A state belongs to another topology, or another checkpoint.
            StoreAheadOfCoordinator: A state holds a later txid than the query comes with.
            StoreBehindCoordinator: A state lacks txids that the query has done.
            FencedError: A later start of the query has claimed a state meanwhile.
        """
        self._backends = open_states(self._parts)
        ledgers: dict[StateName, Ledger | None] = {}
        for name, backend in self._backends.items():
            backend.create()
            with backend.snapshot() as snapshot:
                ledgers[name] = snapshot.ledger
        owners = {name: Owner(self._topology(self._query_id), *name) for name in ledgers}
        for name, ledger in ledgers.items():
            shown = ".".join(name)
            self._check_owner(shown, ledger, owners[name], continues, after_txid)
            self._check(shown, ledger, txid, after_txid + 1)
        self._epoch = 1 + max((each.epoch for each in ledgers.values() if each), default=0)
        token = self._token(after_txid)
        for name, backend in self._backends.items():
            # What was found is replaced and nothing else: of two that continue one query at the
            # same time the second is refused.
            claim = Claim(owners[name], self._epoch, token, replaces=ledgers[name])
            claim_state(backend, claim, ".".join(name))

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

    def _token(self, after_txid: int) -> str:
        """Return what a ledger names in place of an ensemble: who counts, and from where."""
        return f"{self._query_id or ''}+{after_txid}" if after_txid else self._query_id or ""

    def _topology(self, query_id: str | None) -> str:
        """Return what a ledger names as its topology."""
        return self._graph.id if query_id is None else f"{self._graph.id}@{query_id}"

    def _check_owner(
        self, name: str, ledger: Ledger | None, owner: Owner, continues: str | None, after_txid: int
    ) -> None:
        """Check whose one state is, before anything is claimed.

        A ledger that names the continued query was not taken over yet, so it holds what that query
        committed last: *after_txid*. One of schema 1 may have been, since the name stayed then.
        """
        if ledger is None:
            return
        if same_owner(ledger, owner):
            query, _, said = ledger.ensemble.partition("+")
            # Of another one it is where a claim of that one in Delta died half-way.
            if query == self._query_id and int(said or 0) != after_txid:
                raise ConfigError(
                    f"state {name!r} was written by this query with after_txid={said or 0}, up to "
                    f"txid {ledger.txid}; got after_txid={after_txid}, which would give its "
                    "batches other txids; expected the same continues=… and after_txid at each "
                    "start"
                )
            return
        before = Owner(self._topology(continues), owner.component, owner.state)
        if continues is None or not same_owner(ledger, before):
            raise _foreign(name, ledger, self._graph.id, owner)
        if ledger.schema > 1 and ledger.txid != after_txid:
            kind = StoreAheadOfCoordinator if ledger.txid > after_txid else StoreBehindCoordinator
            raise kind(
                f"state {name!r} holds txid {ledger.txid} of the query {continues!r}; got "
                f"after_txid={after_txid}; expected the txid that its last batch was committed as, "
                "in all states; let that query finish its last batch, then say "
                f"foreach_batch(continues={continues!r}, after_txid={ledger.txid})",
                state=name,
                txid=ledger.txid,
            )

    def _check(self, name: str, ledger: Ledger | None, txid: int, first_txid: int) -> None:
        """Check one state before anything is claimed."""
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
                ledger = snapshot.ledger
            if ledger is None or ledger.txid < txid:
                return False
            # By whom: the commit says it, where another query has taken the state over.
            claim = backend.claimant
            if claim is None or (ledger.owner, ledger.epoch) != (claim.owner, claim.epoch):
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


def _foreign(name: str, ledger: Ledger, id: str, owner: Owner) -> ForeignStateError:
    query = ledger.topology.removeprefix(f"{id}@")
    if ledger.topology == id or query == ledger.topology:
        remedy = "give each topology tables of its own"
    else:
        remedy = (
            "it was written by a query with another checkpoint, whose batches are others; go on "
            "with that checkpoint, or give this one tables of its own, or, if this query begins "
            f"where that one ended, say foreach_batch(continues={query!r}, "
            f"after_txid={ledger.txid}), now and at each later start; a query that another one has "
            "continued is never started again"
        )
    return ForeignStateError(
        f"state {name!r} belongs to {ledger.owner}, up to txid {ledger.txid}; got {owner}; "
        f"{remedy}",
        topology=owner.topology,
        owner=ledger.topology,
        txid=ledger.txid,
    )
