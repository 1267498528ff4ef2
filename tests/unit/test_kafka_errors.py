"""What each error of Kafka means: none that the installed client knows is left out."""

from __future__ import annotations

from collections import deque
from typing import cast

import pytest

from txtopo.errors import (
    AuthError,
    InfrastructureError,
    PromiseError,
    TxtopoError,
    ValueRefusedError,
)
from txtopo.kafka_connection import Connection
from txtopo.kafka_errors import MEANINGS, KafkaMeaning, meaning_of

confluent_kafka = pytest.importorskip("confluent_kafka")
EXPECTED: dict[KafkaMeaning, type[TxtopoError]] = {
    KafkaMeaning.PASSES: InfrastructureError,
    KafkaMeaning.FENCED: InfrastructureError,
    KafkaMeaning.REFUSED: AuthError,
    KafkaMeaning.RECORD: ValueRefusedError,
    KafkaMeaning.LASTS: PromiseError,
}
CODES = {
    name: code for name, code in vars(confluent_kafka.KafkaError).items() if isinstance(code, int)
}


def test_the_table_has_each_error_of_the_client_and_no_other() -> None:
    """A new version of the client brings new errors: sort them in, before they are met."""
    assert set(CODES) == set(MEANINGS)


@pytest.mark.parametrize("name", sorted(CODES))
def test_an_error_becomes_what_the_table_says(name: str) -> None:
    error = confluent_kafka.KafkaError(CODES[name])

    found = Connection("host:1").fault("read", error, deque())

    assert type(found) is EXPECTED[MEANINGS[name]]
    assert isinstance(found, InfrastructureError) is not isinstance(found, PromiseError)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("MSG_SIZE_TOO_LARGE", KafkaMeaning.RECORD),
        ("INVALID_RECORD", KafkaMeaning.RECORD),
        ("TOPIC_AUTHORIZATION_FAILED", KafkaMeaning.REFUSED),
        ("_ALL_BROKERS_DOWN", KafkaMeaning.PASSES),
        ("NOT_ENOUGH_REPLICAS", KafkaMeaning.PASSES),
        ("KAFKA_STORAGE_ERROR", KafkaMeaning.PASSES),
        ("_INVALID_ARG", KafkaMeaning.LASTS),
        ("UNSUPPORTED_VERSION", KafkaMeaning.LASTS),
        ("PRODUCER_FENCED", KafkaMeaning.FENCED),
        ("A_CODE_OF_NEXT_YEAR", KafkaMeaning.PASSES),
    ],
)
def test_what_is_known_to_pass_or_to_last_is_sorted_so(name: str, meaning: KafkaMeaning) -> None:
    assert meaning_of(name) is meaning


def test_what_lasts_and_was_heard_before_is_the_cause_and_not_what_followed() -> None:
    """A transaction that is broken says ``_STATE``; the report of the record says why."""
    heard = deque([confluent_kafka.KafkaError(CODES["MSG_SIZE_TOO_LARGE"])])
    broken = confluent_kafka.KafkaError(CODES["_STATE"])

    found = Connection("host:1").fault("write", broken, cast("deque[object]", heard))  # type: ignore[arg-type]

    assert type(found) is ValueRefusedError
