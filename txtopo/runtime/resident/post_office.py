"""PostOffice: the driver's socket to all slots, on a lane of its own."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count

import zmq

from txtopo.runtime.resident.messages import PING
from txtopo.runtime.resident.sockets import Keys, listening
from txtopo.runtime.scheduler import ThreadScheduler

PING_S = 1.0
# How many messages are taken in before others may be sent again.
_AT_ONCE_MAX = 100
_numbers = count()

Letter = Sequence[bytes]
"""What a slot said: who, kind, slot, and what belongs to it."""


class PostOffice:
    """Sends to tasks by identity and hears them. Used on the loop; the lane has the socket.

    Args:
        keys: The keys of the run.
        host: Where to listen.
        scheduler: Time and threads.
        heard: Called on the loop with what has come.
        unreachable: Called on the loop with who is connected no more.
    """

    def __init__(
        self,
        keys: Keys,
        host: str,
        scheduler: ThreadScheduler,
        heard: Callable[[list[Letter]], None],
        unreachable: Callable[[bytes], None],
    ) -> None:
        self._scheduler = scheduler
        self._heard = heard
        self._unreachable = unreachable
        self.pinged: frozenset[bytes] = frozenset()
        """Whom to send a ping every second. Replaced as a whole, since the lane reads it."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._outer, self.port = listening(self._context, zmq.ROUTER, keys, host)
        # An identity that is not connected is an error, which is how a lost one shows.
        self._outer.router_mandatory = True
        self._inner = self._context.socket(zmq.PAIR)
        self._desk = self._context.socket(zmq.PAIR)
        for socket in (self._inner, self._desk):
            socket.sndhwm = socket.rcvhwm = 0
            socket.linger = 0
        name = f"inproc://post-office-{next(_numbers)}"
        self._inner.bind(name)
        self._desk.connect(name)
        self._lane = scheduler.lasting_lane("post-office")
        self._closed = False

    def open(self) -> None:
        """Begin to send and to hear."""
        self._lane.submit(self._serve, _served)

    def send(self, identity: bytes, *frames: bytes) -> None:
        """Send to a task; nobody waits. Who speaks after the end is not answered."""
        # A socket whose other end is closed would wait for ever, and with it the loop.
        if not self._closed:
            self._desk.send_multipart((identity, *frames), copy=False)

    def close(self, closed: Callable[[], None]) -> None:
        """Close the sockets, then call *closed*."""
        self._closed = True
        self._desk.send(b"")

        def done(_: Future[None]) -> None:
            self._context.destroy()
            closed()

        self._lane.submit(_nothing, done)
        self._lane.close()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._inner, zmq.POLLIN)
        poller.register(self._outer, zmq.POLLIN)
        now = self._scheduler.now
        ping_s = now() + PING_S
        while True:
            ready = dict(poller.poll(int(max(0.0, ping_s - now()) * 1000) + 1))
            if self._inner in ready and not self._deliver():
                break
            if self._outer in ready:
                self._collect()
            if now() >= ping_s:
                ping_s = now() + PING_S
                for identity in self.pinged:
                    self._pass_on((identity, PING))
        self._inner.close()
        self._outer.close()

    def _deliver(self) -> bool:
        for _ in range(_AT_ONCE_MAX):
            try:
                frames = self._inner.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return True
            if len(frames) == 1:
                return False
            self._pass_on(frames)
        return True

    def _pass_on(self, frames: Sequence[bytes]) -> None:
        try:
            self._outer.send_multipart(frames, copy=False)
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            self._scheduler.post(partial(self._unreachable, frames[0]))

    def _collect(self) -> None:
        letters: list[Letter] = []
        while len(letters) < _AT_ONCE_MAX:
            try:
                letters.append(self._outer.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                break
        self._scheduler.post(partial(self._heard, letters))


def _served(future: Future[None]) -> None:
    """Raise what the lane's work raised, which ends the run."""
    future.result()


def _nothing() -> None:
    """Come after the lane's other works."""
