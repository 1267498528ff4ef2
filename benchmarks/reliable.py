"""``python -m benchmarks.reliable``: sentences split and counted at least once, and their latency.

All ways take turns on one session of two cores: bolts that ack by themselves and by hand, with
ackers and without, in one slot and in two, with a core each, and with as many spout tasks. The
processor time of driver, workers and JVM is measured beside the wall time: on a machine that has
something else to do it says more. ``--wire`` counts the bytes of acks instead, without Spark.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import numpy as np

from benchmarks.report import machine
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    BatchOutputCollector,
    Bolt,
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
from txtopo.config import AnyConfig
from txtopo.reliable.acking import Ackers
from txtopo.reliable.anchoring.answers import TreeAnswers
from txtopo.reliable.anchoring.sending import Sealed
from txtopo.spouts import MemorySpout

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

    def prepare(self, config: AnyConfig, context: TaskContext) -> None:
        self.counts = Counter[str]()

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self.counts[tuple.values[0]] += 1


class SplitByHand(Bolt):
    """As ``Split``, but anchors and acks."""

    output_fields = Fields("word string")

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self.collector = collector

    def execute(self, tuple: Tuple) -> None:
        emit = self.collector.emit
        for word in tuple.values[0].split():
            emit((word,), tuple)
        self.collector.ack(tuple)


class CountByHand(Bolt):
    """As ``Count``, but acks."""

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self.collector, self.counts = collector, Counter[str]()

    def execute(self, tuple: Tuple) -> None:
        self.counts[tuple.values[0]] += 1
        self.collector.ack(tuple)


class Paced(Spout):
    """Emits this many sentences a second."""

    output_fields = SENTENCE

    def __init__(self, rows: list[tuple[str]], path: str) -> None:
        self.rows, self.path = rows, path

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        self.collector, self.next = collector, 0
        self.began_s = time.monotonic()
        self.emitted_s: dict[int, float] = {}
        self.file = open(self.path, "w", buffering=1)  # noqa: SIM115 - as long as the task

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
            self.file.write(f"{seconds}\n")

    def fail(self, message_id: Any) -> None:
        raise RuntimeError("nothing fails here")

    def close(self) -> None:
        self.file.close()


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    rows = sentences()
    if arguments.wire:
        wire(rows)
        return
    spark, _ = open_session(master="local[2]", app_name="txtopo-benchmarks")
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}; {arguments.sentences:,} sentences")
    measured: dict[Way, list[Measured]] = defaultdict(list)
    ways = [Way(*each) for each in product((1, 2), ("basic", "by hand"), (True, False))]
    try:
        measure(spark, rows, len(rows), ways[0])
        for number in range(arguments.runs):
            for way in ways:
                took = measure(spark, rows, arguments.sentences, way)
                measured[way].append(took)
                print(f"run {number + 1} {way.name}: {took.text}", flush=True)
        for way in ways:
            rate, driver, all_ = (median(each) for each in zip(*measured[way], strict=True))
            print(
                f"{way.name}: {rate:,.0f} sentences/s; processor time a sentence: driver "
                f"{driver:.2f} µs, driver and workers {all_:.1f} µs"
            )
        latency(spark, rows)
    finally:
        spark.stop()


class Way(NamedTuple):
    """A way to process the sentences."""

    slots: int
    kind: str
    acked: bool

    @property
    def name(self) -> str:
        """It as text."""
        return f"slots={self.slots} {self.kind}, {'acked' if self.acked else 'not acked'}"


class Measured(NamedTuple):
    """What a run took: sentences a second, and µs of processor time a sentence."""

    rate: float
    driver_us: float
    all_us: float

    @property
    def text(self) -> str:
        """It as text."""
        return (
            f"{self.rate:,.0f}/s; processor time a sentence: driver {self.driver_us:.2f} µs, "
            f"driver and workers {self.all_us:.1f} µs"
        )


def measure(spark: SparkSession, rows: list[tuple[str]], count: int, way: Way) -> Measured:
    """Split and count this many sentences."""
    spout = MemorySpout(rows, SENTENCE, count // len(rows))
    config = AtLeastOnceConfig(
        carrier="resident",
        slots=way.slots,
        max_spout_pending=PENDING_MAX // way.slots,
        ackers=None if way.acked else 0,
        message_timeout_s=600,
    )
    made = topology(spout, by_hand=way.kind != "basic", spouts=way.slots)
    with made.start(spark, config) as run:
        while run.status == "starting":
            time.sleep(0.01)
        started_s, before = time.monotonic(), processor_s()
        run.process_all_available()
        wall_s, after = time.monotonic() - started_s, processor_s()
        progress = run.last_progress
    assert progress is not None
    assert progress.executed == {"split": count, "count": count * SENTENCE_WORDS}
    spent = {name: (after[name] - before.get(name, 0)) / count * 1e6 for name in after}
    return Measured(count / wall_s, spent["driver"], spent["driver"] + spent["workers"])


def latency(spark: SparkSession, rows: list[tuple[str]]) -> None:
    """Print how long a sentence takes from emit to ack at a fixed rate."""
    wanted = (LATENCY_S - WARM_UP_S) * RATE
    with TemporaryDirectory() as folder:
        path = Path(folder) / "seconds"
        made = topology(Paced(rows, str(path)), by_hand=False, spouts=1)
        with made.start(spark, AtLeastOnceConfig(carrier="resident", slots=2)) as run:
            while len(seconds := _lines(path)) < wanted and run.is_active:
                time.sleep(0.5)
    p50, p99 = np.percentile(seconds, (50, 99)) * 1000
    print(f"latency at {RATE:,}/s: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def _lines(path: Path) -> list[float]:
    return list(map(float, path.read_text().split("\n")[:-1])) if path.exists() else []


def wire(rows: list[tuple[str]]) -> None:
    """Print how many bytes of acks go from slot to slot, for each tree and each edge of it.

    The slots are in this process. Their records are those of Spark, but for the 16 bytes with the
    lives of both slots that go before each.
    """
    seal, sizes = TreeAnswers.seal, list[int]()

    def counted(answers: TreeAnswers, ackers: Ackers) -> Iterator[Sealed]:
        for each in seal(answers, ackers):
            sizes.append(len(each.record) + 16)
            yield each

    with patch.object(TreeAnswers, "seal", counted):
        for kind in ("basic", "by hand"):
            sizes.clear()
            made = topology(MemorySpout(rows, SENTENCE, 10), by_hand=kind != "basic", spouts=2)
            with made.start(None, AtLeastOnceConfig(carrier="local", slots=2)) as run:
                run.process_all_available()
                progress = run.last_progress
            assert progress is not None
            edges = sum(progress.acked_by.values())
            print(
                f"{kind}: {progress.acked:,} trees, {edges:,} edges, {len(sizes):,} messages; "
                f"{sum(sizes) / edges:.1f} bytes an edge, those within a slot included"
            )


def topology(spout: Spout, *, by_hand: bool, spouts: int) -> ReliableTopology:
    """Return the word count, with this many spout tasks."""
    builder = TopologyBuilder("sentences")
    builder.set_spout("sentences", spout, spouts)
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
    parser.add_argument("--wire", action="store_true", help="count the bytes of acks")
    parser.add_argument("--runs", type=int, default=3, help="runs of each; default 3")
    parser.add_argument("--sentences", type=int, default=1_000_000, help="default 1,000,000")
    return parser.parse_args()


if __name__ == "__main__":
    main()
