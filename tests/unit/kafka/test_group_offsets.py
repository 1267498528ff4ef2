"""Committed offsets in a consumer group, as Kafka's own tools read them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log
from tests.unit.sources.driving import context
from txtopo import BasicBolt, Config, Topology, TransactionalTopologyBuilder
from txtopo.errors import ConfigError
from txtopo.kafka.connection import Connection
from txtopo.kafka.group_offsets import CommitGroup, GroupOffsets
from txtopo.kafka.offsets import KafkaPartition, Positions, Range
from txtopo.runtime.handle import TopologyRun
from txtopo.spouts import KafkaTransactionalSpout

LOCAL = Config(carrier="local", zookeeper="memory")


class Nothing(BasicBolt):
    def execute(self, tuple: Any, collector: Any) -> None:
        pass


def topology(spout: Any) -> Topology:
    builder = TransactionalTopologyBuilder("lag", "words", spout)
    builder.set_bolt("nothing", Nothing()).shuffle_grouping("words")
    return builder.build_topology()


def committed(run: TopologyRun) -> int:
    """Return how many records are committed, of those that the broker shows by now."""
    run.process_all_available()
    return 0 if run.last_progress is None else run.last_progress.rows_total


def group_of(kafka: KafkaBroker, group: str) -> dict[tuple[str, int], int]:
    """Return the offsets of a group, asked for as lag tools do."""
    asked = [ConsumerGroupTopicPartitions(group)]
    answer = kafka.admin.list_consumer_group_offsets(asked)[group].result(LIMIT_S)
    return {(each.topic, each.partition): each.offset for each in answer.topic_partitions}


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_the_group_has_the_next_offset_of_each_partition(kafka: KafkaBroker, kind: str) -> None:
    log = Log(kafka, partitions=3)
    log.write(range(10), partitions=2)
    log.write_to(0, range(3))
    spout = getattr(log, kind)(commit_group=f"{log.name}-lag", batch_rows_max=2)

    with topology(spout).start(config=LOCAL) as run:
        wait_until(lambda: committed(run) == 13, "all records are committed")
    assert group_of(kafka, f"{log.name}-lag") == {
        (log.name, 0): 8,
        (log.name, 1): 5,
        (log.name, 2): 0,
    }


def test_without_a_group_nothing_is_stored_in_kafka(kafka: KafkaBroker) -> None:
    log = Log(kafka)
    log.write(range(4))

    with topology(log.transactional()).start(config=LOCAL) as run:
        run.process_all_available()
    assert group_of(kafka, "txtopo") == {}


def test_a_group_with_members_refuses_the_copy_and_the_run_goes_on(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(kafka)
    log.write(range(8))
    group = f"{log.name}-taken"
    member = Consumer(
        {"bootstrap.servers": kafka.servers, "group.id": group, "enable.auto.commit": False}
    )
    member.subscribe([log.name])
    wait_until(lambda: member.poll(0.1) is None and bool(member.assignment()), "it is a member")

    with (
        caplog.at_level(logging.WARNING, "txtopo.spouts"),
        topology(log.transactional(commit_group=group, batch_rows_max=1)).start(
            config=LOCAL
        ) as run,
    ):
        wait_until(lambda: committed(run) == 8, "all records are committed")
    member.close()
    told = [each for each in caplog.messages if "could not be committed" in each]
    assert len(told) == 1, "once, for four batches"
    assert repr(group) in told[0]


def test_a_broker_that_is_away_is_told_once_and_no_call_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing answers; each call returns, however many batches there are."""
    away = Connection("127.0.0.1:9", {"socket.connection.setup.timeout.ms": 1000})
    offsets = GroupOffsets(CommitGroup(away, "lag"), context())
    batch = Positions({"words": "id"}, {KafkaPartition("words", 0): Range(0, 5)})

    with caplog.at_level(logging.WARNING, "txtopo.spouts"):
        for txid in range(1, 1_000):
            offsets.committing(txid, batch)
            offsets.committed_before(txid + 1)
        offsets.close()
    assert len(caplog.messages) <= 1


@pytest.mark.parametrize("group", ["", "  ", 5, b"lag", "a\0b"])
def test_a_group_without_a_name_is_refused(group: Any) -> None:
    with pytest.raises(ConfigError, match="commit_group"):
        KafkaTransactionalSpout("127.0.0.1:9", "words", commit_group=group)
