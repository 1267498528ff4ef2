"""A carrier whose slots are threads, and a topology that is held up in one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tests.harness.polling import LIMIT_S
from tests.unit.resident.threads import ThreadJobs
from tests.unit.stages.running import (
    Row,
    RowsEmitter,
    RowsSpout,
    bolt,
    compile_components,
    gathered,
    spout,
)
from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import BasicBolt, BatchBolt, Committer
from txtopo.carriers.carrier import Carrier
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import RunLostError
from txtopo.metadata import Json
from txtopo.resident.carrier import ResidentCarrier
from txtopo.resident.hosts import StageHost
from txtopo.resident.slot_runner import LIMITS, SlotLimits
from txtopo.resident.sockets import Keys
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.spouts.spout import TransactionalEmitter
from txtopo.stages.compiled_topology import CompiledTopology, Run
from txtopo.stages.outcome import RunOutcome, judge
from txtopo.testing import Shared
from txtopo.topology.bolt_kinds import BASIC_BOLT
from txtopo.topology.component import Component
from txtopo.tuples import Fields, Tuple

DIED = RunLostError("a Python worker of the job died", counted=True, cancelled=False)
CONFIG = Config(backoff_s=0.01)
AWAY = RunLostError("the executor was lost", counted=False, cancelled=False)


class Slots:
    """A carrier whose slots are threads."""

    def __init__(
        self,
        slots: int,
        now: Callable[[], float] = time.monotonic,
        limits: SlotLimits = LIMITS,
        config: Config = CONFIG,
        replacement: Callable[[], Carrier] | None = None,
    ) -> None:
        self.jobs = ThreadJobs(StageHost, now)
        scheduler = ThreadScheduler("txtopo-test-slots")
        self.carrier = ResidentCarrier(
            self.jobs, Keys.make(), config, slots, scheduler, limits, replacement
        )
        self.threads = ThreadPoolExecutor(4)

    def start(self, compiled: CompiledTopology) -> None:
        self.compiled = compiled
        self.carrier.start(compiled)

    def process(self, run: Run) -> Future[RunOutcome]:
        """Process a run on a thread of its own."""
        return self.threads.submit(
            lambda: judge(self.compiled, run, self.carrier.process(run).records)
        )

    def lose_connection(self, slot: int) -> None:
        """Have the next ping to a slot find nobody."""
        slots, scheduler = self.carrier._slots, self.carrier._scheduler

        def lose() -> None:
            owner = slots.slots[slot].owner
            assert owner is not None
            slots._runner._unreachable(owner)

        scheduler.post(lose)

    def close(self) -> None:
        self.carrier.close()
        self.threads.shutdown()


Limited = Callable[[SlotLimits], Slots]


class Gate(Shared):
    """Holds up one tuple of a txid, and notes who came by."""

    def __init__(self, txid: int = 1) -> None:
        self.txid = txid
        self.reached, self.opened = threading.Event(), threading.Event()
        self.passed: list[int] = []
        self.order: list[str] = []


class Rows(RowsSpout):
    """Notes what it emits, and when."""

    def __init__(self, gate: Gate) -> None:
        batches = [[(f"word {txid}", txid)] for txid in range(1, 5)]
        super().__init__(batches, "word string, amount long")
        self.gate = gate

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return Emitter(self.batches, context, self.gate)


class Emitter(RowsEmitter):
    def __init__(self, batches: Sequence[Sequence[Row]], context: TaskContext, gate: Gate) -> None:
        super().__init__(batches, context)
        self.gate = gate

    def emit_batch(self, attempt: TransactionAttempt, metadata: Json, collector: Any) -> None:
        self.gate.order.append(f"emits {attempt.txid}")
        super().emit_batch(attempt, metadata, collector)


class Held(BasicBolt):
    """Waits at the gate."""

    output_fields = Fields("word string")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def execute(self, tuple: Tuple, collector: Any) -> None:
        if tuple.attempt.txid == self.gate.txid and not self.gate.reached.is_set():
            self.gate.reached.set()
            assert self.gate.opened.wait(LIMIT_S)
        self.gate.passed.append(tuple.attempt.txid)
        collector.emit([tuple["word"]])


class Commits(BatchBolt, Committer):
    """Notes its commits."""

    writes_nowhere_else = True

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        if context.task_index == 0:
            self.gate.order.append(f"commits {attempt.txid}")

    def execute(self, tuple: Tuple) -> None:
        pass

    def finish_batch(self) -> None:
        pass


class Mute(StageHost):
    """Never says that it is ready."""

    def _obey(self, kind: bytes, frames: list[bytes]) -> None:
        pass


def held(gate: Gate, *bolts: Component) -> CompiledTopology:
    return compile_components(
        spout(Rows(gate)), bolt("held", Held(gate), gathered(), kind=BASIC_BOLT), *bolts
    )


def txids(outcome: RunOutcome) -> list[int]:
    assert outcome.failure is None, outcome.failure
    return [batch.attempt.txid for batch in outcome.processed]
