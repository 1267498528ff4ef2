"""A store that breaks one rule fails the suite at that rule, and is told which one."""

from __future__ import annotations

import pytest

from tests.unit.testing.conformance.broken_suites import BROKEN
from tests.unit.testing.conformance.failures import Failures
from txtopo.testing.conformance import AggregateStateSuite, Rule, StateBackendSuite

pytestmark = pytest.mark.integration


def test_a_store_that_is_whole_passes(failures: Failures) -> None:
    assert failures["BrokenStore"] == {}


def test_a_store_that_does_not_declare_groups_is_never_given_one(failures: Failures) -> None:
    assert failures["StoreWithoutGroups"] == {}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_store_fails_at_its_rule(failures: Failures, name: str) -> None:
    kind = BROKEN[name]
    failed = {test: text for test, text in failures[name].items() if test.startswith(kind.fails)}

    assert failed, f"it was not noticed at {kind.fails}, but at {sorted(failures[name])}"
    for text in failed.values():
        assert Rule[kind.rule].value in text


def test_each_rule_is_broken_by_one() -> None:
    assert {kind.rule for kind in BROKEN.values()} == {rule.name for rule in Rule}


def test_a_value_that_is_kept_though_declared_as_refused_is_told(failures: Failures) -> None:
    assert list(failures["RefusesLessThanItSays"]) == [
        "test_a_value_is_kept_exactly_or_refused[nan]"
    ]


def test_a_refusal_without_a_name_is_no_suite() -> None:
    with pytest.raises(ValueError, match="expected some of nan"):
        type("TestMine", (StateBackendSuite,), {"refused": frozenset({"emoji"})})


def test_no_test_of_one_suite_hides_one_of_another() -> None:
    tests = [
        name
        for suite in StateBackendSuite.__mro__
        for name in vars(suite)
        if name.startswith("test_")
    ]

    assert len(tests) == len(set(tests))
    assert issubclass(StateBackendSuite, AggregateStateSuite)
