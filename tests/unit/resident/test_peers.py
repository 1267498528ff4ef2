"""What a slot sends to another one that is between two lives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from txtopo.reliable.anchoring.sending import Sealed
from txtopo.resident.sockets import Keys, listening
from txtopo.resident.transport import Peers
from txtopo.resident.wire import lives_of

pytestmark = pytest.mark.integration
OWN = (1, None)


class Other:
    """The other slot."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        keys = Keys.make()
        self.peers = Peers(self.context, keys)
        self.inbox, port = listening(self.context, zmq.PULL, keys, "127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"

    def receive(self, timeout_ms: int = 30_000) -> tuple[tuple[int, int], bytes] | None:
        if not self.inbox.poll(timeout_ms):
            return None
        lives, record = self.inbox.recv_multipart()
        return lives_of(lives), record


@pytest.fixture
def other() -> Iterator[Other]:
    made = Other()
    yield made
    made.peers.close()
    made.inbox.close()
    made.context.term()


def test_an_envelope_waits_for_the_life_that_comes(other: Other) -> None:
    other.peers.learn(1, [OWN, (2, None)])
    assert other.peers.send([Sealed(1, b"early", 3)]) == {(1, 2): 3}
    assert other.receive(100) is None

    other.peers.learn(1, [OWN, (2, other.endpoint)])
    assert other.receive() == ((2, 1), b"early")


def test_an_envelope_for_a_life_that_never_began_is_dropped_with_it(other: Other) -> None:
    other.peers.learn(1, [OWN, (2, None)])
    other.peers.send([Sealed(1, b"lost", 3)])

    other.peers.learn(1, [OWN, (3, other.endpoint)])
    assert other.peers.send([Sealed(1, b"found", 5)]) == {(1, 3): 5}
    assert other.receive() == ((3, 1), b"found")
