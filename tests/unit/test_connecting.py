"""Which servers do not answer, and why, from a plain connect to each of their addresses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from txtopo.connecting import silent_servers
from txtopo.servers import Server

CLOSED = ("127.0.0.1", 1)


@pytest.fixture
def listening() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


def test_a_server_is_silent_if_no_address_answers(listening: tuple[str, int]) -> None:
    one = Server("one of three", (CLOSED, ("nowhere.invalid", 9092), listening))
    none = Server("none of three", (CLOSED, ("nowhere.invalid", 9092), ("x" * 64, 9092)))

    silent = silent_servers([one, none])

    assert silent == {
        none: "127.0.0.1:1 refuses connections, nothing listens there; "
        "nowhere.invalid:9092 cannot be resolved; "
        f"{'x' * 64}:9092 cannot be resolved"
    }


def test_a_look_up_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver has no time limit of its own."""
    answered = threading.Event()

    def hang(address: object, timeout: float) -> Any:
        answered.wait()
        raise OSError

    monkeypatch.setattr(socket, "create_connection", hang)
    server = Server("Kafka", (("::1", 9092),))
    try:
        silent = silent_servers([server], limit_s=0.01)
    finally:
        answered.set()

    assert silent == {server: "[::1]:9092 does not answer"}
