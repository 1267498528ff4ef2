"""Timers do what the tests of other engines expect; see ``cases/timers.py``."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.unit.streams.cases.timers import CASES, TimerCase
from tests.unit.streams.timer_txids import Timed
from tests.unit.streams.txids import second, seconds
from txtopo.streams import DueTimer, Timers


def after(timers: Timers, length: float) -> datetime.datetime:
    assert timers.now is not None
    return timers.now + datetime.timedelta(seconds=length)


class TellsNow:
    def rows(self, value: Any, rows: Any, timers: Timers) -> Any:
        return 1, [["now", round(seconds(timers.now) or 0)]]

    def timer(self, value: Any, timer: DueTimer, timers: Timers) -> Any:
        raise AssertionError("there are no timers")


class FiveLater:
    def rows(self, value: Any, rows: Any, timers: Timers) -> Any:
        timers.set(after(timers, 5))
        return rows[-1]["n"], [["input", row["n"]] for row in rows]

    def timer(self, value: Any, timer: DueTimer, timers: Timers) -> Any:
        return value, [["timer", value]]


class CiaoAndHello:
    def rows(self, value: Any, rows: Any, timers: Timers) -> Any:
        for row in rows:
            name = {10: "ciao", 11: "hello"}[abs(row["n"])]
            timers.set(second(10), name) if row["n"] > 0 else timers.delete(name)
        return 1, []

    def timer(self, value: Any, timer: DueTimer, timers: Timers) -> Any:
        return 1, [[f"{timer.key}{timer.name}", round(seconds(timer.at) or 0)]]


class TenLaterAgain:
    def rows(self, value: Any, rows: Any, timers: Timers) -> Any:
        timers.set(after(timers, 10))
        return 1, []

    def timer(self, value: Any, timer: DueTimer, timers: Timers) -> Any:
        timers.set(after(timers, 10))
        return 1, [["timer", round(seconds(timer.at) or 0)]]


class CountsToThree:
    def rows(self, count: int | None, rows: Any, timers: Timers) -> Any:
        key, more = rows[0]["key"], (count or 0) + 1
        if count is None and key in "ac":
            timers.set(after(timers, 5))
        return (None, []) if more == 3 else (more, [[key, more]])

    def timer(self, count: Any, timer: DueTimer, timers: Timers) -> Any:
        return None, [[timer.key, -1]]


class MovesItsTimer:
    def rows(self, count: int | None, rows: Any, timers: Timers) -> Any:
        key = rows[0]["key"]
        if key == "a" and count in (None, 1):
            timers.set(after(timers, 5 if count is None else 7.5))
        more = (count or 0) + len(rows)
        return more, [[key, more]]

    def timer(self, count: Any, timer: DueTimer, timers: Timers) -> Any:
        return count, [[timer.key, -1]]


class ThreeTimers:
    def rows(self, count: int | None, rows: Any, timers: Timers) -> Any:
        if count is None:
            for length in (5, 10, 15):
                timers.set(after(timers, length), str(length))
        return (count or 0) + len(rows), []

    def timer(self, count: Any, timer: DueTimer, timers: Timers) -> Any:
        return (None if timer.name == "15" else count), [[timer.key, count]]


class LatestTime:
    def rows(self, latest: int | None, rows: Any, timers: Timers) -> Any:
        newest = max(round(seconds(row["ts"]) or 0) for row in rows)
        latest = newest if latest is None else max(latest, newest)
        timers.set(second(latest + 5))
        return latest, [[rows[0]["key"], latest]]

    def timer(self, latest: Any, timer: DueTimer, timers: Timers) -> Any:
        return None, [[timer.key, -1]]


PROGRAMS = {
    program.__name__: program
    for program in (
        *(TellsNow, FiveLater, CiaoAndHello, TenLaterAgain),
        *(CountsToThree, MovesItsTimer, ThreeTimers, LatestTime),
    )
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.source)
def test_timers_fire_as_elsewhere(case: TimerCase) -> None:
    program: Any = PROGRAMS[case.program]()
    timed = Timed(program.rows, program.timer, planned=case.planned)

    for number, (rows, now, expected) in enumerate(case.steps):
        assert timed.run(rows, now) == list(expected), number


def test_so_many_cases_are_carried_over() -> None:
    assert len(CASES) == 15
