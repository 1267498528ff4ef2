"""At-least-once topologies on Spark whose executors are killed, or whose driver is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.processes.killing import Child
from tests.unit.runtime.resident.recorded import acked, held, judge, process_of
from tests.unit.runtime.resident.threads import wait_until

pytestmark = [pytest.mark.kills, pytest.mark.spark, pytest.mark.timeout(600)]
PROCESS = "tests.faults.processes.resident_process"
KILLS = pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])


@KILLS
def test_nothing_is_lost_when_executors_are_killed(kills: int, tmp_path: Path) -> None:
    count = 1000 * (kills + 1)
    for number in range(kills):
        held(tmp_path, number).touch()

    child = Child(PROCESS, "executor", str(tmp_path), str(count), str(kills))
    try:
        child.finish()
    finally:
        child.clean_up()

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
        child = Child(PROCESS, *arguments)
        try:
            child.wait_for("running")
            wait_until(lambda n=number: len(acked(tmp_path)) >= 1000 * n + 300)  # type: ignore[misc]
            child.kill()
            held(tmp_path, number).unlink()
            assert len(acked(tmp_path)) < count
            workers = [process_of(tmp_path, task) for task in (0, 1)]
            wait_until(lambda w=workers: not any(map(lives, w)))  # type: ignore[misc]
        finally:
            child.clean_up()
    last = Child(PROCESS, *arguments)
    try:
        last.finish()
    finally:
        last.clean_up()

    assert last.said[-1]["event"] == "done"
    assert "the Spark session was stopped under the topology" in last.said[-1]["error"]
    print(f"{judge(tmp_path, count)} of {count} numbers came twice")


def lives(process: int) -> bool:
    """Return whether a process runs; one that nobody has asked about is a zombie."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
