"""Run two coordinators of one topology in every order of their steps.

The first one, A, runs up to one of its points and is stopped there like a process that hangs; its
session expires. The second one, B, takes over and runs up to one of its own points, or to the end.
Then A continues with everything that it had begun, a zombie that believes to lead; only when
nothing more comes of that does B continue, and only then does A hear that its session is gone.

In an order *apart* each of the two has a ZooKeeper of its own, in which it is the only candidate
and counts epochs from 1. Then nobody is deposed: the state itself has to let one of them in and
refuse the other.

With groups the first one has four txids, which it commits two by two.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from txtopo.config import Config
from txtopo.errors import FencedError, ForeignEnsembleError
from txtopo.runtime.progress import Leading
from txtopo.state import open_state
from txtopo.state.backend import StateKind
from txtopo.testing.checkers import Evidence
from txtopo.testing.checkers.evidence import Source, epoch_of, visible
from txtopo.testing.simulation.campaign import quiet, verdict
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.faults import Chaos, Faults
from txtopo.testing.simulation.history import StoreWrite
from txtopo.testing.simulation.outside import SimulatedEnsemble
from txtopo.testing.simulation.source import SimulatedSource
from txtopo.testing.simulation.topologies import Rows, Shape, build
from txtopo.testing.simulation.world import SimulatedProcess, Supervisor, World

RECORDS, GROUPS_RECORDS = 6, 8
CUT_RECORDS = {"A": 2, "B": 3}
"""How many records a coordinator takes for a batch. A has three txids; B cuts what is left of them
otherwise, so that an opaque txid which both had in hand has two contents. Of groups A has four."""

# Virtual time. B has run to wherever it runs after HELD_S, A after HELD_S more; then B continues.
HELD_S = 5.0
NOTICE_S = 3 * HELD_S
"""A hears of the end of its session so long after it: as a zombie it acts before that."""
CHAOS_S = 10 * HELD_S

STEPS = frozenset(
    [
        "claim",
        "plan",
        "store-metadata",
        "process",
        "turn",
        "begin",
        "rows",
        "write",
        "read-back",
        "advance",
        "cleanup",
    ]
)
"""The durable steps of ARCHITECTURE.md; a hang at another point is not of this test."""
SAME = ("plan.after", "rows.before", "write.before", "cleanup.before")
"""Points with nothing between them and the one before that another coordinator could see, where the
store is in memory and the source does not change."""

CONFIG = Config(
    carrier="local",
    zookeeper="memory",
    slots=1,
    max_spout_pending=3,
    group_txids_max=1,
    batch_timeout_s=20 * HELD_S,
    poll_interval_s=5.0,
    backoff_s=0.05,
)
GROUPS = replace(CONFIG, max_spout_pending=4, group_txids_max=2)
# What a writer marks before and after a write; what has no second one was refused.
WRITES = {
    "store-metadata.before": "store-metadata.after",
    "advance.before": "advance.after",
    "begin.before": "write.after",
}


@dataclass(frozen=True, slots=True)
class Order:
    """One order of two coordinators.

    Attributes:
        kind: Of the spout and the state.
        a: The how manieth point of A is where it hangs, from 1; None if it does not hang.
        b: The how manieth point of B is where A continues; None if B runs to the end first.
        apart: Whether each has a ZooKeeper of its own.
        groups: Whether txids are committed two by two.
    """

    kind: StateKind
    a: int | None
    b: int | None
    apart: bool = False
    groups: bool = False

    @property
    def records(self) -> int:
        """How many records there are."""
        return GROUPS_RECORDS if self.groups else RECORDS

    @property
    def shape(self) -> Shape:
        """The topology: a committer of one's own takes groups only if its state is opaque."""
        alone = self.groups and self.kind == "transactional"
        committer = "aggregates" if alone else "balances"
        return Shape(self.kind, self.kind, (committer,), relay=False, parallelism=1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an order.

    Attributes:
        wrong: What is wrong; nothing if all is well.
        points_a: The points that A passed.
        points_b: The points that B passed.
        groups: How many writes of several txids there were.
        refused: How many writes of A were refused, by the point before them.
    """

    wrong: list[str]
    points_a: list[str]
    points_b: list[str]
    groups: int
    refused: Counter[str]


class OrderedChaos(Chaos):
    """Lets two coordinators hang and continue; nothing else goes wrong."""

    def __init__(self, world: OrderedWorld, order: Order) -> None:
        super().__init__(random.Random(0), Faults(), lambda kind: None)
        self.points: dict[str, list[str]] = {"A.1": [], "B.1": []}
        self.passed: Counter[str] = Counter()
        self._world = world
        self._order = order

    def between(self, low: float, high: float) -> float:
        """Take the longest time, so that few questions for the leadership are asked."""
        return high

    def at(self, process: SimulatedProcess, checkpoint: str) -> float | None:
        """Let a process hang at its point."""
        point = checkpoint.partition(":")[0]
        if process.name == "A.1":
            self.passed[point] += 1
        durable = point.partition(".")[0] in STEPS
        if not durable or point in SAME or process.name not in self.points:
            return None
        points = self.points[process.name]
        points.append(point)
        if process.name == "A.1" and len(points) == self._order.a:
            self._world.a_hangs(process, wakes=self._order.b is None)
            return 0.0
        if process.name == "B.1" and len(points) == self._order.b:
            self._world.b_hangs(process)
            return 0.0
        return None


class TwoCuts(SimulatedSource):
    """A source of which each coordinator takes batches of another size."""

    def take(self, available: int, rows_max: int | None = None) -> int:
        """Return how many records the process that runs takes; no order has a limit."""
        return min(max(available, 0), CUT_RECORDS[self.world.current.name[0]])

    @property
    def is_complete(self) -> bool:
        """Whether everything is there, and both coordinators have continued."""
        return super().is_complete and self.world.timeline.now_s >= self.world.settled_s

    world: OrderedWorld


class OrderedWorld(World):
    """A world of two coordinators in one order."""

    def __init__(self, order: Order, handoff: ThreadHandoff) -> None:
        super().__init__(0, Faults(), GROUPS if order.groups else CONFIG, 1, handoff)
        self.ordered = OrderedChaos(self, order)
        self.chaos = self.ordered
        self.settled_s = 0.0
        self.second = SimulatedEnsemble(self) if order.apart else self.ensemble
        self._a: SimulatedProcess | None = None
        source = TwoCuts(self, 1, order.records, 2)
        source.world = self
        source.complete()
        self.source = source

    def a_hangs(self, process: SimulatedProcess, *, wakes: bool) -> None:
        """Stop A and have B take over; wake A a while later, unless B's point is to do that."""
        self._a = process
        process.suspend()
        if self.second is self.ensemble:
            self.ensemble.expire(process, NOTICE_S)
        self.settled_s = self.timeline.now_s + NOTICE_S + 1.0
        if wakes:
            self.timeline.after(HELD_S, process.wake)
        b = Supervisor(self, "B")
        self.supervisors.append(b)
        b.start()

    def ensemble_of(self, process: SimulatedProcess) -> SimulatedEnsemble:
        """Return the ZooKeeper that a process is told to use."""
        return self.second if process.name.startswith("B") else self.ensemble

    def b_hangs(self, process: SimulatedProcess) -> None:
        """Stop B while A continues."""
        assert self._a is not None
        process.suspend()
        self.timeline.after(0.0, self._a.wake)
        self.timeline.after(HELD_S, process.wake)


def run_order(order: Order, handoff: ThreadHandoff) -> Outcome:
    """Run two coordinators in one order, and judge what they did."""
    world = OrderedWorld(order, handoff)
    topology, oracles = build(order.shape, world.number, open_state("memory:", kind=order.kind))
    world.take(topology)
    with quiet():
        history = world.run(CHAOS_S)
    if order.apart:
        return _outcome(world, list(_wrong_apart(world, order)))
    evidence = Evidence(
        topology_id=topology.id,
        history=history,
        oracles=oracles,
        source=Source(1, order.records),
        leftovers=world.leftovers.found,
        expected=(FencedError,),
    )
    judged = verdict(0, world, evidence)
    wrong = [*(f"{each.checker}: {each.what}" for each in judged.violations), *_ends(world)]
    return _outcome(world, wrong)


def _outcome(world: OrderedWorld, wrong: list[str]) -> Outcome:
    points, passed = world.ordered.points, world.ordered.passed
    refused = {before: passed[before] - passed[after] for before, after in WRITES.items()}
    grouped = (
        write
        for write in world.history.writes
        if isinstance(write, StoreWrite)
        and write.after.ledger is not None
        and len(write.after.ledger.attempts) > 1
    )
    return Outcome(
        wrong=wrong,
        points_a=points["A.1"],
        points_b=points["B.1"],
        groups=sum(1 for _ in grouped),
        refused=Counter({before: times for before, times in refused.items() if times}),
    )


def _wrong_apart(world: OrderedWorld, order: Order) -> Iterator[str]:
    """Yield what is wrong if the two have a ZooKeeper each.

    Both count alike, so their attempts have the same names, and the checkers mix them up. What can
    be told: the state is the fold of each record once, as one coordinator alone makes it;
    all of it was written under one ensemble, txid by txid; and the other one was refused by it.
    """
    yield from world.leftovers.found
    (table,) = world.history.stores
    got, expected = visible(world.history.stores[table]), _alone(order.kind, order.groups)
    if got != expected:
        yield f"the state holds {got}; expected {expected}"
    writers = []
    for write in world.history.writes:
        if not isinstance(write, StoreWrite):
            continue
        before, after = write.before.ledger, write.after.ledger
        held = before.txid if before else 0
        assert after is not None
        if after.txid != held and after.first_txid != held + 1:
            yield f"the ledger went from txid {held} to {after.first_txid} to {after.txid}"
        if after.txid:
            writers.append(after.ensemble)
    if len(set(writers)) != 1:
        yield f"the state was written under {len(set(writers))} ensembles"
    refused = {each.process[0] for each in world.history.endings if _is_refusal(each.error)}
    if not refused and len(world.supervisors) > 1:
        yield "neither of the two was refused"


def _is_refusal(error: Exception | None) -> bool:
    return isinstance(error, ForeignEnsembleError)


@cache
def _alone(kind: StateKind, groups: bool) -> Rows:
    """Return what the state holds when one coordinator does all of it."""
    order, handoff = Order(kind, None, None, groups=groups), ThreadHandoff()
    world = OrderedWorld(order, handoff)
    topology, _ = build(order.shape, world.number, open_state("memory:", kind=kind))
    world.take(topology)
    with quiet():
        history = world.run(CHAOS_S)
    handoff.close()
    (contents,) = history.stores.values()
    return visible(contents)


def _ends(world: OrderedWorld) -> Iterator[str]:
    """Yield how A ended, if it led, was deposed and did not notice.

    Who is deposed during the takeover stands for election again, and may lead another time.
    """
    history = world.history
    led = [
        change.epoch
        for _, who, _, change in history.trace
        if who == "A.1" and isinstance(change, Leading)
    ]
    ended = [each.error for each in history.endings if each.process == "A.1"]
    deposed = led and led[-1] < epoch_of(world.topology_id, history.nodes)
    if deposed and not any(isinstance(error, FencedError) for error in ended):
        yield f"A was deposed, and its run ended with {ended}; expected a FencedError"


def outcomes(
    kind: StateKind,
    handoff: ThreadHandoff,
    *,
    part: int = 0,
    parts: int = 1,
    every: int = 1,
    apart: bool = False,
    groups: bool = False,
) -> Iterator[tuple[Order, Outcome]]:
    """Run every order of a kind, or a part of them.

    Args:
        kind: Of the spout and the state.
        handoff: The threads of blocking work.
        part: Which part of A's points, from 0.
        parts: How many parts there are.
        every: With each of A's points each *every*-th of B's, and with the next one the next ones.
        apart: Whether each has a ZooKeeper of its own.
        groups: Whether txids are committed two by two.
    """
    alone = run_order(Order(kind, None, None, groups=groups), handoff)
    for a in range(1 + part, _busy(alone.points_a) + 1, parts):
        to_the_end = Order(kind, a, None, apart, groups)
        outcome = run_order(to_the_end, handoff)
        yield to_the_end, outcome
        for b in range(1 + a % every, _busy(outcome.points_b) + 1, every):
            order = Order(kind, a, b, apart, groups)
            yield order, run_order(order, handoff)


def _busy(points: list[str]) -> int:
    """Return how many points there are up to the first question that finds nothing left."""
    last = max((at for at, point in enumerate(points) if not point.startswith("plan.")), default=-1)
    return last + 1 + len(points[last + 1 :][:2])
