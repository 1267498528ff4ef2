"""The proxy does what it is told, in the direction it is told; else its faults show nothing."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.tcp_proxy import CALM, Flow, TcpProxy

# That something never comes can only be waited for. The campaign that needs the proxy takes longer.
pytestmark = pytest.mark.slow

NOT_NOW_S = 0.2
"""So long a test looks whether something comes that must not."""
packets = pytest.mark.skipif(sys.platform != "linux", reason="the filter of packets is Linux'")


class Echo:
    """A server that answers with what it was sent, and keeps it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.heard = b""
        self.left = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            while data := client.recv(65536):
                self.heard += data
                client.sendall(data)
        self.left += 1

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[TcpProxy]:
    with TcpProxy(echo.port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: TcpProxy) -> Iterator[socket.socket]:
    """A client whose connection has carried a message."""
    with ExitStack() as stack:
        client = stack.enter_context(connected(proxy))
        assert exchanged(client, b"hello") == b"hello"
        yield client


def connected(proxy: TcpProxy, limit_s: float = LIMIT_S) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), limit_s)


def exchanged(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return received(client, len(data))


def received(client: socket.socket, size: int) -> bytes:
    """Return this many bytes, or fewer if the connection ends before."""
    found = b""
    while len(found) < size and (data := client.recv(size - len(found))):
        found += data
    return found


def hears_nothing(client: socket.socket) -> bool:
    client.settimeout(NOT_NOW_S)
    try:
        client.recv(1)
    except TimeoutError:
        client.settimeout(LIMIT_S)
        return True
    return False


@pytest.mark.parametrize(
    "late",
    [Flow(delay_s=LIMIT_S), Flow(stall_share=1.0, stall_s=LIMIT_S), Flow(fate="hold")],
    ids=["delay", "stall", "hold"],
)
@pytest.mark.parametrize("way", ["requests", "answers"])
def test_what_is_late_comes_whole_and_in_order(
    late: Flow, way: str, echo: Echo, proxy: TcpProxy, client: socket.socket
) -> None:
    proxy.set_flows(**{way: late})

    client.sendall(b"one")
    client.sendall(b"two")
    assert hears_nothing(client)
    if way == "requests":
        assert echo.heard == b"hello"
    else:
        wait_until(lambda: echo.heard == b"helloonetwo", "the requests are there")
    proxy.repair()

    assert received(client, 6) == b"onetwo"


def test_jitter_makes_pieces_late_by_different_times(
    proxy: TcpProxy, client: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = list[float]()
    monkeypatch.setattr(proxy, "_pause", lambda seconds, way: pauses.append(seconds))
    proxy.set_flows(requests=Flow(delay_s=1.0, jitter_s=1.0))

    for _ in range(5):
        exchanged(client, b"again")

    assert len({each for each in pauses if each}) == 5
    assert all(1.0 <= each <= 2.0 for each in pauses if each)


def test_a_slow_flow_brings_a_few_bytes_at_a_time(proxy: TcpProxy, client: socket.socket) -> None:
    text = bytes(range(256)) * 4
    proxy.set_flows(answers=Flow(bytes_per_s=200.0))

    client.sendall(text)
    first = client.recv(len(text))
    proxy.repair()

    assert len(first) < len(text) // 2
    assert first + received(client, len(text) - len(first)) == text


@pytest.mark.parametrize("way", ["requests", "answers"])
def test_a_cut_lets_half_a_message_through(
    way: str, echo: Echo, proxy: TcpProxy, client: socket.socket
) -> None:
    proxy.set_flows(**{way: Flow(cut_share=1.0)})

    client.sendall(b"message!")
    found = received(client, 8)

    wait_until(lambda: echo.left == 1, "the server has seen the end")
    assert echo.heard == (b"hellomess" if way == "requests" else b"hellomessage!")
    # The echo of half a request may come back before the cut reaches the client, or not.
    assert found in ([b"", b"mess"] if way == "requests" else [b"mess"])
    proxy.repair()
    assert exchanged(connected(proxy), b"again") == b"again"


@pytest.mark.parametrize("way", ["requests", "answers"])
def test_one_way_is_swallowed_while_the_other_goes_on(
    way: str, echo: Echo, proxy: TcpProxy, client: socket.socket
) -> None:
    proxy.set_flows(**{way: Flow(fate="swallow")})

    client.sendall(b"lost")
    assert hears_nothing(client)
    assert echo.heard == (b"hello" if way == "requests" else b"hellolost")
    proxy.repair()

    assert exchanged(client, b"found") == b"found"


@packets
def test_lost_packets_are_not_acknowledged_and_sent_again(
    echo: Echo, proxy: TcpProxy, client: socket.socket
) -> None:
    proxy.lose_packets()

    client.sendall(b"late")
    with pytest.raises(TimeoutError):
        connected(proxy, NOT_NOW_S)
    assert hears_nothing(client)
    assert echo.heard == b"hello"
    proxy.repair()

    assert received(client, 4) == b"late"
    assert exchanged(connected(proxy), b"new") == b"new"


@packets
def test_the_client_of_a_half_open_connection_is_never_told(
    echo: Echo, proxy: TcpProxy, client: socket.socket
) -> None:
    proxy.half_open()

    wait_until(lambda: echo.left == 1, "the server has seen the end")
    client.sendall(b"into nothing")
    with pytest.raises(TimeoutError):
        connected(proxy, NOT_NOW_S)
    proxy.repair()

    assert exchanged(connected(proxy), b"new") == b"new"
    assert hears_nothing(client)
    assert echo.heard == b"hellonew"


@packets
def test_the_server_of_a_half_open_connection_is_never_told(
    echo: Echo, proxy: TcpProxy, client: socket.socket
) -> None:
    proxy.forget_clients()

    assert received(client, 1) == b""
    assert exchanged(connected(proxy), b"new") == b"new"
    assert echo.left == 0


@packets
def test_new_connections_may_be_accepted_and_never_answered(
    echo: Echo, proxy: TcpProxy, client: socket.socket
) -> None:
    proxy.half_open("mute")

    mute = connected(proxy)
    mute.sendall(b"anybody?")
    assert hears_nothing(mute)
    proxy.repair()

    assert exchanged(connected(proxy), b"new") == b"new"
    assert hears_nothing(mute)
    assert echo.heard == b"hellonew"


def test_connections_are_cut_and_recreated(proxy: TcpProxy, client: socket.socket) -> None:
    proxy.cut_once()

    assert received(client, 1) == b""
    assert exchanged(connected(proxy), b"again") == b"again"
    assert proxy.connections == 2


def test_a_good_network_changes_nothing(proxy: TcpProxy, client: socket.socket) -> None:
    text = bytes(range(256)) * 4_000
    threading.Thread(target=client.sendall, args=(text,), daemon=True).start()

    assert received(client, len(text)) == text
    assert Flow() == CALM
