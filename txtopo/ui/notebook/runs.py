"""Runs: what a notebook shows of a run, and :func:`watch`, which shows it live."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from txtopo import markup
from txtopo.clock import now
from txtopo.errors import escaped
from txtopo.runtime.handle import done_in

if TYPE_CHECKING:
    from txtopo.runtime.progress import Progress, ReliableProgress
    from txtopo.runtime.watching import Figures

# The next txids to commit are shown above the last committed ones.
TXIDS_LOOKED_AT = 200
COMMITTED_SHOWN = 5
OTHERS_SHOWN = 3
FAILURES_SHOWN = 3
LAGS_SHOWN = 3
EVERY_S = 0.5
_STEPS = ("processing", "processed", "committing", "ended")
LINE_EVERY_S = 2.0


def watch(board: Figures, ended: Future[Any], seconds: float | None) -> None:
    """Show a run until it ends or the time is up: live in a notebook, otherwise as lines.

    In a notebook, interrupting the kernel ends the display, not the run.

    Args:
        board: The figures of the run.
        ended: Done when the run has ended.
        seconds: How long to watch at most; None for no limit.
    """
    update = _display(board)
    if update is None:
        _follow(ended, seconds, LINE_EVERY_S, _lines(board))
        return
    try:
        _follow(ended, seconds, EVERY_S, update)
    except KeyboardInterrupt:
        update()


def run_html(board: Figures) -> str:
    """Return the current state of a run as HTML."""
    figures = board.figures()
    shown = list(_batches(figures, board) if figures["trees"] is None else _trees(figures["trees"]))
    failures = board.failures(FAILURES_SHOWN)
    if failures:
        columns = ("failure", "txid", "component", "cause")
        rows = [[each["kind"], each["txid"], each["component"], each["cause"]] for each in failures]
        shown.append(markup.table(columns, rows[::-1]))
    return markup.titled(f"{figures['topology']}: {figures['status']}", _head(figures), *shown)


def progress_html(progress: Progress) -> str:
    """Return a progress report as HTML."""
    return markup.titled(
        f"txid {progress.txid} is committed",
        markup.pairs(
            [
                ("rows", progress.rows),
                ("rows in total", progress.rows_total),
                ("rows per second", progress.rows_per_second),
                ("processing, s", progress.processing_s),
                ("commit, s", progress.commit_s),
                ("failures in total", progress.failures_total),
                ("in flight", len(progress.pending)),
                *((f"lag of {id}", count) for id, count in _furthest(progress.lag)),
                *((f"tuples of {id}", count) for id, count in progress.tuples.items()),
            ]
        ),
    )


def reliable_progress_html(progress: ReliableProgress) -> str:
    """Return a progress of an at-least-once topology as HTML."""
    return markup.titled(
        "trees of tuples",
        markup.pairs(
            [
                ("acked", progress.acked),
                ("acked per second", progress.acked_per_second),
                ("pending", progress.pending),
                ("failed", progress.failed),
                ("timed out", progress.timed_out),
                ("lost with their slot", progress.trees_lost),
                ("latency p50, s", progress.latency_p50_s),
                ("latency p99, s", progress.latency_p99_s),
            ]
        ),
    )


def _furthest(lag: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(lag.items(), key=lambda each: -each[1])[:LAGS_SHOWN]


def _head(figures: dict[str, Any]) -> str:
    return markup.pairs(
        [
            ("txid", figures["txid"]),
            ("epoch", figures["epoch"]),
            ("rows", figures["rows_total"]),
            ("rows per second", figures["rows_per_second"]),
            ("lag, records", figures["lag_records"]),
            ("failures", figures["failures_total"] or None),
            ("restarts", figures["restarts"] or None),
            ("page", figures["page"]),
        ]
    )


def _batches(figures: dict[str, Any], board: Figures) -> Iterator[str]:
    txids = board.txids(TXIDS_LOOKED_AT)
    if not txids:
        return
    done = [each for each in txids if each["attempts"][-1]["phase"] == "committed"]
    others = [each for each in txids if each["attempts"][-1]["phase"] != "committed"]
    rows = []
    for each in reversed([*done[-COMMITTED_SHOWN:], *others[:OTHERS_SHOWN]]):
        last = each["attempts"][-1]
        times = [last[f"{step}_at_s"] for step in _STEPS]
        spans = [_milliseconds(*pair) for pair in pairwise(times)]
        rows.append([each["txid"], each["rows"], last["attempt"], last["phase"], *spans])
    columns = ("txid", "rows", "attempt", "phase", "process, ms", "wait, ms", "commit, ms")
    yield markup.table(columns, rows)
    shown = [
        [name, each["p50_s"] * 1000, each["p99_s"] * 1000]
        for name, each in figures["latency"].items()
        if each is not None
    ]
    if shown:
        yield markup.table(("phase", "p50, ms", "p99, ms"), shown)


def _milliseconds(begin_s: float | None, end_s: float | None) -> float | None:
    return None if begin_s is None or end_s is None else (end_s - begin_s) * 1000


def _trees(trees: dict[str, Any]) -> Iterator[str]:
    names = ("pending", "acked", "failed", "timed_out", "trees_lost", "acked_per_second")
    yield markup.pairs((name.replace("_", " "), trees[name]) for name in (*names, "slots_lost"))
    columns = ("component", "executed", "emitted", "acked", "failed")
    yield markup.table(columns, [[each[name] for name in columns] for each in trees["bolts"]])


def _display(board: Figures) -> Callable[[], None] | None:
    """Return a function that updates the output of this cell; None outside of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if not hasattr(shell, "kernel"):
        return None
    notebook: Any = import_module("IPython.display")
    handle = notebook.display(notebook.HTML(run_html(board)), display_id=True)
    return lambda: handle.update(notebook.HTML(run_html(board)))


def _lines(board: Figures) -> Callable[[], None]:
    """Return a function that prints a line if there is something new."""
    last = ""

    def tell() -> None:
        nonlocal last
        line = _line(board.summary())
        if line != last:
            last = line
            print(escaped(line), flush=True)

    return tell


def _line(summary: dict[str, Any]) -> str:
    parts = [f"{summary['topology']}: {summary['status']}"]
    if summary["txid"] is not None:
        parts.append(f"txid {summary['txid']:,}")
    parts.append(f"{summary['rows_total']:,} rows, {summary['rows_per_second']:,.0f} a second")
    if summary["lag_records"] is not None:
        parts.append(f"lag {summary['lag_records']:,}")
    if summary["last_failure"] is not None:
        parts.append(f"last failure: {summary['last_failure']['cause']}")
    return ", ".join(parts)


def _follow(
    ended: Future[Any], seconds: float | None, every_s: float, tell: Callable[[], None]
) -> None:
    deadline = None if seconds is None else now() + seconds
    over = False
    while not over:
        tell()
        left_s = every_s if deadline is None else min(every_s, deadline - now())
        over = done_in(ended, left_s) or (deadline is not None and now() >= deadline)
    tell()
