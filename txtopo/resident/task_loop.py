"""TaskLoop: the loop of a slot's task, which waits for sockets.

The thread of the task polls the sockets of the slot. Meanwhile results of spouts arrive from other
threads, and timers become due. So the thread also polls one end of a socket pair: posting a
callback sends a byte to it.
"""

from __future__ import annotations

import heapq
import math
import queue
import socket
from contextlib import suppress

from txtopo.runtime.scheduler import Callback, ThreadScheduler


class TaskLoop(ThreadScheduler):
    """Time, timers and threads of one task; its thread calls :meth:`run` instead of ``start``."""

    def __init__(self) -> None:
        super().__init__("txtopo-slot")
        self._wakes, self._wake = socket.socketpair()
        self._wakes.setblocking(False)
        self._wake.setblocking(False)
        self._woken = False

    def fileno(self) -> int:
        """Return the file descriptor to poll: it is readable when there is something to run."""
        return self._wakes.fileno()

    @property
    def wait_s(self) -> float:
        """Seconds until the next timer is due."""
        return self._timers[0].due_s - self.now() if self._timers else math.inf

    def post(self, callback: Callback) -> None:
        """Make :meth:`run` call *callback*. May be called from any thread."""
        super().post(callback)
        if not self._woken:
            self._woken = True
            with suppress(OSError):  # the task has ended
                self._wake.send(b"x")

    def run(self) -> None:
        """Call the posted callbacks, then the timers that are due."""
        with suppress(BlockingIOError):
            self._wakes.recv(64)
        # Reset this before the queue is read, so that a callback posted from now on wakes again.
        self._woken = False
        with suppress(queue.Empty):
            while True:
                self._queue.get_nowait()()
        now_s = self.now()
        while self._timers and self._timers[0].due_s <= now_s:
            timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.callback()

    def close(self) -> None:
        """Ignore all later wake-ups."""
        self._wake.close()
        self._wakes.close()
