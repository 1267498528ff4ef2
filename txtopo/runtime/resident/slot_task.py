"""SlotTask: the function that Spark calls for a slot. It runs until the slot's life is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from txtopo.runtime.resident.sockets import Keys
from txtopo.runtime.scheduler import ThreadScheduler

if TYPE_CHECKING:
    from pyspark import Broadcast

    from txtopo.runtime.spark_task import PackedProgram

Work = Literal["bolts", "stages"]
"""What slots do: host the bolts of an at-least-once topology, or compute the stages of runs."""
# Ten pings. Long enough for a driver that collects garbage, short enough not to keep a core from
# others for nothing.
SILENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class SlotTask:
    """One slot as a function of (Spark partition, records).

    Attributes:
        packed: The program.
        slot: Which slot it is.
        submission: Which job of the slot this is.
        keys: The keys of the run.
        driver: Where the driver listens.
        work: What it does there.
        silence_s: After so many seconds without a word of the driver the task ends itself.
    """

    packed: Broadcast[PackedProgram]
    slot: int
    submission: int
    keys: Keys
    driver: str
    work: Work
    silence_s: float = SILENCE_S

    def __call__(self, partition: int, records: Iterable[object]) -> Iterator[object]:
        """Host the slot. The records, of which there are none, are read to the end: PySpark uses
        the worker of a task that has not for no other."""
        # Here, since the driver pickles the class by its name, and only workers need ZeroMQ then.
        from txtopo.runtime.resident.slot_host import SlotHost
        from txtopo.runtime.resident.stage_host import StageHost

        deque(records, maxlen=0)
        host = SlotHost if self.work == "bolts" else StageHost
        host(
            self.packed.value.unpack(),
            self.slot,
            self.submission,
            self.keys,
            self.driver,
            self.silence_s,
            ThreadScheduler("slot").now,
        ).run()
        return iter(())
