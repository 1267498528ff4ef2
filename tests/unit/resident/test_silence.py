"""How a slot tells a driver that is gone from one that it has not listened to."""

from __future__ import annotations

import threading
import time

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.unit.reliable.bolts import WORD, Forward
from tests.unit.resident.threads import HOST, SILENCE_S, Clock, Resident
from txtopo import AtLeastOnceConfig, BasicBolt, ReliableTopology, TopologyBuilder, Tuple
from txtopo.collector import BatchOutputCollector
from txtopo.resident.hosts import BoltHost, StageHost
from txtopo.resident.sockets import Keys
from txtopo.resident.transport import TaskSocket
from txtopo.stages.compiled_topology import compile_topology
from txtopo.testing import FeederSpout

pytestmark = pytest.mark.integration


def forwarding(feeder: FeederSpout) -> ReliableTopology:
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("forward", Forward()).shuffle_grouping("words")
    return builder.build_topology()


@pytest.mark.parametrize("kind", [BoltHost, StageHost])
def test_a_task_that_hears_nothing_of_the_driver_ends(
    kind: type[BoltHost] | type[StageHost],
) -> None:
    compiled = compile_topology(forwarding(FeederSpout(WORD)).graph, AtLeastOnceConfig(), 1)
    driver = f"tcp://{HOST}:9"  # there is nobody

    host = kind(compiled, TaskSocket(0, 1, Keys.make(), driver, 0.2, time.monotonic))
    task = threading.Thread(target=host.run, daemon=True)
    task.start()
    task.join(LIMIT_S)
    assert not task.is_alive()


def test_pings_keep_an_idle_task_alive() -> None:
    feeder, clock = FeederSpout(WORD), Clock()

    with Resident(forwarding(feeder), AtLeastOnceConfig(), now=clock) as resident:
        wait_until(lambda: resident.run.status == "running", "the run has started")
        (host,) = resident.jobs.hosts
        for _ in range(5):
            wait_until(lambda: host.link.gone_s == clock.now_s + SILENCE_S, "a ping has come")
            clock.now_s += 0.6 * SILENCE_S
        assert resident.driver.meter.slots_lost == 0
        assert resident.jobs.hosts == [host]


class Slow(BasicBolt):
    """Takes longer than a slot waits for a word of its driver."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if tuple["word"] == "slow":
            self._clock.pass_silently()


def test_a_bolt_may_take_longer_than_the_driver_may_be_silent() -> None:
    """The pings are there, and only have to be read first."""
    feeder, clock = FeederSpout(WORD), Clock()
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("slow", Slow(clock)).shuffle_grouping("words")

    with Resident(builder.build_topology(), AtLeastOnceConfig(), now=clock) as resident:
        clock.jobs = resident.jobs
        for id, word in enumerate(("slow", "quick")):
            feeder.feed([word], id)
            feeder.wait_until_acked(id)
        assert resident.driver.meter.slots_lost == 0
        assert clock.now_s > SILENCE_S
