"""Executors that are killed in the middle of jobs whose emitter never cuts twice the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills.executors_process import DEATHS, PARTITIONS, ROWS
from tests.kills.killing import Child
from txtopo.state import open_state

pytestmark = [pytest.mark.kills, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.row(18, 20, 35)
def test_no_attempt_has_two_cuts_when_executors_are_killed(tmp_path: Path) -> None:
    child = Child("tests.kills.executors_process", str(tmp_path))
    try:
        child.finish()
    finally:
        child.clean_up()

    committed = {said["txid"]: said["ends"] for said in child.said if said["event"] == "committed"}
    with open_state(f"sqlite:///{tmp_path / 'parts.db'}", table="parts").reader() as reader:
        kept = dict(reader.items())
    assert sorted(committed) == list(range(1, len(committed) + 1))
    assert {(batch, part): row for batch, part, row in expected(committed)} == kept
    assert sum(row["rows"] for row in kept.values()) == PARTITIONS * ROWS
    assert sorted(len(list(tmp_path.glob(f"*-{txid}"))) for txid in DEATHS) == [1] * len(DEATHS)
    failed = {said["error"] for said in child.said if said["event"] == "failed"}
    assert "RecomputedError" in failed, failed


def expected(committed: dict[int, dict[str, int]]) -> list[tuple[int, int, dict[str, int]]]:
    """Return what each batch must have brought of each part, by the ranges in its metadata."""
    found = []
    starts = dict.fromkeys(map(str, range(PARTITIONS)), 0)
    for txid, ends in sorted(committed.items()):
        for part, end in ends.items():
            numbers = range(starts[part], end)
            if numbers:
                found.append((txid, int(part), {"rows": len(numbers), "total": sum(numbers)}))
        starts |= ends
    return found
