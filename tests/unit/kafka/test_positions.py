"""What a look that shows less than the one before does to the positions; no broker is needed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, InfrastructureError, OffsetRegression
from txtopo.kafka import batch_spouts, offsets
from txtopo.kafka.batch_spouts import (
    KafkaOpaqueSpout,
    KafkaSource,
    RangesCoordinator,
    SharesCoordinator,
    _SharesEmitter,
    check_topics,
)
from txtopo.kafka.connection import Connection
from txtopo.kafka.offsets import (
    MISSING_LOOKS_MAX,
    ClusterSnapshot,
    KafkaPartition,
    Lost,
    Offsets,
    Positions,
    Range,
    Start,
    Topic,
    from_json,
)
from txtopo.kafka.reading import RecordColumns
from txtopo.metadata import Json
from txtopo.spouts.spout import LastBatch

pytest.importorskip("confluent_kafka")
from confluent_kafka import KafkaError, KafkaException

A, B = KafkaPartition("orders", 0), KafkaPartition("orders", 1)
BEFORE = Positions({"orders": "id"}, {A: Range(0, 7), B: Range(2, 5)})


class Looks(Offsets):
    """Brokers that answer with what a test says."""

    def __init__(self, *looks: ClusterSnapshot, policy: str | None = "delete") -> None:
        super().__init__(Connection("nowhere:1"), "orders")
        self._looks = list(looks)
        self.policy = policy
        self.away = False

    def cleanup_policies(self, names: Sequence[str]) -> dict[str, str | None]:
        if self.away:
            raise InfrastructureError("no answer")
        return dict.fromkeys(names, self.policy)

    def look(self, partitions: object = None) -> ClusterSnapshot:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]


def shown(bounds: dict[KafkaPartition, Range], id: str = "id") -> ClusterSnapshot:
    names = {partition.topic for partition in bounds}
    return ClusterSnapshot({n: Topic(id, sum(p.topic == n for p in bounds)) for n in names}, bounds)


ONE_LESS = shown({A: Range(0, 9)})
NONE = ClusterSnapshot({}, {})
EMPTY = ClusterSnapshot({"orders": Topic("id", 1), "returns": Topic("id", 0)}, {})
ALL = shown({A: Range(0, 9), B: Range(0, 6)})


def source(offsets: Offsets, start: Start = "earliest", records_max: int = 100) -> KafkaSource:
    made = KafkaSource(Connection("nowhere:1"), "orders", RecordColumns(), start, records_max)
    made.offsets = offsets
    return made


def planner(*looks: ClusterSnapshot, records_max: int = 100) -> RangesCoordinator:
    return RangesCoordinator(source(Looks(*looks), records_max=records_max))


def emitter(spout: KafkaOpaqueSpout) -> _SharesEmitter:
    made = spout.emitter(Config(), TaskContext("orders", "spout", 0, 1))
    assert isinstance(made, _SharesEmitter)
    return made


def planned(planner: RangesCoordinator, before: Json) -> Positions | None:
    ready = planner.is_ready(2, LastBatch(1, before))
    return from_json(planner.initialize_transaction(2, before)) if ready else None


def test_a_partition_that_one_broker_does_not_know_keeps_its_position() -> None:
    """Forgotten, it would be read from its beginning when it is seen again."""
    coordinator = planner(ONE_LESS, ALL)
    first = planned(coordinator, BEFORE.to_json())
    assert first is not None
    assert first.ranges == {A: Range(7, 9), B: Range(5, 5)}
    second = planned(coordinator, first.to_json())

    assert second is not None
    assert second.ranges == {A: Range(9, 9), B: Range(5, 6)}


@pytest.mark.parametrize("stop", ["stop", "record"])
def test_an_opaque_position_outlives_a_look_that_lacks_its_partition(stop: str) -> None:
    spout = KafkaOpaqueSpout("nowhere:1", "orders", on_data_loss=stop)  # type: ignore[arg-type]
    opaque = emitter(spout)
    first = opaque._batch(BEFORE, ONE_LESS, [A], first=False)
    assert first.ranges == {A: Range(7, 9), B: Range(5, 5)}
    second = opaque._batch(first, ALL, [A, B], first=False)

    assert second.ranges == {A: Range(9, 9), B: Range(5, 6)}
    assert first.lost == second.lost == ()


def test_a_topic_that_is_not_seen_is_not_lost_before_another_has_its_name() -> None:
    opaque = emitter(KafkaOpaqueSpout("nowhere:1", "orders", on_data_loss="record"))
    away = opaque._batch(BEFORE, NONE, [], first=False)
    assert away.ranges == {A: Range(7, 7), B: Range(5, 5)}
    assert away.ids == {"orders": "id"}
    back = opaque._batch(away, ALL, [A, B], first=False)
    assert (back.ranges, back.lost) == ({A: Range(7, 9), B: Range(5, 6)}, ())
    other = opaque._batch(away, shown({A: Range(0, 3)}, "other"), [A], first=False)

    assert (other.ranges, other.ids) == ({A: Range(0, 3)}, {"orders": "other"})
    assert set(other.lost) == {Lost(A, 7, None), Lost(B, 5, None)}


def test_a_topic_that_stays_away_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = SharesCoordinator(source(Looks(NONE)), TaskContext("t", "s", 0, 1), stops=False)
    last = LastBatch(1, {"0": BEFORE.to_json()})
    with caplog.at_level(logging.WARNING, "txtopo"):
        asked = [coordinator.is_ready(2, last) for _ in range(3 * MISSING_LOOKS_MAX)]

    assert not any(asked)
    assert caplog.text.count("'orders' does not exist; its position is kept") == 1


def test_a_log_that_ends_before_the_position_stops_the_planning() -> None:
    """What is written there next would be passed over without a word. Not at once: a broker that
    has just recovered a log may show less of it for a moment."""
    short = shown({A: Range(0, 6), B: Range(0, 5)})
    coordinator = planner(short)
    for _ in range(MISSING_LOOKS_MAX - 1):
        with pytest.raises(InfrastructureError, match="checking again: partition 0"):
            planned(coordinator, BEFORE.to_json())

    with pytest.raises(
        OffsetRegression, match="ends at offset 6, but the next offset to read is 7"
    ) as found:
        planned(coordinator, BEFORE.to_json())
    assert found.value.facts == {"topic": "orders", "partition": 0, "wanted": 7, "end": 6}


def test_an_end_that_comes_back_is_nothing() -> None:
    short = shown({A: Range(0, 6), B: Range(0, 5)})
    coordinator = planner(*[short, ALL] * MISSING_LOOKS_MAX)
    for _ in range(MISSING_LOOKS_MAX):
        with pytest.raises(InfrastructureError):
            planned(coordinator, BEFORE.to_json())
        assert planned(coordinator, BEFORE.to_json()) is not None


@pytest.mark.parametrize(("records_max", "expected"), [(2, [True] * 4), (3, [True, False])])
def test_a_batch_that_has_room_waits_while_another_is_in_flight(
    records_max: int, expected: list[bool]
) -> None:
    """A full one does not grow by waiting."""
    coordinator = planner(ALL, records_max=records_max)
    last = [LastBatch(1, BEFORE.to_json(), pending) for pending in range(len(expected))]

    assert [coordinator.is_ready(2, each) for each in last] == expected


class Named(Offsets):
    """Two topics, of which a test says when they are seen; offsets are never asked for."""

    def __init__(self, *seen: set[str]) -> None:
        super().__init__(Connection("nowhere:1"), ["orders", "returns"])
        self.seen = list(seen)

    def topics(self) -> dict[str, Topic]:
        return {name: Topic(name, 1) for name in self.seen.pop(0)}


def test_a_topic_that_was_just_made_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its broker may learn of it a moment after the controller."""
    monkeypatch.setattr(offsets, "_LOOKS_AGAIN_S", 0.0)
    both = {"orders", "returns"}
    later = Named(set(), {"orders"}, both)
    assert later.missing() == []
    assert later.seen == []

    with pytest.raises(
        ConfigError, match="topic 'returns' of a Kafka spout does not exist"
    ) as found:
        check_topics(Named(*[{"orders"}] * 100))
    assert found.value.facts == {"topic": "returns"}


def test_the_first_batch_waits_until_all_that_was_named_is_seen() -> None:
    """A topic that it left out would be new later, and be read from its beginning."""
    one = ClusterSnapshot({"orders": Topic("id", 1)}, {A: Range(0, 9)})
    coordinator = RangesCoordinator(source(Named(), "latest"))
    coordinator._look = one
    with pytest.raises(InfrastructureError, match="'returns' does not exist, so the first batch"):
        coordinator.initialize_transaction(1, None)
    spout = KafkaOpaqueSpout("nowhere:1", ["orders", "returns"], start="latest")
    with pytest.raises(InfrastructureError, match="'returns' does not exist, so the first batch"):
        emitter(spout)._batch(Positions(), one, [A], first=True)
    with pytest.raises(InfrastructureError, match="orders-0 has no leader, so the first batch"):
        emitter(spout)._batch(Positions(), EMPTY, [A], first=True)


def look_again(coordinator: RangesCoordinator) -> bool:
    return coordinator.is_ready(2, LastBatch(1, BEFORE.to_json()))


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete, compact"])
def test_a_compacted_topic_is_refused_before_anything_is_planned(policy: str) -> None:
    """A replay might lack records that an earlier attempt has brought."""
    coordinator = RangesCoordinator(source(Looks(ALL, policy=policy)))

    with pytest.raises(ConfigError, match=f"'orders' of .* is compacted; got .*{policy}") as found:
        look_again(coordinator)
    assert found.value.facts == {"topic": "orders"}


def test_a_topic_that_becomes_compacted_is_refused_at_the_next_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(batch_spouts, "now", lambda: time.now_s)
    looks = Looks(ALL)
    coordinator = RangesCoordinator(source(looks))
    assert look_again(coordinator)
    looks.policy = "compact"
    time.now_s = batch_spouts.COMPACTION_CHECK_S - 1
    assert look_again(coordinator)
    time.now_s += 1

    with pytest.raises(ConfigError, match="is compacted"):
        look_again(coordinator)


def test_a_topic_that_comes_to_match_or_is_made_again_is_asked_for_at_once() -> None:
    looks = Looks(ALL, shown({A: Range(0, 9), KafkaPartition("returns", 0): Range(0, 1)}))
    coordinator = RangesCoordinator(source(looks))
    assert look_again(coordinator)
    looks.policy = "compact"

    with pytest.raises(ConfigError, match="is compacted") as found:
        look_again(coordinator)
    assert found.value.facts == {"topic": "returns"}


def test_a_policy_that_may_not_be_seen_is_warned_of_once_by_name(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_spouts, "COMPACTION_CHECK_S", 0.0)
    coordinator = RangesCoordinator(source(Looks(ALL, policy=None)))
    with caplog.at_level(logging.WARNING, "txtopo"):
        assert all([look_again(coordinator), look_again(coordinator)])

    assert caplog.text.count("does not report whether topic 'orders' is compacted") == 1


def test_nothing_is_planned_of_a_topic_before_its_policy_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_spouts, "COMPACTION_CHECK_S", 0.0)
    looks = Looks(ALL)
    looks.away = True
    coordinator = RangesCoordinator(source(looks))
    with pytest.raises(InfrastructureError):
        look_again(coordinator)
    looks.away = False
    assert look_again(coordinator)
    looks.away = True

    assert look_again(coordinator)


class Answer:
    """What a broker says of the settings of a topic."""

    def __init__(self, said: str) -> None:
        self._said = said

    def result(self) -> dict[str, Any]:
        if self._said.isupper():
            raise KafkaException(KafkaError(getattr(KafkaError, self._said)))
        return {"cleanup.policy": SimpleNamespace(value=self._said)} if self._said else {}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("delete", {"orders": "delete"}),
        ("", {"orders": None}),
        ("TOPIC_AUTHORIZATION_FAILED", {"orders": None}),
        ("CLUSTER_AUTHORIZATION_FAILED", {"orders": None}),
        ("UNSUPPORTED_VERSION", {"orders": None}),
        ("UNKNOWN_TOPIC_OR_PART", {}),
        ("_TIMED_OUT", InfrastructureError),
    ],
)
def test_who_may_not_describe_a_topic_reads_it(
    said: str, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SimpleNamespace(
        describe_configs=lambda asked, **_: {each: Answer(said) for each in asked},
        poll=lambda _: None,
    )
    monkeypatch.setattr(offsets, "admin_client", lambda _: (client, []))
    asked = Offsets(Connection("nowhere:1"), "orders")

    if isinstance(expected, dict):
        assert asked.cleanup_policies(["orders"]) == expected
    else:
        with pytest.raises(expected):
            asked.cleanup_policies(["orders"])
