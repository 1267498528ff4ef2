"""Which consumer of a process is lent to a reading."""

from __future__ import annotations

import uuid

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log
from txtopo.kafka import reading
from txtopo.kafka.connection import Connection
from txtopo.kafka.reading import LentConsumer, lent_consumer

pytestmark = pytest.mark.service("kafka")


def own(servers: str = "127.0.0.1:1") -> Connection:
    """Return a connection that nobody else uses; by default of a broker that is not there."""
    return Connection(servers, {"client.id": uuid.uuid4().hex})


def lend(connection: Connection, *topics: str) -> LentConsumer:
    with lent_consumer(connection, set(topics)) as lent:
        return lent


def test_a_consumer_is_lent_again_and_learns_of_topics(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_ANSWER_S_MAX", LIMIT_S)
    connection, first, second = own(kafka.servers), Log(kafka).name, Log(kafka).name
    lent = lend(connection, first)

    assert lend(connection, first) is lent
    assert lend(connection, second) is lent
    assert lent.topics == {first, second}


def test_one_that_is_silent_about_a_topic_is_given_up() -> None:
    """As one was that had been idle while its broker was killed and started again."""
    connection = own()
    silent = lend(connection, "orders")
    other = lend(connection, "payments")

    assert other is not silent
    assert lend(connection, "payments") is other


def test_a_consumer_is_lent_to_one_at_a_time() -> None:
    connection = own()
    with lent_consumer(connection, {"t"}) as first, lent_consumer(connection, {"t"}) as second:
        assert first is not second


def test_one_that_met_an_error_is_not_lent_again() -> None:
    connection = own()
    lending = lent_consumer(connection, {"orders"})
    broken = lending.__enter__()
    lending.__exit__(ZeroDivisionError, ZeroDivisionError(), None)

    assert lend(connection, "orders") is not broken
