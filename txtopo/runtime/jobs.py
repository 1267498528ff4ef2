"""Jobs: runs the processing phase of one term, and keeps the results until their commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.carriers.carrier import Carrier, RunOutput
from txtopo.collector import SeenFields
from txtopo.coordinator.failures import failure_of
from txtopo.coordinator.protocol import (
    Event,
    Failed,
    Failure,
    FailureKind,
    Processed,
    RunFailed,
    StartProcessing,
)
from txtopo.ensemble.nodes import check_metadata_size
from txtopo.errors import (
    BatchMetadataTooLarge,
    DriverMemoryError,
)
from txtopo.log_records import logger_of
from txtopo.stages.compiled_topology import CompiledTopology, Run
from txtopo.stages.outcome import BatchOutcome, RunOutcome, judge, outcome_without_envelopes

if TYPE_CHECKING:
    from concurrent.futures import Future

    from txtopo.config import Config
    from txtopo.runtime.scheduler import Scheduler

_logger = logger_of("txtopo.spouts")


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A processed batch that waits for its commit.

    Attributes:
        attempt: The attempt.
        outcome: The part of the result that is in the driver.
        output: The output of its run. A commit in tasks reads the handover from it.
        processing_s: Time from the start of the job to its end.
    """

    attempt: TransactionAttempt
    outcome: BatchOutcome
    output: RunOutput
    processing_s: float

    @property
    def commit_tag(self) -> str:
        """The tag by which the jobs of the commit phase are cancelled."""
        return self.output.run.commit_tag(self.attempt)


class Jobs:
    """Starts, times out and cancels the jobs of one term, and keeps their results.

    Used on the loop only. The outcome of a job is reported as events of the coordinator.
    """

    def __init__(
        self,
        compiled: CompiledTopology,
        carrier: Carrier,
        config: Config,
        scheduler: Scheduler,
        tell: Callable[[Event], None],
    ) -> None:
        self._compiled = compiled
        self._carrier = carrier
        self._config = config
        self._scheduler = scheduler
        self._tell = tell
        self._numbers = itertools.count(1)
        self._live: dict[str, Run] = {}
        self._results: dict[TransactionAttempt, BatchResult] = {}
        self._seen: set[str] = set()

    def start(self, action: StartProcessing) -> Run:
        """Start a job for a run. ``Processed``, ``Failed`` or ``RunFailed`` report its end."""
        run = Run(self._tag(action), action.attempts, action.metadata, action.previous)
        self._live[run.tag] = run
        started_s = self._scheduler.now()
        limit_s = self._config.batch_timeout_s * len(run.attempts)
        timer = self._scheduler.call_later(limit_s, lambda: self._timed_out(run, limit_s))

        def done(future: Future[tuple[RunOutput, RunOutcome]]) -> None:
            timer.cancel()
            self._live.pop(run.tag, None)
            error = future.exception()
            if error is None:
                self._take(*future.result(), self._scheduler.now() - started_s)
            else:
                self._tell(RunFailed(run.attempts, failure_of(error)))

        self._scheduler.submit(lambda: self._process(run), done)
        return run

    def result(self, attempt: TransactionAttempt) -> BatchResult:
        """Return the result of a processed attempt that was not forgotten."""
        return self._results[attempt]

    def cancel(self, attempts: Collection[TransactionAttempt]) -> None:
        """Cancel every job that works on one of these attempts."""
        for tag, run in list(self._live.items()):
            if set(run.attempts) & set(attempts):
                del self._live[tag]
                self._scheduler.submit(partial(self._carrier.cancel, tag), _nothing)

    def forget(self, attempts: Iterable[TransactionAttempt]) -> None:
        """Forget the results of these attempts, and release runs without a remaining result."""
        found = [self._results.pop(each) for each in attempts if each in self._results]
        if not found:
            return
        held = {id(result.output) for result in self._results.values()}
        gone = {id(each.output): each.output for each in found}
        for key, output in gone.items():
            if key not in held:
                self._carrier.release(output)

    def cancel_all(self) -> None:
        """Cancel every job and forget every result."""
        self.cancel([attempt for run in self._live.values() for attempt in run.attempts])
        self.forget(list(self._results))

    def check_memory(self) -> None:
        """Check that the envelopes in the driver take at most ``driver_bytes_max``.

        Raises:
            DriverMemoryError: They take more; the error names the stream with most bytes.
        """
        by_stream: dict[str, int] = {}
        for result in self._results.values():
            held = [*result.outcome.bytes_by_stream.items()]
            if self._carrier.keeps_handover_in_driver:
                held += result.outcome.kept_bytes_by_stream.items()
            for stream, count in held:
                by_stream[stream] = by_stream.get(stream, 0) + count
        total, cap = sum(by_stream.values()), self._config.driver_bytes_max
        if total <= cap:
            return
        stream = max(by_stream, key=lambda name: by_stream[name])
        raise DriverMemoryError(
            f"processed tuples waiting for their commit take {total} bytes in the driver; "
            f"driver_bytes_max is {cap}; most are of stream {stream!r} ({by_stream[stream]} "
            "bytes); aggregate before the committer, give it parallelism above 1, or lower "
            "max_spout_pending",
            stream=stream,
            bytes=total,
        )

    def _process(self, run: Run) -> tuple[RunOutput, RunOutcome]:
        self._scheduler.point("process.before")
        output = self._carrier.process(run)
        outcome = judged(self._compiled, run, output)
        output.records = []
        self._scheduler.point("process.after")
        return output, outcome

    def _take(self, output: RunOutput, outcome: RunOutcome, seconds: float) -> None:
        self._warn(outcome.seen)
        taken: list[BatchOutcome] = []
        failure: Failed | None = None
        if outcome.failure is not None:
            failed = outcome.failure
            failure = Failed(failed.attempt, failure_of(failed.error, failed.component))
        for batch in outcome.processed:
            try:
                check_metadata_size(batch.attempt.txid, batch.metadata)
            except BatchMetadataTooLarge as error:
                failure = Failed(batch.attempt, failure_of(error, self._compiled.only_spout))
                break
            taken.append(batch)
            self._results[batch.attempt] = BatchResult(batch.attempt, batch, output, seconds)
            self._scheduler.point("turn.before")
        if taken:
            attempts = tuple(batch.attempt for batch in taken)
            self._tell(Processed(attempts, tuple(batch.metadata for batch in taken)))
        if failure is not None:
            self._tell(failure)

    def _warn(self, seen: Mapping[str, SeenFields]) -> None:
        """Log the declared fields that no record of the first batch of a spout has, once."""
        for spout in seen.keys() - self._seen:
            if seen[spout].records:
                self._seen.add(spout)
                for text in seen[spout].warnings(f"spout {spout!r}"):
                    _logger.warning("topology %r: %s", self._compiled.topology_id, text)

    def _timed_out(self, run: Run, limit_s: float) -> None:
        if run.tag not in self._live:
            return
        error = TimeoutError(
            f"the job of txids {run.attempts[0].txid} to {run.attempts[-1].txid} did not end in "
            f"{limit_s:g} s; check for a bolt that hangs, or raise batch_timeout_s"
        )
        self.cancel(run.attempts)
        self._tell(RunFailed(run.attempts, Failure(FailureKind.COUNTED, error)))

    def _tag(self, action: StartProcessing) -> str:
        first, last = action.attempts[0], action.attempts[-1]
        number = next(self._numbers)
        topology = self._compiled.topology_id
        return f"txtopo:{topology}:{first.epoch}:{first.txid}-{last.txid}:{number}"


def judged(compiled: CompiledTopology, run: Run, output: RunOutput) -> RunOutcome:
    """Return the outcome of a run; raises as :func:`~txtopo.stages.outcome.judge` does."""
    engine = compiled.engine
    if output.failure is not None:
        return RunOutcome((), output.failure)
    if engine is not None and not engine.emitting:
        return outcome_without_envelopes(run)
    return judge(compiled, run, output.records)


def _nothing(future: Future[None]) -> None:
    """Ignore the outcome of a cancellation: the job ends, or its result is stale."""
