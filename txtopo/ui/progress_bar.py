"""ProgressBar: a listener that shows progress as a bar on a terminal, or as plain lines."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from logging import StreamHandler, getLogger
from threading import Lock, Timer  # noqa: TID251 - for a line; nothing that is simulated
from typing import TYPE_CHECKING, TextIO

from txtopo.coordinator.transactions import Phase
from txtopo.ensemble.journal import process_text
from txtopo.extras import require
from txtopo.metadata import Json
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchFailed,
    Leading,
    Progressed,
    ReliableProgress,
    Restarting,
    Standby,
    Stopped,
    TopologyEvent,
    TopologyListener,
)
from txtopo.runtime.progress import Progress as BatchProgress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class ProgressBar(TopologyListener):
    """Shows txid, phases, rows per second, failures and lag; of at-least-once topologies, trees.

    Failures and their causes are in the log. While the bar is on a terminal, handlers of the root
    logger and of ``txtopo`` that write to standard output or error write above the bar. A
    ``RichHandler`` needs the same *console*.

    Args:
        total_rows: Total number of rows, if known. Otherwise the bar only pulses.
        line_every_s: Without a terminal, minimum number of seconds between two lines.
        console: The console to print to, of ``rich``; standard error by default.

    Raises:
        ConfigError: rich is not installed; ``pip install 'txtopo[progress]'``.

    Example:
        >>> with topology.start(config=config, listeners=[ProgressBar()]) as run:
        ...     run.process_all_available()
    """

    def __init__(
        self,
        total_rows: int | None = None,
        *,
        line_every_s: float = 5.0,
        console: Console | None = None,
    ) -> None:
        require("rich", "ProgressBar")
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = console or Console(stderr=True)
        self._paced = PacedLine(line_every_s, self._line)
        self._last: BatchProgress | ReliableProgress | None = None
        self._status = "starting"
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._handlers: list[tuple[StreamHandler[TextIO], TextIO]] = []
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[details]}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._task = self._bar.add_task(self._status, total=total_rows, details="")
            self._handlers = _terminal_handlers()
            self._bar.start()
            for handler, _ in self._handlers:
                handler.setStream(sys.stderr)  # which rich has replaced

    def on_change(self, change: TopologyEvent) -> None:
        """Show a change."""
        match change:
            case BatchCommitted():
                self._last = change.progress
                self._status = f"txid {change.progress.txid}"
            case Progressed():
                self._last = change.progress
                self._status = "running"
            case Leading():
                self._status = f"leading, epoch {change.epoch}"
            case Standby():
                self._status = f"standby{_of(change.holder)}"
            case BatchFailed() if self._bar is not None:
                self._status = f"txid {change.attempt.txid} failed, {change.failures} in a row"
            case Restarting() if self._bar is not None:
                self._status = f"restart {change.restarts} in {change.pause_s:g} s"
            case Stopped():
                self._stopped(change)
                return
            case _:
                return
        self._show(progressed=isinstance(change, BatchCommitted | Progressed))

    def _show(self, *, progressed: bool) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                description=self._status,
                completed=_rows(self._last),
                details=details_of(self._last),
            )
        elif not progressed:
            self._line()
        elif self._last:
            self._paced.changed(self._last.timestamp_s)

    def close(self) -> None:
        """Release the terminal, at the end or after a failed start; may be called twice."""
        self._paced.drop()
        if self._bar is not None:
            self._bar.stop()
            for handler, stream in self._handlers:
                handler.setStream(stream)

    def _stopped(self, change: Stopped) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, details=details_of(self._last, ended=True))
        self.close()
        self._status = "stopped" if change.error is None else "failed"
        self._line(ended=True)

    def _line(self, *, ended: bool = False) -> None:
        details = details_of(self._last, ended=ended)
        self._console.print(f"{self._status}  {details}".rstrip(), markup=False, soft_wrap=True)


class PacedLine:
    """Prints a line at most every few seconds, of which the last is up to date.

    A change that comes too soon is printed later, with what has changed until then. That line
    counts as well: otherwise the next change would print another one right after it.

    Args:
        every_s: Minimum number of seconds between two lines.
        write: Prints the line; may be called on a separate thread.
    """

    def __init__(self, every_s: float, write: Callable[[], None]) -> None:
        self._every_s = every_s
        self._write = write
        self._lock = Lock()
        self._due_s = -math.inf
        self._timer: Timer | None = None

    def changed(self, at_s: float) -> None:
        """Print a line now or later.

        Args:
            at_s: When it changed; only differences count.
        """
        with self._lock:
            if at_s < self._due_s:
                if self._timer is None:
                    self._timer = Timer(self._due_s - at_s, self._late)
                    self._timer.daemon = True
                    self._timer.start()
                return
            self._due_s = at_s + self._every_s
        self.drop()
        self._write()

    def drop(self) -> None:
        """Print nothing that is still due."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _late(self) -> None:
        with self._lock:
            if self._timer is None:
                return
            self._timer = None
            self._due_s += self._every_s
        self._write()


def details_of(last: BatchProgress | ReliableProgress | None, *, ended: bool = False) -> str:
    """Return the numbers of a progress report in one line; at the end, only the totals."""
    if last is None:
        return ""
    if isinstance(last, ReliableProgress):
        parts = [f"{last.emitted:,} emitted", f"{last.acked:,} acked"]
        if not ended:
            parts += [f"{last.acked_per_second:,.0f} acked/s", f"{last.pending:,} pending"]
        failed = last.failed + last.timed_out
        return "  ".join([*parts, f"failures: {failed:,}"] if failed else parts)
    parts = [f"{last.rows_total:,} rows"]
    if not ended:
        parts.append(f"{last.rows_per_second:,.0f} rows/s")
    phases = [] if ended else list(last.pending.values())
    for phase in (Phase.PROCESSING, Phase.PROCESSED, Phase.COMMITTING):
        if phase.name in phases:
            parts.append(f"{phases.count(phase.name)} {phase.value}")
    if last.failures_total:
        parts.append(f"failures: {last.failures} in a row, {last.failures_total} in total")
    if last.lag:
        parts.append("lag " + " ".join(f"{p}:{n}" for p, n in sorted(last.lag.items())))
    return "  ".join(parts)


def _rows(last: BatchProgress | ReliableProgress | None) -> int:
    if last is None:
        return 0
    return last.emitted if isinstance(last, ReliableProgress) else last.rows_total


def _terminal_handlers() -> list[tuple[StreamHandler[TextIO], TextIO]]:
    """Return the log handlers that write to standard output or error, each with its stream."""
    handlers = [*getLogger().handlers, *getLogger("txtopo").handlers]
    streams = [(each, each.stream) for each in handlers if isinstance(each, StreamHandler)]
    return [(each, stream) for each, stream in streams if stream in (sys.stdout, sys.stderr)]


def _of(holder: Json) -> str:
    match holder:
        case {"epoch": epoch, "leader": dict() as leader}:
            return f", epoch {epoch} leads from {process_text(leader)}"
    return ""
