"""``python -m benchmarks.memory``: the memory of driver and workers over a source 100 times larger.

The files of W2 are linked again and again under new names. While txtopo counts them, the resident
memory of every process is read each second. It prints medians for each tenth of the run. A JVM
keeps what it once took from the system, up to its -Xmx, so its heap is judged by what is live in it
after a collection.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.data import Source, default_folder, prepare
from benchmarks.report import machine
from benchmarks.store import TABLE, check, fresh_database
from benchmarks.topology import run_topology
from benchmarks.workloads import WORKLOADS
from tests.harness.servers.postgresql import PostgresServer
from txtopo import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERIOD_S = 1.0
# A full collection takes the JVM 0.2 s.
COLLECTION_PERIOD_S = 20.0
# The last tenth may have so much more than the one after the first fifth, when all caches are warm.
GROWTH_MAX = 1.2
ROLES = ("driver python", "driver jvm live heap", "workers")
SHOWN = (*ROLES, "driver jvm resident")


def main() -> None:
    """Measure and print; exit status 1 if memory grew."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--times", type=int, default=100, help="how often the words come")
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder of the files")
    arguments = parser.parse_args()
    workload = next(w for w in WORKLOADS if w.name == "W2")
    source = prepare(workload, arguments.data)
    times = arguments.times
    workload = replace(workload, words=workload.words * times, batches=workload.batches * times)
    spark, _ = open_session(app_name="txtopo-memory")
    sampler = Sampler(partial(live_heap_mb, spark))
    with (
        tempfile.TemporaryDirectory(prefix="txtopo-memory-") as folder,
        PostgresServer() as server,
        fresh_database(server) as url,
    ):
        repeated = repeat(source, times, Path(folder))
        sampler.start()
        run_topology(spark, workload, repeated, url)
        sampler.stop()
        check(url, workload, repeated, TABLE)
    spark.stop()
    print(f"{machine()}; {workload.words:,} words in {workload.batches} batches\n")
    print(sampler.table())
    if sampler.grown():
        raise SystemExit(f"memory grew: {', '.join(sampler.grown())}")


def repeat(source: Source, times: int, folder: Path) -> Source:
    """Link the files of a source again and again, under names in order."""
    batches = []
    for time in range(times):
        for number, files in enumerate(source.batches):
            batch = []
            for at, file in enumerate(files):
                link = folder / f"part-{time:05}-{number:05}-{at}.parquet"
                link.symlink_to(file)
                batch.append(str(link))
            batches.append(batch)
    return Source(folder, batches, {word: count * times for word, count in source.expected.items()})


@dataclass
class Sampler:
    """Reads the resident memory of this process and all below it, in a thread."""

    live_heap_mb: Callable[[], float]
    samples: list[dict[str, float]] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        threading.Thread(target=self._sample, daemon=True).start()

    def stop(self) -> None:
        self.done.set()

    def table(self) -> str:
        """Return medians in MB for each tenth, as a Markdown table."""
        lines = ["| tenth | " + " | ".join(f"{role} MB" for role in SHOWN) + " |"]
        lines.append("|---" * (len(SHOWN) + 1) + "|")
        for number, tenth in enumerate(self._tenths(), 1):
            cells = " | ".join(f"{tenth[role]:.0f}" for role in SHOWN)
            lines.append(f"| {number} | {cells} |")
        return "\n".join(lines)

    def grown(self) -> list[str]:
        """Return which processes have more memory at the end than when they were warm."""
        tenths = self._tenths()
        return [role for role in ROLES if tenths[-1][role] > GROWTH_MAX * tenths[2][role]]

    def _tenths(self) -> list[dict[str, float]]:
        count = len(self.samples)
        assert count >= 10, "too short a run; raise --times"
        tenths = [self.samples[at * count // 10 : (at + 1) * count // 10] for at in range(10)]
        return [{role: median(s[role] for s in tenth) for role in SHOWN} for tenth in tenths]

    def _sample(self) -> None:
        every = round(COLLECTION_PERIOD_S / PERIOD_S)
        live_mb = 0.0
        while not self.done.wait(PERIOD_S):
            if len(self.samples) % every == 0:
                live_mb = self.live_heap_mb()
            self.samples.append({**memory_mb(), "driver jvm live heap": live_mb})


def live_heap_mb(spark: SparkSession) -> float:
    """Return what is left in the driver's heap after a collection."""
    jvm = spark._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
    return float(heap.getUsed()) / 2**20


def memory_mb() -> dict[str, float]:
    """Return the resident memory of this process tree by role, without PostgreSQL's."""
    memory: dict[str, float] = defaultdict(float)
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children[int(fields[1])].append(int(path.parent.name))
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        waiting += children[process]
        memory[_role(process)] += _resident_mb(process)
    return dict(memory)


def _role(process: int) -> str:
    if process == os.getpid():
        return "driver python"
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return "gone"
    return "driver jvm resident" if b"java" in command.split(b"\0")[0] else "workers"


def _resident_mb(process: int) -> float:
    """Return its proportional share: forked workers have most of their pages in common."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
