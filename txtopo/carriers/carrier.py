"""Carrier: runs the stages of a topology over its slots, and moves records between them.

A carrier does not depend on tuples, batches or states. It calls
:func:`~txtopo.stages.stage.run_stage` for every level and slot, passes the records of one level to
the slots of the next level, and returns the records that the last level sends to the driver.
:mod:`txtopo.stages.stage_context` defines the addresses of records. All carriers run the same
stages, so all of them produce the same result.

:class:`LocalCarrier` is the carrier ``local``. It runs the stages in this process, without Spark,
one slot after the other. Use it for unit tests, for simulations, and to step through a bolt with a
debugger.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from txtopo.attempt import TransactionAttempt
from txtopo.errors import RunLostError
from txtopo.stages.compiled_topology import Chain, CompiledTopology, Run
from txtopo.stages.observer import Observer
from txtopo.stages.outcome import FailedBatch
from txtopo.stages.permits import Permits, no_permits
from txtopo.stages.stage import run_stage
from txtopo.stages.stage_context import (
    DRIVER,
    ByAddress,
    HandoverAddresses,
    Record,
    RunLevel,
    StageContext,
    by_address,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.fingerprint import StateName
    from txtopo.state.commit import EngineWrites
    from txtopo.state.registry import State

    RowsBySlot = Sequence[Sequence[pa.RecordBatch]]


class Carrier(Protocol):
    """Runs the stages of a topology, and moves records between them; see the module docstring.

    Who calls it: the runtime, from several threads at once. There is one call of ``process`` for
    each run in flight, and one call of ``commit`` at a time. ``cancel`` may come at any time.
    """

    keeps_handover_in_driver: bool
    """Whether the handover for a commit in tasks waits in this process, and so counts towards
    ``driver_bytes_max``."""

    has_engine: bool
    """Whether it has the engine of :mod:`txtopo.topology.engine`, which makes it an
    :class:`EngineCarrier`."""

    def default_slots(self) -> int:
        """Return the number of slots to use by default: the session's default parallelism."""
        ...

    def start(self, compiled: CompiledTopology) -> None:
        """Receive the compiled topology. This is called once, before any run."""
        ...

    def process(self, run: Run) -> RunOutput:
        """Run the processing phase of a run, and block until it has ended.

        Raises:
            RunLostError: The job failed or was cancelled, and no batch is known to be the cause.
                Its attribute ``counted`` is True if a worker crashed, and False if the
                infrastructure failed.
        """
        ...

    def commit(
        self, output: RunOutput, attempt: TransactionAttempt, permits: Permits = no_permits
    ) -> list[bytes]:
        """Run the commit phase of *attempt* in tasks, and block until it has ended.

        Args:
            output: The output of the run that processed the attempt.
            attempt: One of the attempts of that run.
            permits: Returns the permit of each bolt. A carrier whose tasks are in this process
                checks it before each call of the bolt; others, before the tasks of its level begin.

        Returns:
            The records for the driver.

        Raises:
            RunLostError: As for :meth:`process`.
            NotPermitted: A permit was refused.
        """
        ...

    def release(self, output: RunOutput) -> None:
        """Drop the output of a run. A second call does nothing."""
        ...

    def cancel(self, tag: str) -> None:
        """Cancel the jobs with this tag; their ``process`` or ``commit`` raises."""
        ...

    def check_session(self) -> None:
        """Check that the jobs in flight can still end; called about once a second, on a thread.

        A Spark session that is being stopped may drop a job and never answer it.

        Raises:
            ConfigError: A job is in flight, and its session was stopped.
        """
        ...

    def close(self) -> None:
        """Cancel everything and release all resources, except the user's Spark session."""
        ...


class EngineCarrier(Carrier, Protocol):
    """A carrier with an engine, which also computes the engine part of the topology."""

    def commit_kept(
        self,
        output: RunOutput,
        attempt: TransactionAttempt,
        states: Mapping[str, Mapping[str, State]],
        permits: Permits = no_permits,
    ) -> EngineOutcome:
        """Run the committers of what the engine has kept of *attempt*. Nothing is written yet.

        Args:
            output: The output of the run that processed the attempt.
            attempt: The attempt.
            states: The states of each component, by component id and name.
            permits: Returns, for each committer, the permit to check before each call.

        Raises:
            RunLostError: As for :meth:`process`.
            NotPermitted: A permit was refused.
        """
        ...


@dataclass(frozen=True, slots=True)
class EngineOutcome:
    """The result of an engine's committers for a batch.

    Attributes:
        writes: The writes to each state that has any.
        failure: The failure of user code, if any; then nothing may be written.
    """

    writes: Mapping[StateName, EngineWrites] = field(default_factory=dict)
    failure: FailedBatch | None = None


@dataclass(slots=True)
class RunOutput:
    """The output of a run: what its processing phase left with the carrier.

    Attributes:
        run: The run.
        records: The records for the driver.
        handover: What a commit in tasks starts from: records by address, or whatever else the
            carrier needs to read it. None once it was released.
        kept: What an engine keeps of the run for the commit; only its carrier looks into it.
        failure: The failure of what an engine computes. If there is one, all else is empty.
    """

    run: Run
    records: list[bytes]
    handover: object = field(default=None, repr=False)
    kept: object = field(default=None, repr=False)
    failure: FailedBatch | None = None

    @classmethod
    def divided(cls, run: Run, records: ByAddress, kept: object = None) -> RunOutput:
        """Divide the records of the last level into records for the driver and the handover."""
        handover = {address: each for address, each in records.items() if address != DRIVER}
        return cls(run, records.get(DRIVER, []), handover, kept)

    def handover_of(self, attempt: TransactionAttempt, slots: int) -> ByAddress:
        """Return the records of one attempt's handover, by slot.

        Only for a carrier that keeps the handover by address, and before the run is released.
        """
        assert isinstance(self.handover, dict), "the run was released"
        addresses = HandoverAddresses(self.run, slots).of(attempt.txid)
        return {slot: self.handover.get(address, []) for slot, address in enumerate(addresses)}


class LocalCarrier:
    """Runs the stages in this process.

    ``cancel`` takes effect between two stages, and in ``map_async``, which waits for the answers of
    others. It does not interrupt user code.

    Args:
        slots: The number of slots; None for one.
        observer: Is told of the tuples, and of what user code raises.
    """

    has_engine = False
    keeps_handover_in_driver = True

    def __init__(self, slots: int | None = None, observer: Observer | None = None) -> None:
        self._slots = slots or 1
        self._observer = observer
        self._compiled: CompiledTopology | None = None
        self._task_ids = itertools.count(1)
        self._running: set[str] = set()
        self._cancelled = CancelledTags()

    def default_slots(self) -> int:
        """Return the given number, or 1, since more slots do not run in parallel here."""
        return self._slots

    def start(self, compiled: CompiledTopology) -> None:
        """Receive the compiled topology."""
        self._compiled = compiled

    def process(self, run: Run) -> RunOutput:
        """Run the processing phase of a run."""
        return RunOutput.divided(run, self._chain("processing", run, {}))

    def process_rows(self, run: Run, batches: Sequence[pa.RecordBatch]) -> RunOutput:
        """Run the processing phase on the rows of a micro-batch, divided among the slots."""
        assert self._compiled is not None
        slots = self._compiled.slots
        rows = [batches[slot::slots] for slot in range(slots)]
        return RunOutput.divided(run, self._chain("processing", run, {}, rows))

    def commit(
        self, output: RunOutput, attempt: TransactionAttempt, permits: Permits = no_permits
    ) -> list[bytes]:
        """Run the commit phase of one attempt."""
        assert self._compiled is not None
        handover, only = output.handover_of(attempt, self._compiled.slots), output.run.only(attempt)
        return self._chain("commit", only, handover, permits=permits).get(DRIVER, [])

    def release(self, output: RunOutput) -> None:
        """Drop the handover of a run."""
        output.handover = {}

    def cancel(self, tag: str) -> None:
        """Stop the job with this tag before its next stage."""
        if tag in self._running:
            self._cancelled.add(tag)

    def check_session(self) -> None:
        """Do nothing: a local carrier has no session."""

    def close(self) -> None:
        """Cancel everything."""
        for tag in list(self._running):
            self._cancelled.add(tag)

    def _chain(
        self,
        chain: Chain,
        run: Run,
        records: ByAddress,
        rows: RowsBySlot = (),
        permits: Permits = no_permits,
    ) -> ByAddress:
        assert self._compiled is not None
        tag = run.tag_of(chain)
        self._running.add(tag)
        try:
            for level in range(len(self._compiled.levels_of(chain))):
                at, given = RunLevel(chain, run, level), () if level else rows
                records = self._level(at, records, given, permits)
        finally:
            self._running.discard(tag)
        return records

    def _level(
        self, level: RunLevel, records: ByAddress, rows: RowsBySlot, permits: Permits
    ) -> ByAddress:
        compiled = self._compiled
        assert compiled is not None
        sent: list[Record] = []
        for slot in range(compiled.slots_of(level.chain)):
            self._cancelled.check(level.tag)
            stage = level.in_slot(compiled, slot, next(self._task_ids))
            given = rows[slot] if rows else ()
            sent += self.compute(stage, records.get(slot, []), given, permits)
        return by_address(sent)

    def compute(
        self,
        stage: StageContext,
        records: Sequence[bytes],
        rows: Sequence[pa.RecordBatch] = (),
        permits: Permits = no_permits,
    ) -> Iterable[Record]:
        """Run one level in one slot."""
        return run_stage(
            stage,
            records,
            rows=rows,
            permits=permits,
            observer=self._observer,
            abandoned=lambda: stage.tag in self._cancelled,
        )


# An abandoned run is never started again, so old tags can be forgotten.
_CANCELLED_MAX = 1000


class CancelledTags:
    """The tags of cancelled jobs.

    A tag is kept after the cancellation, for jobs with this tag that are only about to start.
    """

    def __init__(self) -> None:
        self._tags: dict[str, None] = {}

    def __contains__(self, tag: str) -> bool:
        return tag in self._tags

    def add(self, tag: str) -> None:
        """Add a tag."""
        self._tags[tag] = None
        while len(self._tags) > _CANCELLED_MAX:
            del self._tags[next(iter(self._tags))]

    def check(self, tag: str, cause: Exception | None = None) -> None:
        """Check that a tag was not cancelled.

        Raises:
            RunLostError: It was cancelled.
        """
        if tag in self._tags:
            raise job_cancelled(tag) from cause


def job_cancelled(tag: str) -> RunLostError:
    """Return the error for a job that was cancelled."""
    return RunLostError(f"the job {tag} was cancelled", tag=tag, counted=False, cancelled=True)
