"""HTML for notebooks: text of others stays text."""

from __future__ import annotations

import pytest

from txtopo import markup


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("\"'&", "&quot;&#x27;&amp;"),
        ("a\x1b[2J\nb", "a\\x1b[2J\\nb"),
        (None, ""),
        (True, "True"),
        (1_234_567, "1,234,567"),
        (0.123456, "0.123"),
        (123_456.7, "123,457"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_a_cell_is_text(value: object, shown: str) -> None:
    assert markup.cell(value) == shown


def test_long_text_is_cut() -> None:
    assert len(markup.cell("x" * 10_000)) < 2 * markup.CELL_CHARACTERS_MAX


def test_headings_names_and_notes_are_escaped_as_cells_are() -> None:
    hostile = "<img src=x onerror=alert(1)>"
    parts = (markup.pairs([(hostile, hostile)]), markup.table([hostile], [[hostile]]))

    assert "<img" not in markup.titled(hostile, *parts, markup.note(hostile))


def test_pairs_that_are_not_known_are_left_out() -> None:
    assert "lag" not in markup.pairs([("lag", None), ("rows", 0)])
