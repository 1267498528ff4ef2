"""The progress bar: what people see of a run, on a terminal and without one."""

from __future__ import annotations

import io
import logging
import re
from time import sleep

import pytest
from rich.console import Console

from tests.harness.polling import wait_until
from txtopo.attempt import TransactionAttempt
from txtopo.runtime.listeners import EventLog
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchFailed,
    Leading,
    Progress,
    Restarting,
    Standby,
    Stopped,
)
from txtopo.ui.progress_bar import ProgressBar


def test_without_a_terminal_there_is_one_plain_line_in_so_many_seconds() -> None:
    shown = io.StringIO()
    bar = ProgressBar(line_every_s=5, console=Console(file=shown, width=200))

    for txid in range(1, 13):
        bar.on_change(BatchCommitted(progress(txid, timestamp_s=100.0 + txid)))

    lines = shown.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["1", "6", "11"]
    assert "1,100 rows" in lines[2]
    assert "50 rows/s" in lines[2]
    assert "2 processing" in lines[2]
    assert "lag 0:7" in lines[2]


def test_without_a_terminal_the_last_line_is_that_of_the_last_commit() -> None:
    """Otherwise the line of a run that has caught up says for hours that it lags."""
    shown = io.StringIO()
    bar = ProgressBar(line_every_s=0.05, console=Console(file=shown, width=200))

    for txid in range(1, 4):
        bar.on_change(BatchCommitted(progress(txid, timestamp_s=100.0)))

    wait_until(lambda: len(shown.getvalue().splitlines()) == 2, "there is a second line")
    assert shown.getvalue().splitlines()[1].startswith("txid 3")
    bar.on_change(BatchCommitted(progress(4, timestamp_s=100.0)))
    bar.close()
    sleep(0.1)
    assert len(shown.getvalue().splitlines()) == 2


def test_a_line_that_was_printed_late_counts_so_that_no_other_follows_at_once() -> None:
    """Batches arrive in bursts: the first of a burst printed a second line, with another rate."""
    shown = io.StringIO()
    bar = ProgressBar(line_every_s=0.05, console=Console(file=shown, width=200))
    bar.on_change(BatchCommitted(progress(1, timestamp_s=100.0)))
    bar.on_change(BatchCommitted(progress(2, timestamp_s=100.0)))
    wait_until(lambda: len(shown.getvalue().splitlines()) == 2, "there is a second line")

    bar.on_change(BatchCommitted(progress(3, timestamp_s=100.06)))
    lines = shown.getvalue().splitlines()
    bar.close()

    assert [line.split()[1] for line in lines] == ["1", "2"]


def test_without_a_terminal_the_end_is_shown_at_once_and_failures_are_left_to_the_log() -> None:
    shown = io.StringIO()
    bar = ProgressBar(line_every_s=1000, console=Console(file=shown, width=200))
    bar.on_change(Leading("counts", epoch=3, current=1, adopted=None))

    bar.on_change(BatchFailed(TransactionAttempt(4), "counted", ValueError("[bad] row"), "split"))
    bar.on_change(Restarting("counts", ValueError("[bad] row"), restarts=1, pause_s=2.0))
    bar.on_change(Stopped("counts", ValueError("[bad] row")))

    leading, stopped = shown.getvalue().splitlines()
    assert leading == "leading, epoch 3"
    assert stopped == "failed"


@pytest.mark.parametrize("terminal", [False, True])
def test_the_end_shows_no_rate_and_nothing_in_flight_since_there_is_none(terminal: bool) -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=200, force_terminal=terminal, highlight=False)
    bar = ProgressBar(line_every_s=1000, console=console)

    bar.on_change(BatchCommitted(progress(4, timestamp_s=100.0)))
    bar.on_change(Stopped("counts", None))

    # On a terminal what the bar showed last stands above the line.
    ended = shown.getvalue().split("txid 4" if terminal else "stopped")[-1]
    assert "stopped  400 rows" in shown.getvalue()
    assert "lag 0:7" in ended
    assert "rows/s" not in ended
    assert "processing" not in ended


def test_a_standby_names_who_leads() -> None:
    shown = io.StringIO()
    bar = ProgressBar(console=Console(file=shown, width=200))

    bar.on_change(Standby("counts", {"epoch": 3, "leader": {"host": "a", "pid": 7}}))
    bar.on_change(Standby("counts"))

    named, unnamed = shown.getvalue().splitlines()
    assert named == "standby, epoch 3 leads from process 7 on a"
    assert unnamed == "standby"


def test_on_a_terminal_the_bar_shows_the_last_commit() -> None:
    shown = io.StringIO()
    bar = ProgressBar(1000, console=Console(file=shown, width=200, force_terminal=True))

    bar.on_change(BatchCommitted(progress(5, timestamp_s=1.0)))
    bar.on_change(Stopped("counts", None))

    assert "txid 5" in shown.getvalue()
    assert "failures: 1 in a row, 3 in total" in shown.getvalue()


@pytest.mark.integration
def test_log_lines_appear_above_the_bar_and_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that was made before the bar knows the terminal, not rich."""
    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    handler, logger = logging.StreamHandler(), logging.getLogger("txtopo")
    logger.addHandler(handler)
    try:
        bar = ProgressBar(1000, console=Console(stderr=True, width=200, force_terminal=True))
        bar.on_change(BatchCommitted(progress(5, timestamp_s=1.0)))
        EventLog("t").on_change(
            BatchFailed(TransactionAttempt(6), "counted", ValueError("bad"), "b")
        )
        bar.on_change(BatchFailed(TransactionAttempt(6), "counted", ValueError("bad"), "b"))
        bar.on_change(Stopped("counts", None))
        assert handler.stream is shown
    finally:
        logger.removeHandler(handler)

    lines = re.split(r"\n|\r\x1b\[2K", shown.getvalue())
    (told,) = [line for line in lines if "got ValueError: bad" in line]
    assert re.sub(r"\x1b\[[0-9;]*m", "", told).startswith("topology 't': attempt 0 of txid 6")
    assert "txid 6 failed, 1 in a row" in shown.getvalue()


def progress(txid: int, *, timestamp_s: float) -> Progress:
    return Progress(
        attempt=TransactionAttempt(txid, 1, 1),
        timestamp_s=timestamp_s,
        rows=100,
        rows_total=100 * txid,
        rows_per_second=50.0,
        failures=1,
        failures_total=3,
        pending={txid + 1: "PROCESSING", txid + 2: "PROCESSING"},
        lag={"0": 7},
    )
