"""``python -m benchmarks.reliable``: sentences split and counted at least once, and their latency.

All ways take turns on one session of two slots: bolts that ack by themselves and by hand, with
ackers and without. The processor time of driver, workers and JVM is measured beside the wall time:
on a machine that has something else to do it says more.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.report import machine
from txtopo import (
    BasicBolt,
    BatchOutputCollector,
    Bolt,
    Config,
    Fields,
    OutputCollector,
    ReliableTopology,
    Spout,
    SpoutOutputCollector,
    TaskContext,
    TopologyBuilder,
    Tuple,
    open_session,
)
from txtopo.spouts import MemorySpout
from txtopo.testing import Shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SENTENCE = Fields("sentence string")
SENTENCES = 10_000
SENTENCE_WORDS = 10
KEYS = 5_000
PENDING_MAX = 100_000
RATE = 1_000
LATENCY_S = 20
WARM_UP_S = 3


class Split(BasicBolt):
    """Emits the words of a sentence."""

    output_fields = Fields("word string")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        emit = collector.emit
        for word in tuple.values[0].split():
            emit((word,))


class Count(BasicBolt):
    """Counts words."""

    def prepare(self, config: Config, context: TaskContext) -> None:
        self.counts = Counter[str]()

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self.counts[tuple.values[0]] += 1


class SplitByHand(Bolt):
    """As ``Split``, but anchors and acks."""

    output_fields = Fields("word string")

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self.collector = collector

    def execute(self, tuple: Tuple) -> None:
        emit = self.collector.emit
        for word in tuple.values[0].split():
            emit((word,), tuple)
        self.collector.ack(tuple)


class CountByHand(Bolt):
    """As ``Count``, but acks."""

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self.collector, self.counts = collector, Counter[str]()

    def execute(self, tuple: Tuple) -> None:
        self.counts[tuple.values[0]] += 1
        self.collector.ack(tuple)


class Latencies(Shared):
    """Seconds from emit to ack, as the spout sees them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []


class Paced(Spout):
    """Emits so many sentences a second."""

    output_fields = SENTENCE

    def __init__(self, rows: list[tuple[str]], latencies: Latencies) -> None:
        self.rows, self.latencies = rows, latencies

    def open(self, config: Config, context: TaskContext, collector: SpoutOutputCollector) -> None:
        self.collector, self.next = collector, 0
        self.began_s = time.monotonic()
        self.emitted_s: dict[int, float] = {}

    def next_tuple(self) -> None:
        now_s = time.monotonic()
        due = min(int((now_s - self.began_s) * RATE), LATENCY_S * RATE)
        if self.next < due:
            self.emitted_s[self.next] = now_s
            self.collector.emit(self.rows[self.next % len(self.rows)], self.next)
            self.next += 1

    def ack(self, message_id: Any) -> None:
        seconds = time.monotonic() - self.emitted_s.pop(message_id)
        if message_id >= WARM_UP_S * RATE:
            self.latencies.seconds.append(seconds)

    def fail(self, message_id: Any) -> None:
        raise RuntimeError("nothing fails here")


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    rows = sentences()
    spark, _ = open_session(master="local[2]", app_name="txtopo-benchmarks")
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}; {arguments.sentences:,} sentences")
    walls: dict[tuple[str, int], list[float]] = defaultdict(list)
    try:
        measure(spark, rows, len(rows), by_hand=False, ackers=1)
        for number in range(arguments.runs):
            for kind in ("basic", "by hand"):
                for ackers in (1, 0):
                    wall_s, cpu = measure(
                        spark, rows, arguments.sentences, by_hand=kind != "basic", ackers=ackers
                    )
                    walls[kind, ackers].append(wall_s)
                    print(
                        f"run {number + 1} {kind}, ackers={ackers}: {wall_s:.1f} s, "
                        f"{arguments.sentences / wall_s:,.0f}/s; processor time {cpu}",
                        flush=True,
                    )
        for kind in ("basic", "by hand"):
            cost = median(a / b for a, b in zip(walls[kind, 1], walls[kind, 0], strict=True)) - 1
            rate = arguments.sentences / median(walls[kind, 1])
            print(f"{kind}: {rate:,.0f} sentences/s acked; acking costs {cost:.0%}")
        latency(spark, rows)
    finally:
        spark.stop()


def measure(
    spark: SparkSession, rows: list[tuple[str]], count: int, *, by_hand: bool, ackers: int
) -> tuple[float, str]:
    """Split and count so many sentences; return seconds, and processor seconds by process."""
    spout = MemorySpout(rows, SENTENCE, count // len(rows))
    config = Config(
        carrier="resident", max_spout_pending=PENDING_MAX, ackers=ackers, message_timeout_s=600
    )
    with topology(spout, by_hand=by_hand).start(spark, config) as run:
        while run.status == "starting":
            time.sleep(0.01)
        started_s, before = time.monotonic(), processor_s()
        run.process_all_available()
        wall_s, after = time.monotonic() - started_s, processor_s()
        progress = run.last_progress
    assert progress is not None
    assert progress.executed == {"split": count, "count": count * SENTENCE_WORDS}
    spent = ", ".join(f"{name} {after[name] - before.get(name, 0):.1f}" for name in sorted(after))
    return wall_s, spent


def latency(spark: SparkSession, rows: list[tuple[str]]) -> None:
    """Print how long a sentence takes from emit to ack at a fixed rate."""
    latencies = Latencies()
    config = Config(carrier="resident")
    with topology(Paced(rows, latencies), by_hand=False).start(spark, config) as run:
        while len(latencies.seconds) < (LATENCY_S - WARM_UP_S) * RATE and run.is_active:
            time.sleep(0.1)
    p50, p99 = np.percentile(latencies.seconds, (50, 99)) * 1000
    print(f"latency at {RATE:,}/s: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def topology(spout: Spout, *, by_hand: bool) -> ReliableTopology:
    """Return the word count."""
    builder = TopologyBuilder("sentences")
    builder.set_spout("sentences", spout)
    split = builder.set_bolt("split", SplitByHand() if by_hand else Split(), 2)
    split.shuffle_grouping("sentences")
    count = builder.set_bolt("count", CountByHand() if by_hand else Count(), 2)
    count.fields_grouping("split", "word")
    return builder.build_topology()


def sentences() -> list[tuple[str]]:
    """Return some sentences."""
    chance = random.Random(1)
    words = [f"word{number}" for number in range(KEYS)]
    return [(" ".join(chance.choices(words, k=SENTENCE_WORDS)),) for _ in range(SENTENCES)]


def processor_s() -> dict[str, float]:
    """Return the processor time of this process and of those that it started."""
    spent: dict[str, float] = defaultdict(float)
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
            name = path.with_name("comm").read_text().strip()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(words[1]), name, int(words[11]) + int(words[12])
    for process, (_, name, ticks) in parents.items():
        above = process
        while above in parents and above != os.getpid():
            above = parents[above][0]
        if above == os.getpid():
            who = "driver" if process == above else "JVM" if name == "java" else "workers"
            spent[who] += ticks / os.sysconf("SC_CLK_TCK")
    return spent


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliable", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each; default 3")
    parser.add_argument("--sentences", type=int, default=1_000_000, help="default 1,000,000")
    return parser.parse_args()


if __name__ == "__main__":
    main()
