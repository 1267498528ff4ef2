"""Scenarios without faults, to which a test adds what it is about; digests of what they do."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

from txtopo.testing.simulation.faults import Faults
from txtopo.testing.simulation.scenario import Scenario
from txtopo.testing.simulation.topologies import Shape

PLAIN = Shape("opaque", "opaque", ("totals",), relay=False, parallelism=1)


def clean(seed: int = 1, **settings: Any) -> Scenario:
    """Return a small scenario in which nothing goes wrong."""
    scenario = replace(
        Scenario.drawn(seed),
        faults=Faults(),
        coordinators=1,
        shape=PLAIN,
        partitions=2,
        records=8,
        batch_rows_max=2,
        slots=1,
        max_spout_pending=9,
        attempts_max=100,
        group_txids_max=1,
    )
    return replace(scenario, **settings)


def digests_of(code: str) -> set[str]:
    """Return what *code* prints where strings have other hashes, and so sets another order."""
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
