"""CommitPhase: commits a group of processed batches to the states when its turn has come.

Order
-----
1. For each batch, in txid order: the emitter's ``commit`` is called, if it has one (Storm's
   committer spouts). Then the committers and all bolts below them run, in the driver or in tasks;
   if an engine has kept something of the batch, its carrier runs the committers of that. They read
   the states as of the previous txid, with what the batches before in the group have written. Their
   writes are collected. Before each call of one that may write elsewhere, a permit is asked for
   (:mod:`txtopo.runtime.commit_permit`).
2. Each state gets all writes of the group in one store transaction: ledger, undo of an earlier
   attempt, data. A state without writes gets the txids too, so that an empty batch also undoes the
   writes of an earlier attempt. The states of one database share a transaction
   (:mod:`txtopo.state.together`). Transactions with statements of users are made first, since a
   statement may fail.

A crash in step 2 leaves the states of some transactions one group ahead of others. The next leader
finds that in their ledgers.

A group that is not pinned (see :mod:`txtopo.coordinator.machine`) may be shortened before step 2:
it ends before a batch whose user code fails, before it would exceed :data:`GROUP_BYTES_MAX`, and
when its committers have taken a part of the time that the group has. So slow committers make small
groups, and not groups that are late.
If the first transaction refuses the values of several batches, nothing is written yet, and the
first batch is committed alone. So the batch that is to blame is found and named. If the first
transaction refuses a statement, the batches before that of the statement are committed; if it
refuses COMMIT after statements, the first batch is committed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from txtopo.attempt import TransactionAttempt, group_of, txids_text
from txtopo.carriers.carrier import EngineOutcome
from txtopo.dead_letters import STREAM
from txtopo.errors import RunLostError, StatementFailed, TxtopoError, ValueRefusedError
from txtopo.log_records import logger_of, printable
from txtopo.metadata import BatchMetadata
from txtopo.retries import LOGGER
from txtopo.runtime.jobs import BatchResult
from txtopo.runtime.run_context import close_backends
from txtopo.stages.component_times import ComponentTimes
from txtopo.stages.outcome import CommitOutcome, FailedBatch, commit_in_driver, judge_commit
from txtopo.stages.partials import merge_partials
from txtopo.stages.permits import NotPermitted
from txtopo.stages.task_states import opener_of
from txtopo.state.backend import Key, Merges, Puts, StateBackend, Values, Writes
from txtopo.state.column_rows import merged_rows
from txtopo.state.commit import EngineWrites, commit_all_resolved
from txtopo.state.statements import statements_of
from txtopo.topology.elsewhere import may_write_elsewhere

if TYPE_CHECKING:
    from txtopo.carriers.carrier import EngineCarrier
    from txtopo.fingerprint import StateName
    from txtopo.runtime.run_context import CommitContext
    from txtopo.stages.observer import Observer
    from txtopo.stages.permits import Permit
    from txtopo.stages.task_states import StateOpener
    from txtopo.state.together import SharedTransactions

_logger = logger_of(LOGGER)

GROUP_BYTES_MAX = 1 << 26
"""The most bytes of envelopes in the driver that are merged into one write."""


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What is reported of a batch that was committed.

    Attributes:
        tuples: Number of tuples that each component emitted.
        lag: Number of records behind the batch, by partition, or in a unit of lag.
        lost: What the source lost before the batch could read it, by partition.
        state_s: How long the write of its group to each state took, by ``component.name``; states
            that share a transaction have its time. Only for the last batch of the group.
        component_s: How long each component took in the commit phase of its group, in the driver;
            see :class:`~txtopo.runtime.progress.Progress`. Only for the last batch of the group.
    """

    tuples: Mapping[str, int] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    state_s: Mapping[str, float] = field(default_factory=dict)
    component_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The result of a commit phase.

    Attributes:
        committed: The reports of the batches that were committed, from the first on.
        failure: The failure of user code in the batch after them; nothing of that was written.
        expires: Up to which value of its range column no later txid needs the rows of a state, for
            those of which a batch has told it.
    """

    committed: tuple[CommitReport, ...]
    failure: FailedBatch | None = None
    expires: Mapping[StateName, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A batch whose committers have run.

    Attributes:
        result: The batch.
        outcome: What its committers wrote.
        engine: What the committers of the engine wrote.
        component_s: How long each component took in the driver.
    """

    result: BatchResult
    outcome: CommitOutcome
    engine: EngineOutcome
    component_s: Mapping[str, float]


class CommitPhase:
    """Commits groups of one term, one at a time.

    :meth:`run` blocks and is called on a worker thread. After a timeout two calls may overlap; the
    ledgers then refuse the older attempt. They must not if user code may write elsewhere.

    Args:
        context: The graph, carrier etc. of the topology.
        backends: The states, which the term has claimed.
        shared: Which of them share transactions.
        spouts_elsewhere: Ids of the spouts whose emitters have a ``commit`` that may write
            elsewhere than to the states.
        observer: Is told of the tuples of committers in the driver, and of what they raise.
    """

    def __init__(
        self,
        context: CommitContext,
        backends: Mapping[StateName, StateBackend],
        shared: SharedTransactions,
        spouts_elsewhere: Collection[str] = (),
        observer: Observer | None = None,
    ) -> None:
        self._context, self._observer = context, observer
        self._backends = backends
        self._shared = shared
        self._states = {id: each.states for id, each in context.graph.components.items()}
        # Attempts that the emitters were told of, and that are not committed.
        self._told: set[TransactionAttempt] = set()
        components = context.graph.components.values()
        self._letters_from = {each.id for each in components if each.dead_letters is not None}
        self._elsewhere = may_write_elsewhere(context.graph)
        self._repeating = context.graph.repeating
        self._spouts_elsewhere = spouts_elsewhere
        compiled = context.compiled
        # How long a component took is known only if it does all its work here.
        self._in_driver = set(compiled.aggregations)
        if compiled.commit_in_driver:
            self._in_driver.update(id for level in compiled.commit for id in level)

    @property
    def may_write_elsewhere(self) -> bool:
        """Whether user code of the commit phase may write elsewhere than to the states."""
        return bool(self._elsewhere or self._spouts_elsewhere)

    @property
    def backends(self) -> Mapping[StateName, StateBackend]:
        """The states, which the term has claimed."""
        return self._backends

    def run(
        self,
        results: Sequence[BatchResult],
        wanted: Callable[[int], bool],
        reached: Callable[[int], bool] = lambda index: True,
        *,
        pinned: bool,
        committers_s: float = math.inf,
        permit: Permit | None = None,
    ) -> GroupReport:
        """Commit a group.

        Args:
            results: The batches.
            wanted: Returns whether their attempts are still current; called before each write
                with the number of batches that it has. In a term this and *reached* are those of
                :class:`~txtopo.runtime.commit_progress.CommitProgress`, so the loop knows how far
                the commit is when it gives it up.
            reached: The same, called before the committers of each batch with its index.
            pinned: Whether the group must be written with these bounds or not at all.
            committers_s: How long committers of a group that is not pinned may take in all.
            permit: What is asked before each call of user code that may write elsewhere.

        Raises:
            InfrastructureError: Try again.
            FencedError: Another coordinator leads; nothing was written.
            PromiseError: The topology must stop.
        """
        self._context.scheduler.point("turn.after")
        until_s = math.inf if pinned else self._context.scheduler.now() + committers_s
        prepared, failure = self._called(results, reached, until_s, permit, pinned=pinned)
        if not prepared or (pinned and failure is not None):
            return GroupReport((), failure)
        state_s: dict[str, float] = {}
        component_s: Mapping[str, float] = {}
        while prepared:
            try:
                component_s = self._write(prepared, wanted, state_s)
                break
            except (ValueRefusedError, StatementFailed) as error:
                # A state that was written before this one, now (state_s) or in an earlier attempt,
                # has the group with these bounds. So the batch to blame can no longer be written
                # apart.
                if len(prepared) > 1 and (pinned or state_s):
                    attempts = [each.result.attempt for each in prepared]
                    raise _refused_together(error, group_of(attempts)) from error
                if state_s or (isinstance(error, ValueRefusedError) and len(prepared) == 1):
                    raise
                # The batches behind it wait again, also one that failed: it fails again then.
                prepared, failure = _before(error, prepared)
        if not prepared:
            return GroupReport((), failure)
        # Attempts behind it stay, because they wait again, and an emitter is told of each once. The
        # tuple is a copy, since a call that was given up may still add to the set.
        last = prepared[-1].result.attempt
        self._told = {each for each in tuple(self._told) if each.txid > last.txid}
        reports = tuple(self._reports(prepared, state_s, component_s))
        return GroupReport(reports, failure, _expires(prepared))

    def _called(
        self,
        results: Sequence[BatchResult],
        reached: Callable[[int], bool],
        until_s: float,
        permit: Permit | None,
        *,
        pinned: bool,
    ) -> tuple[list[_Prepared], FailedBatch | None]:
        """Run all user code of the commit phase, and give the permit back."""
        try:
            called = self._prepared(results, reached, until_s, permit, pinned=pinned)
        except NotPermitted as refused:
            # No component is to blame for it, so it is not the failure of a batch.
            raise refused.error from refused
        if permit is not None:
            permit.give_back()
        return called

    def _prepared(
        self,
        results: Sequence[BatchResult],
        reached: Callable[[int], bool],
        until_s: float,
        permit: Permit | None,
        *,
        pinned: bool,
    ) -> tuple[list[_Prepared], FailedBatch | None]:
        """Run the committers of each batch, until one fails or the group is large enough."""
        prepared: list[_Prepared] = []
        written: dict[StateName, list[Mapping[Key, Values | None]]] = {}
        group, nbytes = group_of([each.attempt for each in results]), 0
        for result in results:
            nbytes += sum(result.outcome.bytes_by_stream.values())
            too_large = nbytes > GROUP_BYTES_MAX and not pinned
            if prepared and (too_large or self._context.scheduler.now() >= until_s):
                break
            attempt = result.attempt
            if not reached(len(prepared)):
                # Perhaps after a committer that hung. The emitter hears of a later attempt by now.
                raise _abandoned(attempt)
            metadata = result.outcome.metadata
            times = ComponentTimes(self._context.scheduler.now)
            if (told := self._tell_spouts(attempt, metadata, permit, times)) is not None:
                return prepared, told
            opener = opener_of(self._states, self._backends, group, written, self._repeating)
            outcome = self._run_committers(result, opener, permit, times)
            if outcome.failure is not None:
                return prepared, outcome.failure
            engine = self._run_engine(result, permit)
            if engine.failure is not None:
                return prepared, engine.failure
            # No state has it yet, so the next batch of the group reads it from here.
            for name, puts in outcome.writes.items():
                written.setdefault(name, []).append(puts.rows)
            prepared.append(_Prepared(result, outcome, engine, times.component_s))
        return prepared, None

    def _tell_spouts(
        self,
        attempt: TransactionAttempt,
        metadata: BatchMetadata,
        permit: Permit | None,
        times: ComponentTimes,
    ) -> FailedBatch | None:
        """Call ``commit`` of each emitter once for an attempt; return the first failure."""
        if attempt in self._told:
            return None
        for part in self._context.planner.parts:
            if not metadata.takes_part(part.spout_id):
                continue
            commits = part.spout_id in self._spouts_elsewhere
            try:
                with times.of(part.spout_id) if commits else nullcontext():
                    share = metadata.of(part.spout_id)
                    part.commit(attempt, share, permit if commits else None)
            except NotPermitted:
                raise
            except Exception as error:  # noqa: BLE001 - the spout's code; told with its txid
                return FailedBatch(attempt, error, part.spout_id)
        self._told.add(attempt)
        return None

    def _write(
        self,
        prepared: Sequence[_Prepared],
        wanted: Callable[[int], bool],
        state_s: dict[str, float],
    ) -> Mapping[str, float]:
        """Write a group to the states of each transaction, and note how long that took.

        Returns:
            How long each component took before the writes, of the whole group.
        """
        attempt = group_of([each.result.attempt for each in prepared])
        now = self._context.scheduler.now
        # All are made before the first is written: merging may fail, too.
        times, writes = ComponentTimes(now), {}
        for name in self._backends:
            with times.of(name[0]) if name[0] in self._in_driver else nullcontext():
                writes[name] = self._writes_of(name, prepared)
        with_statements = {name for name, each in writes.items() if statements_of(each)}
        for names in sorted(self._shared.groups, key=with_statements.isdisjoint):
            started_s = now()
            # Before each write, since the one before may have taken longer than the commit had.
            if not wanted(len(prepared)):
                raise _abandoned(attempt)
            with _labelled([writes[name] for name in names]):
                commit_all_resolved(
                    attempt, [(self._backends[name], writes[name]) for name in names]
                )
            took_s = now() - started_s
            state_s.update({".".join(name): took_s for name in names})
        component_s = times.component_s
        for each in prepared:
            for component, took_s in each.component_s.items():
                component_s[component] = component_s.get(component, 0.0) + took_s
        return component_s

    def _reports(
        self,
        prepared: Sequence[_Prepared],
        state_s: Mapping[str, float],
        component_s: Mapping[str, float],
    ) -> Iterator[CommitReport]:
        for each in prepared:
            result = each.result
            tuples = self._tuples(result, each.outcome)
            if self._letters_from and tuples.get(STREAM):
                topology, attributes = (
                    self._context.graph.id,
                    self._log_attributes(result.attempt, STREAM),
                )
                text = "topology %r: txid %d: %d dead letters"
                numbers = (topology, result.attempt.txid, tuples[STREAM])
                _logger.warning(text, *numbers, extra=attributes)
            last = each is prepared[-1]
            durations = (state_s, component_s) if last else ({}, {})
            yield CommitReport(tuples, *self._behind_and_lost(result), *durations)

    def close(self) -> None:
        """Close the states of the term."""
        close_backends(self._context.graph.id, self._backends)

    def _behind_and_lost(self, result: BatchResult) -> tuple[Mapping[str, int], Mapping[str, str]]:
        """Ask the spout for its lag and losses. Its errors do not fail a batch that is written."""
        planner, metadata = self._context.planner, result.outcome.metadata
        topology, attempt = self._context.graph.id, result.attempt
        attributes = self._log_attributes(attempt, self._context.compiled.only_spout)
        try:
            lost = planner.lost(metadata)
            for partition, what in lost.items():
                lost_there = printable(f"lost of {partition}: {what}")
                text = "topology %r: txid %d: %s"
                _logger.warning(text, topology, attempt.txid, lost_there, extra=attributes)
            return planner.lag(metadata, attempt.txid), lost
        except Exception:
            text = "topology %r: the spout could not report its lag"
            _logger.warning(text, topology, exc_info=True, extra=attributes)
            return {}, {}

    def _log_attributes(
        self, attempt: TransactionAttempt, component: str | None
    ) -> Mapping[str, object]:
        """Return the attributes of a log record."""
        return {
            "topology": self._context.graph.id,
            "txid": attempt.txid,
            "attempt": attempt.attempt,
            "epoch": attempt.epoch,
            "component": component,
        }

    def _run_committers(
        self,
        result: BatchResult,
        opener: StateOpener,
        permit: Permit | None,
        times: ComponentTimes,
    ) -> CommitOutcome:
        compiled, carrier = self._context.compiled, self._context.carrier
        run = result.output.run.only(result.attempt)
        permits = partial(self._permit_of, permit)
        if compiled.commit_in_driver:
            return commit_in_driver(
                compiled, result.outcome, run, opener, permits, times, self._observer
            )
        records = carrier.commit(result.output, result.attempt, permits)
        return judge_commit(compiled, result.outcome, run, records)

    def _permit_of(self, permit: Permit | None, component: str) -> Permit | None:
        return permit if component in self._elsewhere else None

    def _run_engine(self, result: BatchResult, permit: Permit | None) -> EngineOutcome:
        """Let the carrier run the committers of what its engine has kept."""
        if result.output.kept is None:
            return EngineOutcome()
        carrier = cast("EngineCarrier", self._context.carrier)
        permits = partial(self._permit_of, permit)
        return carrier.commit_kept(result.output, result.attempt, self._states, permits)

    def _tuples(self, result: BatchResult, outcome: CommitOutcome) -> dict[str, int]:
        totals: dict[str, int] = {}
        for tuples in (result.outcome.tuples, outcome.tuples):
            for component, streams in tuples.items():
                # Dead letters are counted once, where they are numbered.
                left_out = STREAM if component in self._letters_from else None
                emitted = sum(count for stream, count in streams.items() if stream != left_out)
                totals[component] = totals.get(component, 0) + emitted
        return totals

    def _writes_of(self, name: StateName, group: Sequence[_Prepared]) -> Writes | EngineWrites:
        if (writes := group[-1].engine.writes.get(name)) is not None:
            return writes
        component, _ = name
        if component in self._context.compiled.aggregations:
            records = (
                (each.result.attempt.txid, record)
                for each in group
                for part in (each.result.outcome.partials, each.outcome.partials)
                for record in part.get(component, ())
            )
            return Merges(merge_partials(self._context.compiled, component, records))
        found = [each.outcome.writes.get(name, Puts({})) for each in group]
        statements = tuple(one for puts in found for one in puts.statements)
        rows = merged_rows([puts.rows for puts in found])
        return Puts(rows, statements=statements, repeats=component in self._repeating)


def _labelled(writes: Sequence[Writes | EngineWrites]) -> AbstractContextManager[None]:
    # An engine writes to one state at a time.
    first = writes[0]
    return nullcontext() if isinstance(first, Puts | Merges) else first.labelled()


def _expires(prepared: Sequence[_Prepared]) -> dict[StateName, Any]:
    """Return the largest bound of expiry that the batches of a group declared, by state."""
    found: dict[StateName, Any] = {}
    for each in prepared:
        for name, puts in each.outcome.writes.items():
            if puts.expires is not None:
                found[name] = max(puts.expires, found.get(name, puts.expires))
    return found


def _abandoned(attempt: TransactionAttempt) -> RunLostError:
    return RunLostError(
        f"attempt {attempt} was abandoned during its commit phase", txid=attempt.txid
    )


def _before(
    error: ValueRefusedError | StatementFailed, prepared: list[_Prepared]
) -> tuple[list[_Prepared], FailedBatch | None]:
    """Return the batches to write now, and the failure of the one behind them, if it is known."""
    attempts = [each.result.attempt for each in prepared]
    known = [at for at, attempt in enumerate(attempts) if attempt.txid == error.txid]
    if len(attempts) > 1 and (isinstance(error, ValueRefusedError) or not known):
        return prepared[:1], None  # a value or COMMIT was refused, and any of them may be to blame
    at = known[0] if known else 0
    return prepared[:at], FailedBatch(attempts[at], error, error.component or "")


def _refused_together(
    error: ValueRefusedError | StatementFailed, group: TransactionAttempt
) -> TxtopoError:
    first, last = group.first_txid, group.txid
    return type(error)(
        f"{error}; it belongs to one of {txids_text(first, last)}, which are written together and "
        "which another state may already hold; fix the cause and start again; or undo them with "
        f"txtopo.operations.rewind to txid {first - 1} and start with Config(group_txids_max=1), "
        "which stops at the batch that causes it",
        **error.facts,
    )
