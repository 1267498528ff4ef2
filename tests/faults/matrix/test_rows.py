"""Each of the 57 rows has a test, and tests name their rows in one way."""

from __future__ import annotations

import re

from tests.faults.matrix.marks import ROOT, TESTS, marked_tests
from tests.faults.matrix.matrix import ROWS


def test_there_are_57_rows() -> None:
    assert list(ROWS) == list(range(1, 58))


def test_each_row_has_a_test() -> None:
    assert set(marked_tests()) == set(ROWS)


def test_only_tests_are_marked() -> None:
    for tests in marked_tests().values():
        assert all(test.rpartition("::")[2].startswith("test_") for test in tests)
        assert len(tests) == len(set(tests))


def test_no_name_says_which_row_it_shows() -> None:
    """The mark does, and nothing reads a name."""
    named = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in TESTS.rglob("*.py")
        for name in re.findall(r"def (test_rows?_\d\w*)", path.read_text())
    ]
    assert not named


def test_each_row_stands_in_the_documentation() -> None:
    """Else: ``make rows``."""
    page = (ROOT / "docs" / "proof" / "faults.md").read_text()
    assert re.findall(r"^\| (\d+) \| (?:P|any)", page, re.MULTILINE) == list(map(str, ROWS))
