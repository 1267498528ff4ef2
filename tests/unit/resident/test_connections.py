"""Connections of resident slots that are lost: with them goes a life, and nothing waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
import zmq

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.tcp_proxy import TcpProxy
from tests.unit.resident.held import Gate, Limited, held, txids
from tests.unit.resident.threads import HOST, ThreadJobs
from tests.unit.stages.running import run_of
from txtopo.errors import RunLostError
from txtopo.resident.slot_runner import SlotLimits
from txtopo.resident.sockets import Keys

pytestmark = pytest.mark.integration


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TcpProxy]]:
    """What is between the driver and each task, in their order."""
    made = list[TcpProxy]()
    direct = ThreadJobs.run
    with ExitStack() as stack:

        def run(jobs: ThreadJobs, slot: int, submission: int, keys: Keys, driver: str) -> None:
            proxy = stack.enter_context(TcpProxy(int(driver.rpartition(":")[2])))
            made.append(proxy)
            direct(jobs, slot, submission, keys, f"tcp://{HOST}:{proxy.port}")

        monkeypatch.setattr(ThreadJobs, "run", run)
        yield made


def test_who_loses_its_connection_does_not_go_on_by_another(
    proxies: list[TcpProxy], limited: Limited
) -> None:
    """Else an order or an answer that was on its way would be missed by nobody."""
    one = limited(SlotLimits(silent_s=0.5))
    gate = Gate(txid=0)
    one.start(held(gate))
    assert txids(one.process(run_of(1)).result(LIMIT_S)) == [1]
    slots = one.carrier._slots.slots
    life = slots[0].life

    proxies[0].cut()
    proxies[0].repair()

    wait_until(lambda: slots[0].life != life, "the slot has another life")
    assert txids(one.process(run_of(1, first=2)).result(LIMIT_S)) == [2]


def test_who_cannot_answer_any_more_ends(proxies: list[TcpProxy], limited: Limited) -> None:
    """At once, and by itself: it does not wait for a way to say it."""
    one = limited(SlotLimits(silent_s=LIMIT_S, reason_s=LIMIT_S))
    gate = Gate()
    one.start(held(gate))
    lost = one.process(run_of(1))
    assert gate.reached.wait(LIMIT_S)
    link = one.jobs.hosts[0].link.socket

    proxies[0].cut()
    wait_until(lambda: not link.poll(0, zmq.POLLOUT), "the socket is full")
    gate.opened.set()
    with pytest.raises(RunLostError, match="its task ended"):
        lost.result(LIMIT_S)

    following = one.process(replace(run_of(1, first=2), tag="next"))
    assert txids(following.result(LIMIT_S)) == [2]
    assert one.jobs.cancelled == []


def test_a_slot_that_hangs_without_a_connection_is_started_again(limited: Limited) -> None:
    """User code keeps it from noticing that the driver is gone, and Spark notices nothing."""
    one = limited(SlotLimits(silent_s=0.5, reason_s=0.2))
    gate = Gate()
    one.start(held(gate))
    lost = one.process(run_of(1))
    assert gate.reached.wait(LIMIT_S)
    one.lose_connection(0)
    with pytest.raises(RunLostError, match="connection"):
        lost.result(LIMIT_S)

    following = one.process(replace(run_of(1, first=2), tag="next"))

    assert txids(following.result(LIMIT_S)) == [2]
    assert one.jobs.cancelled == [(0, 1)]
    gate.opened.set()
