"""A proxy before a server: the network between a client and it, with the faults of networks.

TCP loses no byte of a connection that lives, so these are the faults that a program can meet: bytes
come later (:attr:`Flow.delay_s`), in fits and starts (a packet was lost and sent again), or slowly;
the connection ends in the middle of a message; nothing comes through in one direction for a while;
and one end is gone while the other is never told. Each direction has a :class:`Flow` of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import random
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_AT_ONCE = 65_536
# So often in a second a slow flow continues.
_STEPS_PER_S = 20
# Linux. A filter of one instruction, "keep 0 bytes": the kernel drops each packet that comes in, as
# if the network had lost it. Nothing is acknowledged, and whoever sent it sends it again.
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_KEEP_NOTHING = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
_FILTER = struct.pack("HL", 1, ctypes.addressof(_KEEP_NOTHING))


@dataclass(frozen=True, slots=True)
class Flow:
    """How bytes of one direction are carried.

    A piece is what the sender has sent since the piece before, up to 64 KiB.

    Attributes:
        delay_s: Each piece arrives so much later.
        jitter_s: And up to so much later still, drawn for each piece.
        stall_share: The share of pieces that are lost and sent again.
        stall_s: How long that takes.
        cut_share: The share of pieces in whose middle the connection ends.
        bytes_per_s: How fast they are carried.
        fate: ``"carry"``; ``"hold"``, until another flow is set; or ``"swallow"``: they are lost,
            and the sender believes that they have arrived.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    stall_share: float = 0.0
    stall_s: float = 0.0
    cut_share: float = 0.0
    bytes_per_s: float = math.inf
    fate: Literal["carry", "hold", "swallow"] = "carry"


CALM = Flow()


class TcpProxy:
    """Forwards bytes between clients and a server on the loopback interface.

    Args:
        port: The server's.
        at: Where it listens itself; port 0 takes a free one.

    Attributes:
        port: Where clients connect.
        arrived: Set when the message to be delayed has come from the client.
        connections: How many were accepted.
    """

    def __init__(self, port: int, at: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._server_port = port
        self._listener = socket.create_server(at)
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        self._marker: bytes | None = None
        self._landed = False
        self._up = self._answers_new = True
        # What is let in and what is cut off must not miss each other.
        self._door = threading.Lock()
        # One end is None if the other one shall never be told that it is gone.
        self._pairs: list[tuple[socket.socket | None, socket.socket | None]] = []
        self._muted: set[socket.socket] = set()
        self._delayed: bytes | None = None
        self.arrived, self._released = threading.Event(), threading.Event()
        self._flows = {"requests": CALM, "answers": CALM}
        self._weather = threading.Condition()
        self._chance = random.Random(self.port)
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, marker: bytes, *, landed: bool) -> None:
        """Drop the connection whose client sends *marker*, after or before the server did it."""
        self._marker, self._landed = marker, landed

    def delay(self, marker: bytes) -> None:
        """Keep the next message with *marker* on its way until :meth:`release`."""
        self._delayed = marker

    def release(self) -> None:
        """Hand on what was kept."""
        self._released.set()

    def set_flows(self, requests: Flow = CALM, answers: Flow = CALM) -> None:
        """Carry bytes of each direction so from now on, also those that are on their way."""
        with self._weather:
            self._flows = {"requests": requests, "answers": answers}
            self._weather.notify_all()

    def cut(self) -> None:
        """Drop every connection and accept no new one."""
        self._up = False
        self.cut_once()

    def cut_once(self) -> None:
        """Drop every connection; new ones are accepted."""
        with self._door:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _drop(*pair)
        with self._weather:
            self._weather.notify_all()

    def lose_packets(self) -> None:
        """Lose each packet that clients send, also those that would open a connection.

        :meth:`repair` ends it; then the clients' systems send them again.
        """
        with self._door:
            for each in self._client_ends():
                each.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _FILTER)

    def half_open(self, new: Literal["hang", "mute"] = "hang") -> None:
        """Close the connections to the server, and tell no client, ever: their packets are lost.

        Args:
            new: New connections hang while they are made, until :meth:`repair`; or they are
                accepted, and then nothing is answered, ever.
        """
        with self._door:
            clients = [client for client, _ in self._pairs if client is not None]
            for client in clients + [self._listener] * (new == "hang"):
                client.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _FILTER)
            self._answers_new = new != "mute"
            servers = [server for client, server in self._pairs if client is not None]
            forgotten = [pair for pair in self._pairs if pair[0] is None]
            self._pairs = [(client, None) for client in clients] + forgotten
        _drop(*servers)

    def forget_clients(self) -> None:
        """Close the connections to clients, and tell no server, ever: its packets are lost."""
        with self._door:
            clients = [client for client, _ in self._pairs]
            for _, server in self._pairs:
                if server is not None:
                    server.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _FILTER)
            self._pairs = [(None, server) for _, server in self._pairs]
        _drop(*clients)

    def repair(self) -> None:
        """Be a good network again. Connections that are half-open stay so."""
        with self._door:
            self._up = self._answers_new = True
            dead = {client for client, server in self._pairs if server is None}
            for each in self._client_ends():
                # It has no filter, or it has ended.
                with contextlib.suppress(OSError):
                    if each not in dead:
                        each.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        self.set_flows()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):  # so that nobody waits at it any more
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.release()
        self.cut()

    def _client_ends(self) -> Sequence[socket.socket]:
        return [self._listener, *(client for client, _ in self._pairs if client is not None)]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._door:
                    if not self._answers_new:
                        self._pairs.append((client, None))
                        continue
                    server = self._server() if self._up else None
                    if server is None:
                        client.close()
                        continue
                    self._pairs.append((client, server))
                    self.connections += 1
                for work in (self._requests, self._answers):
                    threading.Thread(target=work, args=(client, server), daemon=True).start()

    def _server(self) -> socket.socket | None:
        """Return a connection to the server; None if it is down, and may come back."""
        try:
            return socket.create_connection(("127.0.0.1", self._server_port))
        except OSError:
            return None

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(_AT_ONCE):
                if self._delayed is not None and self._delayed in data:
                    self._delayed = None
                    self.arrived.set()
                    self._released.wait()
                if self._marker is None or self._marker not in data:
                    self._carry(data, server, "requests")
                    continue
                self._marker = None
                if self._landed:
                    # The server does its work, and the connection is lost with its answer.
                    self._muted.add(server)
                    server.sendall(data)
                    continue
                break
        self._end(client, server)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (data := server.recv(_AT_ONCE)) and server not in self._muted:
                self._carry(data, client, "answers")
        self._end(client, server)

    def _carry(self, data: bytes, sink: socket.socket, way: str) -> None:
        """Carry a piece as the flow says, which may change in between.

        Raises:
            OSError: The connection has ended.
        """
        flow = self._flows[way]
        stall_s = flow.stall_s if self._chance.random() < flow.stall_share else 0.0
        self._pause(flow.delay_s + self._chance.uniform(0.0, flow.jitter_s) + stall_s, way)
        while data:
            self._wait_while_held(sink, way)
            flow = self._flows[way]
            if self._chance.random() < flow.cut_share:
                sink.sendall(data[: len(data) // 2])
                raise OSError("cut in the middle of a message")
            part = data
            if flow.bytes_per_s < math.inf:
                part = data[: max(1, int(flow.bytes_per_s / _STEPS_PER_S))]
                self._pause(len(part) / flow.bytes_per_s, way)
            if flow.fate != "swallow":
                sink.sendall(part)
            data = data[len(part) :]

    def _pause(self, seconds: float, way: str) -> None:
        """Wait, but not longer than the flow of a direction stays the same."""
        until_s, flow = time.monotonic() + seconds, self._flows[way]
        with self._weather:
            while self._flows[way] is flow and (left_s := until_s - time.monotonic()) > 0:
                self._weather.wait(left_s)

    def _wait_while_held(self, sink: socket.socket, way: str) -> None:
        with self._weather:
            self._weather.wait_for(lambda: self._flows[way].fate != "hold" or sink.fileno() < 0)

    def _end(self, client: socket.socket, server: socket.socket) -> None:
        """Drop both ends of a connection, unless one of them shall not be told."""
        with self._door:
            if (client, None) in self._pairs or (None, server) in self._pairs:
                return
            with contextlib.suppress(ValueError):
                self._pairs.remove((client, server))
        _drop(client, server)


def _drop(*ends: socket.socket | None) -> None:
    for each in ends:
        if each is not None:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
