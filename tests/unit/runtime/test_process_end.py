"""The end of a process: threads that are at work are not torn down inside a library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

LIMIT_S = 60.0


def ended(tmp_path: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    head = ("import atexit, threading, time", "from txtopo.runtime import scheduler as threads")
    made = ("from txtopo.runtime.scheduler import ThreadScheduler", "begun = threading.Event()")
    script.write_text("\n".join([*head, *made, *lines]))
    return subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


WORK = """
threads.EXIT_TIMEOUT_S = 60
def work():
    begun.set()
    while not threads.WORK_IN_PROGRESS._ended:  # until the process has come to its end
        time.sleep(0.01)
    time.sleep(0.5)
    print("work done", flush=True)
"""


def test_the_end_waits_for_a_work_that_was_abandoned(tmp_path: Path) -> None:
    process = ended(
        tmp_path,
        WORK,
        "ThreadScheduler('run').submit(work, lambda _: None)",
        "begun.wait()",
    )
    assert (process.returncode, process.stdout) == (0, "work done\n"), process.stderr


def test_and_for_work_of_a_serial_executor_which_comes_before_clients_are_closed(
    tmp_path: Path,
) -> None:
    process = ended(
        tmp_path,
        WORK,
        "atexit.register(print, 'clients closed')",
        "executor = ThreadScheduler('run').serial_executor('spout')",
        "executor.submit(work, lambda _: None)",
        "executor.submit(lambda: print('too late', flush=True), lambda _: None)",
        "begun.wait()",
    )
    expected = "work done\nclients closed\n"
    assert (process.returncode, process.stdout) == (0, expected), process.stderr


def test_a_work_that_hangs_keeps_no_process(tmp_path: Path) -> None:
    process = ended(
        tmp_path,
        "threads.EXIT_TIMEOUT_S = 0.2",
        "def hang():\n    begun.set()\n    threading.Event().wait()",
        "ThreadScheduler('run').submit(hang, lambda _: None)",
        "begun.wait()",
    )
    assert process.returncode == 0
    assert "the process ends while 1 calls hang" in process.stderr


@pytest.mark.parametrize(
    "begin",
    [
        "ThreadScheduler('run').submit_lasting(wait, lambda _: None)",
        "ThreadScheduler('run').lasting_executor('driver-socket').submit(wait, lambda _: None)",
    ],
)
def test_a_work_that_lasts_as_long_as_the_run_is_not_waited_for(begin: str, tmp_path: Path) -> None:
    """The jobs of resident slots are such: they end when the process does."""
    process = ended(
        tmp_path,
        f"threads.EXIT_TIMEOUT_S = {LIMIT_S}",
        "def wait():\n    begun.set()\n    threading.Event().wait()",
        begin,
        "begun.wait()",
    )
    assert (process.returncode, process.stderr) == (0, "")


def test_what_is_asked_at_the_very_end_is_answered(tmp_path: Path) -> None:
    """A run that is stopped by a handler of the end, after the wait for works, must not hang."""
    process = ended(
        tmp_path,
        "from concurrent.futures import Future",
        "told = Future()",
        "scheduler = ThreadScheduler('run')",
        "atexit.unregister(threads.WORK_IN_PROGRESS.end)",
        "def ask():",
        "    scheduler.submit(print, told.set_result)",
        "    print(repr(told.result(30).exception()), flush=True)",
        "atexit.register(ask)",
        "scheduler.start(lambda: None, print)",
        "threads.await_works_at_exit()",
    )
    assert process.stdout == "ProcessEnds('the process ends')\n", process.stderr


def test_the_child_of_a_fork_does_not_wait_for_the_works_of_its_parent(tmp_path: Path) -> None:
    process = ended(
        tmp_path,
        "import os, sys",
        f"threads.EXIT_TIMEOUT_S = {LIMIT_S}",
        "go = threading.Event()",
        "def work():\n    begun.set()\n    go.wait()",
        "ThreadScheduler('run').submit(work, lambda _: None)",
        "begun.wait()",
        "if (child := os.fork()) == 0:\n    sys.exit(7)",
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)",
        "go.set()",
    )
    assert (process.returncode, process.stdout) == (0, "7\n"), process.stderr
