"""The page of a run that continues for long: as quick as at first, in the same memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.harness.browser import Browser
from tests.harness.runs import Storage, running
from tests.services.pages.payments import Pace, payments
from tests.services.pages.test_topology_page import NEWEST, PAGED, opened
from txtopo import FailedException, TopologyRun, TransactionAttempt
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesAbandoned,
    BatchesProcessed,
    BatchFailed,
    BatchPlanned,
    CommitStarted,
    ProcessingStarted,
    Progress,
)
from txtopo.ui.board import Board

pytestmark = pytest.mark.service("chromium")

RING = 1000
ROWS_SEEN_MAX = 40
"""Rows that a timeline of this height shows at most."""


def feed(board: Board, txids: Iterator[int]) -> None:
    """Tell a board what a run tells it of some txids; every hundredth fails and takes two along."""
    for txid in txids:
        attempts = [TransactionAttempt(each, 0, 1) for each in range(txid, txid + 3)]
        first = attempts[0]
        if txid % 100 == 0:
            for each in attempts:
                board.on_change(BatchPlanned(each, 0.001))
            board.on_change(ProcessingStarted(tuple(attempts), f"job-{txid}"))
            board.on_change(BatchFailed(first, "counted", FailedException("again"), "convert"))
            board.on_change(BatchesAbandoned(tuple(attempts[1:]), first))
            first = TransactionAttempt(txid, 1, 1)
        else:
            board.on_change(BatchPlanned(first, 0.001))
        board.on_change(ProcessingStarted((first,), f"job-{txid}"))
        board.on_change(BatchesProcessed((first,)))
        board.on_change(CommitStarted(first))
        progress = Progress(first, time.time(), 10, txid * 10, 500.0, 0, 0)
        board.on_change(BatchCommitted(progress))


def passed(chromium: Browser, board: Board, first: int, last: int, each: int) -> None:
    """Let txids pass through the board and the page, *each* of them in a turn."""
    for start in range(first, last, each):
        feed(board, iter(range(start, min(start + each, last))))
        chromium.wait(f"{NEWEST} >= {min(start + each, last) - 1}", "the page has them")


def board_of(run: TopologyRun) -> Board:
    """Return the board of a run, which a test tells of changes."""
    assert isinstance(run.board, Board)
    return run.board


def drawn_ms(chromium: Browser) -> list[float]:
    """Return how long each of a hundred frames took, sorted."""
    script = """
    const t = page.timeline, taken = [];
    for (let n = 0; n < 100; n += 1) {
      const start = performance.now(); t.paint(); page.renderHead(); page.renderTables();
      taken.push(performance.now() - start);
    }
    return taken.sort((a, b) => a - b);
    """
    return [float(each) for each in chromium.run(script)]


@pytest.mark.slow
def test_the_page_keeps_a_thousand_txids_and_draws_those_that_are_seen(chromium: Browser) -> None:
    storage = Storage.in_memory()
    with running(payments(storage, Pace(last=0)), storage, PAGED) as run:
        feed(board_of(run), iter(range(1, 1500)))
        opened(chromium, run)
        passed(chromium, board_of(run), 1500, 2500, 500)
        shapes, before = chromium.run("return page.timeline.stats.shapes"), chromium.memory()
        passed(chromium, board_of(run), 2500, 8500, 1000)
        ring = chromium.run(
            "const r = page.timeline.ring; return [r.order.length, r.rows.size, r.order.at(-1)]"
        )
        assert ring == [RING, RING, 8499]
        assert chromium.run("return page.failures.size") <= 100
        assert chromium.run("return page.timeline.stats.rows") <= ROWS_SEEN_MAX
        assert chromium.run("return page.timeline.stats.shapes") <= 2 * shapes
        after = chromium.memory()
        # The rows of more failures, and charts when there are samples.
        assert after["nodes"] < before["nodes"] + 60 * 12 + 200
        assert after["bytes"] < 2 * before["bytes"]
        assert chromium.console() == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_after_100_000_txids_a_frame_takes_less_than_50_ms_in_the_same_memory(
    chromium: Browser,
) -> None:
    storage = Storage.in_memory()
    with running(payments(storage, Pace(last=0)), storage, PAGED) as run:
        feed(board_of(run), iter(range(1, 12_000)))  # a hundred failures, as many as are kept
        opened(chromium, run)
        passed(chromium, board_of(run), 12_000, 15_000, 500)
        chromium.wait("document.querySelector('.chart')", "there are samples of the last hour")
        first_ms, first = drawn_ms(chromium), chromium.memory()
        passed(chromium, board_of(run), 15_000, 115_000, 500)
        last_ms, last = drawn_ms(chromium), chromium.memory()
        for when, taken, memory in (("first", first_ms, first), ("last", last_ms, last)):
            print(
                f"{when}: a frame takes {taken[50]:.1f} ms (the slowest of 100 {taken[-1]:.1f} ms);"
                f" {memory['bytes'] / 1e6:.1f} MB, {memory['nodes']} nodes"
            )
        print("while it ran:", chromium.run("return page.timeline.stats"))
        assert last_ms[95] < 50
        assert last["bytes"] < 1.3 * first["bytes"] + 2e6
        assert abs(last["nodes"] - first["nodes"]) < 50
