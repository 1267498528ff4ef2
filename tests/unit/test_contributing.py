"""The pages for contributors name the files to touch: all of them, and what is to write in each.

The page on kinds of spouts is tested in ``tests/unit/topology/test_spout_kinds.py``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_layout import PACKAGES, ROOT, SOURCES, name_of, text_of

PAGES = [ROOT / "docs" / "contributing" / f"add-a-{what}.md" for what in ("database", "metric")]
ROW = re.compile(r"^\| `([\w/.]+)` \| (.*) \|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


def words_in_code(path: Path) -> Iterator[str]:
    """Yield the names in the code of a file, and its texts of one word."""
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.Name | ast.Attribute | ast.FunctionDef | ast.ClassDef | ast.arg):
            yield next(
                getattr(node, each) for each in ("id", "attr", "name", "arg") if hasattr(node, each)
            )
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Constant) and re.fullmatch(r"\S+", str(node.value)):
            yield str(node.value)


def files_with(word: str) -> set[str]:
    """Return the files of the product with a word in their code."""
    wanted = re.compile(word, re.IGNORECASE)
    inside = re.compile(word.strip("^$"), re.IGNORECASE)  # parsing a file takes longer
    products = (path for path in SOURCES if name_of(path).startswith(PACKAGES))
    products = (path for path in products if inside.search(text_of(path)))
    return {name_of(path) for path in products if any(map(wanted.search, words_in_code(path)))}


def files_of(page: str) -> set[str]:
    """Return the files of the product that a page names."""
    text = text_of(ROOT / "docs" / "contributing" / page)
    return {
        name for name in CODE.findall(text) if name.startswith(PACKAGES) and name.endswith(".py")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_says_of_a_file_is_in_it(page: Path) -> None:
    rows = ROW.findall(text_of(page))

    assert rows
    for file, what in rows:
        for name in CODE.findall(what):
            assert name in text_of(ROOT / file), f"{page.name}: {file} has no {name}"


def test_the_page_on_databases_names_all_files_that_know_one() -> None:
    common = {"state_backends/sql/backend.py"}
    logs = {"txtopo/kafka/formats/debezium_positions.py"}  # it reads what another product writes

    assert files_of("add-a-database.md") - common == files_with("mariadb|mysql") - logs


def test_the_page_on_metrics_names_all_files_that_a_figure_passes() -> None:
    last = {"txtopo/ui/metrics.py", "txtopo/runtime/listeners.py"}

    assert files_of("add-a-metric.md") - last == files_with(r"^state_s$")
