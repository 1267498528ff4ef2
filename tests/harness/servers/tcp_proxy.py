"""A proxy before a server that loses the connection at a chosen message."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class TcpProxy:
    """Forwards bytes between clients and a server on the loopback interface.

    Attributes:
        port: Where clients connect.
        arrived: Set when the message to be delayed has come from the client.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._marker: bytes | None = None
        self._landed = False
        self._up = True
        # What is let in and what is cut off must not miss each other.
        self._door = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._muted: set[socket.socket] = set()
        self._delayed: bytes | None = None
        self.arrived, self._released = threading.Event(), threading.Event()
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

    def cut(self) -> None:
        """Drop every connection and accept no new one."""
        with self._door:
            self._up = False
            for each in self._sockets:
                _drop(each)

    def mend(self) -> None:
        """Accept connections again."""
        self._up = True

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.close()
        self.release()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._door:
                    server = self._server() if self._up else None
                    if server is None:
                        client.close()
                        continue
                    self._sockets += [client, server]
                threading.Thread(target=self._requests, args=(client, server)).start()
                threading.Thread(target=self._answers, args=(client, server)).start()

    def _server(self) -> socket.socket | None:
        """Return a connection to the server; None if it is down, and may come back."""
        try:
            return socket.create_connection(("127.0.0.1", self._server_port))
        except OSError:
            return None

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self._delayed is not None and self._delayed in data:
                    self._delayed = None
                    self.arrived.set()
                    self._released.wait()
                if self._marker is None or self._marker not in data:
                    server.sendall(data)
                    continue
                self._marker = None
                if self._landed:
                    # The server does its work, and the connection is lost with its answer.
                    self._muted.add(server)
                    server.sendall(data)
                    continue
                break
        _drop(client)
        _drop(server)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (data := server.recv(65536)) and server not in self._muted:
                client.sendall(data)
        _drop(client)
        _drop(server)


def _drop(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
