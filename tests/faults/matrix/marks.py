"""Find the tests of each row by their marks, such as ``@pytest.mark.row(18, 20)``.

The marks are read from the sources. So a row without a test is found on a machine without servers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests"
MARK = "pytest.mark.row"


def marked_tests() -> dict[int, list[str]]:
    """Return the tests of each row that has any, by file and name."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text()
        if MARK in text:
            for test, rows in _marked(ast.parse(text)):
                for row in rows:
                    found.setdefault(row, []).append(f"{path.relative_to(ROOT)}::{test}")
    return dict(sorted(found.items()))


def _marked(tree: ast.Module) -> Iterator[tuple[str, list[int]]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, _rows(node)
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    yield f"{node.name}::{each.name}", _rows(each)


def _rows(function: ast.FunctionDef) -> list[int]:
    return [
        ast.literal_eval(number)
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == MARK
        for number in decorator.args
    ]
