"""The page of the suites names each promise and its tests."""

from __future__ import annotations

from tests.harness.report_page import with_section
from tests.unit.testing.conformance.rules_page import KINDS, PAGE, TITLE, rule_lines
from txtopo.testing.conformance.rules import PROVED


def test_each_promise_has_a_test() -> None:
    assert [rule for kind in KINDS.values() for rule in kind if not PROVED.get(rule)] == []


def test_the_page_has_the_promises_and_their_tests() -> None:
    """Else: ``python -m tests.unit.testing.conformance.rules_page``."""
    text = PAGE.read_text()

    assert with_section(text, TITLE, rule_lines()) == text
