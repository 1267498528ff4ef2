"""A spout that breaks one rule fails the suite at that rule, and is told which one."""

from __future__ import annotations

import pytest

from tests.unit.testing.conformance.broken_spout_suites import BROKEN
from tests.unit.testing.conformance.failures import Failures
from txtopo.testing.conformance import SpoutRule, SpoutSuite

pytestmark = pytest.mark.integration


def test_a_spout_that_is_whole_passes(failures: Failures) -> None:
    assert failures["Whole"] == {}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_spout_fails_at_its_rule(failures: Failures, name: str) -> None:
    kind = BROKEN[name]

    assert kind.fails in failures[name], sorted(failures[name])
    assert kind.rule.value in failures[name][kind.fails]


def test_each_rule_is_broken_by_one() -> None:
    assert {kind.rule for kind in BROKEN.values()} == set(SpoutRule)


def test_no_test_of_one_suite_hides_one_of_another() -> None:
    tests = [
        name for suite in SpoutSuite.__mro__ for name in vars(suite) if name.startswith("test_")
    ]

    assert len(tests) == len(set(tests))
