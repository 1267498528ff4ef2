"""What each error of Kafka means: none that the installed client knows is left out."""

from __future__ import annotations

from collections import deque
from typing import cast

import pytest

from txtopo.errors import (
    AuthError,
    ErrorMeaning,
    InfrastructureError,
    PromiseError,
    TxtopoError,
    ValueRefusedError,
)
from txtopo.kafka.connection import Connection
from txtopo.kafka.errors import MEANINGS, meaning_of

confluent_kafka = pytest.importorskip("confluent_kafka")
EXPECTED: dict[ErrorMeaning, type[TxtopoError]] = {
    ErrorMeaning.PASSES: InfrastructureError,
    ErrorMeaning.FENCED: InfrastructureError,
    ErrorMeaning.REFUSED: AuthError,
    ErrorMeaning.VALUE: ValueRefusedError,
    ErrorMeaning.LASTS: PromiseError,
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
        ("MSG_SIZE_TOO_LARGE", ErrorMeaning.VALUE),
        ("INVALID_RECORD", ErrorMeaning.VALUE),
        ("TOPIC_AUTHORIZATION_FAILED", ErrorMeaning.REFUSED),
        ("_ALL_BROKERS_DOWN", ErrorMeaning.PASSES),
        ("NOT_ENOUGH_REPLICAS", ErrorMeaning.PASSES),
        ("KAFKA_STORAGE_ERROR", ErrorMeaning.PASSES),
        ("_INVALID_ARG", ErrorMeaning.LASTS),
        ("UNSUPPORTED_VERSION", ErrorMeaning.LASTS),
        ("PRODUCER_FENCED", ErrorMeaning.FENCED),
        ("A_CODE_OF_NEXT_YEAR", ErrorMeaning.PASSES),
    ],
)
def test_what_is_known_to_pass_or_to_last_is_sorted_so(name: str, meaning: ErrorMeaning) -> None:
    assert meaning_of(name) is meaning


def test_what_lasts_and_was_heard_before_is_the_cause_and_not_what_followed() -> None:
    """A transaction that is broken says ``_STATE``; the report of the record says why."""
    heard = deque([confluent_kafka.KafkaError(CODES["MSG_SIZE_TOO_LARGE"])])
    broken = confluent_kafka.KafkaError(CODES["_STATE"])

    found = Connection("host:1").fault("write", broken, cast("deque[object]", heard))  # type: ignore[arg-type]

    assert type(found) is ValueRefusedError
