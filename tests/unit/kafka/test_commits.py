"""What a spout of a consumer group commits when an answer is bad, with a client that only notes."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from txtopo.errors import OffsetRegression
from txtopo.kafka import KafkaSpout
from txtopo.kafka.group_spout import WATCH_S, _Assigned
from txtopo.kafka.uncommitted import UncommittedOffsets


class Noting:
    """A consumer."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.told: list[str | None] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous, "nothing waits for a commit"
        self.committed += [each.offset for each in offsets]
        self.told += [each.metadata for each in offsets]


@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 3)
def test_a_commit_that_was_refused_is_sent_again_with_the_next() -> None:
    spout: Any = KafkaSpout("127.0.0.1:1", "words", "counting")
    offsets: UncommittedOffsets[Any] = UncommittedOffsets(0)
    spout._assigned, spout._heard = {("words", 0): _Assigned(1, offsets, "the id", 0)}, deque()
    spout._consumer = client = Noting()
    offsets.take(0, "a record")
    offsets.ack(0)

    spout._commit()
    spout._commit()
    assert client.committed == [1]
    spout._answered(KafkaError(KafkaError.REQUEST_TIMED_OUT), [TopicPartition("words", 0)])
    spout._commit()
    assert client.committed == [1, 1]
    assert client.told == ["txtopo topic the id"] * 2


class Answering:
    """Tells the id of each topic, when it is let to."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.asked_for: list[Future[Any]] = []

    def asked(self, names: set[str]) -> dict[str, Future[Any]]:
        assert names == {"words"}
        self.asked_for.append(Future())
        return {"words": self.asked_for[-1]}

    def answer(self) -> None:
        self.asked_for[-1].set_result(SimpleNamespace(topic_id=self.id))


@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 10)
def test_a_topic_that_is_made_again_while_it_is_read_is_noticed_without_waiting() -> None:
    """A log that is longer than the position looks as the one before it did."""
    spout: Any = KafkaSpout("127.0.0.1:1", "words", "counting")
    assigned = _Assigned(1, UncommittedOffsets(5), "the id", 5)
    spout._assigned, spout._answers = {("words", 0): assigned}, {}
    spout._offsets = told = Answering("the id")

    def watch() -> None:
        spout._watched_s = -WATCH_S
        spout._watch()

    watch()
    watch()
    assert len(told.asked_for) == 1, "one question at a time"
    told.answer()
    watch()
    watch()
    told.asked_for[-1].set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
    watch()

    told.id = "another id"
    watch()
    told.answer()
    with pytest.raises(OffsetRegression, match=r"'words' was .* recreated; got id another id; .*"):
        watch()
