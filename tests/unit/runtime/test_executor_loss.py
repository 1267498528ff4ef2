"""Executors that die under a job that cuts its input again each time: no attempt mixes two cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.processes import run_child


@pytest.mark.spark
@pytest.mark.kills
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "kills"), [("rdd", 10), ("dataframe", 5)])
@pytest.mark.row(18, 20, 35)
def test_the_loss_of_an_executor_never_mixes_two_cuts(
    kind: str, kills: int, tmp_path: Path
) -> None:
    """Spark runs the lost tasks again, and the job succeeds with some of this and some of that.

    That a whole run notices it is a test of every day: tests/faults/processes/test_executors.py.
    """
    child = run_child("tests.unit.runtime.executor_loss", kind, str(kills), str(tmp_path))

    outcomes = [said["outcome"] for said in child.events("job")]
    assert len(outcomes) == kills
    assert {outcome.split()[0] for outcome in outcomes} <= {"lost", "whole"}
    # That some were in the middle, were noticed, and are nobody's fault.
    assert any(outcome.startswith("lost") for outcome in outcomes)
    assert not any("counted=True" in outcome for outcome in outcomes)
