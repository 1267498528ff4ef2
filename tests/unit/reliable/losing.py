"""A whole run from one seed in which something is lost, and what became of each message.

The source is a queue that keeps a message until it is acked, brings it again when it failed, and
brings again what a dead client had open, as brokers do.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from txtopo import (
    BasicBolt,
    Bolt,
    Config,
    Fields,
    OutputCollector,
    Spout,
    SpoutOutputCollector,
    TaskContext,
    TopologyBuilder,
    Tuple,
)
from txtopo.collector import BatchOutputCollector
from txtopo.testing import Shared, SimulatedCluster

MESSAGES = 40
WORDS = 3
PUBLISHED_S = 0.06
TIMEOUT_S = 2.0


class Queue(Shared):
    """What a broker keeps."""

    def __init__(self) -> None:
        self.ready: deque[tuple[int, str]] = deque()
        self.open: dict[int, dict[int, str]] = {}
        self.acked: list[int] = []

    def connect(self, client: int) -> None:
        """Take in a client; what an earlier one of that name had open is ready again."""
        self.ready.extendleft(self.open.pop(client, {}).items())
        self.open[client] = {}

    def nack(self, client: int, id: int) -> None:
        self.ready.append((id, self.open[client].pop(id)))

    def ack(self, client: int, id: int) -> None:
        del self.open[client][id]
        self.acked.append(id)


class QueueClient(Spout):
    """A client of the queue for each task."""

    output_fields = Fields("id long, sentence string")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def open(self, config: Config, context: TaskContext, collector: SpoutOutputCollector) -> None:
        self._collector, self._client = collector, context.task_index
        self._queue.connect(self._client)

    def next_tuple(self) -> None:
        if self._queue.ready:
            id, sentence = self._queue.ready.popleft()
            self._queue.open[self._client][id] = sentence
            self._collector.emit([id, sentence], id)

    def ack(self, message_id: Any) -> None:
        self._queue.ack(self._client, message_id)

    def fail(self, message_id: Any) -> None:
        self._queue.nack(self._client, message_id)


class Split(Bolt):
    """Emits the words of a sentence; forgets to ack some sentences."""

    output_fields = Fields("id long, word string")

    def __init__(self, forgets: float, seed: int) -> None:
        self._forgets, self._seed = forgets, seed

    def prepare(self, config: Config, context: TaskContext, collector: OutputCollector) -> None:
        self._collector = collector
        self._chance = random.Random(self._seed + context.task_index)

    def execute(self, tuple: Tuple) -> None:
        for word in tuple["sentence"].split():
            self._collector.emit([tuple["id"], word], tuple)
        if self._chance.random() >= self._forgets:
            self._collector.ack(tuple)


class Processed(Shared):
    """How often each word of each message was processed."""

    def __init__(self) -> None:
        self.times: Counter[tuple[int, str]] = Counter()


class Process(BasicBolt):
    """Notes each word."""

    def __init__(self, processed: Processed) -> None:
        self._processed = processed

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self._processed.times[tuple["id"], tuple["word"]] += 1


@dataclass(frozen=True)
class Result:
    """What became of a run.

    Attributes:
        lost: Words that were never processed.
        doubled: How many times a word was processed again.
        unacked: Messages that were not acked exactly once.
        failed: Trees that failed or timed out.
    """

    lost: list[tuple[int, str]]
    doubled: int
    unacked: list[int]
    failed: int


Fault = Callable[[SimulatedCluster, random.Random], None]


def run(
    seed: int, fault: Fault | None, forgets: float = 0.0, slots: tuple[int, int] = (1, 3)
) -> Result:
    """Process all messages of a queue while things are lost."""
    chance = random.Random(seed)
    queue, processed = Queue(), Processed()
    builder = TopologyBuilder()
    builder.set_spout("queue", QueueClient(queue), chance.randint(1, 2))
    builder.set_bolt("split", Split(forgets, seed), 2).shuffle_grouping("queue")
    builder.set_bolt("process", Process(processed), 3).fields_grouping("split", "word")
    config = Config(
        message_timeout_s=TIMEOUT_S,
        slots=chance.randint(*slots),
        max_spout_pending=chance.choice([None, 5]),
        ackers=chance.choice([None, None, 1, 2, 5]),
    )
    cluster = SimulatedCluster(seed)
    cluster.start(builder.build_topology(), config)
    after = cluster.time.timeline.after
    sentences = {i: " ".join(f"w{i}-{n}" for n in range(WORDS)) for i in range(MESSAGES)}
    for message in sentences.items():
        after(chance.uniform(0, PUBLISHED_S), partial(queue.ready.append, message))
    if fault is not None:
        for _ in range(chance.randint(1, 4)):
            after(chance.uniform(0.01, 0.1), lambda: fault(cluster, chance))
    cluster.run_until(lambda: len(set(queue.acked)) == MESSAGES)
    progress = cluster.progress
    cluster.stop()
    words = [(id, word) for id, sentence in sentences.items() for word in sentence.split()]
    acked = Counter(queue.acked)
    return Result(
        lost=[word for word in words if not processed.times[word]],
        doubled=sum(processed.times.values()) - len(words),
        unacked=[id for id in sentences if acked[id] != 1],
        failed=progress.failed + progress.timed_out,
    )


def kill_slot(cluster: SimulatedCluster, chance: random.Random) -> None:
    """A worker process is killed."""
    cluster.kill_slot(chance.randrange(cluster.slots))


def kill_bolts(cluster: SimulatedCluster, chance: random.Random) -> None:
    """A worker process without spouts is killed."""
    cluster.kill_slot(chance.randrange(cluster.spout_slots, cluster.slots))


def lose_ackers(cluster: SimulatedCluster, chance: random.Random) -> None:
    """All that the ackers knew is gone."""
    for slot in range(cluster.spout_slots):
        cluster.lose_acker(slot)


def kill_spouts(cluster: SimulatedCluster, chance: random.Random) -> None:
    """All worker processes with spouts are killed, and the ackers with them."""
    for slot in range(cluster.spout_slots):
        cluster.kill_slot(slot)


def all_at_once(cluster: SimulatedCluster, chance: random.Random) -> None:
    """Anything of these."""
    chance.choice([kill_slot, lose_ackers, kill_spouts])(cluster, chance)
