"""Timers: when they fire, in which order, and what is kept of them."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.harness.polling import wait_until
from tests.unit.streams.test_changed_programs import Changing
from tests.unit.streams.timer_txids import Timed
from tests.unit.streams.times import EVENT, at, events, tables_of
from tests.unit.streams.txids import second, seconds
from tests.unit.streams.worlds import GROUPS, LOCAL
from txtopo import (
    Config,
    Count,
    Fields,
    StreamBuilder,
    TopologyError,
    TransactionAttempt,
    open_state,
)
from txtopo.context import EPOCH
from txtopo.errors import EmitError, StateUsageError, TopologyChanged, ValueRefusedError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream, DueTimer, Timers, tumbling

TEN = datetime.timedelta(seconds=10)

Function = Callable[..., Any]


def setting(value: int | None, rows: Any, timers: Timers) -> Any:
    """Count the rows, and let the timer be ten seconds after the last one."""
    for row in rows:
        timers.set(row["ts"] + TEN)
    return (value or 0) + len(rows), []


def telling(value: int | None, timer: DueTimer, timers: Timers) -> Any:
    """Emit the timer and the value; keep the value."""
    return value, [[f"{timer.key}{timer.name}@{seconds(timer.at):g}", value]]


def named(value: int | None, rows: Any, timers: Timers) -> Any:
    """Set a timer for each row, with the number of the row as its name."""
    for row in rows:
        timers.set(row["ts"], str(row["n"]))
    return value or 0, []


@pytest.mark.rule("txtopo.streams.timers", "Rules", 1, 2)
def test_a_timer_fires_once_when_the_watermark_reaches_its_moment() -> None:
    timed = Timed(setting, telling)

    assert timed.run([("a", 1, 0)], 0) == []
    assert timed.run([], 9.999999) == []
    assert timed.run([], 10) == [("a@10", 1)]
    assert timed.run([], 10) == timed.run([], 20) == []
    assert timed.timers() == {}
    assert timed.values() == {"a": 1}


@pytest.mark.rule("txtopo.streams.timers", "Rules", 1)
def test_a_name_has_one_moment() -> None:
    """Neither the earlier moment nor the same moment a second time makes another timer."""
    timed = Timed(setting, telling)
    timed.run([("a", 1, 0), ("a", 2, 5), ("a", 3, 5)], 0)
    assert timed.timers() == {("a", ""): 15}
    timed.run([("a", 4, 3)], 4)

    assert timed.run([], 14) == [("a@13", 4)]
    assert timed.run([], 20) == []


@pytest.mark.rule("txtopo.streams.timers", "Rules", 1)
def test_a_deleted_timer_does_not_fire() -> None:
    def function(value: Any, rows: Any, timers: Timers) -> Any:
        for row in rows:
            timers.set(row["ts"] + TEN) if row["n"] else timers.delete()
        timers.delete("of which there is none")
        return 1, []

    timed = Timed(function, telling)
    timed.run([("a", 1, 0), ("b", 1, 0), ("c", 1, 0), ("c", 0, 0)], 0)
    timed.run([("a", 0, 0)], 0)

    assert timed.timers() == {("b", ""): 10}
    assert timed.run([("b", 0, 0)], 10) == [], "in the txid that would have fired it"


@pytest.mark.rule("txtopo.streams.timers", "Rules", 2)
def test_while_the_watermark_is_unknown_no_timer_fires() -> None:
    timed = Timed(setting, telling)

    assert timed.run([("a", 1, -1e6)], None) == []
    assert timed.run([], -1e6 + 10) == [("a@-999990", 1)]


@pytest.mark.rule("txtopo.streams.timers", "Rules", 3)
def test_with_event_time_rows_come_before_the_timers_that_they_make_due() -> None:
    """A payment in the batch that moves the watermark past its deadline is not too late."""
    timed = Timed(setting, telling)
    timed.run([("a", 1, 0)], 0)

    assert timed.run([("a", 2, 9), ("b", 3, 15)], 15) == []
    assert timed.run([], 19) == [("a@19", 2)]


@pytest.mark.rule("txtopo.streams.timers", "Rules", 3)
def test_with_planned_time_timers_come_before_the_rows() -> None:
    """So it makes no difference whether there was a txid in between."""

    def function(value: Any, rows: Any, timers: Timers) -> Any:
        assert timers.now is not None
        timers.set(timers.now + TEN)
        return (value or 0) + len(rows), []

    for between in ([], [11.0]):
        timed, found = Timed(function, telling, planned=True), []
        timed.run([("a", 1, 0)], 1)
        for now in between:
            found += timed.run([], now)
        found += timed.run([("a", 1, 0)], 12)
        assert found == [("a@11", 1)]
        assert timed.timers() == {("a", ""): 22}


@pytest.mark.rule("txtopo.streams.timers", "Rules", 3)
def test_timers_fire_in_the_order_of_moment_key_and_name() -> None:
    timed = Timed(named, telling)
    timed.run([("b", 2, 7), ("b", 1, 8), ("a", 3, 8), ("a", 1, 9), ("a", 2, 8)], 0)

    found = [what for what, _ in timed.run([], 9)]

    assert found == ["b2@7", "a2@8", "a3@8", "b1@8", "a1@9"]


def test_the_function_is_called_once_for_each_key_with_its_rows_in_order() -> None:
    def function(value: Any, rows: Any, timers: Timers) -> Any:
        numbers = [row["n"] for row in rows]
        return value, ([f"{rows[0]['key']}{numbers}", number] for number in numbers)

    timed = Timed(function, telling, order_by=["n"])

    found = timed.run([("b", 3, 0), ("a", 2, 0), ("b", 1, 0)], None)

    assert found == [("b[1, 3]", 1), ("b[1, 3]", 3), ("a[2]", 2)]


@pytest.mark.rule("txtopo.streams.timers", "Rules", 4)
def test_a_moment_that_has_passed_fires_after_the_rows_that_set_it() -> None:
    for planned in (True, False):
        timed = Timed(named, telling, planned=planned)
        timed.run([], 100)

        assert timed.run([("a", 1, 3)], 100) == [("a1@3", 0)]
        assert timed.run([], 100) == []


@pytest.mark.rule("txtopo.streams.timers", "Rules", 4)
@pytest.mark.parametrize("planned", [True, False])
def test_a_timer_that_sets_itself_later_fires_for_each_moment_that_has_passed(
    planned: bool,
) -> None:
    def again(value: Any, timer: DueTimer, timers: Timers) -> Any:
        timers.set(timer.at + TEN)
        return telling(value, timer, timers)

    timed = Timed(setting, again, planned=planned)
    timed.run([("a", 1, 0)], 0)

    assert [what for what, _ in timed.run([], 35)] == ["a@10", "a@20", "a@30"]
    assert timed.timers() == {("a", ""): 40}


@pytest.mark.rule("txtopo.streams.timers", "Rules", 4)
@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("back", [0, 5])
def test_a_timer_that_sets_itself_no_later_fires_in_the_next_txid(planned: bool, back: int) -> None:
    def again(value: Any, timer: DueTimer, timers: Timers) -> Any:
        timers.set(timer.at - datetime.timedelta(seconds=back))
        return telling(value, timer, timers)

    timed = Timed(setting, again, planned=planned)
    timed.run([("a", 1, 0)], 0)

    found = [[what for what, _ in timed.run([], 35)] for _ in range(3)]

    assert found == [["a@10"], [f"a@{10 - back}"], [f"a@{10 - 2 * back}"]]


@pytest.mark.rule("txtopo.streams.timers", "Rules", 1, 4)
def test_a_call_for_a_timer_may_move_and_delete_others_that_are_due() -> None:
    def on_timer(value: Any, timer: DueTimer, timers: Timers) -> Any:
        if timer.name == "1":
            timers.delete("2")
            for moment in (7, 8, 7):
                timers.set(second(moment), "3")
            timers.set(second(50), "4")
        return telling(value, timer, timers)

    timed = Timed(named, on_timer)
    timed.run([("a", number, number) for number in range(1, 6)], 0)

    found = [what for what, _ in timed.run([], 9)]

    assert found == ["a1@1", "a5@5", "a3@7"]
    assert timed.timers() == {("a", "4"): 50}


@pytest.mark.rule("txtopo.streams.timers", "Rules", 5)
def test_a_call_that_returns_no_value_deletes_all_timers_of_its_key() -> None:
    """Also those that it has set: its rows might as well have been in two batches."""

    def function(value: Any, rows: Any, timers: Timers) -> Any:
        for row in rows:
            timers.set(row["ts"], str(abs(row["n"])))
        return None if rows[-1]["n"] < 0 else 1, []

    timed = Timed(function, telling)
    timed.run([("a", 1, 20), ("a", 2, 30), ("b", 1, 20)], 0)
    timed.run([("a", 3, 9), ("a", -2, 40), ("c", -1, 9), ("c", -1, 50)], 9)

    assert timed.values() == {"b": 1}
    assert timed.timers() == {("b", "1"): 20}
    assert [what for what, _ in timed.run([], 50)] == ["b1@20"]


@pytest.mark.rule("txtopo.streams.timers", "Rules", 5)
def test_a_timer_of_a_value_that_another_timer_removed_does_not_fire() -> None:
    def on_timer(value: Any, timer: DueTimer, timers: Timers) -> Any:
        timers.set(second(8), "8")
        return None, [[timer.name, value]]

    timed = Timed(lambda value, rows, timers: (1, named(value, rows, timers)[1]), on_timer)
    timed.run([("a", number, number) for number in (3, 4, 90)], 0)

    assert timed.run([], 9) == [("3", 1)]
    assert timed.timers() == {}
    assert timed.values() == {}


@pytest.mark.rule("txtopo.streams.timers", "Rules", 5)
def test_a_value_that_comes_back_in_the_same_txid_has_the_timers_set_since() -> None:
    def function(value: Any, rows: Any, timers: Timers) -> Any:
        return 7, named(value, rows, timers)[1]

    timed = Timed(function, lambda value, timer, timers: (None, []), planned=True)
    timed.run([("a", 1, 5), ("a", 2, 90), ("a", 3, 90)], 0)
    timed.run([("a", 3, 50)], 9)

    assert timed.values() == {"a": 7}
    assert timed.timers() == {("a", "3"): 50}


@pytest.mark.rule("txtopo.streams.timers", "Rules", 7)
def test_a_late_row_is_a_row_and_now_tells_that_it_is_late() -> None:
    def function(value: Any, rows: Any, timers: Timers) -> Any:
        return 1, [[str(timers.now and row["ts"] < timers.now), row["n"]] for row in rows]

    def on_timer(value: Any, timer: DueTimer, timers: Timers) -> Any:
        return value, [["timer", seconds(timers.now)]]

    timed = Timed(function, on_timer)

    assert timed.run([("a", 1, 50)], 50) == [("None", 1)]
    assert timed.run([("a", 2, 50), ("a", 3, 49.999999)], 90) == [("False", 2), ("True", 3)]


def test_in_a_call_for_a_timer_now_is_the_time_after_the_txid() -> None:
    found: list[float | None] = []

    def on_timer(value: Any, timer: DueTimer, timers: Timers) -> Any:
        found.append(seconds(timers.now))
        return telling(value, timer, timers)

    timed = Timed(setting, on_timer)
    timed.run([("a", 1, 0)], 0)
    timed.run([("a", 1, 5)], 17)

    assert found == [17]


@pytest.mark.rule("txtopo.streams.timers", "Rules", 2, 6)
@pytest.mark.parametrize("url", ["memory:", "sqlite"])
@pytest.mark.parametrize("planned", [True, False])
def test_an_attempt_that_was_written_is_done_again_from_what_was_before(
    planned: bool, url: str, tmp_path: Path
) -> None:
    """Timers that it fired, moved and deleted are as they were; those that it set are gone."""

    def function(value: Any, rows: Any, timers: Timers) -> Any:
        for row in rows:
            timers.set(row["ts"], str(row["n"])) if row["n"] else timers.delete("7")
        return None if rows[-1]["n"] == 5 else (value or 0) + len(rows), []

    url = f"sqlite:///{tmp_path / 'timers.db'}" if url == "sqlite" else url
    timed = Timed(function, telling, planned=planned, url=url)
    timed.run([("a", 1, 5), ("a", 2, 50), ("b", 1, 5), ("b", 7, 8), ("c", 1, 70)], 0)
    timed.run([("a", 5, 9), ("a", 2, 4), ("b", 0, 0), ("c", 1, 60)], 20)
    assert timed.timers() == {("c", "1"): 60}

    found = timed.run([("a", 3, 6)], 20, attempt=1)

    fired = {"a1@5", "a3@6", "b1@5", "b7@8"}
    assert {what for what, _ in found} == fired
    assert timed.timers() == {("a", "2"): 50, ("c", "1"): 70}
    assert timed.values() == {"a": 3, "b": 2, "c": 1}


@pytest.mark.rule("txtopo.streams.timers", "Rules", 6)
def test_a_txid_reads_the_timers_that_are_due_and_no_others(tmp_path: Path) -> None:
    """Of 100,000 timers of 20,000 keys, four are due."""

    def function(value: Any, rows: Any, timers: Timers) -> Any:
        timers.set(second(1_000_000), "more")
        return (None if rows[0]["n"] < 0 else value or 0), []

    timed = Timed(function, telling, url=f"sqlite:///{tmp_path / 'timers.db'}")
    numbers = pa.array(range(100_000))
    columns = {
        "key": [f"k{number % 20_000:05}" for number in range(100_000)],
        "timer": numbers.cast(pa.string()),
        "at": numbers.cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC")),
    }
    first = TransactionAttempt(1, 0, 1)
    handles = timed.handles()
    with handles["timers"].transaction(first) as timers:
        timers.put_columns(pa.table(columns))
    with handles["values"].transaction(first) as values:
        values.put_all((f"k{number:05}", number) for number in range(9))
    for name, handle in handles.items():
        assert handle.writes is not None
        timed.backends[name].commit(first, handle.writes)
    timed.txid = 1
    now = (EPOCH + datetime.timedelta(seconds=3) - second(0)).total_seconds()

    found = timed.run([("k00007", 1, 0), ("new", 1, 0)], now)

    assert found == [(f"k0000{n}{n}@{now - 3 + n:g}", n) for n in range(4)]
    assert timed.read["timers"] == {"between": 4}
    assert timed.read["values"] == {"rows": 5}, "the keys with rows or with timers"
    timed.run([], now)
    timed.read["timers"].clear()
    assert timed.run([("k00008", -1, 0)], now) == []
    # Those of the key whose value was removed: one each 20,000.
    assert timed.read["timers"] == {"between": 0, "starting": 5}
    with timed.backends["timers"].snapshot() as snapshot:
        left = list(snapshot.starting([("k00008",)]))
    assert [key for key, row in left if not row.deleted] == []


def test_values_are_what_the_state_would_return_also_within_a_txid() -> None:
    def function(value: Any, rows: Any, timers: Timers) -> Any:
        timers.set(rows[0]["ts"])
        return {"n": len(rows), "names": ["x", {"y": 1}]}, []

    def on_timer(value: Any, timer: DueTimer, timers: Timers) -> Any:
        return {**value, "n": 5}, [[repr(value), 0]]

    timed = Timed(function, on_timer, value="n long, names json")

    assert timed.run([("a", 1, 1)], 2) == [("{'n': 1, 'names': ['x', {'y': 1}]}", 0)]
    assert timed.values() == {"a": (5, '["x",{"y":1}]')}


@pytest.mark.parametrize(
    "answer", [None, 5, (1, 2, 3), (1, ["a", 1]), (1, "ab"), (1, 5), [1, []], (1, {"a": 1})]
)
def test_a_wrong_answer_is_told(answer: Any) -> None:
    timed = Timed(lambda value, rows, timers: answer, telling)

    with pytest.raises(EmitError, match="did not return a value and rows"):
        timed.run([("a", 1, 0)], None)


@pytest.mark.parametrize(
    ("moment", "name", "error", "message"),
    [
        ("noon", "", EmitError, "got 'noon'"),
        (datetime.datetime(2026, 1, 1), "", EmitError, "time zone"),
        (None, "", EmitError, "got None"),
        (second(0), 5, StateUsageError, "5"),
        (second(0), None, ValueRefusedError, "NULL"),
    ],
)
def test_a_moment_or_name_of_another_type_is_told(
    moment: Any, name: Any, error: type[Exception], message: str
) -> None:
    def function(value: Any, rows: Any, timers: Timers) -> Any:
        timers.set(moment, name)
        return 1, []

    with pytest.raises(error, match=message):
        Timed(function, telling).run([("a", 1, 0)], 0)


# A class of str and Enum, whose members are not formatted as their texts.
Name = enum.Enum("Name", {"REMINDER": "reminder"}, type=str)


def test_a_name_is_its_text_whenever_the_timer_fires() -> None:
    """A member of an enum is formatted as such; the store has its text."""

    reminder: Any = Name("reminder")

    def function(value: int | None, rows: Any, timers: Timers) -> Any:
        timers.set(second(rows[0]["n"]), reminder)
        return 1, []

    timed = Timed(function, lambda value, timer, timers: (1, [[f"{timer.name}", value]]))
    at_once = timed.run([("a", 0, 0)], 5)
    timed.run([("a", 7, 5)], 6)

    assert at_once == timed.run([], 9) == [("reminder", 1)]


# ------------------------------------------------------------ programs


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'timers.db'}"


HOUR = datetime.timedelta(hours=1)


def watch(order: Any, rows: Any, timers: Timers) -> Any:
    """An order is placed by a row with an odd number, and paid by one with an even number."""
    for row in rows:
        if row["n"] % 2:
            order = {"placed": row["id"], "until": (row["ts"] + HOUR).isoformat()}
            timers.set(row["ts"] + HOUR)
        elif order is not None and row["ts"].isoformat() < order["until"]:
            order = None
    return order, []


def alarm(order: Any, timer: DueTimer, timers: Timers) -> Any:
    return None, [[order["placed"], timer.key, timer.at]]


def alarms(url: str) -> Any:
    def write(builder: StreamBuilder, rows: DataStream) -> None:
        state = open_state(url, table="orders", value=Fields("placed string, until string"))
        found = rows.group_by("key").process(
            watch, "id string, key string, at timestamp", on_timer=alarm, state=state
        )
        found.group_by("id", "key", "at").persistent_aggregate(
            open_state(url, table="alarms"), n=Count()
        )

    return write


ORDERS = [
    *[["p1", "a", 1, at(0)], ["p2", "b", 1, at(5)], ["p3", "a", 2, at(59)], ["p4", "c", 1, at(50)]],
    *[
        ["p5", "b", 2, at(65)],
        ["p6", "d", 1, at(80)],
        ["p7", "c", 2, at(109)],
        ["p8", "e", 2, at(120)],
    ],
    *[["p9", "d", 2, at(141)], ["p10", "a", 1, at(130)], ["p11", "f", 1, at(200)]],
]


@pytest.mark.rule("txtopo.streams.timers", "Rules", 3)
@pytest.mark.parametrize("config", [LOCAL, GROUPS], ids=["one by one", "groups"])
@pytest.mark.parametrize("take", [1, 2, 3, 11])
def test_a_function_that_compares_times_does_not_depend_on_how_batches_are_cut(
    take: int, config: Config, url: str
) -> None:
    """An order has an alarm if it has no payment before the hour is over."""
    names = ("alarms", "orders", "orders_timers")

    found, orders, timers = tables_of(
        alarms(url), ORDERS, url, *names, take=take, config=config, delay="11 minutes"
    )

    assert found == {("p2", "b", at(65)): 1, ("p6", "d", at(140)): 1}
    assert set(orders) == {"a", "f"}
    assert timers == {("a", ""): at(190), ("f", ""): at(260)}


def test_rows_of_timers_keep_the_event_time_of_the_stream(url: str) -> None:
    """A row with the moment of its timer is in time for the windows below."""

    def write(builder: StreamBuilder, rows: DataStream) -> None:
        state = open_state(url, table="orders", value=Fields("placed string, until string"))
        found = rows.group_by("key").process(
            watch, "id string, key string, ts timestamp", on_timer=alarm, state=state
        )
        counted = found.group_by().window(tumbling("5 minutes"))
        counted.persistent_aggregate(open_state(url, table="counted"), n=Count())

    found, late = tables_of(write, ORDERS, url, "counted", "counted_late", delay="11 minutes")

    assert found == {
        at(65): {"window_end": at(70), "n": 1},
        at(140): {"window_end": at(145), "n": 1},
    }
    assert late == {}


def beating(url: str, **more: Any) -> Any:
    def seen(beats: int | None, rows: Any, timers: Timers) -> Any:
        assert timers.now is not None
        timers.set(timers.now + datetime.timedelta(seconds=1))
        return (beats or 0) + len(rows), []

    def silent(beats: int | None, timer: DueTimer, timers: Timers) -> Any:
        return None, [[timer.key, beats]]

    def write(builder: StreamBuilder, rows: DataStream) -> None:
        state = open_state(url, table="hosts", value=Fields("beats long"))
        found = rows.group_by("key").process(
            seen, "key string, beats long", on_timer=silent, state=state, time="planned", **more
        )
        found.store(open_state(url, table="silent"), key="key")

    return write


@pytest.mark.rule("txtopo.streams.timers", "Rules", 2)
def test_with_a_clock_planned_time_passes_while_the_source_is_silent(url: str) -> None:
    builder = StreamBuilder("watch")
    spout = MemoryTransactionalSpout({0: events(("a", 0), ("b", 0), ("a", 0))}, EVENT, 1)
    beating(url, clock="1 second")(builder, builder.source("s", spout, event_time="ts"))
    topology = builder.build_topology()
    assert topology.graph.needs_planned_time

    def found() -> Any:
        with open_state(url, table="silent").reader() as reader:
            return dict(reader.items())

    with topology.start(None, LOCAL) as handle:
        handle.process_all_available()
        wait_until(lambda: found() == {"a": 2, "b": 1}, lambda: f"{found()}")


def test_without_a_clock_timers_of_planned_time_wait_for_rows(url: str) -> None:
    rows = events(("a", 0), ("b", 0))
    found, hosts, timers = tables_of(beating(url), rows, url, "silent", "hosts", "hosts_timers")

    assert found == {}
    assert hosts == {"a": 1, "b": 1}
    assert set(timers) == {("a", ""), ("b", "")}


def test_timers_of_event_time_do_not_go_on_by_planned_time(url: str) -> None:
    def program(time: Any) -> Any:
        def made(world: Changing, builder: StreamBuilder) -> None:
            state = open_state(world.url, table="kept", value=Fields("value long"))
            world.source(builder).group_by("key").process(
                setting, "what string, n long", on_timer=telling, state=state, time=time
            )

        return made

    world = Changing(url)
    world.run(program("event"), s=events(("a", 0)))

    with pytest.raises(TopologyChanged, match=r"by planned time; expected .* by event time; the"):
        world.run(program("planned"), s=events(("a", 0), ("a", 1)))
    assert world.held("kept") == {"a": 1}


def test_a_table_of_any_name_has_its_timers_beside_it(url: str) -> None:
    """The names of both states of the operator differ, whatever the table is called."""

    def write(builder: StreamBuilder, rows: DataStream) -> None:
        for id, table in (("timers", "x"), ("x_timers", "y"), (None, "timers")):
            state = open_state(url, table=table, value=Fields("value long"))
            grouped = rows.group_by("key")
            grouped.process(setting, "what string, n long", on_timer=telling, state=state, id=id)

    held = tables_of(write, events(("a", 0)), url, "x", "y", "timers", "timers_timers")

    assert held[:3] == [{"a": 1}] * 3
    assert list(held[3]) == [("a", "")]


SHOP = "sqlite:///shop.db"

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"function": lambda value, rows: None}, "does not fit its call"),
    ({"on_timer": lambda value, timer: None}, "process, for on_timer, does not fit its call"),
    ({"on_timer": None}, "needs a function"),
    ({"fields": "n json"}, "is json"),
    ({"order_by": "nothing"}, "unknown column 'nothing'"),
    ({"group": ()}, "process has no groups"),
    ({"group": ("timer",)}, "column 'timer' twice"),
    ({"group": ("at",)}, "column 'at' twice"),
    ({"time": "processing"}, "timers of an unknown time; got time='processing'"),
    ({"time": "event", "event_time": None}, "process needs event time"),
    ({"clock": "1 minute"}, "pass clock= to builder.source"),
    ({"clock": "1 millisecond", "time": "planned"}, "too short"),
    ({"state": {"kind": "transactional"}}, "reads a transactional state"),
    ({"taken": "kept_timers"}, "table 'kept_timers' of .* is used twice"),
]


@pytest.mark.parametrize(("given", "message"), MISTAKES)
def test_a_mistake_is_found_where_it_stands(given: dict[str, Any], message: str) -> None:
    given = {"function": setting, "fields": "n long", "on_timer": telling, **given}
    builder = StreamBuilder("bad")
    spout = MemoryTransactionalSpout(
        {0: []}, Fields("key string, timer string, at long, ts timestamp"), 1
    )
    rows = builder.source("s", spout, event_time=given.pop("event_time", "ts"))
    if "taken" in given:
        rows.store(open_state(SHOP, table=given.pop("taken")), key="key")
    grouped = rows.group_by(*given.pop("group", ("key",)))
    state = open_state(SHOP, table="kept", value=Fields("n long"), **given.pop("state", {}))

    with pytest.raises(TopologyError, match=message):
        grouped.process(given.pop("function"), given.pop("fields"), state=state, **given)
