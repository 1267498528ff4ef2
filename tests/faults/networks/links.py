"""Links: the connections between two parts of a run, and the faults that a network has on them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from random import Random

from tests.harness.servers.tcp_proxy import Flow, TcpProxy

LOOPBACK = "127.0.0.1"
Fault = Callable[[TcpProxy, Random], None]


def delay(proxy: TcpProxy, chance: Random) -> None:
    late = Flow(delay_s=chance.uniform(0.02, 0.3), jitter_s=chance.uniform(0.0, 0.3))
    proxy.set_flows(late, late)


def loss(proxy: TcpProxy, chance: Random) -> None:
    lossy = Flow(stall_share=chance.uniform(0.1, 0.5), stall_s=chance.uniform(0.2, 1.5))
    proxy.set_flows(lossy, lossy)


def cuts_within_messages(proxy: TcpProxy, chance: Random) -> None:
    proxy.set_flows(*(Flow(cut_share=chance.choice([0.0, 0.1, 0.5])) for _ in range(2)))
    proxy.cut_once()


def no_way_to_the_server(proxy: TcpProxy, chance: Random) -> None:
    proxy.lose_packets()


def no_way_back(proxy: TcpProxy, chance: Random) -> None:
    proxy.set_flows(answers=Flow(fate="hold"))


def no_way_at_all(proxy: TcpProxy, chance: Random) -> None:
    no_way_to_the_server(proxy, chance)
    no_way_back(proxy, chance)


def requests_swallowed(proxy: TcpProxy, chance: Random) -> None:
    proxy.set_flows(requests=Flow(fate="swallow"))


def answers_swallowed(proxy: TcpProxy, chance: Random) -> None:
    proxy.set_flows(answers=Flow(fate="swallow"))


def half_open_and_new_ones_hang(proxy: TcpProxy, chance: Random) -> None:
    proxy.half_open("hang")


def half_open_and_new_ones_are_mute(proxy: TcpProxy, chance: Random) -> None:
    proxy.half_open("mute")


def the_other_side_is_not_told_of_the_end(proxy: TcpProxy, chance: Random) -> None:
    proxy.forget_clients()


def slow_answers(proxy: TcpProxy, chance: Random) -> None:
    proxy.set_flows(answers=Flow(bytes_per_s=chance.uniform(20.0, 500.0)))


def slow_requests(proxy: TcpProxy, chance: Random) -> None:
    proxy.set_flows(requests=Flow(bytes_per_s=chance.uniform(50.0, 2_000.0)))


FAULTS: dict[str, Fault] = {
    each.__name__.replace("_", " "): each
    for each in (
        delay,
        loss,
        cuts_within_messages,
        no_way_to_the_server,
        no_way_back,
        no_way_at_all,
        requests_swallowed,
        answers_swallowed,
        half_open_and_new_ones_hang,
        half_open_and_new_ones_are_mute,
        the_other_side_is_not_told_of_the_end,
        slow_answers,
        slow_requests,
    )
}
SWALLOWING = (requests_swallowed, answers_swallowed)
"""What comes after the lost bytes means nothing, so these connections are cut in the end."""


class Link:
    """All connections between two parts of a run; a context manager that closes its proxies.

    A proxy that is made during a fault that is everywhere has it, too.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._proxies: list[TcpProxy] = []
        self._fault: tuple[Fault, Random] | None = None
        self._swallowed: list[TcpProxy] = []
        self._lock = threading.Lock()

    def port_to(self, port: int, at: tuple[str, int] = (LOOPBACK, 0)) -> int:
        """Return the port of a proxy, to be connected to instead of *port*."""
        proxy = self._stack.enter_context(TcpProxy(port, at))
        with self._lock:
            self._proxies.append(proxy)
            if self._fault is not None:
                fault, chance = self._fault
                fault(proxy, chance)
        return proxy.port

    def begin(self, fault: Fault, chance: Random, *, everywhere: bool = True) -> None:
        """Begin a fault, of all connections or of those through one of the proxies."""
        with self._lock:
            hit = self._proxies if everywhere else [chance.choice(self._proxies)]
            self._fault = (fault, chance) if everywhere else None
            self._swallowed = hit if fault in SWALLOWING else []
            for proxy in hit:
                fault(proxy, chance)

    def heal(self) -> None:
        """End the fault. What was half-open stays so."""
        with self._lock:
            self._fault = None
            for proxy in self._swallowed:
                proxy.cut_once()
            for proxy in self._proxies:
                proxy.repair()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
