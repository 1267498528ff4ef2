"""Listeners: each change of a run goes to the log and then to the listeners of the run.

Every event that a listener receives is also logged: each run has an :class:`EventLog`, a listener
that writes a record for each kind of event. ``docs/reference/logging.md`` lists them.
"""

from __future__ import annotations

import logging
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import assert_never

from txtopo.attempt import TransactionAttempt, txids_text
from txtopo.ensemble.journal import process_text
from txtopo.errors import ConfigError
from txtopo.log_records import logger_of, one_line, printable
from txtopo.metadata import Json
from txtopo.retries import LOGGER, is_logged, warn_of_retry
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesAbandoned,
    BatchesProcessed,
    BatchFailed,
    BatchPlanned,
    CommitStarted,
    ErrorReported,
    Leading,
    ProcessingStarted,
    Progressed,
    Restarting,
    SlotLost,
    Standby,
    Started,
    Stopped,
    TopologyEvent,
    TopologyListener,
    TreesFailed,
)

_logger = logger_of(LOGGER)


def check_listeners(listeners: object) -> None:
    """Check the listeners that a topology is started with.

    Raises:
        ConfigError: They are one listener, and not a list.
    """
    if isinstance(listeners, TopologyListener):
        raise ConfigError(
            f"listeners are of the wrong type; got {type(listeners).__name__}; expected a list of "
            "listeners; write listeners=[listener]",
            setting="listeners",
            got=type(listeners).__name__,
        )


class Listeners:
    """Passes each change to the log and to all listeners.

    An exception of a listener is logged and ignored. If another driver has started this one, the
    only listener is a :class:`ChangeRelay`. Then this one writes no log, since the other one does.
    """

    def __init__(self, topology: str, listeners: Iterable[TopologyListener]) -> None:
        self._topology = topology
        self._listeners = list(listeners)
        if not any(isinstance(each, ChangeRelay) for each in self._listeners):
            self._listeners.insert(0, EventLog(topology))

    def tell(self, change: TopologyEvent) -> None:
        """Pass a change to the log and to all listeners."""
        for listener in self._listeners:
            try:
                listener.on_change(change)
            except BaseException:
                _logger.warning(
                    "topology %r: a listener failed on %s",
                    self._topology,
                    type(change).__name__,
                    exc_info=True,
                    extra={"topology": self._topology},
                )


class ChangeRelay(TopologyListener):
    """Passes on the changes of a driver, except its end: another driver may follow."""

    def __init__(self, tell: Callable[[TopologyEvent], None]) -> None:
        self._tell = tell

    def on_change(self, change: TopologyEvent) -> None:
        """Pass a change on."""
        if not isinstance(change, Stopped):
            self._tell(change)


# A little less than the second between two progresses, since timers are not exact.
REPEATS_S = 0.9


class EventLog(TopologyListener):
    """Writes the log of a run, from the events of the run.

    Thousands of trees may fail, and bolts may report thousands of errors. So failed trees are
    counted, and their number is logged once a second, with the progress. After the first error of a
    class, further errors are counted in the same way.
    """

    def __init__(self, topology: str) -> None:
        self._topology = topology
        self._trees: Counter[tuple[str, int, str]] = Counter()
        self._trees_before: Counter[tuple[str, int, str]] = Counter()
        self._errors: dict[tuple[str, int, str], tuple[int, Exception]] = {}
        self._acked = self._acked_before = 0
        self._told_s = 0.0

    def on_change(self, change: TopologyEvent) -> None:
        """Write the records of a change."""
        match change:
            case (
                BatchPlanned()
                | ProcessingStarted()
                | BatchesProcessed()
                | CommitStarted()
                | BatchCommitted()
                | BatchesAbandoned()
            ):
                if _logger.isEnabledFor(logging.DEBUG):  # thousands a second
                    self._batches(change)
            case BatchFailed():
                self._failed(change)
            case Started() | Standby() | Leading() | Stopped():
                self._life(change)
            case Restarting():
                warn_of_retry(
                    "the run",
                    change.error,
                    topology=self._topology,
                    failures=change.restarts,
                    pause_s=change.pause_s,
                )
            case TreesFailed() | ErrorReported() | Progressed() | SlotLost():
                self._tuples(change)
            case _ as never:
                assert_never(never)

    # ------------------------------------------------------------ of all topologies

    def _life(self, change: Started | Standby | Leading | Stopped) -> None:
        match change:
            case Started():
                self._say(logging.INFO, "starts")
            case Standby():
                self._say(logging.WARNING, f"{_leader_text(change.holder)}; this one stands by")
            case Leading():
                if adopted := change.adopted_txids:
                    text = f"adopts {txids_text(adopted[0], adopted[-1])}"
                    text += ", which every state already holds"
                    self._say(logging.INFO, text, txid=adopted[-1], epoch=change.epoch)
                text = f"leads with epoch {change.epoch}"
                if change.current is not None:
                    text += f" and resumes at txid {change.current}"
                self._say(logging.INFO, text, txid=change.current, epoch=change.epoch)
            case Stopped(error=None):
                self._tell_repeats()
                self._say(logging.INFO, "has stopped")
            case Stopped(error=error):
                assert error is not None
                self._tell_repeats()
                cause = one_line(error)
                self._say(logging.ERROR, f"has ended with an error; got {cause}", cause=cause)

    def _say(self, level: int, text: str, **attributes: object) -> None:
        extra = {"topology": self._topology, **attributes}
        _logger.log(level, "topology %r: %s", self._topology, text, extra=extra)

    # ------------------------------------------------------------ of transactional topologies

    def _failed(self, change: BatchFailed) -> None:
        first, last = change.attempt.txid, change.attempt.txid + change.batches - 1
        batch = (
            txids_text(first, last) if first == last else f"the run of {txids_text(first, last)}"
        )
        where = f", in {change.component!r}," if change.component is not None else ""
        warn_of_retry(
            f"attempt {change.attempt.attempt} of {batch}{where}",
            change.error,
            topology=self._topology,
            failures=change.failures,
            pause_s=change.pause_s,
            txid=first,
            attempt=change.attempt.attempt,
            epoch=change.attempt.epoch,
            component=change.component,
            final=change.pause_s is None,
        )

    def _batches(
        self,
        change: BatchPlanned
        | ProcessingStarted
        | BatchesProcessed
        | CommitStarted
        | BatchCommitted
        | BatchesAbandoned,
    ) -> None:
        match change:
            case BatchPlanned(attempt, plan_s):
                self._batch(attempt, f"is planned; the spout took {plan_s:.3g} s to answer")
            case CommitStarted(attempt):
                self._batch(attempt, "begins its commit phase")
            case BatchesAbandoned(attempts, failed):
                why = "the run stops" if failed is None else f"txid {failed.txid} failed"
                for attempt in attempts:
                    self._batch(attempt, f"is abandoned, because {why}")
            case BatchCommitted(progress):
                text = (
                    f"is committed: {progress.rows} tuples of the spout; processing took "
                    f"{progress.processing_s:.3g} s and the commit {progress.commit_s:.3g} s"
                )
                if progress.group[0] < progress.group[1]:
                    text += f", of {txids_text(*progress.group)} together"
                self._batch(progress.attempt, text, failures=progress.failures)
            case BatchesProcessed(attempts):
                for attempt in attempts:
                    self._batch(attempt, "is processed and waits for its turn to commit")
            case ProcessingStarted(attempts, tag):
                for attempt in attempts:
                    self._batch(attempt, f"is processed in job {tag}")

    def _batch(self, attempt: TransactionAttempt, text: str, **attributes: object) -> None:
        self._say(
            logging.DEBUG,
            f"attempt {attempt.attempt} of txid {attempt.txid} {text}",
            txid=attempt.txid,
            attempt=attempt.attempt,
            epoch=attempt.epoch,
            **attributes,
        )

    # ------------------------------------------------------------ of at-least-once topologies

    def _tuples(self, change: TreesFailed | ErrorReported | Progressed | SlotLost) -> None:
        match change:
            case TreesFailed(component, task, message_ids, reason):
                self._trees[component, task, reason] += len(message_ids)
                if _logger.isEnabledFor(logging.DEBUG):
                    ids = printable(reprlib.repr(message_ids))
                    text = f"trees of {component!r}, task {task}, {reason}: {ids}"
                    self._say(logging.DEBUG, text, component=component, cause=reason)
            case ErrorReported():
                self._reported(change)
            case SlotLost(slot, reason):
                # The code that restarts the slot logs the warning, with the time of the restart.
                cause = printable(reason)
                text = f"slot {slot} is lost, with the memory of its bolts; got {cause}"
                self._say(logging.INFO, text, cause=cause, slot=slot)
            case Progressed(progress):
                self._acked = progress.acked
                if not 0 <= progress.timestamp_s - self._told_s < REPEATS_S:
                    self._told_s = progress.timestamp_s
                    self._tell_repeats()
                if _logger.isEnabledFor(logging.DEBUG):
                    text = (
                        f"{progress.acked} trees acked, {progress.failed} failed, "
                        f"{progress.timed_out} timed out, {progress.pending} pending; "
                        f"{progress.emitted} tuples emitted, {progress.replays} of them again"
                    )
                    self._say(logging.DEBUG, text)

    def _reported(self, change: ErrorReported) -> None:
        """Warn of an error, unless one of its class was logged less than a second ago."""
        key = change.component, change.task, type(change.error).__name__
        known = self._errors.get(key)
        logged = is_logged(change.error)  # a spout that tries again has logged it already
        if not logged:
            self._errors[key] = 0 if known is None else known[0] + 1, change.error
        level = logging.WARNING if known is None and not logged else logging.DEBUG
        if _logger.isEnabledFor(level):
            cause = one_line(change.error)
            text = f"{change.component!r}, task {change.task}, reports an error; got {cause}"
            self._say(level, text, component=change.component, cause=cause)

    def _tell_repeats(self) -> None:
        """Warn of the failed trees and repeated errors since the last call."""
        if self._acked > self._acked_before:
            self._trees_before.clear()
        self._acked_before = self._acked
        self._trees_before.update(self._trees)
        for component, task, reason in sorted(self._trees):
            count = self._trees[component, task, reason]
            self._say(
                logging.WARNING,
                f"{count} trees of spout {component!r}, task {task}, {reason}; the spout decides "
                "whether to emit them again; failures since a tree was acked: "
                f"{self._trees_before[component, task, reason]}",
                component=component,
                failures=self._trees_before[component, task, reason],
                cause=reason,
            )
        self._trees.clear()
        for (component, task, kind), (count, error) in list(self._errors.items()):
            if not count:
                del self._errors[component, task, kind]
                continue
            self._errors[component, task, kind] = 0, error
            cause = one_line(error)
            self._say(
                logging.WARNING,
                f"{component!r}, task {task}, reports {count} more errors; the last is {cause}",
                component=component,
                failures=count,
                cause=cause,
            )


def _leader_text(holder: Json) -> str:
    match holder:
        case {"epoch": int(epoch), "leader": leader}:
            return f"{process_text(leader)} leads (epoch {epoch})"
    return "another process leads"
