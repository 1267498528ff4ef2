"""Transport: the sockets between the driver and the slots, by ZeroMQ.

:class:`DriverSocket` is the driver's end. :class:`TaskSocket` is a task's end of the same
connection. :class:`Peers` are the connections from one slot to the others.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol

import zmq

from txtopo.reliable.anchoring.sending import Sealed
from txtopo.resident import wire
from txtopo.resident.sockets import Keys, address_towards, connected, listening
from txtopo.resident.wire import PING, Neighbour, Sent, lives_frame
from txtopo.runtime.scheduler import Callback, Done, SerialExecutor, Timer

if TYPE_CHECKING:
    Context = zmq.Context[zmq.Socket[bytes]]

PING_S = 1.0
# How many messages are received before others may be sent again.
_AT_ONCE_MAX = 100
_numbers = count()

Letter = Sequence[bytes]
"""A message from a task: its identity, the kind, the slot, and the payload."""


class SlotLoop(Protocol):
    """Time and threads of the loop that the slots are supervised on."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def post(self, callback: Callback) -> None:
        """Call *callback* on the loop soon. May be used on any thread."""
        ...

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Call *callback* on the loop after a delay. To be used on the loop only."""
        ...

    def submit(self, work: Callable[[], object], done: Done) -> None:
        """Run blocking *work* on another thread, then call *done* on the loop."""
        ...

    def submit_lasting(self, work: Callable[[], object], done: Done) -> None:
        """Run *work* that lasts as long as the run on a thread, then call *done* on the loop."""
        ...

    def lasting_executor(self, name: str) -> SerialExecutor:
        """Return a thread for work that lasts as long as the run."""
        ...


class DriverSocket:
    """The driver's socket to all tasks. Used on the loop; a thread of its own serves the socket.

    Args:
        keys: The keys of the run.
        host: Where to listen.
        scheduler: Time and threads.
        heard: Called on the loop with received messages.
        unreachable: Called on the loop with the identity of a task that is no longer connected.
    """

    def __init__(
        self,
        keys: Keys,
        host: str,
        scheduler: SlotLoop,
        heard: Callable[[list[Letter]], None],
        unreachable: Callable[[bytes], None],
    ) -> None:
        self._scheduler = scheduler
        self._heard = heard
        self._unreachable = unreachable
        self.pinged: frozenset[bytes] = frozenset()
        """Tasks to ping every second. Replaced as a whole, since the other thread reads it."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._outer, self.port = listening(self._context, zmq.ROUTER, keys, host)
        # Sending to an identity that is not connected raises an error, which reveals a lost task.
        self._outer.router_mandatory = True
        self._thread_end = self._context.socket(zmq.PAIR)
        self._loop_end = self._context.socket(zmq.PAIR)
        for socket in (self._thread_end, self._loop_end):
            socket.sndhwm = socket.rcvhwm = 0
            socket.linger = 0
        name = f"inproc://driver-socket-{next(_numbers)}"
        self._thread_end.bind(name)
        self._loop_end.connect(name)
        self._executor = scheduler.lasting_executor("driver-socket")
        self._closed = False

    def open(self) -> None:
        """Start sending and receiving."""
        self._executor.submit(self._serve, _served)

    def send(self, identity: bytes, *frames: bytes) -> None:
        """Send to a task without waiting. Messages after :meth:`close` are dropped."""
        # A socket whose other end is closed would block the loop forever.
        if not self._closed:
            self._loop_end.send_multipart((identity, *frames), copy=False)

    def close(self, closed: Callable[[], None]) -> None:
        """Close the sockets, then call *closed*."""
        self._closed = True
        self._loop_end.send(b"")

        def done(_: Future[None]) -> None:
            self._context.destroy()
            closed()

        self._executor.submit(_nothing, done)
        self._executor.close()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._thread_end, zmq.POLLIN)
        poller.register(self._outer, zmq.POLLIN)
        now = self._scheduler.now
        ping_s = now() + PING_S
        while True:
            ready = dict(poller.poll(int(max(0.0, ping_s - now()) * 1000) + 1))
            if self._thread_end in ready and not self._deliver():
                break
            if self._outer in ready:
                self._collect()
            if now() >= ping_s:
                ping_s = now() + PING_S
                for identity in self.pinged:
                    self._pass_on((identity, PING))
        self._thread_end.close()
        self._outer.close()

    def _deliver(self) -> bool:
        for _ in range(_AT_ONCE_MAX):
            try:
                frames = self._thread_end.recv_multipart(zmq.NOBLOCK)
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
    """Raise the exception of the socket's thread, if any, which ends the run."""
    future.result()


def _nothing() -> None:
    """Do nothing; runs as the last call on the thread of the socket."""


class TaskSocket:
    """A task's socket to the driver. Used on the thread of the task.

    Args:
        slot: Number of the slot.
        submission: Number of the slot's job.
        keys: The keys of the run.
        driver: Where the driver listens.
        silence_s: After this many seconds without a message the driver counts as gone.
        now: Returns the seconds of a monotonic clock.
    """

    def __init__(
        self,
        slot: int,
        submission: int,
        keys: Keys,
        driver: str,
        silence_s: float,
        now: Callable[[], float],
    ) -> None:
        self.slot = slot
        self.keys = keys
        self.now = now
        self.silence_s = silence_s
        """After this many seconds without a message the driver counts as gone."""
        self.context: Context = zmq.Context()
        """The ZeroMQ context of the task, also for its other sockets."""
        self.socket = connected(
            self.context, zmq.DEALER, keys, driver, wire.new_identity(submission)
        )
        self.address = address_towards(driver.removeprefix("tcp://").rpartition(":")[0])
        """Where other tasks can reach this one."""
        self.over = False
        """Whether the driver has told the task to end."""
        self._heard_s = now()
        self._lost = False

    @property
    def gone(self) -> bool:
        """Whether no message came for too long, or none can be sent any more. Check it only after
        all received messages were read, since user code may have run for longer than that."""
        return self._lost or self.now() - self._heard_s > self.silence_s

    @property
    def gone_s(self) -> float:
        """When the driver counts as gone, if no message comes until then."""
        return self._heard_s + self.silence_s

    def say(self, kind: bytes, *frames: bytes) -> None:
        """Send to the driver without waiting."""
        try:
            self.socket.send_multipart(
                (kind, wire.slot_frame(self.slot), *frames), zmq.NOBLOCK, copy=False
            )
        except zmq.Again:
            # The connection is lost for good, so a send would wait forever.
            self._lost = True

    def say_goodbye(self, *frames: bytes) -> None:
        """Say goodbye, and wait until the driver has answered or is gone.

        Messages on their way would be lost with the socket. If the driver does not answer, the wait
        ends when the driver counts as gone.
        """
        self.say(wire.BYE, *frames)
        until_s = self.now() + self.silence_s
        while not self._lost:
            while (heard := self.hear()) is not None:
                if heard[0] in (wire.END, wire.CUT_OFF):
                    return
            left_s = until_s - self.now()
            if left_s <= 0:
                return
            self.socket.poll(int(left_s * 1000) + 1)

    def hear(self) -> tuple[bytes, list[bytes]] | None:
        """Return the next received message of the driver; None if there is none."""
        try:
            kind, *frames = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        self._heard_s = self.now()
        if kind == wire.END or (kind == wire.CUT_OFF and frames[0] == wire.RETURN):
            self.over = True
        return kind, frames

    def close(self) -> None:
        """Close all sockets of the task. Messages that have not been sent are dropped."""
        self.context.destroy()


@dataclass(slots=True)
class _Peer:
    """Another slot.

    Attributes:
        life: The number of its present life, or of the next one.
        socket: The socket that leads to it; None between two lives.
        kept: Envelopes and answers for a life that has not begun yet.
    """

    life: int
    socket: zmq.Socket[bytes] | None = None
    kept: list[bytes] = field(default_factory=list)


class Peers:
    """The other slots, as one slot sees them. Used on the thread of its task."""

    def __init__(self, context: Context, keys: Keys) -> None:
        self._context = context
        self._keys = keys
        self._peers: list[_Peer] = []
        self._life = 0

    def learn(self, own_life: int, neighbours: Sequence[Neighbour]) -> None:
        """Update the addresses of the other slots from the directory."""
        self._life = own_life
        for slot, (life, endpoint) in enumerate(neighbours):
            if slot == len(self._peers):
                self._peers.append(_Peer(life))
            peer = self._peers[slot]
            if peer.life != life:
                # Records for the earlier life are lost with it.
                self._hang_up(peer)
                self._peers[slot] = peer = _Peer(life)
            if endpoint is not None and peer.socket is None and life != own_life:
                peer.socket = connected(self._context, zmq.PUSH, self._keys, endpoint)
                for record in peer.kept:
                    self._send(peer, record)
                peer.kept = []

    def send(self, sealed: Sequence[Sealed]) -> Sent:
        """Send envelopes and answers; return how many tuples went to which (slot, life)."""
        sent: Counter[tuple[int, int]] = Counter()
        for each in sealed:
            peer = self._peers[each.to_slot]
            if each.tuples:
                sent[each.to_slot, peer.life] += each.tuples
            if peer.socket is None:
                peer.kept.append(each.record)
            else:
                self._send(peer, each.record)
        return dict(sent)

    def close(self) -> None:
        """Close all sockets. Records that were not sent are dropped."""
        for peer in self._peers:
            self._hang_up(peer)

    def _send(self, peer: _Peer, record: bytes) -> None:
        assert peer.socket is not None
        # Without a high-water mark there is always room, so this does not wait.
        peer.socket.send_multipart((lives_frame(peer.life, self._life), record), copy=False)

    def _hang_up(self, peer: _Peer) -> None:
        if peer.socket is not None:
            peer.socket.close()
            peer.socket = None
