"""Consumers keep their place between readings; whatever is read next, each record comes once."""

from __future__ import annotations

import random

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log
from txtopo.kafka import reading
from txtopo.kafka.connection import Connection
from txtopo.kafka.offsets import KafkaPartition, Offsets, Range
from txtopo.kafka.reading import lent_consumer

pytestmark = pytest.mark.service("kafka")
Records = dict[KafkaPartition, list[tuple[int, bytes]]]


def read(connection: Connection, ranges: dict[KafkaPartition, Range]) -> Records:
    found = reading.read_ranges(connection, ranges)
    return {
        partition: [
            (int(m.offset() or 0), bytes(m.value() or b"")) for m in found.get(partition, [])
        ]
        for partition in ranges
    }


def filled(kafka: KafkaBroker, chance: random.Random) -> tuple[Log, dict[KafkaPartition, Range]]:
    """Write to a topic in a mix of ways: markers and aborted records leave gaps."""
    log = Log(kafka, partitions=3)
    for write in range(8):
        values = [f"{write}-{at}" for at in range(chance.choice([1, 3, 20, 100]))]
        if chance.random() < 0.5:
            log.transact(values, commit=chance.random() < 0.6, partitions=3)
        else:
            log.write(values, partitions=3)
    log.write(["last"] * 3, partitions=3)
    offsets = Offsets(Connection(kafka.servers), log.name)
    # The last stable offset comes a little after the end of a transaction.
    wait_until(
        lambda: all(r.end > r.start for r in offsets.look().bounds.values()),
        "the broker shows a record of each partition",
    )
    return log, dict(offsets.look().bounds)


@pytest.mark.parametrize("seed", [1, 2])
def test_each_range_has_its_records_whatever_was_read_before(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Ranges that follow each other, jumps, partitions left out, and more ahead than is kept."""
    monkeypatch.setattr(reading, "AHEAD_MIN", 5)
    chance = random.Random(seed)
    _, bounds = filled(kafka, chance)
    every = read(Connection(kafka.servers, {"client.id": "another"}), bounds)
    at = dict.fromkeys(bounds, 0)
    connection = Connection(kafka.servers, {"client.id": f"seed-{seed}"}, timeout_s=LIMIT_S)
    for _ in range(120):
        if chance.random() < 0.1 or all(at[p] == bounds[p].end for p in bounds):
            at = {partition: chance.randrange(bounds[partition].end) for partition in bounds}
        ranges = {
            partition: Range(
                at[partition],
                min(bounds[partition].end, at[partition] + chance.choice([0, 1, 7, 90])),
            )
            for partition in bounds
            if chance.random() < 0.85
        }
        expected = {
            partition: [record for record in every[partition] if start <= record[0] < end]
            for partition, (start, end) in ranges.items()
        }

        assert read(connection, ranges) == expected
        at |= {partition: each.end for partition, each in ranges.items()}


def test_a_range_of_nothing_but_a_marker_ends_though_its_end_was_told_before(
    kafka: KafkaBroker,
) -> None:
    """A consumer tells an end only once."""
    log = Log(kafka, partitions=1)
    log.transact(["a"], commit=True, partitions=1)
    partition = KafkaPartition(log.name, 0)
    look = Offsets(Connection(kafka.servers), log.name).look
    wait_until(lambda: look().bounds == {partition: Range(0, 2)}, "the broker shows both records")
    connection = Connection(kafka.servers, {"client.id": "marker"}, timeout_s=LIMIT_S)
    assert read(connection, {partition: Range(0, 1)}) == {partition: [(0, b"a")]}
    with lent_consumer(connection, {log.name}) as lent:
        wait_until(lambda: len(lent.consumer.consume(1, 0.1)) == 1, "a record comes")

    assert read(connection, {partition: Range(1, 2)}) == {partition: []}
