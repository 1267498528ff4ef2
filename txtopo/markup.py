"""Markup: small tables of HTML, as notebooks show them; whatever comes from others is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from txtopo.errors import escaped, shortened

CELL_CHARACTERS_MAX = 300

_LEFT = ' style="text-align:left;padding:1px 12px 1px 0"'


def titled(title: str, *parts: str) -> str:
    """Return parts of HTML below a title."""
    return f'<div class="txtopo"><b>{cell(title)}</b>{"".join(parts)}</div>'


def note(text: str) -> str:
    """Return a line of text."""
    return f"<div>{cell(text)}</div>"


def pairs(shown: Iterable[tuple[str, object]]) -> str:
    """Return a table of names and values; what is None is left out."""
    rows = (
        f"<tr><th{_LEFT}>{cell(name)}</th><td{_LEFT}>{cell(value)}</td></tr>"
        for name, value in shown
        if value is not None
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with headings."""
    head = "".join(f"<th{_LEFT}>{cell(each)}</th>" for each in columns)
    body = "".join(
        f"<tr>{''.join(f'<td{_LEFT}>{cell(each)}</td>' for each in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def cell(value: object) -> str:
    """Return a value as text of HTML: numbers with commas, long text shortened in its middle."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}"
    return escape(escaped(shortened(str(value), CELL_CHARACTERS_MAX, " […] ")))
