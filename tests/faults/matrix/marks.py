"""Find the tests that carry a mark with arguments, such as ``@pytest.mark.row(18, 20)``.

The marks are read from the sources. So a row or a rule without a test is found on a machine without
servers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests"


def marked_tests() -> dict[int, list[str]]:
    """Return the tests of each row that has any, by file and name."""
    found: dict[int, list[str]] = {}
    for test, rows in marks("row"):
        for row in rows:
            assert isinstance(row, int)
            found.setdefault(row, []).append(test)
    return dict(sorted(found.items()))


def marks(name: str) -> Iterator[tuple[str, list[object]]]:
    """Yield the file and name of each test with this mark, and the arguments of the mark."""
    mark = f"pytest.mark.{name}"
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text()
        if mark in text:
            for test, arguments in _marked(ast.parse(text), mark):
                yield f"{path.relative_to(ROOT)}::{test}", arguments


def _marked(tree: ast.Module, mark: str) -> Iterator[tuple[str, list[object]]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from ((node.name, each) for each in arguments_of(node, mark))
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    name = f"{node.name}::{each.name}"
                    yield from ((name, found) for found in arguments_of(each, mark))


def arguments_of(function: ast.FunctionDef, mark: str) -> Iterator[list[object]]:
    """Yield the arguments of each decorator of a function that has this name."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == mark:
            yield [ast.literal_eval(argument) for argument in decorator.args]
