"""What a RabbitMQ refuses for some time ends the run."""

from __future__ import annotations

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.servers.rabbitmq import RabbitServer
from tests.unit.reliable.bolts import Forward
from tests.unit.sources.queues import TestQueue
from tests.unit.sources.test_queue import WORDS, topology, until_acked
from txtopo import Config
from txtopo.errors import SourceDataLost
from txtopo.spouts import QueueSpout

pytestmark = pytest.mark.service("rabbitmq")


def test_a_queue_that_stays_away_ends_the_run(
    rabbitmq: RabbitServer, caplog: pytest.LogCaptureFixture
) -> None:
    """And says so before each try that follows."""
    queue = TestQueue(rabbitmq)
    spout = QueueSpout(rabbitmq.url(), queue.name, WORDS)
    config = Config(carrier="local", poll_interval_s=0.001)
    run = topology(spout, Forward()).start(None, config)
    queue.put("a")
    until_acked(run, 1)

    queue.delete()
    with pytest.raises(SourceDataLost, match="found no queue"):
        run.await_termination(LIMIT_S)

    runtime = [vars(each) for each in caplog.records if each.name == "txtopo.runtime"]
    said = [each for each in runtime if each["levelname"] == "WARNING"]
    assert [each["failures"] for each in said] == list(range(1, len(said) + 1))
    assert {(each["topology"], each["component"]) for each in said} == {("queued", "queue")}
    assert said[-1]["cause"].startswith("SourceDataLost: ")
