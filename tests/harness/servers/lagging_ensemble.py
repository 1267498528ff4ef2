"""Three ZooKeeper servers of which one can be made to lag, so that it serves old data."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.harness.servers.ensemble import SERVERS, Member, ZooKeeperEnsemble
from tests.harness.servers.private import free_port

# A follower that hears nothing for so long gives up its leader: longer than any test holds it.
SYNC_TICKS = 240


class LaggingEnsemble(ZooKeeperEnsemble):
    """An ensemble whose first server hears of its leader through a network that can be held.

    Of servers that start empty the one with the highest number of a majority leads, never the
    first. While the network is held, that one continues to serve: reads at once, of what it has;
    writes, new sessions and ``sync`` when it has heard the leader.
    """

    def __init__(self) -> None:
        peers = [(free_port(), free_port()) for _ in range(SERVERS)]
        self.networks = [HeldNetwork(quorum) for quorum, _ in peers[1:]]
        others = zip(self.networks, peers[1:], strict=True)
        seen = [peers[0], *((network.port, election) for network, (_, election) in others)]
        views = [seen, peers, peers]
        self.members = [
            Member(number, view, sync_ticks=SYNC_TICKS) for number, view in enumerate(views, 1)
        ]

    @property
    def laggard(self) -> Member:
        """The server that lags when it is told to."""
        return self.members[0]

    def hold(self, marker: bytes) -> None:
        """Let the laggard hear nothing, until it is released, or has itself asked for *marker*."""
        for network in self.networks:
            network.hold(marker)

    def release(self) -> None:
        """Let the laggard hear again."""
        for network in self.networks:
            network.release()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for network in self.networks:
            network.close()


class HeldNetwork:
    """Forwards messages between a server and its leader; those of the leader can be held.

    Attributes:
        port: Where the server finds its leader.
    """

    def __init__(self, port: int) -> None:
        self._leader_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open = threading.Event()
        self._open.set()
        self._marker = b""
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, marker: bytes) -> None:
        """Hold the messages of the leader until the server says *marker*."""
        self._marker = marker
        self._open.clear()

    def release(self) -> None:
        """Hand on what was kept, and what comes."""
        self._open.set()

    def close(self) -> None:
        """Let nobody in any more."""
        self.release()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                server, _ = self._listener.accept()
                try:
                    leader = socket.create_connection(("127.0.0.1", self._leader_port))
                except OSError:
                    server.close()
                    continue
                for work in (self._says, self._hears):
                    threading.Thread(target=work, args=(server, leader), daemon=True).start()

    def _says(self, server: socket.socket, leader: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                leader.sendall(data)
                if not self._open.is_set() and self._marker in data:
                    self.release()
        _drop(server, leader)

    def _hears(self, server: socket.socket, leader: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := leader.recv(65536):
                self._open.wait()
                server.sendall(data)
        _drop(server, leader)


def _drop(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
