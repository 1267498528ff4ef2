"""Both Kafka spouts against a real broker: each record once, in batches that follow each other."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.harness.polling import wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log, ranges, read_all, read_opaque, values
from tests.unit.sources.driving import Partitioned, Planner, context, emit
from txtopo import Config, Pace
from txtopo.errors import ConfigError
from txtopo.kafka.batch_spouts import whole
from txtopo.kafka.connection import LEDGER_END
from txtopo.spouts import KafkaOpaqueSpout, KafkaTransactionalSpout


def words(number: int, first: int = 0) -> list[str]:
    return [f"word-{at}" for at in range(first, first + number)]


def test_the_union_of_all_batches_is_the_input(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=3)
    log.write(words(100), partitions=3)
    spout = log.transactional(batch_rows_max=7)
    planner = Planner(spout)
    batches = planner.all()

    assert len(batches) == 5
    read = [emit(spout, metadata, tasks=2) for metadata in batches]
    assert sorted(values(row for rows in read for row in rows)) == sorted(words(100))
    assert [emit(spout, metadata, tasks=2) for metadata in batches] == read


def test_a_batch_starts_where_the_one_before_ended(kafka: KafkaBroker) -> None:
    log = Log(kafka)
    log.write(words(40))
    before = None
    for metadata in Planner(log.transactional(batch_rows_max=6)).all():
        now = ranges(metadata)[log.name]
        starts = [start for start, _ in now]
        assert starts == ([end for _, end in before] if before else [0, 0])
        before = now
    assert before is not None
    assert [end for _, end in before] == [20, 20]


def test_a_new_coordinator_goes_on_from_the_metadata(kafka: KafkaBroker) -> None:
    log = Log(kafka)
    log.write(words(20))
    first = Planner(log.transactional(batch_rows_max=3))
    before = [first.plan(), first.plan()]
    second = Planner(log.transactional(), stored=json.loads(json.dumps(before[-1])))
    spout = log.transactional()
    rows = [row for metadata in [*before, *second.all()] for row in emit(spout, metadata)]

    assert sorted(values(rows)) == sorted(words(20))


def test_an_opaque_spout_reads_each_record_once(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=3)
    log.write(words(50), partitions=3)
    run = Partitioned(log.opaque(batch_rows_max=4))

    assert sorted(values(read_opaque(run, 50))) == sorted(words(50))
    assert len(run.rows) == 5
    for txid in range(2, 6):
        now, before = (whole(dict(run.cuts[t])).ranges for t in (txid, txid - 1))
        assert {p: r.start for p, r in now.items()} == {p: r.end for p, r in before.items()}


def test_an_opaque_replay_starts_where_the_batch_before_ended(kafka: KafkaBroker) -> None:
    """New records may be in it, but none twice and none left out."""
    log = Log(kafka)
    log.write(words(8))
    run = Partitioned(log.opaque())
    first = values(run.attempt(1))
    log.write(words(4, 8))
    again = values(run.attempt(1, attempt=1))

    assert sorted(first) == sorted(words(8))
    assert sorted(again) == sorted(words(12))


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_a_minimum_above_what_all_partitions_give_is_refused(kafka: KafkaBroker, kind: str) -> None:
    """Else each batch would wait for its delay, however many records there are."""
    log = Log(kafka, partitions=3)
    spout = getattr(log, kind)(batch_rows_max=5)
    config = Config(pace=Pace(min_batch_rows=16, max_batch_delay_s=1))

    said = "got 16; expected at most 15, which is batch_rows_max=5 times 3 partitions"
    with pytest.raises(ConfigError, match=said):
        spout.coordinator(config, context())
    spout.coordinator(replace(config, pace=Pace(min_batch_rows=15, max_batch_delay_s=1)), context())


def test_records_of_aborted_transactions_are_not_seen(kafka: KafkaBroker) -> None:
    log = Log(kafka)
    log.transact(words(10), commit=True)
    log.transact(words(10, 100), commit=False)
    log.write(words(3, 10))
    log.transact(words(10, 13), commit=True)
    spout = log.transactional(batch_rows_max=4)
    rows = read_all(spout, Planner(spout), 23)

    assert sorted(values(rows)) == sorted(words(23))
    opaque = Partitioned(log.opaque(batch_rows_max=5))
    assert sorted(values(read_opaque(opaque, 23))) == sorted(words(23))
    everything = log.transactional(isolation="read_uncommitted")
    assert len(read_all(everything, Planner(everything), 33)) == 33


def test_an_open_transaction_holds_back_what_comes_after_it(kafka: KafkaBroker) -> None:
    from confluent_kafka import Producer

    log = Log(kafka, partitions=1)
    settings = {"bootstrap.servers": kafka.servers, "transactional.id": f"open-{log.name}"}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(log.name, b"inside", partition=0)
    producer.flush(30)
    log.write(["after"], partitions=1)
    spout = log.transactional()
    planner = Planner(spout)

    assert planner.plan() is None
    producer.commit_transaction(30)
    assert values(read_all(spout, planner, 2)) == ["inside", "after"]


def test_gaps_of_compaction_end_a_batch_all_the_same(kafka: KafkaBroker) -> None:
    log = Log(
        kafka,
        partitions=1,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="200",
    )
    for number in range(60):
        log.write([number], partitions=1, key=f"key-{number % 3}".encode())

    def left() -> list[str]:
        log.write(["tail"], partitions=1, key=b"tail")  # a segment is cleaned once it is closed
        spout = log.opaque(start="earliest")
        return values(read_opaque(Partitioned(spout), 1))

    with pytest.raises(ConfigError, match="is compacted; got 'compact'"):
        log.transactional().coordinator(Config(), context())
    wait_until(lambda: len(set(left()) - {"tail"}) == 3, "the log is compacted")
    run = Partitioned(log.opaque(batch_rows_max=7))
    assert set(values(read_opaque(run, 3))) - {"tail"} == {"57", "58", "59"}
    # All offsets of some batches are gone.
    assert [] in run.rows.values()


@pytest.mark.row(12)
def test_partitions_that_are_added_are_read_from_their_beginning(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    log.write(words(5), partitions=1)
    spout, opaque = log.transactional(start="latest"), log.opaque(start="latest")
    planner, run = Planner(spout), Partitioned(opaque)
    assert emit(spout, planner.plan()) == run.attempt(1) == []
    log.grow(3)
    wait_until(lambda: log.partitions() == 3, "the broker shows the partitions")
    log.write(words(9, 5), partitions=3)

    assert sorted(values(read_all(spout, planner, 9))) == sorted(words(9, 5))
    assert sorted(values(read_opaque(run, 9))) == sorted(words(9, 5))


def test_a_pattern_takes_in_topics_that_come_to_match(kafka: KafkaBroker) -> None:
    first = Log(kafka, partitions=1, prefix="pattern")
    first.write(words(3), partitions=1)
    # The ledger of somebody's sink, and Kafka's own topics, match as well.
    pattern = re.compile(f"{first.name}.*|__.*")
    ledger = Log(kafka, 1, first.name, LEDGER_END, cleanup_policy="compact")
    ledger.write(["ledger"], partitions=1)
    options = {"value": "string", "columns": ("topic", "value")}
    spout = KafkaTransactionalSpout(kafka.servers, pattern, **options)  # type: ignore[arg-type]
    opaque = KafkaOpaqueSpout(kafka.servers, pattern, **options)  # type: ignore[arg-type]
    planner, run = Planner(spout), Partitioned(opaque)
    rows = read_all(spout, planner, 3)
    assert len(read_opaque(run, 3)) == 3
    second = Log(kafka, partitions=2, prefix=first.name)
    second.write(words(4, 3))
    rows += read_all(spout, planner, 4)

    assert sorted(rows) == sorted(
        [*((first.name, w) for w in words(3)), *((second.name, w) for w in words(4, 3))]
    )
    assert sorted(read_opaque(run, 4)) == sorted((second.name, w) for w in words(4, 3))


def test_a_start_may_be_a_time_or_an_offset(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    for at in range(5):
        log.write([at], partitions=1, timestamp=1_000_000 + 1000 * at)
    time = datetime.fromtimestamp(1002.5, UTC)
    starts = {"time": time, "offset": {log.name: {0: 4}}, "late": datetime.fromtimestamp(2e9, UTC)}
    read = {}
    for name, start in starts.items():
        spout = log.transactional(start=start)
        read[name] = [values(emit(spout, metadata)) for metadata in Planner(spout).all()]

    assert read == {"time": [["3", "4"]], "offset": [["4"]], "late": [[]]}


def test_a_start_at_the_end_of_topics_that_are_not_there_yet_misses_nothing(
    kafka: KafkaBroker,
) -> None:
    """What comes to match a pattern later is read whole, from the very first record."""
    prefix = f"later-{uuid.uuid4().hex[:8]}"
    pattern = re.compile(f"{prefix}.*")
    options: dict[str, Any] = {"value": "string", "columns": ("value",), "start": "latest"}
    spout = KafkaTransactionalSpout(kafka.servers, pattern, **options)
    run = Partitioned(KafkaOpaqueSpout(kafka.servers, pattern, **options))
    planner = Planner(spout)
    assert emit(spout, planner.plan()) == []
    assert run.ready(1, 0)
    assert run.attempt(1) == []
    Log(kafka, partitions=1, prefix=prefix).write(words(3), partitions=1)

    assert values(read_all(spout, planner, 3)) == words(3)
    assert values(read_opaque(run, 3)) == words(3)


@pytest.mark.parametrize("before", [0, 5])
def test_a_start_that_depends_on_the_time_is_durable_before_records_come(
    kafka: KafkaBroker, before: int
) -> None:
    log = Log(kafka, partitions=1)
    log.write(words(before), partitions=1)
    metadata = Planner(log.transactional(start="latest")).plan()
    log.write(words(2, 5), partitions=1)
    spout = log.transactional(start="latest")

    assert values(read_all(spout, Planner(spout, stored=metadata), 2)) == words(2, 5)


def test_the_lag_is_known_by_partition(kafka: KafkaBroker) -> None:
    log = Log(kafka)
    log.write(words(20))
    planner = Planner(log.transactional(batch_rows_max=3))
    metadata = planner.plan()
    run = Partitioned(log.opaque(batch_rows_max=3))
    run.ready(1, 0)
    run.attempt(1)

    expected = {f"{log.name}-0": 7, f"{log.name}-1": 7}
    assert planner.coordinator.lag(metadata) == expected
    assert run.coordinator.lag(run.cuts[1]) == expected
