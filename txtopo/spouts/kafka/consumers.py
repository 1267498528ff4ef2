"""Consumers: those of this process, lent to one reading at a time, closed before Python ends."""

from __future__ import annotations

import atexit
import os
from collections import deque
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from txtopo.kafka_connection import HEARD_MAX, Connection, Heard
from txtopo.spouts.kafka.positions import Place

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

# Connecting takes 20 to 50 ms, and Spark keeps no slot on one worker process: so each process has
# idle consumers of its own, by configuration. Keyed by the process too, for forks.
_idle: dict[tuple[object, ...], deque[Lent]] = {}
_IDLE_MAX = 4
# A broker answers in milliseconds. A consumer that was idle while its broker was killed and started
# again has been silent for 20 s; it is given up sooner than a broker.
_MEETS_S_MAX = 1.0


@dataclass(slots=True)
class Lent:
    """A consumer, what it heard of, and where it stands.

    Attributes:
        consumer: The consumer.
        heard: Its troubles.
        topics: Those that it has met.
        stands: From where it reads on, in all partitions that it is assigned; empty if that is not
            certain.
        ahead: What it has brought from there on.
        fetched: What it brings next.
        paused: Of which it brings nothing until it is assigned anew.
    """

    consumer: Consumer
    heard: Heard
    topics: set[str] = field(default_factory=set)
    stands: dict[Place, int] = field(default_factory=dict)
    ahead: dict[Place, list[Message]] = field(default_factory=dict)
    fetched: dict[Place, int] = field(default_factory=dict)
    paused: set[Place] = field(default_factory=set)

    def meets(self, topics: Set[str]) -> bool:
        """Make the topics known to a consumer that has met others; False if it does not answer.

        A new consumer asks for the first ones at once. One that is told of a topic later waits for
        its next look at all topics, which comes once a second.
        """
        from confluent_kafka import KafkaException

        try:
            for topic in topics - self.topics if self.topics else ():
                self.consumer.list_topics(topic, timeout=_MEETS_S_MAX)
        except KafkaException:
            return False
        self.topics |= topics
        return True


@contextmanager
def lent_consumer(connection: Connection, topics: Set[str]) -> Iterator[Lent]:
    """Lend a consumer of this process for *topics*; one that met an error is not used again."""
    from confluent_kafka import Consumer

    idle = _idle.setdefault((os.getpid(), *connection.key()), deque())
    lent: Lent | None = None
    with suppress(IndexError):  # there is none
        lent = idle.pop()
    if lent is not None and not lent.meets(topics):
        lent.consumer.close()
        lent = None
    if lent is None:
        heard: Heard = deque(maxlen=HEARD_MAX)
        lent = Lent(Consumer(connection.of_consumer(heard)), heard, set(topics))
    try:
        yield lent
    except BaseException:
        lent.consumer.close()
        raise
    if len(idle) < _IDLE_MAX:
        lent.heard.clear()
        idle.append(lent)
    else:
        lent.consumer.close()


@atexit.register
def _close_idle() -> None:
    """Close the consumers while Python still stands; their threads call into it."""
    for (process, *_), idle in _idle.items():
        while process == os.getpid() and idle:
            idle.pop().consumer.close()
