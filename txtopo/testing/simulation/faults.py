"""Faults: what may go wrong in a simulation, and how often; Chaos: decides when.

Faults are plain data, drawn from a seed. Each seed has only some of the kinds ("swarm testing"):
with all of them at once the common ones would hide the rare ones. Chaos draws from the seed when
each fault happens, until the simulation heals.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txtopo.testing.simulation.world import SimulatedProcess


@dataclass(frozen=True, slots=True)
class Faults:
    """Probability of each fault at each checkpoint where it can happen; 0 for never.

    Attributes:
        crash: A process is killed between any two actions.
        freeze: A process is stopped for longer than its session, and woken.
        expire: A session expires; the process learns of it later.
        zookeeper_before: A call to ZooKeeper fails and was not done.
        zookeeper_after: A write to ZooKeeper was done, but its answer is lost.
        zookeeper_away: A process cannot reach ZooKeeper for a while.
        store_before: A call to a store fails and was not done.
        store_lost: A write to a store is lost, and its writer cannot tell.
        store_after: A write to a store was done, but its answer is lost.
        store_late: A write to a store is done later, after its writer has given up.
        store_away: A store cannot be reached for a while.
        switch: Other work runs first.
        slow: A call takes much longer than usual, even longer than the batch's time limit.
        source_away: A partition of the source cannot be read for a while.
        recut: An opaque emitter takes another number of records than it could.
        recompute: A task is computed twice, and some readers get its second output.
        envelope_doubled: An envelope arrives twice.
        envelope_lost: An envelope does not arrive.
        envelope_late: An envelope of an earlier job arrives.
        job_lost: A job ends without an outcome, as after the loss of an executor.
        bolt_fails: A bolt raises ``FailedException``.
        bolt_breaks: A bolt raises something else, which ends the run; it is started again.
        clock: The clock of a process jumps by up to an hour; the clock of a new process may be
            wrong.
        stop: A run is asked to stop, and started again.
        pause: A run is deactivated for a while.
        empty_replay: A replay of an opaque batch takes nothing at all.
        source_shrinks: A partition has fewer records than before, for a while.
        command: An operator deactivates the topology or kills it, and activates it later; or two
            operators ask at the same time.
        restore: All processes are stopped, and the ensemble, all stores, or one of them, is
            reverted to an earlier version; see :mod:`txtopo.testing.simulation.restoring`.
    """

    crash: float = 0.0
    freeze: float = 0.0
    expire: float = 0.0
    zookeeper_before: float = 0.0
    zookeeper_after: float = 0.0
    zookeeper_away: float = 0.0
    store_before: float = 0.0
    store_lost: float = 0.0
    store_after: float = 0.0
    store_late: float = 0.0
    store_away: float = 0.0
    switch: float = 0.0
    slow: float = 0.0
    source_away: float = 0.0
    recut: float = 0.0
    recompute: float = 0.0
    envelope_doubled: float = 0.0
    envelope_lost: float = 0.0
    envelope_late: float = 0.0
    job_lost: float = 0.0
    bolt_fails: float = 0.0
    bolt_breaks: float = 0.0
    clock: float = 0.0
    stop: float = 0.0
    pause: float = 0.0
    source_shrinks: float = 0.0
    empty_replay: float = 0.0
    command: float = 0.0
    restore: float = 0.0

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        """Return the names of all kinds."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def drawn(cls, chance: random.Random) -> Faults:
        """Draw which kinds a seed has, and how often each happens."""
        rates = {}
        for kind in cls.kinds():
            wanted, scale = chance.random() < 0.45, chance.random()
            rates[kind] = _MOST[kind] * 10 ** (-1.5 * scale) if wanted else 0.0
        return cls(**rates)

    def without(self, kinds: Collection[str]) -> Faults:
        """Return these faults without some kinds."""
        return replace(self, **dict.fromkeys(kinds, 0.0))


@dataclass(frozen=True, slots=True)
class SlotFaults:
    """What may go wrong with resident slots; see :mod:`tests.faults.slots.simulation`.

    Attributes:
        worker_dies: The Python worker of a task dies while it works.
        executor_lost: An executor is lost while its task works; Spark may repeat the task.
        stillborn: A worker dies before it has said hello.
        unready: A worker dies when it has said hello, before it is ready.
        broken: A job ends in a way that no other job could repair.
        freeze: A task is frozen for a while, in the middle of its work.
        hang: A task never finishes its work.
        disconnect: The connection to a task is lost, and the task lives.
        copy: Spark runs a second copy of a task.
        straggler: A task of an earlier job says hello.
        message_late: A message takes seconds; later ones on the connection wait.
        message_doubled: A message arrives a second time, somewhat later.
        core_away: A core is gone for a while, with the executor that had it.
        core_gone: A core is gone for good.
        cancel: A chain of levels is cancelled.
        stop: The run is stopped before everything is done.
        spark_slow: Spark takes seconds to answer a request.
    """

    worker_dies: float = 0.0
    executor_lost: float = 0.0
    stillborn: float = 0.0
    unready: float = 0.0
    broken: float = 0.0
    freeze: float = 0.0
    hang: float = 0.0
    disconnect: float = 0.0
    copy: float = 0.0
    straggler: float = 0.0
    message_late: float = 0.0
    message_doubled: float = 0.0
    core_away: float = 0.0
    core_gone: float = 0.0
    cancel: float = 0.0
    stop: float = 0.0
    spark_slow: float = 0.0

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        """Return the names of all kinds."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def drawn(cls, chance: random.Random) -> SlotFaults:
        """Draw which kinds a seed has, and how often each happens."""
        rates = {}
        for kind in cls.kinds():
            wanted, scale = chance.random() < 0.45, chance.random()
            rates[kind] = _SLOTS_MOST[kind] * 10 ** (-1.0 * scale) if wanted else 0.0
        return cls(**rates)

    def without(self, kinds: Collection[str]) -> SlotFaults:
        """Return these faults without some kinds."""
        return replace(self, **dict.fromkeys(kinds, 0.0))


# The highest chance of each kind, at each order, message, job or second.
_SLOTS_MOST = {
    "worker_dies": 0.1,
    "executor_lost": 0.1,
    "stillborn": 0.4,
    "unready": 0.3,
    "broken": 0.01,
    "freeze": 0.1,
    "hang": 0.05,
    "disconnect": 0.1,
    "copy": 0.4,
    "straggler": 0.4,
    "message_late": 0.1,
    "message_doubled": 0.2,
    "core_away": 0.05,
    "core_gone": 0.02,
    "cancel": 0.2,
    "stop": 0.005,
    "spark_slow": 0.5,
}

# The highest probability of each kind. A transaction passes about twenty checkpoints, so the most
# common kinds hit every second transaction. With more, hardly any would commit.
_MOST = {
    "crash": 0.02,
    "freeze": 0.01,
    "expire": 0.01,
    "zookeeper_before": 0.1,
    "zookeeper_after": 0.1,
    "zookeeper_away": 0.02,
    "store_before": 0.1,
    "store_lost": 0.1,
    "store_after": 0.15,
    "store_late": 0.1,
    "store_away": 0.02,
    "switch": 1.0,
    "slow": 0.05,
    "source_away": 0.1,
    "recut": 1.0,
    "recompute": 0.1,
    "envelope_doubled": 0.05,
    "envelope_lost": 0.05,
    "envelope_late": 0.05,
    "job_lost": 0.1,
    "bolt_fails": 0.05,
    "bolt_breaks": 0.01,
    "clock": 0.01,
    "stop": 0.005,
    "pause": 0.005,
    "source_shrinks": 0.3,
    "empty_replay": 0.5,
    "command": 0.005,
    "restore": 0.01,
}

LATENCY_S = 0.004

SLOW_S = (0.5, 30.0)

FROZEN_S = (0.5, 20.0)

AWAY_S = (0.1, 5.0)

CLOCK_JUMP_S = 3600.0

AT_CHECKPOINTS = (
    *("crash", "clock", "expire", "freeze", "stop", "pause"),
    *("command", "restore", "switch"),
)
"""What may happen to a process between any two actions, in the order in which it is drawn."""

ONCE_A_TERM = frozenset({"crash", "expire", "freeze"})

ONCE_A_TERM_TIMES = 10
"""Factor of these kinds at the checkpoints of a takeover, of which there are few."""


class Chaos:
    """Draws every fault and every delay of one simulation from one generator.

    Args:
        chance: The random generator.
        faults: How often each kind happens.
        tell: Called with the kind of each fault that happens.

    Attributes:
        counts: How often each kind has happened.
        healed: Whether faults have stopped.
        crash_at: Where a process is always killed: the name of the checkpoint, and the number of
            the pass, from 1.
    """

    def __init__(
        self, chance: random.Random, faults: Faults | SlotFaults, tell: Callable[[str], None]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.healed = False
        self.crash_at: list[tuple[str, int]] = []
        self._chance = chance
        self._tell = tell
        self._rates = {kind: rate for kind, rate in asdict(faults).items() if rate}
        self._rates_at = [
            (kind, self._rates[kind]) for kind in AT_CHECKPOINTS if kind in self._rates
        ]
        self._rates_of_claims = [
            (kind, rate * (ONCE_A_TERM_TIMES if kind in ONCE_A_TERM else 1))
            for kind, rate in self._rates_at
        ]
        self._passed: Counter[str] = Counter()

    def happens(self, kind: str, times: int = 1) -> bool:
        """Draw whether a fault happens now, with *times* its usual probability, and count it."""
        rate = self._rates.get(kind)
        if rate is None or self.healed or self._chance.random() >= rate * times:
            return False
        self.counts[kind] += 1
        self._tell(kind)
        return True

    def latency_s(self) -> float:
        """Draw how long a call takes."""
        if self.happens("slow"):
            return self._chance.uniform(*SLOW_S)
        return self._chance.expovariate(1 / LATENCY_S)

    def between(self, low: float, high: float) -> float:
        """Draw a number from *low* to *high*."""
        return self._chance.uniform(low, high)

    def below(self, limit: int) -> int:
        """Draw a whole number from 0 to *limit* - 1."""
        return self._chance.randrange(limit)

    def passes(self, checkpoint: str) -> bool:
        """Count that a checkpoint is passed; return whether a crash is due at this pass."""
        self._passed[checkpoint] += 1
        return (checkpoint, self._passed[checkpoint]) in self.crash_at

    def at(self, process: SimulatedProcess, checkpoint: str) -> float | None:
        """Let faults happen to a process at a checkpoint.

        Returns:
            How long its work must wait there; None if it continues at once.
        """
        if self.passes(checkpoint):
            process.kill()
            return None
        if self.healed:
            return None
        # Processes pass here all the time, so only the kinds that this seed has are looked at.
        claims = checkpoint.startswith("claim.")
        for kind, rate in self._rates_of_claims if claims else self._rates_at:
            if self._chance.random() >= rate:
                continue
            self.counts[kind] += 1
            self._tell(kind)
            match kind:
                case "crash":
                    process.kill()
                    return None
                case "clock":
                    process.clock_error_s += self.between(-CLOCK_JUMP_S, CLOCK_JUMP_S)
                case "expire":
                    process.world.ensemble.expire(process)
                case "freeze":
                    process.freeze(self.between(*FROZEN_S))
                    return 0.0
                case "stop":
                    process.ask_to_stop()
                case "pause":
                    process.pause(self.between(*AWAY_S))
                case "command":
                    process.world.operators.act()
                case "restore":
                    process.world.restorations.begin()
                    return None
                case "switch":
                    return self.latency_s()
        return None
