"""Executors and workers are killed within runs whose emitter cuts differently each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes.executors_process import DEATHS, PARTITIONS, ROWS
from tests.harness.processes import run_child
from txtopo.state import open_state

pytestmark = [pytest.mark.kills, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.slow
@pytest.mark.row(18, 20, 35)
def test_no_attempt_has_two_cuts_when_executors_are_killed(tmp_path: Path) -> None:
    assert failures("rdd", "executor", tmp_path, deaths=1)


@pytest.mark.slow
@pytest.mark.row(18, 20, 35)
def test_what_a_lost_executor_had_cut_is_not_cut_again(tmp_path: Path) -> None:
    """Of five deaths one comes when the other executor has read a part of what is lost."""
    failed = failures("rdd", "executor", tmp_path)

    assert "RecomputedError" in {each["error"] for each in failed}, failed


@pytest.mark.row(21, 35)
def test_no_attempt_has_two_cuts_when_resident_workers_are_killed(tmp_path: Path) -> None:
    """Each death loses its run and counts; the slot is back for the next attempt."""
    failed = failures("resident", "worker", tmp_path, deaths=2)

    counted = [each for each in failed if each["kind"] == "counted"]
    assert len(counted) == 2, failed
    assert {each["error"] for each in failed} == {"RunLostError"}


@pytest.mark.slow
@pytest.mark.row(18, 20, 35)
def test_no_attempt_has_two_cuts_when_executors_with_resident_slots_are_killed(
    tmp_path: Path,
) -> None:
    failed = failures("resident", "executor", tmp_path)

    assert {each["error"] for each in failed} == {"RunLostError"}


def failures(
    carrier: str, whom: str, folder: Path, deaths: int = len(DEATHS)
) -> list[dict[str, Any]]:
    """Process everything with this many deaths, check what was kept, and return what failed."""
    arguments = (carrier, whom, str(folder), str(deaths))
    child = run_child("tests.faults.processes.executors_process", *arguments)
    committed = {said["txid"]: said["ends"] for said in child.events("committed")}
    with open_state(f"sqlite:///{folder / 'parts.db'}", table="parts").reader() as reader:
        kept = dict(reader.items())
    assert sorted(committed) == list(range(1, len(committed) + 1))
    assert {(batch, part): row for batch, part, row in expected(committed)} == kept
    assert sum(row["rows"] for row in kept.values()) == PARTITIONS * ROWS
    assert sum(len(list(folder.glob(f"*-{txid}"))) for txid in DEATHS) == deaths
    return child.events("failed")


def expected(committed: dict[int, dict[str, int]]) -> list[tuple[int, int, dict[str, int]]]:
    """Return the row that each batch must keep of each part, by the ranges in its metadata."""
    found = []
    starts = dict.fromkeys(map(str, range(PARTITIONS)), 0)
    for txid, ends in sorted(committed.items()):
        for part, end in ends.items():
            numbers = range(starts[part], end)
            if numbers:
                found.append((txid, int(part), {"rows": len(numbers), "total": sum(numbers)}))
        starts |= ends
    return found
