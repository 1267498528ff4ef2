"""What is not atomic when its process dies in a write fails the suite there."""

from __future__ import annotations

import pytest

from tests.unit.testing.conformance.broken_dying_suites import BROKEN
from tests.unit.testing.conformance.failures import Failures, failures_of
from txtopo.testing.conformance import EnsembleRule, MapRule, Rule

RULES = (Rule, MapRule, EnsembleRule)

# Each of some hundred writers is a process, which takes its time on a busy machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Failures:
    """What failed with which words, by suite and test: all suites in one process of their own."""
    return failures_of("broken_dying_suites.py", tmp_path_factory.mktemp("broken"))


@pytest.mark.parametrize("name", ["SqliteRows", "ComparingFiles", "FileEnsemble"])
def test_what_is_whole_passes(failures: Failures, name: str) -> None:
    assert failures[name] == {}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_atomic_fails_at_its_rule(failures: Failures, name: str) -> None:
    kind = BROKEN[name]

    assert kind.fails in failures[name], sorted(failures[name])
    rules = [rule.value for each in RULES for rule in each if rule.name == kind.rule]
    assert any(rule in failures[name][kind.fails] for rule in rules)
