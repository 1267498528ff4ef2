from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.processes import run_child

JOBS = 3


@pytest.mark.slow
@pytest.mark.row(20)
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["rdd", "dataframe"])
def test_of_speculative_copies_one_counts(kind: str, tmp_path: Path) -> None:
    """Each copy of an emitter emits something else; a job may never have some of both."""
    child = run_child("tests.unit.runtime.speculation", kind, str(JOBS), str(tmp_path))

    jobs = child.events("job")
    assert len(jobs) == JOBS
    assert {job["outcome"] for job in jobs} == {"whole"}, jobs
    # Spark did run copies, of emitters and of bolts.
    assert any(job["emitters"] > 1 for job in jobs)
    assert any(job["bolts"] > 1 for job in jobs)
