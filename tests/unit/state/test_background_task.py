"""Work beside the commits: one piece at a time, and nothing that fails goes unsaid."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from txtopo.state.log_mode import BackgroundTask


def test_what_fails_is_logged_whatever_it_is(caplog: pytest.LogCaptureFixture) -> None:
    task = BackgroundTask("the log of state 'counts'")

    def fails() -> None:
        raise TypeError("not a number")

    with caplog.at_level(logging.WARNING):
        task.submit(fails)
        task.close()
    (record,) = caplog.records
    assert "tidy the log of state 'counts', of which readers" in record.getMessage()
    assert (record.name, record.levelname) == ("txtopo.runtime", "WARNING")
    assert vars(record)["cause"] == "TypeError: not a number"
    assert vars(record)["failures"] == 1


def test_what_keeps_failing_is_tried_more_and_more_seldom(caplog: pytest.LogCaptureFixture) -> None:
    task = BackgroundTask("the log of state 'counts'")
    tries: list[int] = []

    def fails(at: int) -> None:
        tries.append(at)
        raise PermissionError("no")

    for at in range(20):
        task.submit(partial(fails, at))
        if task._running is not None:
            task._running.result()
    task.close()

    assert tries == [0, 3, 8, 17]
    assert [vars(record)["failures"] for record in caplog.records] == [1, 2, 3, 4]


def test_a_task_that_is_closed_takes_nothing_more() -> None:
    done: list[int] = []
    task = BackgroundTask("the table")
    task.submit(lambda: done.append(1))
    task.close()
    task.submit(lambda: done.append(2))

    assert done == [1]
