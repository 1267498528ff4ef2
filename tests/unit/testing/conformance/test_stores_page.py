"""The page of all stores, made of two outcomes of one suite."""

from __future__ import annotations

from collections import Counter

from tests.harness.report_page import with_section
from tests.unit.testing.conformance.stores_page import Suites, ended, guarantee_lines
from tests.unit.testing.conformance.types_page import EXAMPLES, PAGE, TITLE, type_lines
from txtopo.testing.conformance import StateBackendSuite
from txtopo.testing.conformance.value_suites import VALUES


class Fenceless(StateBackendSuite):
    __test__ = False
    fenced = False
    decimal_digits = 18


def test_a_store_whose_tests_ran_has_a_line() -> None:
    outcomes = {"mine": Counter(passed=1_158, skipped=2)}
    suites = Suites(classes={"mine": Fenceless, "another": StateBackendSuite}, outcomes=outcomes)

    *_, line = guarantee_lines(suites)
    assert line.startswith("| mine | table | opaque and transactional | **may still write** |")
    assert line.endswith("| decimals beyond 18 digits | all applicable passed |")


def test_a_line_says_whether_tests_were_skipped_or_failed_and_not_how_many_there_are() -> None:
    assert ended(Counter(passed=1_158)) == "all passed"
    assert ended(Counter(passed=1_158, skipped=2)) == "all applicable passed"
    assert ended(Counter(passed=1_150, skipped=2, failed=8)) == "**8 failed**"


def test_no_line_of_the_page_has_a_number_of_tests() -> None:
    """Else it would not be that of the suites as soon as one gets a test."""
    *_, section = PAGE.read_text().partition("## Guarantees")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]

    ends = {row.rstrip(" |").rpartition("| ")[2] for row in rows[1:]}
    assert ends <= {"all passed", "all applicable passed"}


def test_pytest_can_keep_it_in_a_set() -> None:
    """As it does with plug-ins, which must not be told apart by what they hold."""
    assert len({Suites(), Suites()}) == 2


def test_the_types_on_the_page_are_those_of_the_stores() -> None:
    """Else: ``python -m tests.unit.testing.conformance.types_page``."""
    text = PAGE.read_text()
    assert with_section(text, TITLE, type_lines()) == text


def test_the_page_has_each_type() -> None:
    kinds = {kind.partition("(")[0] for kind in EXAMPLES}
    assert kinds == {kind.partition("(")[0] for kind in VALUES} | {"json"}
