"""Try one planted bug: against the simulator first, then against the tests that its patch names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.faults.mutants.patches import Patch, PatchError

ROOT = Path(__file__).parents[3]
TREE = ("txtopo", "state_backends", "tests", "examples", "docker", "setup.cfg")
SIMULATOR = "simulator"
"""The name that a patch gives instead of a test if only the simulator can see its bug."""

# A thousand seeds take three minutes on a free core; a bug may also keep it going for ever.
SIMULATOR_TIMEOUT_S = 1800.0
# All tests together, without a bug, with all servers on a busy machine.
TEST_TIMEOUT_S = 1800.0
TESTS_FAILED, NO_TESTS = 1, 5
"""Exit statuses of pytest; others are mistakes in the call."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial.

    Attributes:
        patch: The bug.
        seed: The seed that the simulator caught it with; None if it did not.
        checker: The checker that saw it first.
        what: What the checker saw.
        test: The test that caught it; empty if none was run, or none failed.
    """

    patch: Patch
    seed: int | None = None
    checker: str = ""
    what: str = ""
    test: str = ""

    @property
    def survived(self) -> bool:
        """Whether the bug was not caught."""
        return self.seed is None and not self.test


class Cores:
    """The cores that trials run on, one each.

    The simulator's threads take turns, and a turn on another core costs six times as much.
    """

    def __init__(self, trials: int) -> None:
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._free: SimpleQueue[int | None] = SimpleQueue()
        for number in range(trials):
            self._free.put(cores[number % len(cores)] if cores else None)

    @contextmanager
    def one(self) -> Iterator[int | None]:
        """Lend a core; None if the system cannot bind a process to one."""
        core = self._free.get()
        try:
            yield core
        finally:
            self._free.put(core)


def try_patch(patch: Patch, seeds: int, cores: Cores) -> Outcome:
    """Plant a bug in a copy of the tree, and return what catches it.

    Args:
        patch: The bug.
        seeds: How many seeds the simulator may take.
        cores: Where to run.

    Raises:
        PatchError: The patch does not apply, or breaks Python instead of a rule.
    """
    with TemporaryDirectory(prefix=f"{patch.name}-") as folder, cores.one() as core:
        copy = Path(folder)
        copy_tree(copy)
        patch.apply(copy)
        found = simulate(copy, patch, seeds if patch.simulated else 0, core)
        if "careless" in found:
            raise PatchError(f"{patch.name} is no bug of the protocol: {found['careless']}")
        if "seed" in found:
            seed = int(str(found["seed"]))
            return Outcome(patch, seed, str(found["checker"]), str(found["what"]))
        return Outcome(patch, test="" if patch.test == SIMULATOR else failing_test(copy, patch))


def copy_tree(folder: Path) -> None:
    """Copy the files that the simulator and the tests need."""
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)


def simulate(copy: Path, patch: Patch, seeds: int, core: int | None) -> dict[str, object]:
    """Have the simulator of a copy look for a violation."""
    command = [sys.executable, "-m", "tests.faults.mutants.hunt", str(seeds)]
    command += ["--slots"] if patch.of_slots else []
    command += [] if core is None else [str(core)]
    ended = run(command, copy, patch, SIMULATOR_TIMEOUT_S)
    if ended.returncode:
        raise PatchError(f"{patch.name}: the simulator could not run:\n{ended.stderr[-2000:]}")
    found: dict[str, object] = json.loads(ended.stdout.splitlines()[-1])
    return found


def failing_test(copy: Path, patch: Patch) -> str:
    """Return the first test that fails in a copy, of those that the patch names; empty for none.

    Those that only ``make test-all`` has run if the patch names no others.
    """
    options = ["-q", "-x", "-p", "no:cacheprovider"]
    for speed in ("not slow", "slow"):
        command = [sys.executable, "-m", "pytest", *options, "-m", speed, *patch.test.split()]
        ended = run(command, copy, patch, TEST_TIMEOUT_S)
        if ended.returncode != NO_TESTS:
            break
    if ended.returncode > TESTS_FAILED:
        raise PatchError(f"{patch.name}: {patch.test} could not be run:\n{ended.stdout[-2000:]}")
    failed = re.search(r"^FAILED (\S+)", ended.stdout, re.MULTILINE)
    return failed.group(1) if failed else ""


def run(
    command: list[str], copy: Path, patch: Patch, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command in a copy, which comes before the tree that is installed."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        raise PatchError(f"{patch.name}: no verdict in {timeout_s:g} s") from error
