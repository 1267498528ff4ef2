"""What is not atomic when its process dies in a write fails the suite there."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

from tests.unit.testing.conformance.broken_dying_suites import BROKEN, is_slow
from tests.unit.testing.conformance.failures import Failures
from txtopo.testing.conformance import EnsembleRule, MapRule, Rule

RULES = (Rule, MapRule, EnsembleRule)

# Each of some hundred writers is a process, which takes its time on a busy machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(1_800)]


def _slow(name: str) -> ParameterSet:
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "name", ["SqliteRows", _slow("SlowSqliteRows"), "ComparingFiles", "FileEnsemble"]
)
def test_what_is_whole_passes(failures: Failures, name: str) -> None:
    assert failures[name] == {}


@pytest.mark.parametrize(
    "name", [_slow(name) if is_slow(kind) else name for name, kind in BROKEN.items()]
)
def test_what_is_not_atomic_fails_at_its_rule(failures: Failures, name: str) -> None:
    kind = BROKEN[name]

    assert kind.fails in failures[name], sorted(failures[name])
    rules = [rule.value for each in RULES for rule in each if rule.name == kind.rule]
    assert any(rule in failures[name][kind.fails] for rule in rules)
