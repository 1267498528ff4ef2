"""At most once, at least once and exactly once on the same input, with the same kills.

Run it with ``python -m examples.guarantees``. No Spark, no service; a few seconds. Each run counts
20,000 messages. When certain messages are on their way, the worker that counts is killed, with
all that it has in memory, all that waits in front of it, and no chance to say anything more. At
most once and at least once count in a store outside, one write a message, in simulated time.
Exactly once is a transactional topology with a state: there a batch dies with the worker.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from txtopo import (
    BasicBolt,
    BatchOutputCollector,
    Config,
    Count,
    FailedException,
    Fields,
    PersistentAggregate,
    SpoutOutputCollector,
    TaskContext,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    Tuple,
    open_state,
)
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout
from txtopo.testing import Shared, SimulatedCluster

MESSAGES = 20_000
KILLED_AT = (2_345, 10_101, 18_018)
ROWS = [[number] for number in range(MESSAGES)]
FIELDS = Fields("number long")
BATCH = 1_000
BURST = 100


class World(Shared):
    """What is outside of the workers: a store, and what kills them.

    Attributes:
        counts: How often each message was counted.
        kills: How often a worker was killed.
        cluster: Where tuples are counted one by one.
    """

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.kills = 0
        self.cluster: SimulatedCluster | None = None

    def kills_at(self, number: int) -> bool:
        """Return whether the worker dies now that this message is on its way; once each."""
        if self.kills == len(KILLED_AT) or number < KILLED_AT[self.kills]:
            return False
        self.kills += 1
        return True


class Numbers(MemorySpout):
    """Has a hundred messages at a time, as a source has that is not behind."""

    def __init__(self, world: World) -> None:
        super().__init__(ROWS, FIELDS)
        self._world = world

    def open(self, config: Config, context: TaskContext, collector: SpoutOutputCollector) -> None:
        super().open(config, context, collector)
        self._left = BURST

    def next_tuple(self) -> None:
        if not self._left:
            self._left = BURST
            return
        self._left -= 1
        super().next_tuple()
        if self._world.kills_at(self._next):
            assert self._world.cluster is not None
            self._world.cluster.kill_slot(0)


class CountOutside(BasicBolt):
    """Counts in the store."""

    def __init__(self, world: World) -> None:
        self._world = world

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self._world.counts[tuple["number"]] += 1


class Dies(BasicBolt):
    """Hands messages on, and dies at the same ones, with the batch that it works at."""

    output_fields = FIELDS

    def __init__(self, world: World) -> None:
        self._world = world

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if self._world.kills_at(tuple["number"]):
            raise FailedException("killed")
        collector.emit([tuple["number"]])


@dataclass(frozen=True)
class Outcome:
    """What became of the messages.

    Attributes:
        kills: How often the worker was killed.
        lost: Messages that are not in the store.
        doubled: How often a message was counted again.
    """

    kills: int
    lost: int
    doubled: int

    @staticmethod
    def of(world: World, counts: Counter[int]) -> Outcome:
        """Compare a store with the input."""
        lost = sum(not counts[number] for number in range(MESSAGES))
        return Outcome(world.kills, lost, sum(counts.values()) - (MESSAGES - lost))


def by_tuple(config: Config) -> Outcome:
    """Count tuple by tuple, in a store that has no idea of transactions."""
    world, cluster = World(), SimulatedCluster()
    world.cluster = cluster
    builder = TopologyBuilder("by-tuple")
    builder.set_spout("numbers", Numbers(world), 4)
    builder.set_bolt("count", CountOutside(world)).shuffle_grouping("numbers")
    cluster.start(builder.build_topology(), config)
    cluster.process_all_available()
    cluster.stop()
    return Outcome.of(world, world.counts)


def by_batch(folder: Path) -> Outcome:
    """Count in a transactional topology."""
    world, url = World(), f"sqlite:///{folder / 'guarantees.db'}"
    spout = MemoryTransactionalSpout({0: ROWS}, FIELDS, BATCH)
    builder = TransactionalTopologyBuilder("by-batch", "numbers", spout)
    builder.set_bolt("dies", Dies(world)).shuffle_grouping("numbers")
    builder.set_bolt(
        "count", PersistentAggregate(open_state(url), "number", Count())
    ).fields_grouping("dies", "number")
    config = Config(carrier="local", zookeeper="memory", slots=1)
    with builder.build_topology().start(config=config) as run:
        run.process_all_available()
    with open_state(url, table="count").reader() as reader:
        return Outcome.of(world, Counter(dict(reader.items())))


def main() -> None:
    """Run all three and print a table for the documentation."""
    print("| | kills | lost | doubled |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        outcomes = {
            "at most once: `TopologyBuilder`, `Config(ackers=0)`": by_tuple(
                Config(slots=1, ackers=0)
            ),
            "at least once: `TopologyBuilder`": by_tuple(Config(slots=1)),
            "exactly once: `TransactionalTopologyBuilder`": by_batch(Path(folder)),
        }
    for name, outcome in outcomes.items():
        print(f"| {name} | {outcome.kills} | {outcome.lost:,} | {outcome.doubled:,} |")


if __name__ == "__main__":
    main()
