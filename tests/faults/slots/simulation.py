"""Resident slots of transactional topologies in virtual time, from one seed.

The supervisor of the slots, the orders of their stages, what runs them both and the messages are
those that users run. Spark, the tasks and the connections are simulated, and so is the topology: it
takes chains through their levels, tries again what is lost, cancels some, and stops at the end.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from tests.faults.slots.checkers import SLOT_CHECKERS, SlotEvidence
from tests.faults.slots.cluster import Entry, SlotCluster, VirtualLoop
from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.errors import ConfigError, RunLostError, SlotUnavailable
from txtopo.metadata import BatchMetadata
from txtopo.resident.carrier import Answers, StageRequest, StageSlots
from txtopo.resident.slot_runner import LIMITS
from txtopo.resident.sockets import Keys
from txtopo.resident.supervisor import LifeLost, SlotReady, SlotSaid
from txtopo.retries import LOGGER
from txtopo.stages.compiled_topology import Chain, CompiledTopology, Run
from txtopo.stages.pickling import pack
from txtopo.stages.stage_context import RunLevel
from txtopo.testing.checkers.evidence import Violation
from txtopo.testing.simulation.clock import Timeline
from txtopo.testing.simulation.faults import Chaos, SlotFaults

FAULTS_SALT = 0x51075
CHAOS_S = 60.0
"""Faults stop after so much virtual time; until then most seeds have done everything."""
CALM_S = 400.0
"""Everything is done and ended so long after the faults have stopped."""
RETRY_S = 0.1
KEYS = Keys(b"", b"", b"", b"")


@dataclass(frozen=True, slots=True)
class SlotScenario:
    """Everything that a seed decides before a simulation of slots begins. Plain data.

    Attributes:
        seed: Where all chance comes from.
        faults: What may go wrong.
        slots: How many slots there are.
        spare_cores: Cores beyond one for each slot.
        repeats: Whether Spark repeats a task in its job.
        batches: How many chains there are, with a commit each.
        levels: Levels of each.
        at_once: How many are under way at the same time.
        batch_timeout_s: As in ``Config``.
        changes_carrier: Whether the run continues without slots when one is missing for too long.
        chaos_s: Virtual time after which the faults stop.
    """

    seed: int
    faults: SlotFaults
    slots: int
    spare_cores: int
    repeats: bool
    batches: int
    levels: int
    at_once: int
    batch_timeout_s: float
    changes_carrier: bool
    chaos_s: float = CHAOS_S

    @classmethod
    def drawn(cls, seed: int) -> SlotScenario:
        """Draw a scenario."""
        chance = random.Random(seed)
        faults = SlotFaults.drawn(random.Random(seed ^ FAULTS_SALT))
        return cls(
            seed=seed,
            faults=faults,
            slots=chance.choice((1, 2, 2, 3)),
            spare_cores=chance.choice((0, 0, 1, 2)),
            repeats=chance.random() < 0.5,
            batches=chance.choice((3, 10, 30)),
            levels=chance.choice((1, 2, 3)),
            at_once=chance.choice((1, 2, 4)),
            batch_timeout_s=chance.choice((20.0, 120.0)),
            changes_carrier=chance.choice((False, True)),
        )

    def config(self) -> Config:
        """Return how the topology runs."""
        return Config(
            carrier="resident",
            slots=self.slots,
            batch_timeout_s=self.batch_timeout_s,
            backoff_s=0.1,
        )

    def without(self, kinds: Collection[str]) -> SlotScenario:
        """Return this scenario without some kinds of faults.

        Raises:
            ConfigError: There is no such kind.
        """
        unknown = [kind for kind in kinds if kind not in SlotFaults.kinds()]
        if unknown:
            raise ConfigError(
                f"unknown kind of fault; got {', '.join(unknown)}; expected one of "
                f"{', '.join(SlotFaults.kinds())}"
            )
        return replace(self, faults=self.faults.without(kinds))

    def command(self) -> str:
        """Return the command that runs this scenario."""
        drawn = SlotFaults.drawn(random.Random(self.seed ^ FAULTS_SALT))
        kinds = [k for k in drawn.kinds() if getattr(drawn, k) != getattr(self.faults, k)]
        words = ["python -m tests.faults.slots.command", f"--seed {self.seed}"]
        return " ".join([*words, *(f"--without {kind}" for kind in kinds)])


@dataclass(frozen=True, slots=True)
class SlotVerdict:
    """What came of one simulation of slots.

    Attributes:
        seed: Its seed.
        violations: Promises that were broken; none if all is well.
        history: What happened.
        faults: How often each kind of fault happened.
        levels: How many levels were done.
        virtual_s: How much virtual time it took.
        ended: How the run ended.
    """

    seed: int
    violations: tuple[Violation, ...]
    history: Sequence[Entry] = field(repr=False)
    faults: Mapping[str, int]
    levels: int
    virtual_s: float
    ended: str

    def light(self) -> SlotVerdict:
        """Return it without what happened, as it is kept of many."""
        return replace(self, history=())


def simulate_slots(scenario: SlotScenario) -> SlotVerdict:
    """Run a scenario and judge it."""
    world = SlotWorld(scenario)
    broken: list[Violation] = []
    with heard_warnings(world):
        try:
            world.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the real loop would fail too
            broken = [Violation("S0", f"the loop failed: {error!r}")]
    evidence = SlotEvidence(
        history=world.history,
        slots=scenario.slots,
        pause_s=scenario.config().pause_s,
        limits=LIMITS,
        missing_s=scenario.batch_timeout_s,
        leftovers=[] if broken else world.leftovers(),
    )
    found = [each for checker in SLOT_CHECKERS for each in checker.check(evidence)]
    return SlotVerdict(
        seed=scenario.seed,
        violations=(*broken, *found),
        history=world.history,
        faults=Counter(world.chaos.counts),
        levels=sum(entry.what == "level done" for entry in world.history),
        virtual_s=world.timeline.now_s,
        ended=world.ended,
    )


@dataclass(frozen=True, slots=True)
class TopologyShape:
    """As much of a compiled topology as the driver's end of slots looks at."""

    topology_id: str
    slots: int


class SlotWorld:
    """One simulation of slots: the cluster, the slots, and the topology that uses them."""

    def __init__(self, scenario: SlotScenario) -> None:
        self.scenario = scenario
        self.history: list[Entry] = []
        self.timeline = Timeline()
        chance = random.Random(scenario.seed)
        self.chaos = Chaos(chance, scenario.faults, lambda kind: self.tell("fault", note=kind))
        self.loop = VirtualLoop(self.timeline, self.chaos)
        self.cluster = SlotCluster(
            self.timeline,
            self.chaos,
            self.loop,
            scenario.slots + scenario.spare_cores,
            repeats=scenario.repeats,
            tell=self.tell,
        )
        changed = self._changed if scenario.changes_carrier else None
        self.slots = WatchedSlots(
            self.cluster,
            KEYS,
            scenario.config(),
            self.loop,
            LIMITS,
            self.cluster.open_socket,
            changed,
        )
        self.slots.tell = self.tell
        self.ended = ""
        self._left = list(range(scenario.batches, 0, -1))
        self._under_way: dict[int, int] = {}
        self._chains: dict[int, Chain] = {}
        self._closed = False

    def tell(self, what: str, **details: object) -> None:
        """Write down what happens."""
        self.history.append(Entry(self.timeline.now_s, what, **details))  # type: ignore[arg-type]

    def run(self) -> None:
        """Run until the slots have ended, or for as long as that may take."""
        compiled = TopologyShape("simulated", self.scenario.slots)
        self.slots.start(cast("CompiledTopology", compiled))
        for _ in range(self.scenario.at_once):
            self._begin()
        self.timeline.after(1.0, self._second)
        self.timeline.after(self.scenario.chaos_s, self._heal)
        self.timeline.run(lambda: self._closed, until_s=self.scenario.chaos_s + CALM_S)

    def leftovers(self) -> list[str]:
        """Return what is still there at the end, and should not be."""
        found: list[str] = []
        if not self._closed:
            found += [f"the slots have not ended {CALM_S:g} s after the last fault"]
            found += [f"batch {txid} is not done" for txid in sorted(self._under_way)]
        found += [
            f"the job {job.submission} of slot {job.slot} has not ended"
            for job in self.cluster.jobs_left()
        ]
        return found

    # ------------------------------------------------------------ chance

    def _second(self) -> None:
        """Draw what happens at any time."""
        if self.chaos.happens("core_away"):
            self.cluster.lose_core(for_good=False)
        if self.chaos.happens("core_gone"):
            self.cluster.lose_core(for_good=True)
        if self.chaos.happens("stop"):
            self._stop("asked to stop")
        if not self.chaos.healed:
            self.timeline.after(1.0, self._second)

    def _heal(self) -> None:
        self.chaos.healed = True
        self.tell("healed")

    # ------------------------------------------------------------ the topology

    def _begin(self) -> None:
        if self._left and not self.ended:
            txid = self._left.pop()
            self._under_way[txid] = 0
            self._try(txid)
        elif not self._under_way:
            self._stop("everything is done")

    def _try(self, txid: int) -> None:
        if not self.ended:
            self._under_way[txid] += 1
            self._order(txid, "processing", 0)

    def _order(self, txid: int, chain: Chain, level: int) -> None:
        attempt = TransactionAttempt(txid, self._under_way[txid], 1)
        run = Run(f"{txid}:{attempt.attempt}:{chain}", (attempt,), (BatchMetadata(),), None)
        self._chains[txid] = chain
        levels = (RunLevel(chain, run, level),)
        request = StageRequest(run.tag, levels, pack(levels), {})
        done: Future[Answers] = Future()
        done.add_done_callback(partial(self._answered, txid, request))
        self.tell("ordered", tag=run.tag, level=level, note=request.urgency)
        self.slots.compute(request, done)
        if level == 0:  # the time limit of a job, which the topology keeps
            limit = partial(self._time_out, run.tag)
            self.timeline.after(self.scenario.batch_timeout_s, limit)
        if self.chaos.happens("cancel"):
            cancel = partial(self._cancel, run.tag)
            self.timeline.after(self.chaos.between(0.0, 1.0), cancel)

    def _time_out(self, tag: str) -> None:
        txid, attempt, chain = tag.split(":")
        now = self._under_way.get(int(txid)) == int(attempt)
        if now and chain == self._chains.get(int(txid)) and not self.ended:
            self._cancel(tag)

    def _cancel(self, tag: str) -> None:
        self.tell("cancelled", tag=tag)
        self.slots.cancel(tag)

    def _answered(self, txid: int, request: StageRequest, done: Future[Answers]) -> None:
        """Take note of the outcome of a level; called in the middle of the slots' work."""
        names = {"tag": request.tag, "level": request.levels[0].level}
        error = done.exception()
        if error is None:
            answers = [[payload for _, payload in each] for each in done.result()]
            self.tell("level done", **names, note=answers)
        else:
            self.tell("level failed", **names, error=error)
        # As from another thread: somebody may come in between.
        delay_s = self.chaos.latency_s()
        self.timeline.after(delay_s, partial(self._go_on, txid, request, error))

    def _go_on(self, txid: int, request: StageRequest, error: BaseException | None) -> None:
        if self.ended:
            return
        last = request.levels[-1]
        if error is not None and not isinstance(error, RunLostError):
            self._stop(repr(error))
        elif error is not None:
            self.timeline.after(RETRY_S, partial(self._try, txid))
        elif last.level + 1 < self.scenario.levels and last.chain == "processing":
            self._order(txid, "processing", last.level + 1)
        elif last.chain == "processing":
            self._order(txid, "commit", 0)
        else:
            del self._under_way[txid]
            self._begin()

    def _changed(self, error: SlotUnavailable) -> None:
        self.tell("changed", slot=error.slot, error=error)
        self._stop("continues with another carrier")

    def _stop(self, why: str) -> None:
        if not self.ended:
            self.ended = why
            self.tell("stop", note=why)
            self.slots.stop(self._close)

    def _close(self) -> None:
        self.tell("closed")
        self._closed = True


class WatchedSlots(StageSlots):
    """Slots that write down what they are told."""

    tell = staticmethod(lambda what, **details: None)

    def slot_ready(self, ready: SlotReady) -> None:
        """Give it something to do."""
        self.tell("slot ready", slot=ready.slot)
        super().slot_ready(ready)

    def slot_said(self, said: SlotSaid) -> None:
        """Take an answer."""
        self.tell("slot said", slot=said.slot, life=said.life, note=said.frames[1:])
        super().slot_said(said)

    def slot_lost(self, lost: LifeLost) -> None:
        """Fail what it was doing."""
        self.tell(
            "slot lost", slot=lost.slot, life=lost.ended, error=lost.error, note=lost.job_ended
        )
        super().slot_lost(lost)

    def slot_overdue(self, slot: int, error: SlotUnavailable) -> None:
        """End everything, or change the carrier."""
        self.tell("slot overdue", slot=slot, error=error)
        super().slot_overdue(slot, error)


class _Warnings(logging.Handler):
    """Writes the warnings of the runtime down instead of showing them."""

    def __init__(self, world: SlotWorld) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        known = vars(record)
        if "missing_s" in known and known.get("slot") is not None:
            what, slot = "warned of missing", known["slot"]
        else:
            what, slot = "warned", -1
        self._world.tell(what, slot=slot, note=record.getMessage())


@contextmanager
def heard_warnings(world: SlotWorld) -> Iterator[None]:
    """Have the warnings of the runtime told to a world, and to nobody else."""
    logger, handler = logging.getLogger(LOGGER), _Warnings(world)
    propagate, level = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)
