"""What a spout of a consumer group commits when an answer is bad, with a client that only notes."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from txtopo.spouts.kafka import KafkaSpout
from txtopo.spouts.kafka.spout import _Assigned
from txtopo.spouts.kafka.uncommitted import UncommittedOffsets


class Noting:
    """A consumer."""

    def __init__(self) -> None:
        self.committed: list[int] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous, "nothing waits for a commit"
        self.committed += [each.offset for each in offsets]


@pytest.mark.rule("txtopo.spouts.kafka.spout", "Rules", 3)
def test_a_commit_that_was_refused_is_sent_again_with_the_next() -> None:
    spout: Any = KafkaSpout("127.0.0.1:1", "words", "counting")
    offsets: UncommittedOffsets[Any] = UncommittedOffsets(0)
    spout._assigned, spout._heard = {("words", 0): _Assigned(1, offsets, 0)}, deque()
    spout._consumer = client = Noting()
    offsets.take(0, "a record")
    offsets.ack(0)

    spout._commit()
    spout._commit()
    assert client.committed == [1]
    spout._answered(KafkaError(KafkaError.REQUEST_TIMED_OUT), [TopicPartition("words", 0)])
    spout._commit()
    assert client.committed == [1, 1]
