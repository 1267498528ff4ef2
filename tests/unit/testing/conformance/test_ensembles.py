"""An ensemble that breaks one rule fails the suite at that rule, and is told which one."""

from __future__ import annotations

import pytest

from tests.unit.testing.conformance.broken_ensemble_suites import BROKEN
from tests.unit.testing.conformance.failures import Failures
from txtopo.testing.conformance import EnsembleRule

pytestmark = pytest.mark.integration


def test_an_ensemble_that_is_whole_passes(failures: Failures) -> None:
    assert failures["BrokenEnsemble"] == {}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_ensemble_fails_at_its_rule(failures: Failures, name: str) -> None:
    kind = BROKEN[name]
    failed = {test: text for test, text in failures[name].items() if test.startswith(kind.fails)}

    assert failed, f"it was not noticed at {kind.fails}, but at {sorted(failures[name])}"
    for text in failed.values():
        assert EnsembleRule[kind.rule].value in text


def test_each_rule_is_broken_by_one() -> None:
    assert {kind.rule for kind in BROKEN.values()} == {rule.name for rule in EnsembleRule}
