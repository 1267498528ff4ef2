"""Peers: what a slot knows of the other slots, and how it sends to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import zmq

from txtopo.runtime.resident.messages import Neighbour, Sent, lives_frame
from txtopo.runtime.resident.sockets import Keys, connected
from txtopo.stages.anchoring.sending import Sealed

if TYPE_CHECKING:
    Context = zmq.Context[zmq.Socket[bytes]]


@dataclass(slots=True)
class _Peer:
    """Another slot.

    Attributes:
        life: The life that it is in, or will be in next.
        socket: The way to it; None between two lives.
        kept: Envelopes for a life that has not begun yet.
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
        """Take note of where everybody is now."""
        self._life = own_life
        for slot, (life, endpoint) in enumerate(neighbours):
            if slot == len(self._peers):
                self._peers.append(_Peer(life))
            peer = self._peers[slot]
            if peer.life != life:
                # What lies there for the earlier life is lost with it.
                self._hang_up(peer)
                self._peers[slot] = peer = _Peer(life)
            if endpoint is not None and peer.socket is None and life != own_life:
                peer.socket = connected(self._context, zmq.PUSH, self._keys, endpoint)
                for record in peer.kept:
                    self._send(peer, record)
                peer.kept = []

    def send(self, sealed: Sequence[Sealed]) -> Sent:
        """Send envelopes; return how many tuples went to which (slot, life)."""
        sent: Counter[tuple[int, int]] = Counter()
        for each in sealed:
            peer = self._peers[each.to_slot]
            sent[each.to_slot, peer.life] += each.tuples
            if peer.socket is None:
                peer.kept.append(each.record)
            else:
                self._send(peer, each.record)
        return dict(sent)

    def close(self) -> None:
        """Close all sockets; what lies in them is dropped."""
        for peer in self._peers:
            self._hang_up(peer)

    def _send(self, peer: _Peer, record: bytes) -> None:
        assert peer.socket is not None
        # Without a high-water mark there is always room: this does not wait.
        peer.socket.send_multipart((lives_frame(peer.life, self._life), record), copy=False)

    def _hang_up(self, peer: _Peer) -> None:
        if peer.socket is not None:
            peer.socket.close()
            peer.socket = None
