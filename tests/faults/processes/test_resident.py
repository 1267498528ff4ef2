"""At-least-once topologies on Spark lose their executors or their driver."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.harness.polling import wait_until
from tests.harness.processes import Child, is_alive, run_child
from tests.unit.resident.recorded import acked, held, judge, process_of

pytestmark = [pytest.mark.kills, pytest.mark.spark, pytest.mark.timeout(600)]
PROCESS = "tests.faults.processes.resident_process"
KILLS = pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])


@KILLS
def test_nothing_is_lost_when_executors_are_killed(kills: int, tmp_path: Path) -> None:
    count = 1000 * (kills + 1)
    for number in range(kills):
        held(tmp_path, number).touch()

    child = run_child(PROCESS, "executor", str(tmp_path), str(count), str(kills))

    assert child.said[-1]["slots_lost"] >= kills
    assert child.said[-1]["error"] == ""
    assert child.said[-1]["replays"] > 0
    print(f"{judge(tmp_path, count)} of {count} numbers came twice")


@KILLS
def test_nothing_is_lost_when_the_driver_is_killed_and_no_task_stays_behind(
    kills: int, tmp_path: Path
) -> None:
    count = 1000 * (kills + 1)
    arguments = ("driver", str(tmp_path), str(count), "0")

    for number in range(kills):
        held(tmp_path, number).touch()
        with Child(PROCESS, *arguments) as child:
            child.wait_for("running")
            wait_until(
                partial(are_acked, tmp_path, 1000 * number + 300), "enough numbers are acked"
            )
            child.kill()
            held(tmp_path, number).unlink()
            assert len(acked(tmp_path)) < count
            workers = [process_of(tmp_path, task) for task in (0, 1)]
            wait_until(partial(have_ended, workers), "the workers have ended")
    last = run_child(PROCESS, *arguments)

    assert last.said[-1]["event"] == "done"
    assert "the Spark session was stopped while the topology was running" in last.said[-1]["error"]
    print(f"{judge(tmp_path, count)} of {count} numbers came twice")


def are_acked(folder: Path, enough: int) -> bool:
    return len(acked(folder)) >= enough


def have_ended(processes: Sequence[int]) -> bool:
    return not any(map(is_alive, processes))
