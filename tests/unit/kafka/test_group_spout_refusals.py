"""What a KafkaSpout refuses, and how a run ends whose cluster has no such topic or offset."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.groups import Group
from tests.unit.kafka.logs import Log
from tests.unit.kafka.test_group_spout import Note, topology
from tests.unit.reliable.bolts import Seen
from tests.unit.sources.queues import Driven
from txtopo import AtLeastOnceConfig, TopologyBuilder
from txtopo.errors import (
    AuthError,
    ConfigError,
    InfrastructureError,
    OffsetRegression,
    SourceDataLost,
    TopologyError,
    TxtopoError,
)
from txtopo.kafka import group_spout, offsets
from txtopo.spouts import KafkaSpout

QUICK = AtLeastOnceConfig(carrier="local", poll_interval_s=0.001)


def ends_with(group: Group, seen: Seen, **options: Any) -> TxtopoError:
    """Run until the cluster has refused too often; return the error that ended the run."""
    run = topology(group.spout(**options), Note(seen)).start(None, QUICK)
    with pytest.raises(TxtopoError) as ended:
        run.await_termination(LIMIT_S)
    return ended.value


@pytest.mark.service("kafka")
def test_deleted_records_end_the_run_and_an_offset_set_by_hand_lets_it_go_on(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """And each try that follows is said before."""
    log, seen = Log(kafka, partitions=1), Seen()
    group = Group(log)
    log.write(range(20), partitions=1)
    group.set_to(5)
    log.delete_before(0, 12)

    error = ends_with(group, seen)
    assert isinstance(error, SourceDataLost)
    assert (
        "the next offset to read is 5, but the first available one is 12; restore the data"
    ) in str(error)
    place = {"topic": log.name, "partition": 0}
    assert error.facts == {**place, "wanted": 5, "available": 12}
    runtime = [vars(each) for each in caplog.records if each.name == "txtopo.runtime"]
    said = [each for each in runtime if each["levelno"] == logging.WARNING]
    assert [each["failures"] for each in said] == list(range(1, group_spout.REFUSALS_MAX))
    assert {(each["topology"], each["component"]) for each in said} == {("grouped", "records")}

    group.set_to(12)
    with topology(group.spout(), Note(seen)).start(None, QUICK) as run:
        run.process_all_available(LIMIT_S)
    assert seen.notes == [str(each) for each in range(12, 20)]


@pytest.mark.service("kafka")
def test_a_log_that_ends_before_the_committed_offset_ends_the_run(kafka: KafkaBroker) -> None:
    log, seen = Log(kafka, partitions=1), Seen()
    group = Group(log)
    log.write(range(3), partitions=1)
    group.set_to(5)

    error = ends_with(group, seen)
    assert isinstance(error, OffsetRegression)
    assert "ends at offset 3, but the next offset to read is 5" in str(error)


@pytest.mark.service("kafka")
def test_records_that_are_deleted_while_a_run_reads_are_not_skipped(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(range(20), partitions=1)
    driven = group.driven(uncommitted_max=4)
    driven.next(4)
    # The spout waits for acks, and has fetched no more.
    log.delete_before(0, 12)
    for _, message_id in driven.emitted:
        driven.spout.ack(message_id)

    def is_said() -> bool:
        driven.spout.next_tuple()
        return any(isinstance(each, SourceDataLost) for each in driven.errors)

    wait_until(is_said, lambda: f"it is said; got {driven.errors}", pause_s=0.001)
    driven.spout.close()
    assert [value for value, _ in driven.emitted] == ["0", "1", "2", "3"]
    assert group.committed()[0] <= 4


@pytest.mark.service("kafka")
def test_a_topic_that_is_deleted_ends_the_run(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "_LOOKS_AGAIN_MAX", 0)
    log, seen = Log(kafka, partitions=1), Seen()
    group = Group(log)
    log.write(["first"], partitions=1)
    settings = {"topic.metadata.refresh.interval.ms": 200}
    run = topology(group.spout(settings=settings), Note(seen)).start(None, QUICK)
    wait_until(lambda: seen.notes, "the first has come")

    log.delete()
    with pytest.raises(SourceDataLost, match="found no topic"):
        run.await_termination(LIMIT_S)


@pytest.mark.service("kafka")
def test_what_is_wrong_at_the_start_ends_the_run(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": "secret-word",
    }
    wrong: list[tuple[KafkaSpout, type[Exception], str]] = [
        (
            KafkaSpout(kafka.servers, "no-such", "g"),
            ConfigError,
            "topic 'no-such' of a Kafka spout does not exist",
        ),
        (
            KafkaSpout("127.0.0.1:1", log.name, "g", timeout_s=0.5),
            InfrastructureError,
            "cannot list the topics",
        ),
        (
            KafkaSpout(kafka.sasl_servers, log.name, "g", settings=sasl, timeout_s=5),
            AuthError,
            "refused to list the topics",
        ),
    ]
    for reading, kind, text in wrong:
        with pytest.raises(kind, match=text) as caught:
            Driven(reading)
        assert "secret-word" not in str(caught.value)


@pytest.mark.service("kafka")
@pytest.mark.parametrize(
    ("start", "settings", "text"),
    [
        ({2: 1}, {}, "a partition that does not exist; got partition 2 .*; expected 0 to 1"),
        ({0: 9}, {}, "outside partition 0 .*; got offset 9; expected 0 to 2"),
        ({}, {"nonsense": 1}, 'refuses its settings; got No such .*"nonsense"'),
        ({}, {"session.timeout.ms": "x"}, 'refuses its settings; got .*"session.timeout.ms"'),
    ],
)
def test_what_no_time_mends_ends_the_run_at_once(
    kafka: KafkaBroker, start: dict[int, int], settings: dict[str, Any], text: str
) -> None:
    """It looked like topics without records."""
    log, seen = Log(kafka), Seen()
    group = Group(log)
    log.write(range(4))
    reading = group.spout(start={log.name: start}, settings=settings)

    with (
        topology(reading, Note(seen)).start(None, QUICK) as run,
        pytest.raises(ConfigError, match=text),
    ):
        run.process_all_available(LIMIT_S)
    assert seen.notes == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group": ""}, "group of a KafkaSpout is wrong; got ''"),
        ({"group": None}, "group of a KafkaSpout is wrong; got None"),
        ({"topics": []}, "topics of a Kafka spout are wrong"),
        ({"topics": {"words"}}, "topics of a KafkaSpout are wrong"),
        ({"topics": ["words", "words"]}, "reads a topic twice"),
        ({"start": {"wrods": {0: 1}}}, "does not read; got 'wrods'; expected .*: words; check"),
        ({"settings": "acks=all"}, "settings of a KafkaSpout are wrong; got str"),
        ({"start": "committed"}, "start of a Kafka spout is wrong"),
        ({"on_bad_record": "skip"}, "unknown on_bad_record; got 'skip'"),
        ({"uncommitted_max": 0}, "uncommitted_max is wrong; got 0"),
        ({"uncommitted_max": True}, "uncommitted_max is wrong; got True"),
        ({"value": "text"}, "unknown decoder of values"),
        ({"settings": {"group.id": "other"}}, "'group.id' cannot be set"),
        ({"settings": {"enable.auto.commit": True}}, "'enable.auto.commit' is reserved for txtopo"),
    ],
)
def test_a_wrong_argument_is_refused(options: dict[str, Any], text: str) -> None:
    given = {"servers": "broker:9092", "topics": "words", "group": "readers"} | options

    with pytest.raises(ConfigError, match=text):
        KafkaSpout(**given)


def test_two_spouts_that_would_share_the_records_of_a_group_are_refused() -> None:
    """Each would get a part."""
    builder = TopologyBuilder()
    builder.set_spout("one", KafkaSpout("broker:9092", ["a", "b"], "readers"))
    builder.set_spout("other", KafkaSpout("broker:9092", "c", "readers"))
    builder.set_spout("others", KafkaSpout("broker:9092", "b", "others"))
    builder.build_topology()
    builder.set_spout("two", KafkaSpout("broker:9092", "b", "readers"))

    with pytest.raises(TopologyError, match="got topic 'b' of broker:9092 for group 'readers' tw"):
        builder.build_topology()
