"""The reader of a queue is killed, or its server: no message is lost."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from tests.harness.polling import wait_until
from tests.harness.processes import Child
from tests.harness.servers.rabbitmq import RabbitServer
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.unit.reliable.bolts import ByHand, Seen
from tests.unit.sources.queues import TestQueue
from txtopo import Config, Fields, OutputCollector, TopologyBuilder, Tuple
from txtopo.runtime.handle import ReliableRun
from txtopo.spouts import QueueSpout

READER = "tests.faults.processes.queue_process"
WORDS = [f"word {i}" for i in range(200)]


def processed(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1] if path.exists() else []


def are_processed(reader: Child, path: Path, enough: int) -> bool:
    assert reader.runs, reader.story()
    return len(processed(path)) >= enough


def noting(server: RabbitServer, queue: TestQueue, seen: Seen) -> ReliableRun:
    """Return a run that notes and acks each message."""

    def note(collector: OutputCollector, tuple: Tuple) -> None:
        seen.notes.append(tuple["word"])
        collector.ack(tuple)

    builder = TopologyBuilder("outlives")
    builder.set_spout("queue", QueueSpout(server.url(), queue.name, Fields("word string")))
    builder.set_bolt("note", ByHand(note)).shuffle_grouping("queue")
    config = Config(carrier="local", max_spout_pending=10, message_timeout_s=5)
    return builder.build_topology().start(None, config)


@pytest.mark.service("rabbitmq")
def test_what_a_killed_driver_has_not_acked_comes_again(
    rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    queue, path, seen = TestQueue(rabbitmq), tmp_path / "words", Seen()
    queue.put(*WORDS)
    for _ in range(2):
        # The reader holds every third message, so the next one gets as many.
        enough = len(processed(path)) + 50
        with Child(READER, rabbitmq.url(), queue.name, str(path)) as reader:
            wait_until(partial(are_processed, reader, path, enough), "50 more are processed")
            reader.kill()
    left = len(WORDS) - len(set(processed(path)))

    # What the dead reader held may come last: the server has to notice that it is gone.
    with noting(rabbitmq, queue, seen) as run:

        def are_noted() -> bool:
            assert not run.await_termination(0.05)
            return {*processed(path), *seen.notes} == set(WORDS) and len(seen.notes) > left

        wait_until(are_noted, "all words have come")
    assert len(processed(path)) + len(seen.notes) > len(WORDS)


@pytest.mark.kills
@pytest.mark.service("rabbitmq")
def test_a_standby_gets_what_a_killed_leader_had_not_acked(
    rabbitmq: RabbitServer, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    queue, path = TestQueue(rabbitmq), tmp_path / "words"
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    # Each of the two holds every third message, and may hold 60.
    some, words = 90, WORDS[:150]
    arguments = (rabbitmq.url(), queue.name, str(path), hosts)

    with Child(READER, *arguments) as leader:
        leader.wait_for("leading")
        with Child(READER, *arguments) as standby:
            standby.wait_for("standby")
            queue.put(*words[:some])
            wait_until(partial(are_processed, leader, path, some), "the leader has all")
            leader.kill()
            queue.put(*words[some:])
            standby.wait_for("leading")

            def all_came() -> bool:
                assert standby.runs, standby.story()
                return set(processed(path)[some:]) >= {*words[2:some:3], *words[some:]}

            wait_until(all_came, lambda: f"all came; got {processed(path)[some:]}")


@pytest.mark.slow
@pytest.mark.service("rabbitmq")
def test_a_run_goes_on_when_its_server_was_killed_and_started_again() -> None:
    seen = Seen()
    with RabbitServer() as server:
        queue = TestQueue(server)
        queue.put(*WORDS[:100])
        with noting(server, queue, seen) as run:
            while not seen.notes:
                assert not run.await_termination(0.05)
            server.kill()
            server.start()
            queue.put(*WORDS[100:])
            while len(set(seen.notes)) < len(WORDS):
                assert not run.await_termination(0.05)
    assert set(seen.notes) == set(WORDS)
