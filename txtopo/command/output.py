"""The output of commands: tables, pairs, lines, JSON; without foreign control characters.

Ids, keys and error texts come from others, so everything but our own words goes through
:func:`escaped`. On a terminal tables are drawn by rich, if it is installed (extra ``progress``).
Elsewhere they are plain text whose columns and words stay as they are from release to release.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

import click

from txtopo.errors import escaped

UNKNOWN = "-"


def print_json(value: object) -> None:
    """Print a JSON document; all characters beyond ASCII are escaped."""
    click.echo(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


def print_json_line(value: object) -> None:
    """Print a JSON document on one line, for a sequence of documents."""
    click.echo(json.dumps(value).replace("\x7f", "\\u007f"))


def print_line(line: str) -> None:
    """Print text on standard output."""
    click.echo(escaped(line, "\n"))


def print_note(line: str) -> None:
    """Print text for a person on standard error: progress, warnings and the like."""
    click.echo(escaped(line, "\n"), err=True)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Iterable[str] = (),
    empty: str = "",
) -> None:
    """Print a table.

    Args:
        columns: Their headings.
        rows: The cells; :func:`cell` turns them into text.
        right: The columns of numbers, which are aligned to the right.
        empty: The line to print instead if there are no rows; by default only the headings.
    """
    texts = [[cell(each) for each in row] for row in rows]
    if not texts and empty:
        print_line(empty)
        return
    numbers = frozenset(right)
    if sys.stdout.isatty() and _rich_table([*map(escaped, columns)], texts, numbers):
        return
    headings = [escaped(each.upper()) for each in columns]
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    for line in (headings, *texts):
        cells = [
            text.rjust(width) if heading in numbers else text.ljust(width)
            for heading, text, width in zip(columns, line, widths, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def print_pairs(pairs: Mapping[str, object]) -> None:
    """Print names and values, one per line; a value of several lines is indented."""
    width = max(map(len, pairs), default=0)
    for name, value in pairs.items():
        text = ("\n" + " " * (width + 2)).join(cell(value, "\n").split("\n"))
        click.echo(f"{name.ljust(width)}  {text}".rstrip())


def cell(value: object, kept: str = "") -> str:
    """Return the text of a value: one line, no control characters, numbers with commas."""
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
        case _:
            return escaped(str(value), kept)


def duration(seconds: float | None) -> str:
    """Return a duration for a person: ``9 ms``, ``2.5 s``, ``3 h 20 min``."""
    if seconds is None:
        return UNKNOWN
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.3g} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"


def ago(at_s: float | None, now_s: float) -> str:
    """Return how long ago something was, for a person."""
    return UNKNOWN if at_s is None else f"{duration(now_s - at_s)} ago"


def _rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str]
) -> bool:
    """Draw a table with rich; return whether it is installed."""
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
    return True
