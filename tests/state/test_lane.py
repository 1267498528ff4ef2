"""Work beside the commits: one piece at a time, and nothing that fails goes unsaid."""

from __future__ import annotations

import logging

import pytest

from txtopo.state import Lane


def test_what_fails_is_logged_whatever_it_is(caplog: pytest.LogCaptureFixture) -> None:
    lane = Lane("the log of state 'counts'")

    def fails() -> None:
        raise TypeError("not a number")

    with caplog.at_level(logging.WARNING):
        lane.submit(fails)
        lane.close()
    assert "the log of state 'counts' was not tidied: TypeError: not a number" in caplog.text


def test_a_lane_that_is_closed_takes_nothing_more() -> None:
    done: list[int] = []
    lane = Lane("the table")
    lane.submit(lambda: done.append(1))
    lane.close()
    lane.submit(lambda: done.append(2))

    assert done == [1]
