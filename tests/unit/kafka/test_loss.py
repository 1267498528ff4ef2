"""What the Kafka spouts do when data has gone, and when the broker has."""

from __future__ import annotations

import json

import pytest

from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log, in_time, read_all, read_opaque, values
from tests.unit.sources.driving import Emitted, Partitioned, Planner, emit
from txtopo import Config, TransactionAttempt
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, InfrastructureError, OffsetRegression, SourceDataLost
from txtopo.kafka.batch_spouts import share_of, whole
from txtopo.kafka.offsets import KafkaPartition, Lost, Range
from txtopo.spouts import KafkaTransactionalSpout

pytestmark = pytest.mark.service("kafka")


@pytest.mark.row(24)
def test_deleted_records_stop_a_transactional_spout(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    log.write(range(20), partitions=1)
    spout = log.transactional(batch_rows_max=5)
    planner = Planner(spout)
    planned = planner.plan()
    log.delete_before(0, 12)

    facts = {"topic": log.name, "partition": 0, "available": 12}
    with pytest.raises(SourceDataLost, match=r"next offset to read is 0, .* is 12;") as replay:
        emit(spout, planned)
    assert replay.value.facts == facts | {"wanted": 0}
    with pytest.raises(SourceDataLost, match=r"next offset to read is 5, .* is 12;") as plan:
        planner.plan()
    assert plan.value.facts == facts | {"wanted": 5}


def test_deleted_records_stop_an_opaque_spout_that_was_told_so(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    log.write(range(20), partitions=1)
    run = Partitioned(log.opaque(batch_rows_max=5))
    run.attempt(1)
    log.delete_before(0, 12)

    with pytest.raises(SourceDataLost, match="the next offset to read is 5"):
        run.attempt(2)


def test_an_opaque_spout_records_what_was_deleted_and_goes_on(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    log.write(range(20), partitions=1)
    run = Partitioned(log.opaque(batch_rows_max=5, on_data_loss="record"))
    assert values(run.attempt(1)) == ["0", "1", "2", "3", "4"]
    log.delete_before(0, 12)

    assert values(run.attempt(2)) == ["12", "13", "14", "15", "16"]
    assert whole(dict(run.cuts[2])).lost == (Lost(KafkaPartition(log.name, 0), 5, 12),)
    assert run.coordinator.lost(run.cuts[2]) == {f"{log.name}-0": "5 to 12"}
    assert values(run.attempt(3)) == ["17", "18", "19"]
    assert run.coordinator.lost(run.cuts[3]) == {}


@pytest.mark.row(11)
def test_a_topic_that_was_recreated_is_noticed(kafka: KafkaBroker) -> None:
    """It has other records at the offsets of a planned batch."""
    log = Log(kafka, partitions=1)
    log.write(range(10), partitions=1)
    spout = log.transactional(batch_rows_max=3)
    planner, run = Planner(spout), Partitioned(log.opaque(on_data_loss="record"))
    planned = planner.plan()
    run.attempt(1)
    log.delete()
    log.create(1)
    log.write(range(100, 120), partitions=1)

    with pytest.raises(OffsetRegression, match="recreated"):
        planner.plan()
    with pytest.raises(OffsetRegression, match="recreated"):
        emit(spout, planned)
    assert values(read_opaque(run, 20)) == [str(n) for n in range(100, 120)]
    assert whole(dict(run.cuts[2])).lost == (Lost(KafkaPartition(log.name, 0), 10, None),)


def test_a_topic_that_is_gone_stops_the_spout_after_some_looks(kafka: KafkaBroker) -> None:
    """Not at once: a broker that has just started may not know all topics yet."""
    log = Log(kafka, partitions=1)
    log.write(range(3), partitions=1)
    planner, run = Planner(log.transactional()), Partitioned(log.opaque(on_data_loss="record"))
    planner.plan()
    run.attempt(1)
    log.delete()
    for _ in range(4):
        with pytest.raises(InfrastructureError, match="is missing"):
            planner.plan()

    with pytest.raises(SourceDataLost, match="no longer exists"):
        planner.plan()
    assert run.attempt(2) == []
    cut = whole(dict(run.cuts[2]))
    assert (cut.ranges, cut.lost) == ({KafkaPartition(log.name, 0): Range(3, 3)}, ())


@pytest.mark.row(11)
def test_a_range_beyond_the_log_is_an_error_in_bounded_time(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    log.write(range(3), partitions=1)
    planned = json.dumps(Planner(log.transactional()).plan())
    metadata = json.loads(planned.replace("[0, 3]", "[0, 9]"))
    spout = log.transactional(timeout_s=2.0)

    with pytest.raises(OffsetRegression, match="ends at offset 3"):
        in_time(lambda: emit(spout, metadata))


def test_a_topic_that_is_missing_at_the_start_is_named(kafka: KafkaBroker) -> None:
    spout = KafkaTransactionalSpout(kafka.servers, "no-such-topic")

    with pytest.raises(ConfigError, match="'no-such-topic'"):
        spout.coordinator(Config(), TaskContext("t", "s", 0, 1))


@pytest.mark.row(10)
def test_a_broker_that_is_down_fails_attempts_until_it_is_back(kafka: KafkaBroker) -> None:
    """One death for all of them, since a broker takes seconds to come back."""
    log = Log(kafka)
    log.write(range(10))
    spout = log.transactional(timeout_s=1.0, batch_rows_max=2)
    run = Partitioned(log.opaque(timeout_s=1.0, batch_rows_max=2))
    planner = Planner(spout)
    planned, second = in_time(planner.plan), in_time(planner.plan)
    rows = in_time(lambda: emit(spout, planned))
    read = in_time(lambda: run.attempt(1))
    # This emitter has seen the topics already, so only its consumer meets the dead broker, of which
    # it knows nothing by reading ahead.
    emitter, emitted = spout.emitter(Config(), TaskContext("t", "s", 0, 1)), Emitted(spout)
    in_time(lambda: emitter.emit_batch(TransactionAttempt(1), planned, emitted.collector))
    fresh = log.transactional(timeout_s=1.0, settings={"client.id": "fresh"})
    meets = fresh.emitter(Config(), TaskContext("t", "s", 0, 1))
    meets._ids = dict(emitter._ids)  # type: ignore[attr-defined]
    kafka.kill()
    try:
        for what in (planner.plan, lambda: emit(spout, second), lambda: run.attempt(2)):
            with pytest.raises(InfrastructureError):
                what()
        with pytest.raises(InfrastructureError, match="broker down"):
            meets.emit_batch(TransactionAttempt(2), second, Emitted(spout).collector)
    finally:
        kafka.start()

    in_time(lambda: emitter.emit_batch(TransactionAttempt(2, 1), second, emitted.collector))
    again = in_time(lambda: emit(spout, second))
    assert values(emitted.rows) == values([*rows, *again])
    rows += again
    rows += read_all(spout, planner, 2)
    read += read_opaque(run, 6)
    assert sorted(values(rows)) == sorted(values(read)) == [str(n) for n in range(10)]


def test_the_shares_of_an_opaque_spout_never_move() -> None:
    """They stand in the metadata of topologies that run."""
    partitions = [
        KafkaPartition("orders", 0),
        KafkaPartition("orders", 1),
        KafkaPartition("payments", 7),
    ]

    assert [share_of(partition) for partition in partitions] == [46, 47, 57]
