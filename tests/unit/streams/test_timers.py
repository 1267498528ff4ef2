"""Timers: when they fire, in which order, and what is kept of them."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.streams.timer_txids import Timed
from tests.unit.streams.times import EVENT, at, events, tables_of
from tests.unit.streams.txids import second, seconds
from tests.unit.streams.worlds import LOCAL, run
from txtopo import Fields, StreamBuilder, TopologyError, TransactionAttempt, open_state
from txtopo.context import EPOCH
from txtopo.errors import EmitError, StateUsageError, TopologyChanged, ValueRefusedError
from txtopo.sources.clock import ClockTransactionalSpout
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import Timer, Timers

RULES = ("txtopo.streams.timers", "Rules")
TEN = datetime.timedelta(seconds=10)

Function = Callable[..., Any]


def setting(value: int | None, rows: Any, timers: Timers) -> Any:
    """Count the rows, and let the timer be ten seconds after the last one."""
    for row in rows:
        timers.set(row["ts"] + TEN)
    return (value or 0) + len(rows), []


def telling(value: int | None, timer: Timer, timers: Timers) -> Any:
    """Emit the timer and the value; keep the value."""
    return value, [[f"{timer.key}{timer.name}@{seconds(timer.at):g}", value]]


def named(value: int | None, rows: Any, timers: Timers) -> Any:
    """Set a timer for each row, with the number of the row as its name."""
    for row in rows:
        timers.set(row["ts"], str(row["n"]))
    return value, []


@pytest.mark.rule(*RULES, 1, 2)
def test_a_timer_fires_once_when_the_watermark_reaches_its_moment() -> None:
    timed = Timed(setting, telling)

    assert timed.run([("a", 1, 0)], 0) == []
    assert timed.run([], 9.999999) == []
    assert timed.run([], 10) == [("a@10", 1)]
    assert timed.run([], 10) == timed.run([], 20) == []
    assert timed.timers() == {}
    assert timed.values() == {"a": 1}


@pytest.mark.rule(*RULES, 1)
def test_a_name_has_one_moment() -> None:
    """Neither the earlier moment nor the same moment a second time makes another timer."""
    timed = Timed(setting, telling)
    timed.run([("a", 1, 0), ("a", 2, 5), ("a", 3, 5)], 0)
    assert timed.timers() == {("a", ""): 15}
    timed.run([("a", 4, 3)], 4)

    assert timed.run([], 14) == [("a@13", 4)]
    assert timed.run([], 20) == []


@pytest.mark.rule(*RULES, 1)
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


@pytest.mark.rule(*RULES, 2)
def test_while_the_watermark_is_unknown_no_timer_fires() -> None:
    timed = Timed(setting, telling)

    assert timed.run([("a", 1, -1e6)], None) == []
    assert timed.run([], -1e6 + 10) == [("a@-999990", 1)]


@pytest.mark.rule(*RULES, 3)
def test_with_event_time_rows_come_before_the_timers_that_they_make_due() -> None:
    """A payment in the batch that moves the watermark past its deadline is not too late."""
    timed = Timed(setting, telling)
    timed.run([("a", 1, 0)], 0)

    assert timed.run([("a", 2, 9), ("b", 3, 15)], 15) == []
    assert timed.run([], 19) == [("a@19", 2)]


@pytest.mark.rule(*RULES, 3)
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


@pytest.mark.rule(*RULES, 3)
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


@pytest.mark.rule(*RULES, 4)
def test_a_moment_that_has_passed_fires_after_the_rows_that_set_it() -> None:
    for planned in (True, False):
        timed = Timed(named, telling, planned=planned)
        timed.run([], 100)

        assert timed.run([("a", 1, 3)], 100) == [("a1@3", None)]
        assert timed.run([], 100) == []


@pytest.mark.rule(*RULES, 4)
@pytest.mark.parametrize("planned", [True, False])
def test_a_timer_that_sets_itself_later_fires_for_each_moment_that_has_passed(
    planned: bool,
) -> None:
    def again(value: Any, timer: Timer, timers: Timers) -> Any:
        timers.set(timer.at + TEN)
        return telling(value, timer, timers)

    timed = Timed(setting, again, planned=planned)
    timed.run([("a", 1, 0)], 0)

    assert [what for what, _ in timed.run([], 35)] == ["a@10", "a@20", "a@30"]
    assert timed.timers() == {("a", ""): 40}


@pytest.mark.rule(*RULES, 4)
@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("back", [0, 5])
def test_a_timer_that_sets_itself_no_later_fires_in_the_next_txid(planned: bool, back: int) -> None:
    def again(value: Any, timer: Timer, timers: Timers) -> Any:
        timers.set(timer.at - datetime.timedelta(seconds=back))
        return telling(value, timer, timers)

    timed = Timed(setting, again, planned=planned)
    timed.run([("a", 1, 0)], 0)

    found = [[what for what, _ in timed.run([], 35)] for _ in range(3)]

    assert found == [["a@10"], [f"a@{10 - back}"], [f"a@{10 - 2 * back}"]]


@pytest.mark.rule(*RULES, 1, 4)
def test_a_call_for_a_timer_may_move_and_delete_others_that_are_due() -> None:
    def on_timer(value: Any, timer: Timer, timers: Timers) -> Any:
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


@pytest.mark.rule(*RULES, 5)
def test_a_call_that_removes_a_value_deletes_the_timers_that_it_has_not_set() -> None:
    def function(value: Any, rows: Any, timers: Timers) -> Any:
        gone = any(row["n"] < 0 for row in rows)
        for row in rows:
            timers.set(row["ts"], str(abs(row["n"])))
        return None if gone else 1, []

    timed = Timed(function, telling)
    timed.run([("a", 1, 20), ("a", 2, 30), ("b", 1, 20)], 0)
    timed.run([("a", -2, 40), ("a", 3, 9)], 9)

    assert timed.values() == {"b": 1}
    assert timed.timers() == {("a", "2"): 40, ("b", "1"): 20}
    timed.run([("a", -5, 50)], 9)
    assert timed.timers() == {("a", "2"): 40, ("a", "5"): 50, ("b", "1"): 20}, "nothing was removed"


@pytest.mark.rule(*RULES, 5)
def test_a_timer_of_a_value_that_another_timer_removed_does_not_fire() -> None:
    def on_timer(value: Any, timer: Timer, timers: Timers) -> Any:
        if value is not None:
            timers.set(second(8), "8")
        return None, [[timer.name, value]]

    timed = Timed(lambda value, rows, timers: (1, named(value, rows, timers)[1]), on_timer)
    timed.run([("a", number, number) for number in (3, 4, 8, 90)], 0)

    assert timed.run([], 9) == [("3", 1), ("8", None)]
    assert timed.timers() == {}


@pytest.mark.rule(*RULES, 5)
def test_a_timer_that_is_set_after_the_removal_stays() -> None:
    """The value comes back in the same txid, and takes the name of a timer of before."""

    def on_timer(value: Any, timer: Timer, timers: Timers) -> Any:
        if value is not None:
            timers.set(second(4), "next")
            return None, []
        timers.set(second(50), "9")
        return 7, []

    timed = Timed(lambda value, rows, timers: (1, named(value, rows, timers)[1]), on_timer)
    timed.run([("a", 3, 3), ("a", 9, 90), ("a", 8, 90)], 0)
    timed.run([], 10)

    assert timed.values() == {"a": 7}
    assert timed.timers() == {("a", "9"): 50}


@pytest.mark.rule(*RULES, 7)
def test_a_late_row_is_a_row_and_now_tells_that_it_is_late() -> None:
    def function(value: Any, rows: Any, timers: Timers) -> Any:
        return 1, [[str(timers.now and row["ts"] < timers.now), row["n"]] for row in rows]

    def on_timer(value: Any, timer: Timer, timers: Timers) -> Any:
        return value, [["timer", seconds(timers.now)]]

    timed = Timed(function, on_timer)

    assert timed.run([("a", 1, 50)], 50) == [("None", 1)]
    assert timed.run([("a", 2, 50), ("a", 3, 49.999999)], 90) == [("False", 2), ("True", 3)]


def test_in_a_call_for_a_timer_now_is_the_time_after_the_txid() -> None:
    found: list[float | None] = []

    def on_timer(value: Any, timer: Timer, timers: Timers) -> Any:
        found.append(seconds(timers.now))
        return telling(value, timer, timers)

    timed = Timed(setting, on_timer)
    timed.run([("a", 1, 0)], 0)
    timed.run([("a", 1, 5)], 17)

    assert found == [17]


@pytest.mark.rule(*RULES, 2, 6)
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


@pytest.mark.rule(*RULES, 6)
def test_a_txid_reads_the_timers_that_are_due_and_no_others(tmp_path: Path) -> None:
    """Of 100,000 timers of 20,000 keys, four are due."""

    def function(value: Any, rows: Any, timers: Timers) -> Any:
        timers.set(second(1_000_000), "more")
        return (None if rows[0]["n"] < 0 else 1), []

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
        values.put_all((f"k0000{number}", number) for number in range(9))
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
    assert [key for key, row in left if not row.deleted] == [("k00008", "more")]


def test_values_are_what_the_state_would_return_also_within_a_txid() -> None:
    def function(value: Any, rows: Any, timers: Timers) -> Any:
        timers.set(rows[0]["ts"])
        return {"n": len(rows), "names": ["x", {"y": 1}]}, []

    def on_timer(value: Any, timer: Timer, timers: Timers) -> Any:
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
