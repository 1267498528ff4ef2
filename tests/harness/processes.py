"""Start a child process, wait for what it says, let it continue, kill it and collect the rest."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.harness.polling import wait_until

ROOT = Path(__file__).parents[2]
"""The root of the repository, where children run."""
SILENCE_S_MAX = 300.0
"""The longest silence of a child, far above what a start takes on a busy machine."""


def say(event: str, **details: object) -> None:
    """Print one line that the parent reads as an event; in one write, since threads may meet."""
    print(json.dumps({"event": event, **details}) + "\n", end="", flush=True)


class Child:
    """A process that runs a module and says what happens to it; a context manager that ends it.

    The child says it with :func:`say`. Other lines of its output are ignored: Spark's JVM prints
    there as well.

    Args:
        module: What it runs.
        arguments: Of its command line.
        held: Whether it has a pipe as its standard input, through which :meth:`write` and
            :meth:`allow` let it continue.

    Attributes:
        said: The events that were read so far.
    """

    def __init__(self, module: str, *arguments: str, held: bool = False) -> None:
        self.said: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE if held else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        self._error_reader = threading.Thread(target=self._read_errors, daemon=True)
        self._error_reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return the events of one kind that were read so far."""
        return [said for said in self.said if said["event"] == event]

    def next_event(self, limit_s: float = SILENCE_S_MAX) -> dict[str, Any] | None:
        """Return the next event; None if the child has ended.

        Raises:
            AssertionError: If the child says nothing for so long.
        """
        try:
            line = self._lines.get(timeout=max(0.0, limit_s))
        except queue.Empty:
            raise AssertionError(f"it hangs: {self.story()}") from None
        if line is None:
            self._lines.put(None)  # for the next call
            return None
        self.said.append(json.loads(line))
        return self.said[-1]

    def read_available(self) -> None:
        """Read all events that are there, and do not wait."""
        while not self._lines.empty() and self.next_event() is not None:
            pass

    def wait_for(self, event: str, times: int = 1) -> dict[str, Any]:
        """Wait until it says *event* for the n-th time from now, and return the last of them."""
        deadline_s = time.monotonic() + SILENCE_S_MAX
        while times:
            said = self.next_event(deadline_s - time.monotonic())
            if said is None:
                raise AssertionError(f"it ended before {event!r}: {self.story()}")
            times -= said["event"] == event
        return self.said[-1]

    def wait_until_stopped(self) -> str:
        """Wait until it has stopped at a durable step, and return the name of the step."""
        step = str(self.wait_for("stopped")["step"])
        wait_until(lambda: state_of(self.pid) == "T", f"it has stopped at {step}")
        return step

    def resume(self) -> None:
        """Let it continue, which has stopped."""
        self.signal(signal.SIGCONT)

    def wait(self) -> int:
        """Read everything until it ends, and return its status."""
        while self.next_event() is not None:
            pass
        return self._process.wait(SILENCE_S_MAX)

    def write(self, text: str) -> None:
        """Write to its standard input; a child that has ended does not mind."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(text)
            self._process.stdin.flush()

    def allow(self, steps: int) -> None:
        """Let a child that reads one byte before each step make this many steps more."""
        self.write("+" * steps)

    def release(self) -> None:
        """Close its standard input, so that it continues to its end."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def finish(self) -> None:
        """Release it and wait for its end, which must be a good one."""
        self.release()
        self.end_with(0)

    def end(self) -> None:
        """Ask it to end with SIGTERM, and check that it ends well.

        A child that has said "done" has no handler of the signal any more and may die of it.
        """
        self.release()
        self.signal(signal.SIGTERM)
        status = self.wait()
        done = bool(self.said) and self.said[-1]["event"] == "done"
        assert status == 0 or (done and status == -signal.SIGTERM), self.story()

    def end_with(self, *statuses: int) -> int:
        """Wait for its end, check that its status is one of these, and return it."""
        status = self.wait()
        assert status in statuses, self.story()
        return status

    def die(self) -> None:
        """Wait until it has killed itself."""
        self.end_with(-signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it, but not to the processes that it has started."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it as a crash does; a JVM that it has started ends by itself."""
        self._process.kill()
        self._process.wait(SILENCE_S_MAX)

    def clean_up(self) -> None:
        """Kill it and all processes that it has started."""
        self.release()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self._process.wait(SILENCE_S_MAX)

    def story(self) -> str:
        """Return its state for an error message: its last events, and what it wrote as errors.

        A child that still runs is ended, so that Python prints where its threads are.
        """
        if self.runs:
            self.signal(signal.SIGABRT)
            self.signal(signal.SIGCONT)  # it may be frozen
            self._process.wait(SILENCE_S_MAX)
        status = self._process.poll()
        if status is not None:
            self._error_reader.join(SILENCE_S_MAX)  # what it wrote last is still on its way
        return f"status {status}; said {self.said[-5:]}; {''.join(self._errors[-200:])}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.clean_up()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # A line that a kill has cut short is no event.
            if line.startswith("{") and line.endswith("}\n"):
                self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)


def run_child(module: str, *arguments: str) -> Child:
    """Run a module to its good end, and return the child with all that it said."""
    with Child(module, *arguments) as child:
        child.finish()
    return child


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(_fields_of(pid)[1])


def state_of(pid: int) -> str:
    """Return the state of a process: ``T`` if it is stopped, ``Z`` for a zombie."""
    return _fields_of(pid)[0]


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return state_of(pid) != "Z"
    except OSError:
        return False


def _fields_of(pid: int) -> Sequence[str]:
    """Return the fields of ``/proc/PID/stat`` after the name: the state, the parent, and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
