"""What a QueueSpout refuses, and what it says of a server that does not let it in."""

from __future__ import annotations

import pytest

from tests.harness.servers.rabbitmq import RabbitServer
from tests.harness.servers.tcp_proxy import TcpProxy
from tests.unit.sources.queues import Driven, TestQueue
from txtopo import TopologyBuilder
from txtopo.errors import AuthError, ConfigError, InfrastructureError, TopologyError
from txtopo.spouts import QueueSpout


# Which message of the client's is the last one: the password, and the wish for a vhost.
@pytest.mark.parametrize("message", [b"PLAIN", b"\x00\x0a\x00\x28"])
def test_a_connection_that_is_lost_during_the_login_is_not_one_that_was_refused(
    rabbitmq: RabbitServer, message: bytes
) -> None:
    queue = TestQueue(rabbitmq)
    with TcpProxy(rabbitmq.port) as proxy:
        proxy.lose(message, landed=False)
        with pytest.raises(InfrastructureError, match="has no connection"):
            Driven(QueueSpout(rabbitmq.url(port=proxy.port), queue.name))
    for url in (rabbitmq.url(user="nobody"), rabbitmq.url().replace("%2F", "nowhere")):
        with pytest.raises(AuthError, match="refuses spout"):
            Driven(QueueSpout(url, queue.name))


@pytest.mark.parametrize("url", ["http://localhost", "localhost", 3, None])
def test_a_wrong_url_is_refused_and_not_shown(url: object) -> None:
    with pytest.raises(ConfigError, match="url of a QueueSpout is wrong"):
        QueueSpout(url, "queue")  # type: ignore[arg-type]


@pytest.mark.parametrize("prefetch", [0, -1, 65536, 1.5, True])
def test_a_wrong_prefetch_is_refused(prefetch: object) -> None:
    with pytest.raises(ConfigError, match="prefetch of a QueueSpout is wrong"):
        QueueSpout("amqp://localhost", "queue", prefetch=prefetch)  # type: ignore[arg-type]


def test_two_spouts_that_would_share_the_messages_of_a_queue_are_refused() -> None:
    """Each would get a part. Neither password is shown."""
    builder = TopologyBuilder()
    builder.set_spout("one", QueueSpout("amqp://one:secret-word@host/", "jobs"))
    builder.set_spout("other", QueueSpout("amqp://host/", "tasks"))
    builder.build_topology()
    builder.set_spout("two", QueueSpout("amqp://two:secret-word@host/?heartbeat=9", "jobs"))

    with pytest.raises(
        TopologyError, match=r"'one' and 'two' .* got queue 'jobs' of host/"
    ) as error:
        builder.build_topology()
    assert "secret-word" not in str(error.value)
