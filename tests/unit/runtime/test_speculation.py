from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

JOBS = 3


@pytest.mark.slow
@pytest.mark.row(20)
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["rdd", "dataframe"])
def test_of_speculative_copies_one_counts(kind: str, tmp_path: Path) -> None:
    """Each copy of an emitter emits something else; a job may never have some of both."""
    command = [
        sys.executable,
        "-m",
        "tests.unit.runtime.speculation",
        kind,
        str(JOBS),
        str(tmp_path),
    ]

    done = subprocess.run(command, capture_output=True, text=True, timeout=590, check=False)

    lines = [line.split() for line in done.stdout.split("\n")[:-1]]
    assert len(lines) == JOBS, done.stderr[-2000:]
    assert {line[2] for line in lines} == {"whole"}, lines
    # That Spark did run copies, of emitters and of bolts.
    assert any(int(emitters) > 1 for emitters, *_ in lines)
    assert any(int(bolts) > 1 for _, bolts, *_ in lines)
