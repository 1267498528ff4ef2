"""Children that are killed at random moments, and the watcher of what they leave in the store."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.processes.flights_folds import folds
from tests.faults.processes.watcher import ROOT, Sample, Watcher

# Far above what a start takes on a busy machine: reached only by what hangs.
LIMIT_S = 300.0
TABLES = ("by_carrier_hour", "total")
# A campaign whose watcher saw nothing shows nothing. The processes wait for it so often.
SEEN_MIN = 5
# So many commits a process makes at the most before it is killed though its end is due: whoever
# kills it may get no time of the machine, and then would find it done with everything.
SPARE = 3


class Child:
    """A process that says what happens to it in JSON lines.

    Args:
        module: What it runs.
        arguments: Of its command line.
        held: Whether it waits after each commit until :meth:`allow` lets it make the next one.
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
        self._told = threading.Thread(target=self._read_errors, daemon=True)
        self._told.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait_for(self, event: str, times: int = 1) -> dict[str, Any]:
        """Wait until it says *event* for the n-th time from now, and return what it said."""
        deadline = time.monotonic() + LIMIT_S
        while times:
            said = self._next(deadline)
            if said is None:
                raise AssertionError(f"it ended before {event!r}: {self.story()}")
            times -= said["event"] == event
        return self.said[-1]

    def wait(self) -> int:
        """Wait until it ends, and return its status; it may take long, but not be silent."""
        while self._next(time.monotonic() + LIMIT_S) is not None:
            pass
        return self._process.wait(LIMIT_S)

    def allow(self, commits: int) -> None:
        """Let it make so many commits more, after which it waits again."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("+" * commits)
            self._process.stdin.flush()

    def release(self) -> None:
        """Let it go on to its end."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def finish(self) -> None:
        """Let it go on and wait until it ends, which must be well."""
        self.release()
        self.end_with(0)

    def end(self) -> None:
        """Ask it to end, which it must do well; one that is done may die of the question."""
        self.release()
        self.signal(signal.SIGTERM)
        status = self.wait()
        done = bool(self.said) and self.said[-1]["event"] == "done"
        assert status == 0 or (done and status == -signal.SIGTERM), self.story()

    def end_with(self, *statuses: int) -> int:
        """Wait until it ends, with one of these statuses; return which."""
        status = self.wait()
        assert status in statuses, self.story()
        return status

    def die(self) -> None:
        """Wait until it kills itself."""
        self.end_with(-signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, but not to the processes that it started."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it as a crash does; a JVM that it started ends by itself."""
        self._process.kill()
        self._process.wait(LIMIT_S)

    def clean_up(self) -> None:
        """Leave nothing behind, whatever happened."""
        self.release()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self._process.wait(LIMIT_S)

    def _next(self, deadline: float) -> dict[str, Any] | None:
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"it hangs: {self.story()}") from None
        if line is None:
            self._lines.put(None)  # for whoever asks again
            return None
        self.said.append(json.loads(line))
        return self.said[-1]

    def story(self) -> str:
        """Return how it stands, for an error: what it said, and if it runs where, which ends it."""
        if self.runs:
            self.signal(signal.SIGABRT)
            self.signal(signal.SIGCONT)  # it may be frozen
            self._process.wait(LIMIT_S)
            self._told.join(LIMIT_S)
        status = self._process.poll()
        return f"status {status}; said {self.said[-5:]}; {''.join(self._errors[-200:])}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # Spark's JVM has something to say as well
                self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)


@dataclass(slots=True)
class Campaign:
    """One topology of flights that is killed again and again.

    Attributes:
        input: Folder of the files.
        state: URL of the store.
        arguments: Further ones of the process.
        name: Id of the topology.
        batch_bytes: Size of a batch.
        samples: How many samples were judged.
        watcher: Who takes them.
    """

    input: Path
    state: str
    arguments: Sequence[str]
    name: str = "flights"
    batch_bytes: int = 320_000
    children: list[Child] = field(default_factory=list)
    samples: int = 0
    watcher: Watcher | None = None

    def start(self, *more: str, held: bool = False) -> Child:
        """Start the process; *held* as with every child."""
        child = Child(
            "tests.faults.processes.flights_process",
            *("--input", str(self.input), "--state", self.state, "--name", self.name),
            *("--batch-bytes", str(self.batch_bytes), *self.arguments, *more),
            held=held,
        )
        self.children.append(child)
        return child

    def kill_and_finish(self, kills: int, seed: int, commits_max: int = 8) -> None:
        """Kill it at random moments, each time after another start, and let it end at last."""
        chance = Random(seed)
        for _ in range(kills):
            child = self.start(held=True)
            commits, pause_s = chance.randrange(commits_max), chance.uniform(0.0, 0.05)
            child.allow(commits + SPARE - 1)  # it does not ask for the first one
            child.wait_for("running")
            if commits:
                child.wait_for("committed", commits)
            else:  # somewhere between the election and the first commit
                pause_s *= 5
            time.sleep(pause_s)
            child.kill()
        self.finish_seen()

    def finish_seen(self) -> Child:
        """Start the process and let it end, seen by the watcher as often as it has to."""
        child = self.start(held=True)
        self.show(child)
        child.finish()
        return child

    def show(self, child: Child) -> None:
        """Let a held process, which has not committed yet, do so until enough was seen of it."""
        assert self.watcher is not None
        for at in range(SEEN_MIN):
            if at:
                child.allow(1)
            child.wait_for("committed")
            self.watcher.look()

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its states, in the order of their commits."""
        return tuple(f"{self.name}_{table}" for table in TABLES)

    @contextmanager
    def watched(self, seen_min: int = SEEN_MIN) -> Iterator[None]:
        """Sample the store in another process meanwhile; then judge every sample."""
        watcher = self.watcher = Watcher(self.state, self.tables, LIMIT_S)
        try:
            yield
            watcher.look()  # at the end
        except AssertionError as error:
            for child in self.children:
                if child.runs:
                    error.add_note(f"beside it {child.pid} ran: {child.story()}")
            raise
        finally:
            watcher.end()
            for child in self.children:
                child.clean_up()
        self.judge(watcher.samples, seen_min)

    def judge(self, samples: list[Sample], seen_min: int) -> None:
        """Check that each sample is the fold of the first k txids, and that k never goes back."""
        self.samples += len(samples)
        expected = folds(self.input, {rows for _, _, rows, _ in samples})
        rows_by_txid: dict[int, int] = {0: 0}
        last = dict.fromkeys(self.tables, 0)
        for table, txid, rows, digest in samples:
            assert rows_by_txid.setdefault(txid, rows) == rows, f"txid {txid} changed in {table}"
            assert digest == expected[rows][table.removeprefix(f"{self.name}_")], (table, txid)
            assert txid >= last[table], f"{table} went back from {last[table]} to {txid}"
            last[table] = txid
            # The tables are read in the order in which they are written.
            first, second = self.tables
            assert table == first or last[second] >= last[first] - 1
        for txid, rows in self._told():
            if txid in rows_by_txid and txid - 1 in rows_by_txid:
                assert rows_by_txid[txid] - rows_by_txid[txid - 1] == rows
        assert len(rows_by_txid) > seen_min, f"samples of {len(rows_by_txid)} txids alone"
        assert rows_by_txid[max(rows_by_txid)] == max(expected)
        assert set(last.values()) == {max(rows_by_txid)}

    def _told(self) -> Iterator[tuple[int, int]]:
        """Yield how many flights each txid has, as the children told."""
        for child in self.children:
            for said in child.said:
                if said["event"] == "committed":
                    yield said["txid"], said["rows"]
