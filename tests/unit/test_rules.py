"""Each numbered rule in the header of a module has a test that fails without the rule.

The test names it. ``@pytest.mark.rule("txtopo.coordinator.machine", "Groups", 1)`` means sentence 1
under the heading "Groups". The rules of :mod:`txtopo.state.backend`, which every
store has to keep, are named by ``proves`` in the suites of :mod:`txtopo.testing.conformance`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.faults.matrix.marks import ROOT, marks
from txtopo.testing.conformance import Rule

Numbered = tuple[str, str, int]

PACKAGES = ("txtopo", "state_backends")
CONTRACT = "txtopo.state.backend"


def headers() -> Iterator[tuple[str, str]]:
    """Yield the names of all modules with such headers, and the headers."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            text = path.read_text()
            if "\n1. " in text:
                yield name, ast.get_docstring(ast.parse(text)) or ""


def rules_of(module: str, header: str) -> Iterator[Numbered]:
    """Yield the numbered sentences below the headings of a header."""
    heading = ""
    lines = header.splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if re.fullmatch(r"-{3,}", below):
            heading = line
        elif heading and (number := re.match(r"(\d+)\. ", line)):
            yield module, heading, int(number[1])


@cache
def all_rules() -> list[Numbered]:
    """Return the rules of all headers."""
    return [rule for module, header in headers() for rule in rules_of(module, header)]


@cache
def marked() -> dict[Numbered, list[str]]:
    """Return the tests of each rule that has any."""
    found: dict[Numbered, list[str]] = {}
    for test, (module, heading, *numbers) in marks("rule"):
        for number in numbers:
            assert isinstance(module, str)
            assert isinstance(heading, str)
            assert isinstance(number, int)
            found.setdefault((module, heading, number), []).append(test)
    return found


def proved() -> set[Numbered]:
    """Return the rules of the contract of stores that a suite proves."""
    suites = (ROOT / "txtopo" / "testing" / "conformance").glob("*_suites.py")
    names = {
        name for path in suites for name in re.findall(r"@proves\(Rule\.(\w+)\)", path.read_text())
    }
    texts = [Rule[name].value for name in names]
    numbers = [int(found[1]) for text in texts if (found := re.match(r"rule (\d+):", text))]
    return {(CONTRACT, "Rules", number) for number in numbers}


def test_each_rule_has_a_test() -> None:
    assert sorted(set(all_rules()) - marked().keys() - proved()) == []


def test_each_mark_names_a_rule() -> None:
    rules = set(all_rules())
    assert {rule: tests for rule, tests in marked().items() if rule not in rules} == {}


def test_only_tests_are_marked_and_once() -> None:
    for tests in marked().values():
        assert all(test.rpartition("::")[2].startswith("test_") for test in tests)
        assert len(tests) == len(set(tests))


def test_the_rules_of_a_heading_are_numbered_from_one() -> None:
    last: tuple[str, str] = ("", "")
    number = 0
    for module, heading, given in all_rules():
        number = number + 1 if (module, heading) == last else 1
        last = module, heading
        assert given == number, f"{module}: {heading} {given}"
