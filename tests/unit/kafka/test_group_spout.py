"""KafkaSpout on a real broker: what is committed for its group, when, and what comes again."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.formats.envelopes import postgresql
from tests.unit.kafka.groups import Group, turn_until
from tests.unit.kafka.logs import Log
from tests.unit.reliable.bolts import Seen
from tests.unit.sources.queues import Driven
from txtopo import AtLeastOnceConfig, BasicBolt, Debezium, FailedException, Fields, TopologyBuilder
from txtopo.builders import ReliableTopology
from txtopo.errors import EmitError, OffsetRegression
from txtopo.kafka import group_spout
from txtopo.spouts import KafkaSpout

pytestmark = pytest.mark.service("kafka")

LOCAL = AtLeastOnceConfig(carrier="local", slots=2)


class Note(BasicBolt):
    """Notes each value, and fails the values that it is told to, the first few times."""

    def __init__(self, seen: Seen, *refused: str, times: int = 2) -> None:
        self._seen, self._refused, self._times = seen, refused, times

    def execute(self, tuple: Any, collector: Any) -> None:
        value = tuple["value"]
        self._seen.notes.append(value)
        if value in self._refused and self._seen.notes.count(value) <= self._times:
            raise FailedException(f"{value} is refused")


def topology(reading: KafkaSpout, bolt: BasicBolt, tasks: int = 1) -> ReliableTopology:
    builder = TopologyBuilder("grouped")
    builder.set_spout("records", reading, tasks)
    builder.set_bolt("bolt", bolt).shuffle_grouping("records")
    return builder.build_topology()


def values(driven: Driven) -> list[str]:
    return [value for value, _ in driven.emitted]


def ids(driven: Driven) -> dict[str, Any]:
    return dict(driven.emitted)


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 1)
def test_every_record_is_processed_and_then_committed(kafka: KafkaBroker, tasks: int) -> None:
    """Also past the offsets of transactions, which have no record."""
    log, seen = Log(kafka), Seen()
    group = Group(log)
    log.write(range(50))
    log.transact(range(50, 60), commit=False)
    log.transact(range(60, 100), commit=True)
    log.transact(["never"] * 4, commit=False)

    bolt = Note(seen, "7", "61")
    with topology(group.spout(), bolt, tasks).start(None, LOCAL) as run:
        run.process_all_available(LIMIT_S)

    assert set(seen.notes) == {str(each) for each in (*range(50), *range(60, 100))}
    assert min(seen.notes.count("7"), seen.notes.count("61")) >= 3
    # A transaction has a marker in each partition.
    assert group.committed() == {0: 55, 1: 55}


@pytest.mark.parametrize(("tasks", "uncommitted_max"), [(1, 1), (2, 100)])
@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 9)
def test_all_that_is_available_is_processed_however_late_the_broker_answers(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch, tasks: int, uncommitted_max: int
) -> None:
    """A spout that does not wait has nothing while it joins, and before each answer."""
    monkeypatch.setattr(group_spout, "WAIT_S", 0.0)
    monkeypatch.setattr(group_spout, "JOIN_S", 0.0)
    log, seen = Log(kafka), Seen()
    group = Group(log)
    log.write(range(40))
    reading = group.spout(uncommitted_max=uncommitted_max)

    with topology(reading, Note(seen), tasks).start(None, LOCAL) as run:
        run.process_all_available(LIMIT_S)
        found = set(seen.notes)

    assert found == set(map(str, range(40)))
    assert group.committed() == {0: 20, 1: 20}


def test_tasks_that_are_static_members_have_names_of_their_own(kafka: KafkaBroker) -> None:
    """Members of one name exclude each other, again and again."""
    log, seen = Log(kafka), Seen()
    group = Group(log)
    log.write(range(40))
    reading = group.spout(settings={"group.instance.id": "static"})

    with topology(reading, Note(seen), 2).start(None, LOCAL) as run:
        run.process_all_available(LIMIT_S)
        assert set(group.instances()) == {"static-0", "static-1"}

    assert set(seen.notes) == set(map(str, range(40)))


@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 9)
def test_a_spout_may_have_more_until_its_group_is_at_the_end(kafka: KafkaBroker) -> None:
    log = Log(kafka)
    group = Group(log)
    log.write(range(4))
    driven = group.driven()
    assert driven.spout.may_have_more()
    driven.next(4)
    for _, message_id in driven.emitted[1:]:
        driven.spout.ack(message_id)
    driven.spout.next_tuple()
    assert driven.spout.may_have_more()
    driven.spout.ack(driven.emitted[0][1])

    def is_done() -> bool:
        driven.spout.next_tuple()
        return not driven.spout.may_have_more()

    wait_until(is_done, lambda: f"the group is at the end; got {group.committed()}")
    log.write(["late"])
    assert driven.spout.may_have_more()
    driven.spout.close()


@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 2)
def test_a_commit_passes_no_record_that_is_not_acked(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(range(10), partitions=1)
    driven = group.driven()
    driven.next(10)
    for value, message_id in driven.emitted:
        if value not in ("3", "6"):
            driven.spout.ack(message_id)
    driven.spout.close()
    assert group.committed() == {0: 3}

    again = group.driven()
    again.next(7)
    for _, message_id in again.emitted:
        again.spout.ack(message_id)
    again.spout.close()

    assert values(again) == [str(each) for each in range(3, 10)]
    assert group.committed() == {0: 10}


def test_what_is_acked_is_committed_while_the_run_goes_on(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(range(3), partitions=1)
    driven = group.driven()
    driven.next(3)
    driven.spout.ack(ids(driven)["0"])

    def is_committed() -> bool:
        driven.spout.next_tuple()
        return group.committed() == {0: 1}

    wait_until(is_committed, lambda: f"offset 1 is committed; got {group.committed()}")
    driven.spout.close()


def test_what_is_acked_is_committed_while_no_more_may_be_emitted(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spout with as many pending trees as it may have is not called for records."""
    monkeypatch.setattr(group_spout, "COMMIT_S", 0.0)
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(range(3), partitions=1)
    driven = group.driven()
    driven.next(3)

    driven.spout.ack(ids(driven)["0"])

    found = group.committed
    wait_until(lambda: found() == {0: 1}, lambda: f"offset 1 is committed; got {found()}")
    driven.spout.close()


@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 6)
def test_what_fails_comes_again_first_and_is_not_committed_before(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(range(1_000), partitions=1)
    driven = group.driven()
    driven.next(2)
    first, second = driven.emitted
    driven.spout.ack(second[1])
    driven.spout.fail(first[1])
    driven.next(998)
    again = [each for each in driven.emitted[2:] if each == first]
    for value, message_id in driven.emitted[2:]:
        if value != "0":
            driven.spout.ack(message_id)
    driven.next(1)
    driven.spout.close()

    assert again == [first]
    assert sorted(Counter(values(driven)).values())[-2:] == [1, 2]
    assert group.committed() == {0: 0}


def test_a_record_that_always_fails_holds_up_no_other(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(range(2_000), partitions=1)
    driven, seen = group.driven(), set()

    def all_came() -> bool:
        before = len(driven.emitted)
        driven.spout.next_tuple()
        for value, message_id in driven.emitted[before:]:
            seen.add(value)
            (driven.spout.fail if value == "0" else driven.spout.ack)(message_id)
        return len(seen) == 2_000

    wait_until(all_came, lambda: f"2,000 came; got {len(seen)}", pause_s=0)
    driven.spout.close()
    assert group.committed() == {0: 0}


@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 5)
def test_acks_from_before_a_partition_was_given_again_are_ignored(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an assignor that takes all partitions away and gives some of them back."""
    # One thread calls both, and a group has no new member before the others have agreed.
    monkeypatch.setattr(group_spout, "JOIN_S", 0.1)
    log = Log(kafka)
    group = Group(log)
    log.write(range(8))
    eager = {"partition.assignment.strategy": "range"}
    one = group.driven(settings=eager)
    one.next(8)
    other = group.driven(settings=eager)
    turn_until(one, other, tuples=16)
    for _, message_id in one.emitted[:8]:
        one.spout.ack(message_id)
        one.spout.fail(message_id)
    one.spout.close()
    other.spout.close()

    assert Counter(values(one) + values(other)) == dict.fromkeys(map(str, range(8)), 2)
    assert group.committed() == {0: 0, 1: 0}


@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 5)
def test_a_partition_that_moves_begins_at_what_was_acked(kafka: KafkaBroker) -> None:
    """What one driver acks is not seen by the other, and what it has not acked is."""
    log = Log(kafka, partitions=4)
    group = Group(log)
    log.write(range(40), partitions=4)
    one = group.driven()
    one.next(40)
    # Of each partition the first five, and the last.
    acked = {str(each) for each in (*range(20), *range(36, 40))}
    for value, message_id in one.emitted:
        if value in acked:
            one.spout.ack(message_id)
    other = group.driven()
    turn_until(one, other, tuples=50)
    moved = values(other)
    for each in (one, other):
        for value, message_id in each.emitted:
            if each is other or value not in acked:
                each.spout.ack(message_id)
        each.spout.close()

    # Two of the partitions moved; of each the sixth record and all after it came again.
    assert len(moved) == 10
    assert {int(value) // 4 for value in moved} == set(range(5, 10))
    assert len({int(value) % 4 for value in moved}) == 2
    # The driver that kept two partitions has read nothing again.
    assert len(values(one)) == 40
    assert group.committed() == dict.fromkeys(range(4), 10)


def test_a_member_that_the_group_has_excluded_commits_nothing_more(kafka: KafkaBroker) -> None:
    """One that was frozen, for example: what it acks may be old by then."""
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(range(4), partitions=1)
    least = {"session.timeout.ms": 6_000, "max.poll.interval.ms": 6_000}
    frozen = group.driven(settings=least)
    frozen.next(4)
    wait_until(lambda: group.members() == 0, "the group has excluded it")
    other = group.driven()
    other.next(4)
    for _, message_id in other.emitted:
        other.spout.ack(message_id)
    other.spout.close()
    frozen.spout.ack(ids(frozen)["0"])
    log.write(["4"], partitions=1)
    frozen.next(1)
    frozen.spout.close()

    assert values(frozen) == ["0", "1", "2", "3", "4"]
    assert group.committed() == {0: 4}


def test_two_runs_share_the_records_while_one_comes_and_goes(kafka: KafkaBroker) -> None:
    log, seen, words = Log(kafka, partitions=4), Seen(), set[str]()
    group = Group(log)
    config = AtLeastOnceConfig(carrier="local", slots=1, max_spout_pending=50)
    bolt = Note(seen)

    def write(count: int) -> None:
        new = [f"word {each}" for each in range(len(words), len(words) + count)]
        log.write(new, partitions=4)
        words.update(new)

    with topology(group.spout(), bolt, 2).start(None, config) as run:
        write(2_000)
        with topology(group.spout(), bolt).start(None, config) as other:

            def other_takes_part() -> bool:
                write(40)
                return other.last_progress is not None and other.last_progress.acked > 0

            wait_until(other_takes_part, "the other run has processed some")
            write(2_000)
        write(2_000)

        def all_came() -> bool:
            assert not run.await_termination(0.01)
            return set(seen.notes) == words

        wait_until(all_came, lambda: f"all came; got {len(set(seen.notes))} of {len(words)}")
        run.process_all_available(LIMIT_S)

    assert group.committed() == dict.fromkeys(range(4), len(words) // 4)


@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 7)
def test_no_more_than_the_limit_follow_a_record_that_is_not_acked(kafka: KafkaBroker) -> None:
    log = Log(kafka)
    group = Group(log)
    log.write_to(0, range(100))
    log.write_to(1, range(100, 200))
    driven = group.driven(uncommitted_max=10)

    def acks_all_but(*held: str) -> None:
        for _ in range(300):
            before = len(driven.emitted)
            driven.spout.next_tuple()
            for value, message_id in driven.emitted[before:]:
                if value not in held:
                    driven.spout.ack(message_id)

    acks_all_but("0")
    assert values(driven).count("0") == 1
    assert {int(value) for value in values(driven)} == {*range(10), *range(100, 200)}
    driven.spout.ack(ids(driven)["0"])
    acks_all_but()
    driven.spout.close()

    assert Counter(values(driven)) == dict.fromkeys(map(str, range(200)), 1)
    assert group.committed() == {0: 100, 1: 100}


@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 8)
def test_a_deactivated_run_leaves_the_group_when_its_last_tuple_has_ended(
    kafka: KafkaBroker,
) -> None:
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(range(5), partitions=1)
    driven = group.driven()
    driven.next(2)
    driven.spout.deactivate()
    assert group.members() == 1
    for _, message_id in driven.emitted:
        driven.spout.ack(message_id)
    wait_until(lambda: group.members() == 0, "the group is empty")
    assert group.committed() == {0: 2}

    driven.spout.activate()
    driven.next(3)
    driven.spout.close()
    assert values(driven) == ["0", "1", "2", "3", "4"]


def test_without_ackers_a_record_is_acked_when_it_is_emitted(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(range(5), partitions=1)
    driven = group.driven(acks=True)
    driven.next(3)
    driven.spout.close()

    assert group.committed() == {0: 3}


@pytest.mark.parametrize("start", ["latest", {}])
@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 4)
def test_a_start_that_was_chosen_once_holds_for_the_runs_that_follow(
    kafka: KafkaBroker, start: Any
) -> None:
    """Else a run that died before its first commit would begin at a later end of the log."""
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(["old"], partitions=1)
    first = group.driven(start=start or {log.name: {0: 1}})
    wait_until(lambda: first.spout.next_tuple() or group.committed() == {0: 1}, "it has begun")
    log.write(["new"], partitions=1)
    first.next(1)
    first.spout.close()

    second = group.driven(start=start or {log.name: {0: 2}})
    second.next(1)
    second.spout.close()
    assert (values(first), values(second)) == (["new"], ["new"])


@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 4)
def test_a_partition_that_is_added_begins_at_its_first_record(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(["old"], partitions=1)
    driven = group.driven(start="latest", settings={"topic.metadata.refresh.interval.ms": 200})
    wait_until(lambda: driven.spout.next_tuple() or group.committed() == {0: 1}, "it has begun")
    log.grow(2)
    wait_until(lambda: log.partitions() == 2, "the broker shows the partition")
    log.write_to(1, ["first", "second"])
    driven.next(2)
    driven.spout.close()

    assert values(driven) == ["first", "second"]


@pytest.mark.parametrize("start", ["latest", datetime.fromtimestamp(2e9, UTC)])
@pytest.mark.parametrize("lives", [False, True])
@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 4)
def test_a_partition_that_was_added_before_a_run_joined_begins_at_its_first_record(
    kafka: KafkaBroker, start: Any, lives: bool
) -> None:
    """``start`` is where the group begins, and it has begun; also if another run is of it still."""
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(["old"], partitions=1)
    first = group.driven(start=start)
    wait_until(lambda: first.spout.next_tuple() or group.committed() == {0: 1}, "it has begun")
    if not lives:
        first.spout.close()
    log.grow(2)
    wait_until(lambda: log.partitions() == 2, "the broker shows the partition")
    log.write_to(1, ["first", "second"])

    second = group.driven(start=start)
    turn_until(*([first] if lives else []), second, tuples=2)
    for each in [*([first] if lives else []), second]:
        each.spout.close()
    assert values(first) + values(second) == ["first", "second"]


@pytest.mark.rule("txtopo.kafka.group_spout", "Rules", 10)
def test_an_offset_of_a_topic_that_was_made_again_is_refused_until_it_is_set(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new log is longer than the offset, so its first records would never be read."""
    monkeypatch.setattr(group_spout, "REFUSALS_MAX", 1)
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(range(3), partitions=1)
    first = group.driven(acks=True)
    first.next(3)
    first.spout.close()
    told = group.told()
    log.delete()
    log.create(1)
    log.write(range(100, 105), partitions=1)
    group.set_to(3, told)  # as a commit that was under way

    with pytest.raises(OffsetRegression, match=r"recreated; .* --reset-offsets while no run"):
        group.driven().next(1)
    for text in ("", '{"topologyId": "of Storm"}'):
        group.set_to(0, text)
        again = group.driven()
        again.next(5)
        assert values(again) == [str(n) for n in range(100, 105)]
        again.spout.close()


def test_a_record_that_cannot_be_decoded_ends_the_run(kafka: KafkaBroker) -> None:
    log, seen = Log(kafka, partitions=1), Seen()
    group = Group(log)
    log.write(['{"value": "good"}', "no JSON"], partitions=1)
    reading = group.spout(value=Fields("value string"))
    run = topology(reading, Note(seen)).start(None, LOCAL)

    with pytest.raises(EmitError, match="the record at offset 1 of partition 0 of topic"):
        run.await_termination(LIMIT_S)
    # Whatever was acked by then, the bad record is still there for the next run.
    assert group.committed()[0] <= 1


@pytest.mark.parametrize("uncommitted_max", [1, 100])
def test_a_record_that_cannot_be_decoded_is_reported_and_passed(
    kafka: KafkaBroker, uncommitted_max: int
) -> None:
    """Also one at which the spout waits for acks."""
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(["no JSON", '{"value": "good"}'], partitions=1)
    driven = group.driven(
        value=Fields("value string"), on_bad_record="report", uncommitted_max=uncommitted_max
    )
    driven.next(1)
    for _, message_id in driven.emitted:
        driven.spout.ack(message_id)
    driven.spout.close()

    assert values(driven) == ["good"]
    (error,) = driven.errors
    assert isinstance(error, EmitError)
    assert error.facts["offset"] == 0
    assert group.committed() == {0: 2}


@pytest.mark.parametrize("uncommitted_max", [1, 100])
def test_a_record_that_makes_no_row_is_passed_and_committed(
    kafka: KafkaBroker, uncommitted_max: int
) -> None:
    """Also one at which the spout waits for acks."""
    log = Log(kafka, partitions=1)
    group = Group(log)
    changed = {"op": "c", "after": {"id": 1}, "source": postgresql(7)}
    log.write(['{"ts_ms": 1}', json.dumps(changed), '{"ts_ms": 2}'], partitions=1)
    driven = group.driven(value=Debezium("id long", key="id"), uncommitted_max=uncommitted_max)
    driven.next(1)
    for _, message_id in driven.emitted:
        driven.spout.ack(message_id)

    def is_committed() -> bool:
        driven.spout.next_tuple()
        return group.committed() == {0: 3}

    wait_until(is_committed, "the offset after the last record is committed")
    driven.spout.close()
    assert [id for id, _ in driven.emitted] == [1]


def test_all_columns_of_a_record_are_fields_of_the_tuple(kafka: KafkaBroker) -> None:
    log = Log(kafka, partitions=1)
    group = Group(log)
    log.write(["a", None], partitions=1, key=b"k", headers=[("h", b"1")], timestamp=1_500)
    columns = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
    whole = KafkaSpout(kafka.servers, log.name, group.name, value="string", key="string")
    assert whole.output_fields is not None
    assert whole.output_fields.names == columns
    driven = Driven(whole)
    driven.next(2)
    driven.spout.close()

    rows = [list(row) for row in driven.rows]
    assert [row[:6] for row in rows] == [
        ["k", "a", '[["h", "1"]]', log.name, 0, 0],
        ["k", None, '[["h", "1"]]', log.name, 0, 1],
    ]
    assert {row[6].timestamp() for row in rows} == {1.5}
