"""Write report pages in ``docs/``: a table, a whole page, or one section of a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.harness.processes import ROOT

DOCS = ROOT / "docs"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def write_page(page: Path, lines: Iterable[str]) -> None:
    """Write a page."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("".join(f"{line}\n" for line in lines))


def write_section(page: Path, title: str, lines: Iterable[str], head: str) -> None:
    """Write one section of a page and leave the others; *head* begins a page that is new."""
    text = page.read_text() if page.exists() else head
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(with_section(text, title, lines))


def with_section(text: str, title: str, lines: Iterable[str]) -> str:
    """Return a page with a section replaced, or put at its end."""
    section = "\n".join([f"## {title}", "", *lines, ""])
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", text, re.S | re.M)
    if found is None:
        return f"{text.rstrip()}\n\n{section}"
    rest = text[found.end() :]
    return text[: found.start()] + section + ("\n" if rest else "") + rest
