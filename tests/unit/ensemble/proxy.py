"""A proxy in front of ZooKeeper that loses a connection at a chosen point of a chosen request."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

MULTI = 14
LOGIN = 102
"""What a message of a SASL login is."""


class Proxy:
    """Forwards frames between clients and a server on the loopback interface.

    Attributes:
        hosts: Where clients connect.
        multis: How many multi requests came by.
        logins: How many messages of a login came by.
    """

    def __init__(self, port: int) -> None:
        self.multis = 0
        self.logins = 0
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._up = True
        self._faults: list[bool] = []
        self._login_faults: list[bool] = []
        self._links: list[_Link] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_answer(self, *, landed: bool, times: int = 1) -> None:
        """Drop the connection of the next multi, after the server did it or before it came."""
        self._faults += [landed] * times

    def lose_next_login(self, *, landed: bool, times: int = 1) -> None:
        """Drop the connection in the middle of a login, as a server does that is just stopped."""
        self._login_faults += [landed] * times

    def cut(self) -> None:
        """Drop every connection and accept no new one."""
        self._up = False
        for link in self._links:
            link.drop()

    def repair(self) -> None:
        """Accept connections again."""
        self._up = True

    def next_fault(self, kind: int) -> bool | None:
        """Count a request and say what happens to it."""
        self.multis += kind == MULTI
        self.logins += kind == LOGIN
        faults = {MULTI: self._faults, LOGIN: self._login_faults}.get(kind)
        return faults.pop(0) if faults else None

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self._up:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._port))
                self._links.append(_Link(self, client, server))


class _Link:
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._swallow: bytes | None = None
        threading.Thread(target=self._requests, daemon=True).start()
        threading.Thread(target=self._answers, daemon=True).start()

    def drop(self) -> None:
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()

    def _requests(self) -> None:
        first = True
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _read_frame(self._client)
                kind = 0 if first else struct.unpack(">i", frame[8:12])[0]
                first = False
                landed = self._proxy.next_fault(kind)
                if landed is False:
                    break
                if landed is True:
                    self._swallow = _id(frame)
                self._server.sendall(frame)
        self.drop()

    def _answers(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _read_frame(self._server)
                # Not the answer to a ping, which says nothing about what the server has done.
                if self._swallow == _id(frame):
                    break
                self._client.sendall(frame)
        self.drop()


def _id(frame: bytes) -> bytes:
    """Return what a request and its answer have in common; the first two frames have none."""
    return frame[4:8]


def _read_frame(sender: socket.socket) -> bytes:
    head = _read(sender, 4)
    return head + _read(sender, struct.unpack(">i", head)[0])


def _read(sender: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sender.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
