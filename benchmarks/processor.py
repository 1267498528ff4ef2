"""Where the processor time of a run goes: by kind of work, and by function.

Threads are told apart by their names. A worker thread of the driver does many kinds of work, so the
few functions that plan, commit and write are timed where they are called, with the processor time
of their thread. It needs Linux, which tells the time of each thread.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from txtopo.ensemble.journal import Journal
from txtopo.runtime import commit_phase
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.runtime.commit_phase import CommitPhase
from txtopo.runtime.handle import RunHandle
from txtopo.runtime.jobs import Jobs
from txtopo.runtime.spout_planner import SpoutPlanner

KINDS = ("loop", "planning", "jobs", "merge", "commit", "store", "zookeeper", "other", "workers")
"""``merge`` is the merge of partial results, and ``commit`` a commit phase without that and its
``store``; ``zookeeper`` is the client, with its threads; ``other`` is the rest of the driver's
Python; ``workers`` are Python processes below it."""

TIMED: tuple[tuple[Any, str, str], ...] = (
    (BatchPlanner, "plan", "planning"),
    (SpoutPlanner, "cleanup_before", "planning"),
    (Jobs, "_process", "jobs"),
    (CommitPhase, "run", "commit"),
    (commit_phase, "merge_partials", "merge"),
    (commit_phase, "commit_resolved", "store"),
    (Journal, "store_batches", "zookeeper"),
    (Journal, "advance", "zookeeper"),
)
FAMILIES = ("driver", "driver's JVM", "executors' JVMs", "workers")
KAZOO = ("(zk_loop)", "(_thread_worker)")
JOIN_S = 5.0


class Processor:
    """Measures the processor time of one run, until its ``stop`` is called.

    Args:
        topology_id: Id of the topology, which its threads are named for.

    Attributes:
        took_s: Seconds by kind of work.
    """

    def __init__(self, topology_id: str) -> None:
        self.took_s: dict[str, float] = {}
        self._loop = f"txtopo-{topology_id}"
        self._timed_s: dict[str, float] = defaultdict(float)
        self._inside = threading.local()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure meanwhile."""
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in TIMED]
        stop = RunHandle.stop

        def stopped(run: Any, timeout: float | None = None) -> None:
            self.took_s = self.read()  # while its threads live
            stop(run, timeout)

        for owner, name, kind in TIMED:
            setattr(owner, name, self._timing(getattr(owner, name), kind))
        setattr(RunHandle, "stop", stopped)  # noqa: B010 - mypy refuses an assignment
        self._before_s, self._workers_s = time.process_time(), workers_s()
        try:
            yield
        finally:
            setattr(RunHandle, "stop", stop)  # noqa: B010
            for owner, name, function in before:
                setattr(owner, name, function)

    def read(self) -> dict[str, float]:
        """Return the seconds by kind of work so far."""
        threads, took_s = thread_times_s(), defaultdict(float, self._timed_s)
        took_s["loop"] = threads.get(self._loop, 0.0)
        took_s["zookeeper"] += sum(s for name, s in threads.items() if name.endswith(KAZOO))
        took_s["other"] = time.process_time() - self._before_s - sum(took_s.values())
        took_s["workers"] = workers_s() - self._workers_s
        return {kind: took_s[kind] for kind in KINDS}

    def _timing(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started_s, outer_s = time.thread_time(), getattr(self._inside, "s", 0.0)
            self._inside.s = 0.0
            try:
                return function(*args, **kwargs)
            finally:
                all_s = time.thread_time() - started_s
                self._timed_s[kind] += all_s - self._inside.s
                self._inside.s = outer_s + all_s

        return timed


def thread_times_s() -> dict[str, float]:
    """Return the processor time of the threads of this process so far, by their name."""
    found: dict[str, float] = defaultdict(float)
    for thread in threading.enumerate():
        try:
            stat = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text()
        except OSError:
            continue  # it has ended meanwhile
        found[thread.name] += int(stat.split()[0]) / 1e9
    return found


def workers_s() -> float:
    """Return the processor time of the Python processes below this one that live."""
    return sum(took_s(pid) for pid in families()["workers"])


def families() -> dict[str, list[int]]:
    """Return the ids of this process and of those below it, by what they are.

    They are the driver, its JVM, the executors' JVMs (of a ``local-cluster``), and workers, which
    are the Python processes.
    """
    found: dict[str, list[int]] = {name: [] for name in FAMILIES}
    processes: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = _stat(int(folder.name))[1]
            processes[int(folder.name)] = int(parent), (folder / "cmdline").read_text()
        except OSError:
            continue  # it has ended meanwhile
    below = {os.getpid()}
    while more := {pid for pid, each in processes.items() if each[0] in below} - below:
        below |= more
    for pid in below:
        program, _, arguments = processes[pid][1].partition("\0")
        if pid == os.getpid():
            found["driver"].append(pid)
        elif "CoarseGrainedExecutorBackend" in arguments:
            found["executors' JVMs"].append(pid)
        elif program.endswith("java"):
            found["driver's JVM"].append(pid)
        elif "python" in program:
            found["workers"].append(pid)
    return found


def took_s(pid: int) -> float:
    """Return the processor time of a process so far, with that of its children that have ended."""
    try:
        ticks = _stat(pid)[11:15]
    except OSError:
        return 0.0  # it has ended meanwhile
    return sum(int(each) for each in ticks) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """Return the fields of a process after its name, which may have blanks."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def told_by_kind(took_s: dict[str, float], txids: int) -> str | None:
    """Return microseconds a txid by kind; None if nothing was measured."""
    if not took_s:
        return None
    each = {kind: f"{1e6 * s / txids:.0f}" for kind, s in took_s.items()}
    workers = each.pop("workers")
    driver = sum(s for kind, s in took_s.items() if kind != "workers")
    kinds = ", ".join(f"{kind} {us}" for kind, us in each.items())
    return f"µs per txid: driver {1e6 * driver / txids:.0f} ({kinds}), workers {workers}"


@contextmanager
def functions(most: int) -> Iterator[None]:
    """Print the functions with the most processor time of their own; nothing for 0."""
    if not most:
        yield
        return
    profiles: list[tuple[threading.Thread, cProfile.Profile]] = []
    run = threading.Thread.run

    def profiled(thread: threading.Thread) -> None:
        profile = cProfile.Profile(time.thread_time)
        profiles.append((thread, profile))
        profile.runcall(run, thread)

    setattr(threading.Thread, "run", profiled)  # noqa: B010 - mypy refuses an assignment
    try:
        yield
    finally:
        setattr(threading.Thread, "run", run)  # noqa: B010
    text = StringIO()
    stats = pstats.Stats(stream=text)
    for thread, profile in profiles:
        thread.join(JOIN_S)
        if not thread.is_alive():
            stats.add(profile)
    stats.sort_stats("tottime").print_stats(most)
    print(text.getvalue())
