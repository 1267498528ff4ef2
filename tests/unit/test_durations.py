"""Durations are read as they are written, and anything else is told."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from txtopo import TopologyError
from txtopo.durations import duration, shown


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90 seconds", 90),
        ("1 second", 1),
        ("5 minutes", 300),
        ("1 hour 30 minutes", 5400),
        ("1 hour, 30 minutes", 5400),
        ("2 Days", 172_800),
        (" 1 week ", 604_800),
        ("250 milliseconds", 0.25),
        ("5minutes", 300),
    ],
)
def test_a_text_is_read(text: str, seconds: float) -> None:
    assert duration("size", text) == datetime.timedelta(seconds=seconds)


def test_a_timedelta_is_taken_as_it_is() -> None:
    assert duration("size", datetime.timedelta(hours=1)) == datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    "given",
    ["", "5", "minutes", "5 fortnights", "5 minutes ago", "-5 minutes", "1.5 hours", 5, None, True],
)
def test_what_is_no_duration_is_told(given: Any) -> None:
    with pytest.raises(
        TopologyError, match=r"size is not a duration; got .*; expected a text such as"
    ):
        duration("size", given)


@pytest.mark.parametrize(
    "given",
    [
        "0 minutes",
        datetime.timedelta(0),
        datetime.timedelta(seconds=-1),
        "99999 days",
        datetime.timedelta.max,
    ],
)
def test_a_duration_out_of_range_is_told(given: Any) -> None:
    with pytest.raises(
        TopologyError, match=r"size is out of range; got .*; expected a microsecond"
    ):
        duration("size", given)


def test_zero_is_taken_where_it_has_a_meaning() -> None:
    assert duration("delay", "0 minutes", zero=True) == datetime.timedelta(0)


def test_a_number_that_no_timedelta_has_is_no_duration() -> None:
    with pytest.raises(TopologyError, match="not a duration"):
        duration("size", "999999999999 weeks")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 seconds"), (300, "5 minutes"), (5400, "1 hour 30 minutes"), (0.25, "250 milliseconds")],
)
def test_a_duration_is_shown_as_it_would_be_written(seconds: float, text: str) -> None:
    length = datetime.timedelta(seconds=seconds)

    assert shown(length) == text
    assert duration("size", text, zero=True) == length
