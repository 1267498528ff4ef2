"""The reader of a topic is killed, or its broker: no record is lost, and none is passed."""

from __future__ import annotations

from pathlib import Path
from signal import SIGSTOP
from typing import Any
from uuid import uuid4

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.processes import Child
from tests.harness.runs import Changes
from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.unit.kafka.groups import Group
from tests.unit.kafka.logs import Log
from tests.unit.reliable.bolts import Seen
from txtopo import BasicBolt, Config, TopologyBuilder
from txtopo.errors import InfrastructureError
from txtopo.runtime.progress import ErrorReported

READER = "tests.faults.processes.group_process"
RECORDS, ENOUGH = 4_000, 1_000
Place = tuple[int, int]


def processed(path: Path) -> list[Place]:
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [(int(partition), int(offset)) for partition, offset in map(str.split, lines)]


def assert_nothing_is_passed(group: Group, done: set[Place]) -> None:
    """Check that below each committed offset all is processed."""
    for partition, end in group.committed().items():
        passed = {(partition, offset) for offset in range(end)}
        assert passed <= done, sorted(passed - done)[:10]


@pytest.mark.service("kafka")
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_killed_driver_has_passed_nothing_that_it_has_not_processed(
    kafka: KafkaBroker, tmp_path: Path, kills: int
) -> None:
    log, path = Log(kafka), tmp_path / "records"
    group = Group(log)
    records = RECORDS * kills
    log.write(range(records))
    every = {(partition, offset) for partition in range(2) for offset in range(records // 2)}
    arguments = (kafka.servers, log.name, group.name, str(path))

    for kill in range(kills):
        before, committed = len(processed(path)), sum(group.committed().values())
        with Child(READER, *arguments, "", str(2 * ENOUGH)) as reader:

            def goes_on(
                reader: Child = reader, before: int = before, committed: int = committed
            ) -> bool:
                assert reader.runs, reader.story()
                enough = len(processed(path)) >= before + ENOUGH
                return enough and sum(group.committed().values()) > committed

            wait_until(goes_on, f"it has processed and committed, time {kill}")
            reader.kill()
        assert_nothing_is_passed(group, set(processed(path)))

    with Child(READER, *arguments) as reader:

        def is_over() -> bool:
            assert reader.runs, reader.story()
            return sum(group.committed().values()) == records

        wait_until(is_over, lambda: f"all is committed; got {group.committed()}")
    assert set(processed(path)) == every


@pytest.mark.kills
@pytest.mark.service("kafka")
def test_a_standby_reads_what_a_killed_leader_has_not_committed(
    kafka: KafkaBroker, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    """It waits outside the group, and joins it when it leads."""
    log, path, records = Log(kafka), tmp_path / "records", 8_000
    group = Group(log)
    log.write(range(records // 2))
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    arguments = (kafka.servers, log.name, group.name, str(path), hosts)

    with Child(READER, *arguments) as leader:
        leader.wait_for("leading")
        with Child(READER, *arguments) as standby:
            standby.wait_for("standby")

            def has_committed() -> bool:
                assert leader.runs, leader.story()
                return any(group.committed().values())

            wait_until(has_committed, "the leader has committed")
            assert group.members() == 1
            leader.signal(SIGSTOP)  # so that it has not processed all when it is killed
            log.write(range(records // 2, records))
            leader.kill()
            before = processed(path)
            assert len(before) < records
            assert_nothing_is_passed(group, set(before))
            standby.wait_for("leading")

            def is_over() -> bool:
                assert standby.runs, standby.story()
                return sum(group.committed().values()) == records

            wait_until(is_over, lambda: f"all is committed; got {group.committed()}")
    assert set(processed(path)) == {(partition, n) for partition in (0, 1) for n in range(4_000)}


class Note(BasicBolt):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def execute(self, tuple: Any, collector: Any) -> None:
        self._seen.notes.append(tuple["value"])


@pytest.mark.slow
@pytest.mark.kills
@pytest.mark.service("kafka")
def test_a_run_goes_on_when_its_broker_was_killed_and_started_again() -> None:
    seen, words = Seen(), [f"word {each}" for each in range(4_000)]
    told = Changes()

    with KafkaBroker() as broker:
        log = Log(broker)
        group = Group(log)
        log.write(words[:2_000])
        builder = TopologyBuilder("outlives")
        builder.set_spout("records", group.spout())
        builder.set_bolt("note", Note(seen)).shuffle_grouping("records")
        config = Config(carrier="local", max_spout_pending=10, message_timeout_s=5)
        with builder.build_topology().start(None, config, listeners=[told]) as run:
            wait_until(lambda: seen.notes, "some have come")
            broker.kill()
            wait_until(lambda: told.of(ErrorReported), "the outage is reported")
            broker.start()
            log.write(words[2_000:])

            def all_came() -> bool:
                assert not run.await_termination(0.05)
                return set(seen.notes) == set(words)

            wait_until(all_came, lambda: f"all came; got {len(set(seen.notes))}")
            run.process_all_available(LIMIT_S)
        assert {type(each.error) for each in told.of(ErrorReported)} == {InfrastructureError}
        assert group.committed() == {0: 2_000, 1: 2_000}
