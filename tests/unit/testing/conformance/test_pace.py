"""The suites of stores do as much as fits into a minute, say so, and can be made long."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from txtopo.testing.conformance.driver import StateDriver
from txtopo.testing.conformance.pace import (
    DEATHS_MAX,
    DEATHS_MIN,
    HISTORIES_MAX,
    HISTORIES_MIN,
    KEYS_MAX,
    KEYS_MIN,
    MANY_MAX,
    MANY_MIN,
    PARTS,
    Extent,
    StoreSpeed,
    extent_of,
    is_long,
    pace_of,
    seconds,
)

FULL = Extent(HISTORIES_MAX, KEYS_MAX, MANY_MAX, DEATHS_MAX)
TESTS, PLAYS, DYING = 190, 3 * PARTS, 10


def test_a_fast_store_gets_the_full_extent() -> None:
    assert extent_of(StoreSpeed(0.001, 0.001, 0.000_001), long=False) == FULL


@pytest.mark.parametrize("key_s", [0.000_01, 0.000_1, 0.005])
def test_with_five_milliseconds_a_commit_it_ends_within_a_minute(key_s: float) -> None:
    """Also if each key costs as much as a commit, as in a store of one file for each key."""
    pace = StoreSpeed(0.012, 0.006, key_s)

    assert seconds(pace, extent_of(pace, long=False), TESTS, PLAYS, DYING) < 60


@pytest.mark.parametrize(("commit_s", "key_s"), list(itertools.product([0.1, 1.0], [0.01, 0.1])))
def test_a_very_slow_store_gets_the_least(commit_s: float, key_s: float) -> None:
    least = Extent(HISTORIES_MIN, KEYS_MIN, MANY_MIN, DEATHS_MIN)

    assert extent_of(StoreSpeed(commit_s, commit_s, key_s), long=False) == least


def test_a_long_suite_has_the_full_extent_whatever_it_takes() -> None:
    assert extent_of(StoreSpeed(1, 1, 1), long=True) == FULL


@pytest.mark.parametrize(("value", "long"), [("", False), ("0", False), ("1", True)])
def test_the_environment_makes_suites_long(
    monkeypatch: pytest.MonkeyPatch, value: str, long: bool
) -> None:
    monkeypatch.setenv("TXTOPO_LONG", value)

    assert is_long() is long


def test_a_store_that_raises_has_no_pace() -> None:
    """The test of what it does wrong has to fail, not the one that times it."""

    def opened() -> StateDriver:
        raise ConnectionError("down")

    assert pace_of(opened) == StoreSpeed()


SUITES = """
import pytest
from txtopo.testing.conformance import StateBackendSuite

class Mine(StateBackendSuite):
    @pytest.fixture
    def url(self):
        return "memory:"

class TestShort(Mine):
    histories, keys_max, many = 30, 500, 50

class TestLong(Mine):
    long = True
"""


@pytest.mark.integration
def test_a_suite_says_first_what_it_does_and_for_how_long(tmp_path: Path) -> None:
    """On the terminal, also if pytest captures what tests print."""
    (tmp_path / "test_mine.py").write_text(SUITES)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "timed"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TXTOPO_LONG": "0"},
    )

    short, long = (line for line in done.stdout.splitlines() if ": about " in line)
    assert done.stdout.lstrip().startswith("TestShort: about ")
    assert "; 30 histories, 500 keys, 50 rows in bulk; " in short
    assert long.startswith(".TestLong: about ")
    assert long.endswith("; 200 histories, 100,000 keys, 2,500 rows in bulk")
    assert "2 passed" in done.stdout
