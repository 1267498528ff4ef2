"""DriverLink: a task's connection to the driver, whatever its slot works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import zmq

from txtopo.runtime.resident import messages
from txtopo.runtime.resident.sockets import Keys, address_towards, connected

if TYPE_CHECKING:
    Context = zmq.Context[zmq.Socket[bytes]]


class DriverLink:
    """Says what a task has to say, and hears the driver. Used on the thread of the task.

    Args:
        context: Makes the socket, and destroys it.
        slot: Which slot it is.
        submission: Which job of the slot this is.
        keys: The keys of the run.
        driver: Where the driver listens.
        silence_s: After so many seconds without a word of the driver it is gone.
        now: Seconds on a clock that only goes forward.
    """

    def __init__(
        self,
        context: Context,
        slot: int,
        submission: int,
        keys: Keys,
        driver: str,
        silence_s: float,
        now: Callable[[], float],
    ) -> None:
        self._slot = messages.slot_frame(slot)
        self._silence_s = silence_s
        self._now = now
        self.socket = connected(
            context, zmq.DEALER, keys, driver, messages.new_identity(submission)
        )
        self.address = address_towards(driver.removeprefix("tcp://").rpartition(":")[0])
        """Where other tasks can reach this one."""
        self.over = False
        """Whether the driver has told the task to end."""
        self._heard_s = now()
        self._lost = False

    @property
    def gone(self) -> bool:
        """Whether nothing was heard for too long, or nothing can be said any more. To be asked when
        all that came was heard: a work may have taken longer than that."""
        return self._lost or self._now() - self._heard_s > self._silence_s

    @property
    def gone_s(self) -> float:
        """When the driver will be gone, if it says nothing until then."""
        return self._heard_s + self._silence_s

    def say(self, kind: bytes, *frames: bytes) -> None:
        """Send to the driver; nobody waits."""
        try:
            self.socket.send_multipart((kind, self._slot, *frames), zmq.NOBLOCK, copy=False)
        except zmq.Again:
            # The connection is lost, and there will be no other: this would wait for ever.
            self._lost = True

    def part(self, *frames: bytes) -> None:
        """Say goodbye and wait until the driver has heard it, or is gone.

        What is on its way is lost with the socket. A driver that is there, but does not answer, is
        not waited for longer than one that is gone.
        """
        self.say(messages.BYE, *frames)
        until_s = self._now() + self._silence_s
        while not self._lost:
            while (heard := self.hear()) is not None:
                if heard[0] in (messages.END, messages.CUT_OFF):
                    return
            left_s = until_s - self._now()
            if left_s <= 0:
                return
            self.socket.poll(int(left_s * 1000) + 1)

    def hear(self) -> tuple[bytes, list[bytes]] | None:
        """Return the next word of the driver that has come; None if there is none."""
        try:
            kind, *frames = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        self._heard_s = self._now()
        if kind == messages.END or (kind == messages.CUT_OFF and frames[0] == messages.RETURN):
            self.over = True
        return kind, frames
