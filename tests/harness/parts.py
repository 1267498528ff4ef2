"""Runs tests in several processes at the same time, forked from one that has collected them.

A plug-in of pytest: ``pytest -p tests.harness.parts``. Tests that share a server or
a Spark session are in one part. The process that has collected them reports what the parts say, as
pytest does with one process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pytest

from tests.harness.forked import ONE_THREAD, assert_one_thread

PIECES = 4
"""How many parts are made of the quick tests, and of the others of a folder that use no server."""
TOGETHER = frozenset({"conformance"})
"""The folders whose files share what takes seconds to make."""
COMPUTING_MAX = os.cpu_count() or 1
WAITING_MAX = 2 * COMPUTING_MAX
"""How many parts run at the same time: those that only compute, and those that wait for other
processes. More would push one another out of the caches: with thirteen parts on two cores, the
tests took a fifth more processor time than with eight.
"""
LONGEST = frozenset({"stores with servers", "unit with servers", "other JVMs", "spark"})
"""The parts that take longest. They begin first."""
FOLDERS = {"unit": "unit", "streams": "streams", "state_backends": "stores"}
"""The name of the part of the tests in a folder; the innermost counts, and others are whole."""
BROKERS = frozenset({"kafka", "rabbitmq"})
"""The servers that start slowest: one part has all of their tests, so that each starts once."""
WAITING = frozenset({"service", "spark", "kills"})
"""The marks of tests that wait for other processes."""
NICE = 2
"""What is added to the nice value of parts that only compute: those that wait go first."""
STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn")
"""What Python says to an audit hook when a process is started."""
EXPECTED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def divide(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Return the tests of each part by its name. Each test is in one part."""
    parts: dict[str, list[pytest.Item]] = {}
    places: dict[Path, int] = {}
    for item in items:
        place = item.path.parent if item.path.parent.name in TOGETHER else item.path
        number = places.setdefault(place, len(places))
        parts.setdefault(part_of(item, number), []).append(item)
    return parts


def part_of(item: pytest.Item, number: int) -> str:
    """Return the name of the part of a test, by the number of its file or folder."""
    folder = ["whole", *(FOLDERS[name] for name in item.path.parts if name in FOLDERS)][-1]
    services = {mark.args[0] for mark in item.iter_markers("service")}
    if item.get_closest_marker("spark"):
        return "spark" if "spark" in getattr(item, "fixturenames", ()) else "other JVMs"
    if services & BROKERS:
        return "brokers"
    if "chromium" in services:
        return "whole with servers"  # which has the pages
    if services or item.get_closest_marker("kills"):
        return f"{'unit' if folder == 'streams' else folder} with servers"
    if item.get_closest_marker("integration"):
        return f"{folder} {number % PIECES}"
    # These share no server, and there are thousands of them; some wait for seconds.
    return f"quick {number % PIECES}"


def pytest_configure() -> None:
    """Let no library that the tests import make threads, which a fork would lose."""
    os.environ.update(ONE_THREAD)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Fork a process for each part and report what it says; in a part, run its tests."""
    if session.config.option.collectonly or session.testsfailed:
        return None  # pytest shows the tests, or what could not be collected
    parts = [Part(name, items) for name, items in divide(session.items).items()]
    parts.sort(key=lambda part: part.name not in LONGEST)
    running: dict[Connection, Part] = {}
    try:
        while parts or running:
            while part := take_next(parts, running):
                if part.fork() == 0:
                    for others in running:
                        others.close()
                    running.clear()
                    part.become(session)
                    return None
                running[part.reports] = part
            for part, data in messages(running):
                if data is None:
                    session.testsfailed += part.ended_early()
                else:
                    part.left -= data["when"] == "teardown"
                    report_one(session, data)
    finally:
        # Without the one that reads, a part that still runs ends with its next report.
        for connection, part in running.items():
            connection.close()
            part.finish()
    return True


def take_next(parts: list[Part], running: Mapping[Connection, Part]) -> Part | None:
    """Remove the first part that may begin, and return it; None if enough parts run."""
    for part in parts:
        like_it = sum(other.waits == part.waits for other in running.values())
        if like_it < (WAITING_MAX if part.waits else COMPUTING_MAX):
            parts.remove(part)
            return part
    return None


def messages(running: dict[Connection, Part]) -> Iterator[tuple[Part, dict[str, Any] | None]]:
    """Wait for reports and take them out of the pipes; None means that the part has ended."""
    for connection in wait(list(running)):
        assert isinstance(connection, Connection)
        try:
            yield running[connection], connection.recv()
        except EOFError:
            yield running.pop(connection), None


def report_one(session: pytest.Session, data: dict[str, Any]) -> None:
    """Let pytest report a test of a part as one of this process."""
    hook = session.config.hook
    report = hook.pytest_report_from_serializable(config=session.config, data=data)
    hook.pytest_runtest_logreport(report=report)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)


class Part:
    """Some of the tests, which run in a process of their own.

    Attributes:
        waits: Whether some of them wait for other processes.
        reports: Where that process sends what pytest reports of its tests, once it is forked.
        left: How many tests have not ended yet.
    """

    reports: Connection

    def __init__(self, name: str, items: list[pytest.Item]) -> None:
        self.name, self.left = name, len(items)
        self._items = items
        self._marks = {mark.name for item in items for mark in item.iter_markers()}
        self.waits = bool(self._marks & WAITING)

    def fork(self) -> int:
        """Fork its process, and return the number of that; 0 in that process itself."""
        self._printed: IO[bytes] = TemporaryFile()  # noqa: SIM115 - the parent reads it later
        sys.stdout.flush()
        sys.stderr.flush()
        assert_one_thread()
        receiving, sending = Pipe(duplex=False)
        self._pid = os.fork()
        self.reports = receiving if self._pid else sending
        (sending if self._pid else receiving).close()
        return self._pid

    def become(self, session: pytest.Session) -> None:
        """Make this process that of the part: what pytest itself prints goes into a file."""
        capture = session.config.pluginmanager.getplugin("capturemanager")
        assert capture is not None
        # What is captured is in files, whose positions the processes would share.
        capture.stop_global_capturing()
        for stream in (1, 2):
            os.dup2(self._printed.fileno(), stream)
        capture.start_global_capturing()
        capture.suspend_global_capture()
        for name in ONE_THREAD:
            del os.environ[name]
        session.items = self._items
        session.testscollected = len(self._items)
        session.testsfailed = 0  # of the parts before
        session.config.pluginmanager.register(Reporter(session.config, self.reports))
        if not self.waits:
            os.nice(NICE)
        if not self._marks & {"integration", "slow", *WAITING}:
            sys.addaudithook(refuse_processes)

    def ended_early(self) -> bool:
        """Wait for its end; if that came before its last test, print all it said, return True."""
        status = self.finish()
        if status in EXPECTED and not self.left:
            return False
        self._printed.seek(0)
        print(f"\nThe part {self.name!r} ended with status {status}; tests not run: {self.left}")
        print(self._printed.read().decode(errors="replace"))
        return True

    def finish(self) -> int:
        """Wait until it has ended, and return its exit status."""
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)


class Reporter:
    """Sends the reports of a part to the process that forked it."""

    def __init__(self, config: pytest.Config, reports: Connection) -> None:
        self._config = config
        self._reports = reports

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send one report."""
        hook = self._config.hook
        self._reports.send(hook.pytest_report_to_serializable(config=self._config, report=report))


def refuse_processes(event: str, arguments: tuple[Any, ...]) -> None:
    """Let no fast test start a process: one that does is marked as what it needs."""
    # psycopg looks for its library with ldconfig when it is imported.
    if event in STARTS and not (arguments and str(arguments[0]).endswith("ldconfig")):
        raise AssertionError(f"a fast test starts a process: {event} {arguments[:2]}")
