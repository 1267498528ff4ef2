"""ForeachBatch: a Structured Streaming query drives a topology, one micro-batch a txid.

Theory of operation
-------------------
Spark writes the offsets of batch *b* to its checkpoint, calls ``foreachBatch``, and then records
that *b* is done. If it dies in between, it calls again with the same *b*. So the txid is *b* + 1,
and the ledgers of the states show whether they hold it. States of one database share a transaction,
as in any topology. There is no coordinator, window or ZooKeeper, because the query passes one batch
at a time.

Before it writes anything, each start of the query claims, in all states, an epoch above the epochs
in the ledgers. So late writes of an earlier start are refused. The id of the query, which is in its
checkpoint, is part of the topology id in the ledgers. A query with another checkpoint numbers other
batches from 0, so it counts as another topology. The query id also takes the place of the ensemble
in these ledgers, because only the query counts these epochs.

A query may continue another one: ``continues`` is the id of the other, and ``after_txid`` the txid
at which it ended. The first call then replaces the old query's id in each ledger, by
compare-and-set, if the ledger holds exactly *after_txid*. From then on the old query is refused,
and so is any other query that continues the old one. Only the query that continued last may write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from txtopo.attempt import TransactionAttempt
from txtopo.carriers.session import is_classic
from txtopo.carriers.spark_jobs import NoLabels
from txtopo.carriers.workers import check_workers
from txtopo.config import STREAM_CARRIERS, Config, StreamCarrier
from txtopo.coordinator.failures import failure_of
from txtopo.errors import (
    ConfigError,
    ForeignStateError,
    RunLostError,
    StoreAheadOfCoordinator,
    StoreBehindCoordinator,
    TopologyError,
)
from txtopo.fingerprint import StateName
from txtopo.frames.carriers import LocalMicroBatchCarrier, MicroBatchCarrier
from txtopo.metadata import BatchMetadata, SpoutShare
from txtopo.runtime.commit_phase import CommitPhase
from txtopo.runtime.jobs import BatchResult
from txtopo.runtime.listeners import Listeners
from txtopo.runtime.needs import check_packages, warn_of_silent_servers
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesProcessed,
    BatchFailed,
    Leading,
    ProcessingStarted,
    Started,
    Stopped,
)
from txtopo.runtime.reporting import ProgressMeter
from txtopo.runtime.run_context import NoPlanner, close_backends, open_states, tell_shared
from txtopo.runtime.scheduler import Scheduler, ThreadScheduler
from txtopo.runtime.start import check_states
from txtopo.stages.compiled_topology import CompiledTopology, Run, compile_topology
from txtopo.stages.outcome import FailedBatch, judge
from txtopo.state.backend import StateBackend, held_ledger
from txtopo.state.commit import claim_state
from txtopo.state.ledger import Claim, Ledger, Owner, same_owner
from txtopo.state.registry import redacted_url
from txtopo.state.together import SharedTransactions, shared_transactions
from txtopo.topology.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ForeachBatch:
    """The result of ``topology.foreach_batch()``: a function of (micro-batch, batch id).

    Who calls it: Spark, in the driver, on the thread of the query, one batch at a time. An
    exception of a bolt or a store ends the query. When the query is started again, Spark calls with
    the same batch. Several starts of a query, and several queries, may use the same function. Each
    of them claims its states itself.

    Args:
        graph: A topology with a ``StreamSpout``.
        carrier: How tuples move between stages; ``"auto"`` chooses ``"dataframe"``.
        slots: Tasks of the micro-batch; by default the session's parallelism.
        continues: Id of the query whose ledgers this one takes over.
        after_txid: The txid that those ledgers hold.
        scheduler: Receives the durable steps; by default one that ignores them.
    """

    def __init__(
        self,
        graph: Graph,
        carrier: StreamCarrier = "auto",
        slots: int | None = None,
        continues: str | None = None,
        after_txid: int = 0,
        scheduler: Scheduler | None = None,
    ) -> None:
        spout = graph.spout
        if spout.spout_kind.driven_by != "query":
            raise TopologyError(
                f"the spout of topology {graph.id!r} reads its source itself; got "
                f"{spout.kind.text} {spout.id!r}; expected StreamSpout(fields), which a query "
                "drives; or use start()",
                component=spout.id,
            )
        if carrier not in STREAM_CARRIERS:
            raise ConfigError(
                f"a micro-batch is a DataFrame; got carrier {carrier!r}; expected 'auto', "
                "'dataframe' or 'local'",
                setting="carrier",
            )
        if continues is not None and not (isinstance(continues, str) and continues):
            raise ConfigError(
                f"continues is wrong; got {continues!r}; expected the id of the query to continue, "
                "or None",
                setting="continues",
                got=repr(continues),
            )
        if type(after_txid) is not int or after_txid < 0 or (after_txid and continues is None):
            raise ConfigError(
                f"after_txid is wrong; got {after_txid!r} with continues={continues!r}; expected "
                "the txid that the ledgers of the continued query hold",
                setting="after_txid",
                got=repr(after_txid),
            )
        self._graph = graph
        self._config = Config(carrier=carrier, slots=slots)
        check_packages(graph, self._config)
        warn_of_silent_servers(graph, self._config)
        self._continues = continues
        self._after_txid = after_txid
        self._scheduler = scheduler or ThreadScheduler(f"txtopo-{graph.id}")
        # By query, because calls of two queries, or of a stopped and a new one, may overlap.
        self._runs: dict[StreamingQuery, StreamRun] = {}
        self._failures: Counter[tuple[str | None, int]] = Counter()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Process and commit one micro-batch.

        Raises:
            ConfigError: The query cannot be used, or executors lack a module; repair that.
            TopologyError: The stream lacks a column; repair the query or the spout's fields.
            PromiseError: The checkpoint and the stores contradict each other; a person must decide.
            InfrastructureError: A store or Spark failed; start the query again.
            Exception: The exception that a bolt raised.
        """
        query = StreamingQuery.of(frame.sparkSession)
        txid = batch_id + 1 + self._after_txid
        run = self._runs.get(query)
        try:
            if run is None:
                self._close([each for each in self._runs if each.id == query.id])
                run = StreamRun(self._graph, self._config, query.id, frame, self._scheduler)
                self._runs[query] = run
                run.claim(txid, continues=self._continues, after_txid=self._after_txid)
            run.commit(frame, txid)
            self._failures.pop((query.id, txid), None)
        except BaseException as error:
            if run is not None:
                self._failures[query.id, txid] += 1
                run.tell_failure(txid, error, self._failures[query.id, txid])
            # The next call reads the ledgers and claims them again.
            if run is not None and self._runs.get(query) is run:
                self._close([query])
            raise

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, as Spark Connect would do."""
        raise ConfigError(f"foreach_batch {NEEDS_CLASSIC}", got="Spark Connect")

    def close(self) -> None:
        """Close the stores. A later call opens them again."""
        self._close(list(self._runs))

    def _close(self, queries: Sequence[StreamingQuery]) -> None:
        for query in queries:
            run = self._runs.pop(query, None)
            if run is not None:
                run.close()


@dataclass(frozen=True, slots=True)
class StreamContext:
    """The :class:`~txtopo.runtime.run_context.CommitContext` of a query."""

    graph: Graph
    compiled: CompiledTopology
    carrier: MicroBatchCarrier | LocalMicroBatchCarrier
    planner: NoPlanner
    scheduler: Scheduler


class StreamRun:
    """One start of a streaming query, with the states that it has claimed.

    Args:
        graph: The topology.
        config: The settings.
        query_id: Id of the query; None for a DataFrame without a query.
        frame: The first micro-batch.
        scheduler: Receives the durable steps.
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
        carrier: MicroBatchCarrier | LocalMicroBatchCarrier
        if config.carrier == "local":
            carrier = LocalMicroBatchCarrier(config.slots)
        else:
            check_workers(frame.sparkSession.sparkContext, graph.client_modules)
            carrier = MicroBatchCarrier(frame.sparkSession, NoLabels())
        slots = config.slots or carrier.default_slots()
        compiled = compile_topology(_with_tasks(graph, slots), config, slots)
        check_states(graph, config, commit_in_driver=compiled.commit_in_driver)
        carrier.start(compiled)
        self._context = StreamContext(graph, compiled, carrier, NoPlanner(), scheduler)
        self._backends: Mapping[StateName, StateBackend] = {}
        self._shared = SharedTransactions(())
        self._epoch, self._term = 0, ""
        self._calls: dict[int, int] = {}
        self._failed: FailedBatch | None = None
        self._meter = ProgressMeter(scheduler.now())
        self._tell = Listeners(graph.id, ()).tell
        self._tell(Started(graph.id))

    def claim(self, txid: int, *, continues: str | None, after_txid: int) -> None:
        """Claim all states for a new epoch, and check that they hold the previous txid.

        Args:
            txid: The txid of the first call.
            continues: Id of the query that this one continues.
            after_txid: The last txid of that query; batch 0 of this one comes next.

        Raises:
            ForeignStateError: A state belongs to another topology, or another checkpoint.
            StoreAheadOfCoordinator: A state holds a later txid than the query passes.
            StoreBehindCoordinator: A state lacks txids that the query has completed.
            FencedError: A later start of the query has claimed a state in the meantime.
        """
        self._backends = open_states(self._context.graph, self._context.scheduler)
        ledgers: dict[StateName, Ledger | None] = {}
        for name, backend in self._backends.items():
            backend.create()
            ledgers[name] = held_ledger(backend)
        owners = {name: Owner(self._topology(self._query_id), *name) for name in ledgers}
        for name, ledger in ledgers.items():
            shown = ".".join(name)
            self._check_owner(shown, ledger, owners[name], continues, after_txid)
            self._check(shown, ledger, txid, after_txid + 1)
        self._epoch = 1 + max((each.epoch for each in ledgers.values() if each), default=0)
        self._term = f"{self._context.scheduler.seed():016x}"
        token = self._token(after_txid)
        claimed: dict[StateName, Ledger] = {}
        for name, backend in self._backends.items():
            # The claim replaces only the ledger that was read. If two queries continue the same one
            # at the same time, the second is refused.
            claim = Claim(owners[name], self._epoch, token, replaces=ledgers[name], term=self._term)
            component, state = name
            table = self._context.graph.components[component].states[state].layout()
            claimed[name] = claim_state(backend, claim, ".".join(name), table)
        self._shared = shared_transactions(self._backends, claimed)
        tell_shared(self._graph.id, self._shared)
        adopted = txid if self._held_by_all(txid) else None
        self._tell(Leading(self._graph.id, self._epoch, txid + (adopted is not None), adopted))

    def commit(self, frame: DataFrame, txid: int) -> None:
        """Process a micro-batch and commit it. Writes of earlier attempts are undone."""
        if self._held_by_all(txid):
            return
        attempt = TransactionAttempt(txid, self._calls.get(txid, 0), self._epoch, term=self._term)
        self._calls = {txid: attempt.attempt + 1}
        context = self._context
        tag = f"txtopo:{self._graph.id}:{self._epoch}:{txid}-{txid}:{attempt.attempt}"
        metadata = BatchMetadata({self._graph.spout.id: SpoutShare()})
        run = Run(tag, (attempt,), (metadata,), None)
        started_s = context.scheduler.now()
        self._tell(ProcessingStarted((attempt,), tag))
        output = context.carrier.process_frame(run, self._columns(frame))
        outcome = judge(context.compiled, run, output.records)
        self._check_failure(outcome.failure)
        processed_s = context.scheduler.now()
        self._tell(BatchesProcessed((attempt,)))
        result = BatchResult(attempt, outcome.processed[0], output, processed_s - started_s)
        phase = CommitPhase(context, self._backends, self._shared)
        report = phase.run([result], lambda size: True, pinned=False)
        context.carrier.release(output)
        self._check_failure(report.failure)
        progress = self._meter.committed(
            result,
            report.committed[0],
            spouts=self._context.compiled.spouts,
            scheduler=context.scheduler,
            commit_s=context.scheduler.now() - processed_s,
            pending={},
        )
        self._tell(BatchCommitted(progress))

    def tell_failure(self, txid: int, error: BaseException, failures: int) -> None:
        """Log an exception that ends the call for a txid."""
        number = max(0, self._calls.get(txid, 0) - 1)
        attempt = TransactionAttempt(txid, number, self._epoch, term=self._term)
        known = self._failed is not None and self._failed.error is error
        component = self._failed.component if self._failed is not None and known else None
        failure = failure_of(error, component)
        kind = failure.kind.value
        self._tell(BatchFailed(attempt, kind, failure.error, component, failures))

    def close(self) -> None:
        """Close the states."""
        close_backends(self._graph.id, self._backends)
        self._tell(Stopped(self._graph.id, None))

    def _check_failure(self, failed: FailedBatch | None) -> None:
        """Raise the exception of user code, if there is one."""
        if failed is not None:
            self._failed = failed
            raise failed.error

    def _token(self, after_txid: int) -> str:
        """Return the query id and *after_txid*; ledgers store them in place of an ensemble."""
        return f"{self._query_id or ''}+{after_txid}" if after_txid else self._query_id or ""

    def _topology(self, query_id: str | None) -> str:
        """Return the topology id that a ledger contains."""
        return self._graph.id if query_id is None else f"{self._graph.id}@{query_id}"

    def _check_owner(
        self, name: str, ledger: Ledger | None, owner: Owner, continues: str | None, after_txid: int
    ) -> None:
        """Check the owner of a state, before any state is claimed.

        A ledger with the id of the continued query was not taken over yet. So it holds the txid
        that this query committed last, *after_txid*.
        """
        if ledger is None:
            return
        if same_owner(ledger, owner):
            query, _, said = ledger.ensemble.partition("+")
            # It contains another query if a claim of that query in Delta was interrupted.
            if query == self._query_id and int(said or 0) != after_txid:
                raise ConfigError(
                    f"state {name!r} was written by this query with after_txid={said or 0}, up to "
                    f"txid {ledger.txid}; got after_txid={after_txid}, which would give its "
                    "batches different txids; expected the same continues=… and after_txid at "
                    "each start",
                    state=name,
                    setting="after_txid",
                    got=after_txid,
                    expected=int(said or 0),
                )
            return
        before = Owner(self._topology(continues), owner.component, owner.state)
        if continues is None or not same_owner(ledger, before):
            raise _foreign(name, ledger, self._graph.id, owner)
        if ledger.txid != after_txid:
            kind = StoreAheadOfCoordinator if ledger.txid > after_txid else StoreBehindCoordinator
            raise kind(
                f"state {name!r} holds txid {ledger.txid} of the query {continues!r}; got "
                f"after_txid={after_txid}; expected the txid of its last committed batch, the same "
                "in all states; let that query finish its last batch, then use "
                f"foreach_batch(continues={continues!r}, after_txid={ledger.txid})",
                state=name,
                txid=ledger.txid,
            )

    def _check(self, name: str, ledger: Ledger | None, txid: int, first_txid: int) -> None:
        """Check the txid of a state, before any state is claimed."""
        held = ledger.txid if ledger is not None else 0
        batch = f"the query passes its batch {txid - first_txid}, which is txid {txid}"
        if held > txid:
            raise StoreAheadOfCoordinator(
                f"state {name!r} holds txid {held}, but {batch}; was an older checkpoint restored? "
                "continue with the newest one",
                state=name,
                txid=held,
            )
        if held < txid - 1:
            component, _, state = name.rpartition(".")
            url = redacted_url(self._graph.components[component].states[state].url)
            empty = f"was its URL changed (now {url}), " if held == 0 else ""
            raise StoreBehindCoordinator(
                f"state {name!r} holds txid {held}, but {batch}; {empty}was the store restored "
                "from a backup, or did the query run without this topology? use the store that has "
                "the earlier batches, restore both store and checkpoint, or start with a new "
                "checkpoint and new tables",
                state=name,
                txid=held,
            )

    def _held_by_all(self, txid: int) -> bool:
        """Return whether there is nothing to do, because all states hold the txid for good.

        An opaque state never does: its replay may be another batch.
        """
        components = self._graph.components
        for (component, name), backend in self._backends.items():
            if components[component].states[name].kind != "transactional":
                return False
            ledger = held_ledger(backend)
            if ledger is None or ledger.txid < txid:
                return False
            # If another query has taken the state over, the commit raises the error.
            claim = backend.claimant
            claimed = (ledger.owner, ledger.epoch, ledger.term)
            if claim is None or claimed != (claim.owner, claim.epoch, claim.term):
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
        remedy = "give each topology its own tables"
    else:
        remedy = (
            "it was written by a query with another checkpoint, which has other batches; continue "
            "with that checkpoint, or give this query its own tables, or, if this query begins "
            f"where that one ended, use foreach_batch(continues={query!r}, "
            f"after_txid={ledger.txid}), now and at each later start; never start a query again "
            "once another one has continued it"
        )
    return ForeignStateError(
        f"state {name!r} belongs to {ledger.owner}, up to txid {ledger.txid}; got {owner}; "
        f"{remedy}",
        topology=owner.topology,
        owner=ledger.topology,
        txid=ledger.txid,
    )


# org.apache.spark.sql.execution.streaming.StreamExecution.QUERY_ID_KEY
_QUERY_ID = "sql.streaming.queryId"

NEEDS_CLASSIC = (
    "needs classic Spark; got a Spark Connect session, whose foreachBatch runs in a process of "
    "the server; run the query on a classic session, or give the topology a spout that reads its "
    "source itself, such as DataSourceSpout"
)


@dataclass(frozen=True, slots=True)
class StreamingQuery:
    """The streaming query that a micro-batch belongs to.

    Attributes:
        id: Id of the query, from its checkpoint; None for a DataFrame without a query.
        run_id: Id of this start of the query.
    """

    id: str | None
    run_id: str | None

    @classmethod
    def of(cls, session: SparkSession) -> StreamingQuery:
        """Return the query of a micro-batch. Call this on the thread of ``foreachBatch``.

        Raises:
            ConfigError: The query tracks its progress asynchronously, or runs on Spark Connect.
            RunLostError: The query has ended, so the batch is not needed.
        """
        if not is_classic(session):
            raise ConfigError(f"foreach_batch {NEEDS_CLASSIC}", got="Spark Connect")
        context = session.sparkContext
        id = context.getLocalProperty(_QUERY_ID)
        if id is None:
            return cls(None, None)
        java: Any = context._jvm
        active = session._jsparkSession.sharedState().activeStreamingQueries()
        query = active.get(java.java.util.UUID.fromString(id))
        if query is None:
            # Without the id, batches of another checkpoint would be taken for batches of this one.
            raise RunLostError(
                f"the streaming query {id} is no longer active, so its batch is not needed; start "
                "the query again",
                query=id,
            )
        kind = query.getClass().getSimpleName()
        if "Async" in kind:
            raise ConfigError(
                "the query tracks its progress asynchronously: it may compute a batch before it "
                f"records it, so a replay may be another batch; got {kind}; expected "
                "asyncProgressTrackingEnabled=false",
                query=id,
                got=kind,
            )
        return cls(id, query.runId().toString())
