"""What a broker will never take ends the run with its cause; it is no outage."""

from __future__ import annotations

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log
from tests.unit.kafka.test_sink import attempt, opened, puts, seen, topology
from txtopo import Config
from txtopo.bolts import KafkaSink
from txtopo.errors import PromiseError, ValueRefusedError
from txtopo.runtime.start import start_topology

pytestmark = pytest.mark.service("kafka")
CONFIG = Config(carrier="local", zookeeper="memory", poll_interval_s=0.01)


@pytest.mark.parametrize(
    ("settings", "second", "told"),
    [
        ({"max_message_bytes": "1000"}, "x" * 5000, "MSG_SIZE_TOO_LARGE"),
        ({"cleanup_policy": "compact"}, "no key", "INVALID_RECORD"),
    ],
)
def test_a_record_that_the_topic_takes_never_ends_the_run(
    kafka: KafkaBroker, settings: dict[str, str], second: str, told: str
) -> None:
    """Not even what came before it in its batch is seen."""
    log = Log(kafka, partitions=1, **settings)
    run = start_topology(topology(log, [["first"], [second]]).graph, None, CONFIG)

    with pytest.raises(ValueRefusedError, match=told):
        run.await_termination(LIMIT_S)
    assert run.status == "failed"
    assert seen(log) == []


def test_a_refused_record_is_the_cause_also_when_its_transaction_says_so_first(
    kafka: KafkaBroker,
) -> None:
    """Records are sent while others are handed over, to a transaction that is broken by then."""
    log = Log(kafka, partitions=1, max_message_bytes="1000")
    backend = opened(log, 1)

    with pytest.raises(ValueRefusedError, match="MSG_SIZE_TOO_LARGE"):
        backend.commit(attempt(1), puts("x" * 5000, *(f"{at}" for at in range(80_000))))


def test_a_setting_that_the_client_does_not_know_is_no_outage(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    sink = KafkaSink(kafka.servers, log.name, settings={"no.such.setting": "1"})

    with pytest.raises(PromiseError, match="_INVALID_ARG"):
        sink.state.open().create()
