"""Topologies that read Kafka, whose records are deleted while the topology is stopped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import Changes, Storage, run_to_end, running
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log
from txtopo import PersistentAggregate, Topology, TransactionalTopologyBuilder
from txtopo.errors import SourceDataLost
from txtopo.runtime.progress import BatchCommitted, Progress
from txtopo.state import Count

pytestmark = pytest.mark.service("kafka")


def counting(spout: Any, storage: Storage) -> Topology:
    builder = TransactionalTopologyBuilder("kafka", "words", spout, 2)
    counts = PersistentAggregate(storage.state("counts"), "value", Count())
    builder.set_bolt("counts", counts, 2).fields_grouping("words", "value")
    return builder.build_topology()


def progress(changes: Changes) -> list[Progress]:
    return [change.progress for change in changes.of(BatchCommitted)]


def test_lost_records_are_told_in_the_progress(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    log, storage = Log(kafka, partitions=1), Storage.in_memory()
    log.write(["a"] * 10, partitions=1)
    topology = counting(log.opaque(on_data_loss="record"), storage)
    first = run_to_end(topology, storage)
    log.write(["lost"] * 5 + ["b"] * 3, partitions=1)
    log.delete_before(0, 15)
    second = run_to_end(topology, storage)

    assert storage.read("counts") == {"a": 10, "b": 3}
    told = [each.lost for run in (first, second) for each in progress(run) if each.lost]
    assert told == [{f"{log.name}-0": "10 to 15"}]
    (warned,) = [each for each in caplog.records if "10 to 15" in each.getMessage()]
    assert f"lost of {log.name}-0: 10 to 15" in warned.getMessage()
    assert vars(warned)["component"] is not None


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_lost_records_stop_the_run(kafka: KafkaBroker, kind: str) -> None:
    log, storage = Log(kafka, partitions=1), Storage.in_memory()
    log.write(["a"] * 10, partitions=1)
    topology = counting(getattr(log, kind)(), storage)
    run_to_end(topology, storage)
    log.write(["b"] * 8, partitions=1)
    log.delete_before(0, 15)

    with (
        running(topology, storage) as run,
        pytest.raises(SourceDataLost, match="next offset to read is 10"),
    ):
        run.process_all_available(LIMIT_S)
    assert storage.read("counts") == {"a": 10}
