"""StageHost: what runs in the Spark task of a slot of a transactional topology."""

from __future__ import annotations

from collections.abc import Callable

import zmq

from txtopo.runtime.resident import messages
from txtopo.runtime.resident.link import DriverLink
from txtopo.runtime.resident.sockets import Keys
from txtopo.runtime.resident.stages import StageOrder, pack_answer
from txtopo.stages.pickling import loads
from txtopo.stages.program import Program
from txtopo.stages.stage import run_stage
from txtopo.stages.stage_context import RunLevel


class StageHost:
    """Does one order after the other, until the driver ends it.

    Args:
        program: The topology.
        slot: Which slot it is.
        submission: Which job of the slot this is.
        keys: The keys of the run.
        driver: Where the driver listens.
        silence_s: After so many seconds without a word of the driver the task ends itself.
        now: Seconds on a clock that only goes forward.
    """

    def __init__(
        self,
        program: Program,
        slot: int,
        submission: int,
        keys: Keys,
        driver: str,
        silence_s: float,
        now: Callable[[], float],
    ) -> None:
        self._program = program
        self._slot = slot
        self._now = now
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._link = DriverLink(self._context, slot, submission, keys, driver, silence_s, now)
        self._link.say(messages.HELLO, b"")

    @property
    def over(self) -> bool:
        """Whether the driver has told the task to end."""
        return self._link.over

    def run(self) -> None:
        """Host the slot until the driver ends it, or is gone."""
        try:
            while not self._link.over:
                left_s = max(0.0, self._link.gone_s - self._now())
                self._link.socket.poll(int(left_s * 1000) + 1)
                while (heard := self._link.hear()) is not None:
                    self._obey(*heard)
                if self._link.gone:
                    break
        finally:
            self._context.destroy()

    def _obey(self, kind: bytes, frames: list[bytes]) -> None:
        # Who is cut off and may not return is given nothing to do, and waits to be killed.
        if kind == messages.WELCOME:
            self._link.say(messages.READY)
        elif kind == messages.STAGE:
            order: StageOrder = loads(frames[0])
            level = RunLevel(order.chain, order.run, order.level)
            stage = run_stage(level.in_slot(self._program, self._slot, order.number), frames[1:])
            self._link.say(messages.ANSWER, *pack_answer(order.number, list(stage)))
