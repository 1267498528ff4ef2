"""Recorded: runs of the simulator that are drawn.

The runtime is the real one. Nothing is left to chance: each call takes as long as it is told to,
and only what a picture is about goes wrong. So a recording depends on the code alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle

from txtopo import (
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    open_state,
)
from txtopo.plugins.spouts import (
    BatchOutputCollector,
    Json,
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    TaskContext,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.testing.simulation.campaign import quiet
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.faults import Chaos, Faults
from txtopo.testing.simulation.history import History
from txtopo.testing.simulation.world import SimulatedProcess, Supervisor, World

CALL_S = 0.001
"""How long every call takes that is not told otherwise."""
WRITE_S = 0.008
"""How long a state takes for a write."""
JOBS_S = (0.03, 0.05, 0.02, 0.04)
"""How long jobs take, one after the other: a later one may end first."""
HELD_S = 1.0
"""How long a process hangs, and after how long it hears that its session is gone."""
LIMIT_S = 60.0

WORDS = ("cat", "dog", "cat", "cat", "eel", "cat", "dog")
"""What the source has, in this order."""
TAKES = {(2, 2): 1}
"""How many words an attempt takes, by txid and epoch; each other one takes three. So txid 2 is cut
again in epoch 2, as an opaque spout may."""
FIELDS = Fields("word string")

CONFIG = Config(
    carrier="local",
    zookeeper="memory",
    slots=1,
    max_spout_pending=3,
    group_txids_max=1,
    batch_timeout_s=LIMIT_S,
    poll_interval_s=LIMIT_S,
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """The one thing that goes wrong.

    Attributes:
        point: The point of the runtime where it happens.
        passing: The how manieth time that the process passes it, from 1.
        hangs: Whether the process hangs there until another one has committed; else it dies.
    """

    point: str
    passing: int
    hangs: bool = False


@dataclass(slots=True)
class Steady(Chaos):
    """Every call takes as long as it is told to; one process meets one trouble."""

    world: DrawnWorld
    trouble: Trouble | None
    passed: Counter[str] = field(default_factory=Counter)
    jobs_s: Iterator[float] = field(default_factory=lambda: cycle(JOBS_S))

    def __post_init__(self) -> None:
        Chaos.__init__(self, random.Random(0), Faults(), lambda kind: None)

    def latency_s(self) -> float:
        """Return the time of a call."""
        return CALL_S

    def between(self, low: float, high: float) -> float:
        """Return the lower one."""
        return low

    def at(self, process: SimulatedProcess, checkpoint: str) -> float | None:
        """Let a call take its time, and the trouble happen."""
        self.passed[checkpoint] += 1
        trouble = self.trouble
        if trouble and (trouble.point, trouble.passing) == (checkpoint, self.passed[checkpoint]):
            if not trouble.hangs:
                process.kill()
                return None
            self.world.hang(process)
            return 0.0
        if checkpoint == "job":
            return next(self.jobs_s)
        return WRITE_S if checkpoint == "store write" else None


class DrawnWorld(World):
    """A world whose history is drawn."""

    def __init__(self, config: Config, trouble: Trouble | None, handoff: ThreadHandoff) -> None:
        super().__init__(0, Faults(), config, 1, handoff)
        self.chaos = Steady(self, trouble)

    def hang(self, process: SimulatedProcess) -> None:
        """Stop a process beyond its session, start another one, and let the first one continue."""
        process.suspend()
        self.ensemble.expire(process, 2 * HELD_S)
        self.timeline.after(HELD_S, process.wake)
        successor = Supervisor(self, "B")
        self.supervisors.append(successor)
        successor.start()


def undisturbed(*, run_txids: int, group_txids: int) -> History:
    """Record twelve batches of a spout that knows beforehand what is in each."""
    config = replace(
        CONFIG,
        max_spout_pending=3 * run_txids,
        group_txids_max=group_txids,
    )
    return recorded(counting(NumbersSpout(12), "counts"), config, None)


def killed() -> History:
    """Record a leader that dies when the first of two states holds txid 2."""
    trouble = Trouble("write.after:counts.counts", 2)
    return recorded(counting(WordsSpout(), "counts", "totals"), CONFIG, trouble)


def deposed() -> History:
    """Record a leader that hangs when it is about to write txid 2, and continues after that."""
    trouble = Trouble("begin.before:counts.counts", 2, hangs=True)
    return recorded(counting(WordsSpout(), "counts"), CONFIG, trouble)


def recorded(topology: Topology, config: Config, trouble: Trouble | None) -> History:
    """Run a topology to its end, and return what happened."""
    with _handoff() as handoff, quiet():
        world = DrawnWorld(config, trouble, handoff)
        world.take(topology)
        world.run(LIMIT_S)
        assert not world.leftovers.found, world.leftovers.found
        return world.history


def counting(
    spout: TransactionalSpout | OpaquePartitionedTransactionalSpout, *states: str
) -> Topology:
    """Return a topology that counts words in each of these states."""
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    for name in states:
        bolt = PersistentAggregate(open_state("memory:"), "word", Count())
        builder.set_bolt(name, bolt).fields_grouping("spout", "word")
    return builder.build_topology()


@contextmanager
def _handoff() -> Iterator[ThreadHandoff]:
    handoff = ThreadHandoff()
    try:
        yield handoff
    finally:
        handoff.close()


class NumbersSpout(TransactionalSpout):
    """Emits a word in each txid; a batch does not depend on the one before.

    Args:
        batches: How many batches there are.
    """

    output_fields = FIELDS

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return _Numbers(self.batches)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return _NumbersEmitter()


class _Numbers(TransactionalCoordinator):
    def __init__(self, batches: int) -> None:
        self.batches = batches

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= self.batches

    def initialize_transaction(self, txid: int, previous: Json) -> Json:
        return txid


class _NumbersEmitter(TransactionalEmitter):
    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        collector.emit([WORDS[attempt.txid % len(WORDS)]])


class WordsSpout(OpaquePartitionedTransactionalSpout):
    """Emits the words; a replay takes what is there by then."""

    output_fields = FIELDS

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return _Words()

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        return _WordsEmitter()


class _Words(PartitionedCoordinator):
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        cut: Mapping[str, Json] = last.metadata if isinstance(last.metadata, dict) else {}
        return _end(cut.get("0")) < len(WORDS) and txid <= last.txid + 1

    def number_of_partitions(self) -> int:
        return 1


class _WordsEmitter(OpaquePartitionedTransactionalEmitter):
    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        *,
        rows_max: int | None = None,
    ) -> Json:
        start = _end(last_metadata)
        words = WORDS[start : start + TAKES.get((attempt.txid, attempt.epoch), 3)]
        for word in words:
            collector.emit([word])
        return start + len(words)


def _end(metadata: Json) -> int:
    return metadata if isinstance(metadata, int) else 0
