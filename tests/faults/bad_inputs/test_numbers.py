"""Every bad input has a test, or a reason why not, and the page is up to date."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.faults.bad_inputs.inputs import INPUTS
from tests.faults.bad_inputs.numbers import ELSEWHERE, OPEN, PAGE, REST, by_number, page

ROOT = Path(__file__).parents[3]


def test_all_93_numbers_are_there_once() -> None:
    assert list(INPUTS) == list(range(1, 94))


def test_a_number_is_either_tested_or_open() -> None:
    tested = by_number()
    for number in INPUTS:
        assert (number in tested) != (number in OPEN), number


def test_nothing_is_said_of_numbers_that_there_are_not() -> None:
    assert {*by_number(), *OPEN, *REST} == set(INPUTS)


def test_what_is_left_open_of_a_number_is_of_one_that_is_tested() -> None:
    assert set(REST) <= set(by_number())


def test_a_test_is_registered_here_or_listed_but_not_both() -> None:
    for number, tests in by_number().items():
        assert len(tests) == len(set(tests)), number
    listed = [test for tests in ELSEWHERE.values() for test in tests]
    assert not [test for test in listed if test.startswith("tests/faults/bad_inputs/")]


def test_the_named_tests_exist() -> None:
    for test in {test for tests in by_number().values() for test in tests}:
        file, *names = test.split("::")

        assert names[-1].startswith("test_"), test
        assert "::".join(names) in defined_in(file), test


@cache
def defined_in(file: str) -> frozenset[str]:
    """Return the functions of a file, and the methods of its classes."""
    found: set[str] = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
            found |= {f"{node.name}::{each.name}" for each in methods}
    return frozenset(found)


def test_the_page_is_up_to_date() -> None:
    """Else: ``python -m tests.faults.bad_inputs.numbers``."""
    assert PAGE.read_text().splitlines() == list(page())
