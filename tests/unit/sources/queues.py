"""Queues of a test's own on RabbitMQ, and a spout driven by hand."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.harness.polling import wait_until
from tests.harness.servers.rabbitmq import RabbitServer
from txtopo import AtLeastOnceConfig, SpoutOutputCollector, TaskContext
from txtopo.reliable.spout import Spout
from txtopo.tuples import DEFAULT_STREAM, Stream

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel


class TestQueue:
    """A queue that is declared again, with what a test asks the server about it."""

    __test__ = False

    def __init__(self, server: RabbitServer, **arguments: Any) -> None:
        self.server = server
        self.name = f"queue-{uuid.uuid4().hex[:8]}"
        self._arguments = arguments
        self.declare()

    def declare(self) -> None:
        """Make the queue."""
        self._ask(
            lambda channel: channel.queue_declare(
                self.name, durable=True, arguments=self._arguments
            )
        )

    def delete(self) -> None:
        """Delete the queue."""
        self._ask(lambda channel: channel.queue_delete(self.name))

    def put(self, *messages: str | bytes) -> None:
        """Have the server keep messages, on disk."""
        import pika

        kept = pika.BasicProperties(delivery_mode=2)

        def publish(channel: BlockingChannel) -> None:
            channel.confirm_delivery()
            for each in messages:
                body = each.encode() if isinstance(each, str) else each
                channel.basic_publish("", self.name, body, kept)

        self._ask(publish)

    def ready(self) -> int:
        """Return how many messages the server would send to a client that comes now."""
        return self._counts()[0]

    def wait_for(self, ready: int, consumers: int | None = None) -> None:
        """Wait until this many messages are ready, and the server knows this many consumers."""

        def are_there() -> bool:
            now, there = self._counts()
            return now == ready and consumers in (None, there)

        wait_until(are_there, lambda: f"{ready} messages are ready; got {self._counts()}")

    def take(self) -> list[bytes]:
        """Take all messages that are ready away."""

        def get(channel: BlockingChannel) -> list[bytes]:
            taken = []
            while (got := channel.basic_get(self.name, auto_ack=True))[0] is not None:
                taken.append(got[2])
            return taken

        taken: list[bytes] = self._ask(get)
        return taken

    def _counts(self) -> tuple[int, int]:
        """Return how many messages are ready, and how many consumers there are."""
        told = self._ask(lambda channel: channel.queue_declare(self.name, passive=True)).method
        return told.message_count, told.consumer_count

    def _ask(self, question: Callable[[BlockingChannel], Any]) -> Any:
        connection = self.server.connect()
        try:
            return question(connection.channel())
        finally:
            connection.close()


class Driven:
    """A spout that is called by hand.

    Attributes:
        emitted: (values, message id) of what it emitted.
    """

    def __init__(
        self, spout: Spout, config: AtLeastOnceConfig = AtLeastOnceConfig(), *, acks: bool = False
    ) -> None:
        assert spout.output_fields is not None
        self.spout = spout
        streams = {DEFAULT_STREAM: Stream(spout.output_fields)}
        self._collector = SpoutOutputCollector(
            "queue", streams, lambda _: None, spout.ack if acks else None
        )
        spout.open(config, TaskContext("topology", "queue", 0, 1), self._collector)
        spout.activate()

    @property
    def emitted(self) -> list[tuple[Any, Any]]:
        lists = self._collector.emitted[DEFAULT_STREAM]
        return [(row[0], mark) for row, mark in zip(lists.rows, lists.marks, strict=True)]

    @property
    def rows(self) -> list[Any]:
        """All values of what it emitted."""
        return self._collector.emitted[DEFAULT_STREAM].rows

    @property
    def errors(self) -> list[Exception]:
        """What it reported."""
        return self._collector.errors

    def next(self, tuples: int) -> list[tuple[Any, Any]]:
        """Call ``next_tuple`` until this many more were emitted; return them."""
        before = len(self.emitted)

        def are_emitted() -> bool:
            if len(self.emitted) < before + tuples:
                self.spout.next_tuple()
            return len(self.emitted) >= before + tuples

        wait_until(
            are_emitted,
            lambda: f"{tuples} tuples are emitted; got {self.emitted[before:]}",
            pause_s=0.001,
        )
        return self.emitted[before:]
