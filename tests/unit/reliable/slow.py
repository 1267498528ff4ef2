"""Bolts that take time, in simulated time: they let it pass themselves, in the middle of a work."""

from __future__ import annotations

from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Bolt,
    Fields,
    OutputCollector,
    TaskContext,
    TopologyBuilder,
    Tuple,
)
from txtopo.collector import BatchOutputCollector
from txtopo.reliable.collector import FlushTimer
from txtopo.spouts import MemorySpout
from txtopo.testing import FeederSpout, Shared, SimulatedCluster

WORD = Fields("word string")


class Always(FlushTimer):
    """A flush timer that never stops: something is due at every moment."""

    def __init__(self) -> None:
        super().__init__()
        self.left()

    def left(self) -> None:
        super().left()
        self.due, self.rows_max = True, 1


class BetweenTuples(FlushTimer):
    """The same, but what a tuple emits is not sealed before its end."""

    def __init__(self) -> None:
        super().__init__()
        self.due = True

    def left(self) -> None:
        super().left()
        self.due = True


class World(Shared):
    """What slow bolts share with the test: time, what was acked, and what they saw."""

    def __init__(self, seed: int = 0) -> None:
        self.cluster = SimulatedCluster(seed)
        self.feeder = FeederSpout(WORD)
        self.seen: list[str] = []
        self.dead: list[str] = []
        """What a slot that was killed worked on afterwards."""
        self.acked_before: list[int] = []
        """How many the spout knew to be acked, before each tuple."""

    def begin(self, word: str) -> None:
        """Take note of a tuple."""
        self.seen.append(word)
        self.acked_before.append(len(self.feeder.acked))

    def start(
        self, bolts: dict[str, tuple[Bolt | BasicBolt, int]], config: AtLeastOnceConfig
    ) -> None:
        """Start a line of bolts, each with its tasks. With two slots the spout is in slot 1."""
        builder = TopologyBuilder()
        builder.set_spout("idle", MemorySpout([], WORD))
        builder.set_spout("words", self.feeder)
        source = "words"
        for id, (bolt, tasks) in bolts.items():
            builder.set_bolt(id, bolt, tasks).shuffle_grouping(source)
            source = id
        self.cluster.start(builder.build_topology(), config)

    def feed(self, count: int) -> None:
        """Feed some words; their ids count up."""
        for id in range(count):
            self.feeder.feed([f"word {id}"], id)


class Slow(Bolt):
    """Takes so long for each tuple; may ask for more time meanwhile, every quarter of a second."""

    def __init__(self, world: World, work_s: float, *, resets: bool = False) -> None:
        self._world, self._work_s, self._resets = world, work_s, resets

    def prepare(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: OutputCollector
    ) -> None:
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        self._world.begin(tuple["word"])
        left_s = self._work_s
        while left_s > 0:
            self._world.cluster.advance(min(left_s, 0.25))
            left_s -= 0.25
            if self._resets:
                self._collector.reset_timeout(tuple)
        self._collector.ack(tuple)


class SlowBasic(BasicBolt):
    """Takes so long before and after it emits a tuple."""

    output_fields = WORD

    def __init__(self, world: World, work_s: float) -> None:
        self._world, self._work_s = world, work_s

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self._world.begin(tuple["word"])
        self._world.cluster.advance(self._work_s / 2)
        collector.emit([tuple["word"]])
        self._world.cluster.advance(self._work_s / 2)
