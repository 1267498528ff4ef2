"""``txtopo run``: a topology in the foreground."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from types import FrameType
from typing import Any

import click

from txtopo.builders import ReliableTopology, Topology
from txtopo.carriers.session import active_session
from txtopo.command.choices import Choices, choices, modules_option
from txtopo.command.loading import load_topology
from txtopo.command.output import print_json, print_note
from txtopo.config import AnyConfig
from txtopo.ensemble.commands import KILLED
from txtopo.errors import ConfigError, TopologyKilled, escaped
from txtopo.runtime.handle import ReliableRun, TopologyRun
from txtopo.runtime.progress import (
    BatchCommitted,
    Leading,
    Progressed,
    Standby,
    Stopped,
    TopologyEvent,
    TopologyListener,
)
from txtopo.ui.progress_bar import PacedLine, ProgressBar, details_of

INTERRUPTED = 128 + signal.SIGINT
LINE_EVERY_S = 5.0


class Interrupted(BaseException):
    """A signal asks the run to end.

    Attributes:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@click.command("run")
@click.argument("place", metavar="MODULE:ATTRIBUTE")
@click.option("--master", metavar="URL", help="Spark's master; local[*] by default.")
@click.option(
    "--available-now",
    is_flag=True,
    help="End when everything that is available has been processed, as Spark's trigger does.",
)
@modules_option
@choices
def run(chosen: Choices, place: str, master: str | None, *, available_now: bool) -> int:
    """Run a topology in the foreground.

    It runs until ^C or SIGTERM, and continues where it stopped. MODULE:ATTRIBUTE, or
    file.py:attribute, names a topology, or a function that returns one. The attribute may be left
    out where there is exactly one. A YAML file is named without one. SIGTERM and ^C finish the
    current commit; a second one aborts it. An at-least-once topology closes its spouts and bolts;
    what was not acked is emitted again. Needs the module, its stores and its source.

    \b
    Example:
      txtopo --zookeeper zk1:2181 run payments.py:topology --master 'local[4]' --set slots=4

    \b
    Exit codes: 0 ended, or by SIGTERM; 1 failed; 2 wrong call, setting or topology;
    3 refused by a promise, as after a kill; 4 not reachable; 5 deposed, start it again;
    130 by ^C.
    """
    topology = load_topology(place, chosen.modules)
    config = chosen.config_of(topology)
    _log_in_lines(traceback=chosen.traceback)
    _check_master(master, config)
    listener = ProgressBar() if find_spec("rich") else ProgressLines()
    try:
        started = _started(topology, config, listener, master)
    except BaseException:
        listener.close()
        raise
    if started.board.page is not None:
        print_note(f"page: {started.board.page}")
    code = _wait(started, available_now=available_now)
    if chosen.json:
        print_json(started.board.summary())
    if started.status == KILLED:
        raise TopologyKilled(
            f"topology {topology.id!r} was killed by an operator; to revive it, txtopo activate "
            f"{topology.id}, then start it again",
            topology=topology.id,
        )
    return code


def _check_master(master: str | None, config: AnyConfig) -> None:
    if master is None:
        return
    if config.carrier == "local":
        raise ConfigError(
            f"the carrier 'local' does not use Spark; got --master {master}; remove one of them",
            setting="carrier",
        )
    if active_session() is not None:
        raise ConfigError(
            f"the module has already opened a Spark session; got --master {master}; remove the "
            "option, or let the module open no session",
            setting="--master",
            got=master,
        )


def _started(
    topology: Topology | ReliableTopology,
    config: Any,
    listener: TopologyListener,
    master: str | None,
) -> TopologyRun | ReliableRun:
    """Start a topology as its ``start`` does, in a new session of *master* if that is given."""
    if isinstance(topology, Topology):
        from txtopo.runtime.start import start_topology

        return start_topology(topology.graph, None, config, [listener], master=master)
    from txtopo.reliable.start import start_reliable

    return start_reliable(topology.graph, None, config, [listener], master=master)


def _wait(started: TopologyRun | ReliableRun, *, available_now: bool) -> int:
    """Wait for the end, and return the exit code; a signal stops the run in order."""
    # If the module has opened the session, Spark's own handler for ^C is among those replaced.
    asked, dropped = _REPLIES[started.board.kind]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, partial(_interrupt, asked, dropped))
    try:
        if available_now:
            started.process_all_available()
            started.stop()
        started.await_termination()
    except Interrupted as interrupted:
        started.stop()
        started.await_termination()
        return 0 if interrupted.number == signal.SIGTERM else INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return 0


# What the first signal does, and what the second one has done.
_REPLIES = {
    "transactional": (
        "finishing the current commit, then stopping; send it again to abort that commit",
        "the current commit is aborted; the next start repeats it",
    ),
    "at-least-once": (
        "closing spouts and bolts; send it again to end the process at once",
        "ended at once; tuples that were not acked are emitted again",
    ),
}


def _interrupt(asked: str, dropped: str, number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, partial(_drop, dropped))
    name = "SIGTERM" if number == signal.SIGTERM else "^C"
    _write(f"{name}: {asked}\n")
    raise Interrupted(number)


def _drop(dropped: str, number: int, frame: FrameType | None) -> None:
    shown = "\x1b[?25h" if os.isatty(2) else ""  # the bar has hidden the cursor
    _write(f"{shown}{dropped}\n")
    os._exit(INTERRUPTED)  # what hangs would hold up every other way to end


def _write(line: str) -> None:
    """Write past the buffer of standard error, which the signal may have interrupted."""
    with suppress(OSError):
        os.write(2, line.encode())


class ProgressLines(TopologyListener):
    """Shows the progress of a run as lines, where rich is not installed."""

    def __init__(self) -> None:
        self._details = ""
        self._paced = PacedLine(LINE_EVERY_S, lambda: print_note(self._details))

    def close(self) -> None:
        """Print nothing more; a bar would give the terminal back."""
        self._paced.drop()

    def on_change(self, change: TopologyEvent) -> None:
        """Print a change, and a progress at most every few seconds."""
        match change:
            case Leading():
                print_note(f"leading, epoch {change.epoch}")
            case Standby():
                print_note("standby")
            case BatchCommitted(progress) | Progressed(progress):
                self._details = details_of(progress)
                self._paced.changed(progress.timestamp_s)
            case Stopped():
                self._paced.drop()
                print_note("stopped" if change.error is None else "failed")


def _log_in_lines(*, traceback: bool) -> None:
    """Print warnings and errors as lines on standard error, unless the module has set up a log."""
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_Line("%(asctime)s %(message)s", "%H:%M:%S"))
        if not traceback:
            handler.addFilter(_is_wanted)
        logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _is_wanted(record: logging.LogRecord) -> bool:
    """Return whether a record says what no line of the command says."""
    # py4j logs the traceback of a call that ^C interrupts. The error that ends the run is the last
    # line of the command.
    ends_the_run = record.levelno == logging.ERROR and hasattr(record, "cause")
    return not ends_the_run and f"{os.sep}py4j{os.sep}" not in record.pathname


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return a record in one line, in which nothing moves a terminal's cursor."""
        return escaped(super().format(record), "\n")
