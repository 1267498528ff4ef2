"""StoreSpeed: how fast a store is, and how much of the long tests fits into their time.

Each suite of a store first times a few commits. Most of its tests are scripts of a few commits. The
others do as much as fits into their share of a minute; the suite prints how much that is.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from txtopo.testing.conformance.driver import StateDriver

SWITCH = "TXTOPO_LONG"
"""The environment variable that makes every suite long, if it is not empty and not 0."""

HISTORIES_MIN, HISTORIES_MAX = 20, 200
KEYS_MIN, KEYS_MAX = 200, 100_000
MANY_MIN, MANY_MAX = 25, 2_500
DEATHS_MIN, DEATHS_MAX = 4, 12
"""A slow store gets fewer, between these limits. The tests of txtopo break stores on purpose, and
find all of them with the lower limits."""

PARTS = 5
"""How many tests share the random histories of a kind, so that pytest shows how far they are."""

# What the tests cost, measured with a store that counts: opens and commits of a script, commits of
# a history, and how often the tests of many keys write each of them.
_OPENS, _COMMITS, _HISTORY_COMMITS, _KEYS_WRITES, _MANY_WRITES = 1.3, 3.3, 6.0, 4.0, 40.0
# Their shares of a minute.
_HISTORIES_S, _KEYS_S, _MANY_S, _DEATHS_S = 12.0, 6.0, 6.0, 1.0
# What a death costs: the fork, and two starts with their commits.
_FORK_S, _DEATH_OPENS, _DEATH_COMMITS = 0.02, 2.0, 4.0
# How many writers a test of deaths has on average, in addition to those that are spread over calls.
_DYING, _DEATHS_SPREAD = 7.0, 0.6
# What is timed: the keys of a medium commit, and when to time a large one.
_SOME, _FAST_S = 100, 0.1


@dataclass(frozen=True, slots=True)
class StoreSpeed:
    """How long a store takes.

    Attributes:
        open_s: To open, make and claim a state.
        commit_s: To commit one key and to read the state.
        key_s: For each further key of a commit.
    """

    open_s: float = 0.0
    commit_s: float = 0.0
    key_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Extent:
    """How much the long tests do.

    Attributes:
        histories: Random histories: half of that many of each kind.
        keys: Keys of the test of many keys.
        many: Rows of what a test writes in bulk.
        deaths: Deaths that are spread over each kind of write.
    """

    histories: int
    keys: int
    many: int
    deaths: int = DEATHS_MIN


def is_long() -> bool:
    """Return whether :data:`SWITCH` is set."""
    return os.environ.get(SWITCH, "0") not in ("", "0")


def pace_of(opened: Callable[[], StateDriver]) -> StoreSpeed:
    """Time a store: a few commits to a state of counts, which is opened for that.

    A store that raises has no pace; the test that covers its mistake explains why.
    """
    with contextlib.suppress(Exception):
        begun = time.perf_counter()
        store = opened()
        open_s = time.perf_counter() - begun
        commit_s = sorted(_commit_s(store, txid, 1) for txid in (1, 2, 3))[1]
        bulk_s, keys = _commit_s(store, 4, _SOME), _SOME
        if bulk_s < _FAST_S:
            bulk_s, keys = _commit_s(store, 5, MANY_MAX), MANY_MAX
        return StoreSpeed(open_s, commit_s, max(0.0, bulk_s - commit_s) / keys)
    return StoreSpeed()


def _commit_s(store: StateDriver, txid: int, keys: int) -> float:
    begun = time.perf_counter()
    store.merge(txid, [(f"key {n}", 1) for n in range(keys)])
    store.contents()
    return time.perf_counter() - begun


def fitting(least: int, most: int, budget_s: float, each_s: float, *, long: bool) -> int:
    """Return how many fit into a time, within the limits; the upper limit if *long*."""
    return most if long or each_s * most <= budget_s else max(least, int(budget_s / each_s))


def extent_of(pace: StoreSpeed, *, long: bool) -> Extent:
    """Return how much the long tests do with a store."""
    history_s = 1.5 * _HISTORY_COMMITS * pace.commit_s
    return Extent(
        fitting(HISTORIES_MIN, HISTORIES_MAX, _HISTORIES_S, history_s, long=long),
        fitting(KEYS_MIN, KEYS_MAX, _KEYS_S, _KEYS_WRITES * pace.key_s, long=long),
        fitting(MANY_MIN, MANY_MAX, _MANY_S, _MANY_WRITES * pace.key_s, long=long),
        fitting(DEATHS_MIN, DEATHS_MAX, _DEATHS_S, _death_s(pace), long=long),
    )


def _death_s(pace: StoreSpeed) -> float:
    return _FORK_S + _DEATH_OPENS * pace.open_s + _DEATH_COMMITS * pace.commit_s


def seconds(pace: StoreSpeed, extent: Extent, tests: int, plays: int, dying: int) -> float:
    """Return an estimate of how long a suite takes.

    Args:
        pace: The pace of the store.
        extent: What the long tests do.
        tests: How many tests run.
        plays: How many of them play random histories.
        dying: How many of them have writers that die.
    """
    scripts_s = tests * (_OPENS * pace.open_s + _COMMITS * pace.commit_s)
    histories = plays * extent.histories / 2 / PARTS
    written = _KEYS_WRITES * extent.keys + _MANY_WRITES * extent.many
    deaths_s = dying * (_DYING + _DEATHS_SPREAD * extent.deaths) * _death_s(pace)
    histories_s = histories * _HISTORY_COMMITS * pace.commit_s
    return scripts_s + histories_s + deaths_s + written * pace.key_s


def announce(request: pytest.FixtureRequest, line: str) -> None:
    """Print a line on the terminal, in the middle of pytest's progress output."""
    plugins = request.config.pluginmanager
    reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
    if reporter is None or capture is None:
        return  # a worker of pytest-xdist, which has no terminal
    with capture.global_and_fixture_disabled():
        reporter.ensure_newline()
        reporter.write_line(line)
