"""What a record becomes, and with which settings it is read."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.harness.polling import wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log, values
from tests.unit.sources.driving import Emitted, Planner, context, emit
from txtopo import Config, Fields, TransactionAttempt
from txtopo.collector import SeenFields
from txtopo.context import TaskContext
from txtopo.errors import AuthError, ConfigError, EmitError
from txtopo.sources.json_objects import SAMPLE_RECORDS_MAX
from txtopo.spouts import KafkaOpaqueSpout, KafkaTransactionalSpout

pytestmark = pytest.mark.service("kafka")


def rows_of(log: Log, **options: Any) -> list[Any]:
    spout = KafkaTransactionalSpout(log.kafka.servers, log.name, **options)
    return [row for metadata in Planner(spout).all() for row in emit(spout, metadata)]


def test_a_record_has_all_its_columns(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    headers = [("trace", b"7"), ("raw", b"\xff"), ("none", None)]
    log.write([b"\x00\xff"], partitions=1, key=b"k", headers=headers, timestamp=1_500)
    log.write([None], partitions=1, key=None, timestamp=2_000)
    first, second = rows_of(log)

    text = json.dumps([["trace", "7"], ["raw", {"base64": "/w=="}], ["none", None]])
    at = datetime.fromtimestamp(1.5, UTC)
    assert first == (b"k", b"\x00\xff", text, log.name, 0, 0, at)
    assert second == (None, None, None, log.name, 0, 1, datetime.fromtimestamp(2, UTC))


def test_keys_and_values_are_decoded(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    log.write(["ü", None], partitions=1, key="ö".encode())

    columns = ("value", "key")
    assert rows_of(log, columns=columns, key="string", value="string") == [("ü", "ö"), (None, "ö")]


def test_json_becomes_its_declared_fields(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    log.write(
        [
            '{"word": "a", "amount": 1, "more": [1, 2]}',
            '{\n  "amount": 2\n}',
            None,
            '{"word": "two\\nlines", "amount": null}',
        ],
        partitions=1,
    )
    fields = Fields("word string, amount long")

    assert rows_of(log, value=fields, columns=("offset", "value")) == [
        (0, "a", 1),
        (1, None, 2),
        (2, None, None),
        (3, "two\nlines", None),
    ]


@pytest.mark.parametrize(
    "bad", ["", "{", "[1]", "7", '{"amount": "x"}', '{"amount": 1} {"amount": 2}']
)
def test_what_cannot_be_decoded_is_named(kafka: KafkaBroker, bad: str) -> None:
    log = Log(kafka, partitions=1)
    log.write(['{"amount": 1}', bad], partitions=1)

    with pytest.raises(EmitError, match=f"at offset 1 of partition 0 of topic '{log.name}'"):
        rows_of(log, value=Fields("amount long"))


def test_text_that_is_no_text_is_named(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    log.write([b"fine", b"\xff"], partitions=1)

    with pytest.raises(EmitError, match="at offset 1 of partition 0"):
        rows_of(log, value="string")


def test_each_partition_is_looked_at_for_the_fields_of_its_first_records(
    kafka: KafkaBroker,
) -> None:
    log = Log(kafka, partitions=2)
    log.write_to(0, ['{"usr": 1}'] * (SAMPLE_RECORDS_MAX + 1))
    log.write_to(1, ['{"user": 1}'])
    spout = log.transactional(value=Fields("user long"), columns=("value",))
    seen: list[SeenFields] = []
    emitter = spout.emitter(Config(), context())
    emitter.emit_batch(
        TransactionAttempt(1), Planner(spout).plan(), Emitted(spout, saw=seen.append).collector
    )

    assert [found.missing for found in seen] == [set()]


def test_settings_of_sasl_pass_through_and_are_not_shown(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    log.write(["seen"], partitions=1)
    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": kafka.password,
    }
    spout = KafkaTransactionalSpout(kafka.sasl_servers, log.name, value="string", settings=sasl)
    again = pickle.loads(pickle.dumps(spout))
    metadata = Planner(again).plan()

    assert [row[1] for row in emit(again, metadata)] == ["seen"]
    assert kafka.password not in repr(vars(spout)) + json.dumps(metadata)
    wrong = KafkaTransactionalSpout(
        kafka.sasl_servers, log.name, timeout_s=2.0, settings=sasl | {"sasl.password": "wrong"}
    )
    with pytest.raises(AuthError) as refused:
        # A start continues while the cluster only does not answer, and its refusal may come later.
        wait_until(
            lambda: not wrong.coordinator(Config(), TaskContext("t", "s", 0, 1)), "it is refused"
        )
    assert "wrong" not in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"servers": ""},
        {"topics": []},
        {"value": "avro"},
        {"key": Fields("a long")},
        {"columns": ("value", "value")},
        {"columns": ("words",)},
        {"start": "yesterday"},
        {"start": datetime(2024, 1, 1)},
        {"start": {"topic": {0: -1}}},
        {"batch_rows_max": 0},
        {"isolation": "serializable"},
        {"timeout_s": 0},
        {"settings": {"auto.offset.reset": "earliest"}},
        {"settings": {"enable.auto.commit": True}},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [KafkaTransactionalSpout, KafkaOpaqueSpout])
def test_wrong_arguments_are_refused_when_the_spout_is_made(
    kind: Any, wrong: dict[str, Any]
) -> None:
    arguments = {"servers": "localhost:9092", "topics": "words"} | wrong

    with pytest.raises(ConfigError, match=r"got|setting"):
        kind(**arguments)


def test_an_unknown_way_to_meet_loss_is_refused() -> None:
    with pytest.raises(ConfigError, match="on_data_loss"):
        KafkaOpaqueSpout("localhost:9092", "words", on_data_loss="skip")  # type: ignore[arg-type]


def test_a_spout_takes_values_for_its_fields(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    log.write(["x"], partitions=1)

    assert values(rows_of(log, value="string", columns=("value",))) == ["x"]
