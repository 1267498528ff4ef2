"""The page says what limits batches now: a setting, or a window that is full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.harness.browser import Browser
from tests.harness.runs import LOCAL, Storage, WaitsForFile, running
from tests.harness.web import ask
from txtopo import Fields, Pace, Page, TransactionalTopologyBuilder
from txtopo.runtime.handle import TopologyRun
from txtopo.spouts import MemoryTransactionalSpout

pytestmark = pytest.mark.service("chromium")

API = "/api/v1/topologies/paced"
SAID = "document.querySelector('#pace').innerText"


@contextmanager
def paced(go: Path, take: int = 100, **settings: Any) -> Iterator[TopologyRun]:
    """Run 10,000 rows, whose commits wait for a file; with a page."""
    spout = MemoryTransactionalSpout({0: [[n] for n in range(10_000)]}, Fields("n long"), take)
    builder = TransactionalTopologyBuilder("paced", "numbers", spout)
    builder.set_bolt("waits", WaitsForFile(go)).global_grouping("numbers")
    config = replace(LOCAL, page=Page(port=0), **settings)
    with running(builder.build_topology(), Storage.in_memory(), config) as run:
        try:
            yield run
        finally:
            go.touch()


def opened(chromium: Browser, run: TopologyRun) -> None:
    chromium.size(1440, 900)
    chromium.open(f"{run.page_url}/topologies/paced")


def test_the_page_names_the_setting_that_limits_batches(chromium: Browser, tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.touch()
    with paced(go, pace=Pace(max_rows_per_second=500)) as run:
        opened(chromium, run)
        said = f"/limited by max_rows_per_second 500: last batch up to \\d+ rows?/.test({SAID})"
        chromium.wait(said, "the page says it")
        assert chromium.run(f"return /of \\d+ batches in flight/.test({SAID})")
        pace = ask(str(run.page_url), API).json["pace"]
        assert pace["settings"] == {"max_rows_per_second": 500}
        assert chromium.console() == []


def test_the_page_says_that_a_batch_waits(chromium: Browser, tmp_path: Path) -> None:
    """Nothing is committed meanwhile, so no commit tells the page."""
    with paced(
        tmp_path / "go", 20_000, pace=Pace(min_batch_rows=20_000, max_batch_delay_s=600.0)
    ) as run:
        opened(chromium, run)
        said = "waits for min_batch_rows 20\u202f000, or for max_batch_delay_s 600"
        chromium.wait(f"{SAID}.includes('{said}')", "the page says it")
        assert chromium.console() == []


def test_the_page_says_for_how_long_the_window_is_full(chromium: Browser, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with paced(go, max_spout_pending=3) as run:
        opened(chromium, run)
        full = "window of max_spout_pending full for"
        chromium.wait(f"{SAID}.includes('{full}')", "the page says it")
        assert "3 of 3 batches in flight" in chromium.text("#pace")
        assert "limited" not in chromium.text("#pace")
        before = chromium.text("#pace")
        chromium.wait(f"{SAID} !== {before!r}", "the time continues")
        go.touch()
        run.process_all_available()
        chromium.wait(f"!{SAID}.includes('{full}')", "there is room again")
        run.deactivate()
        chromium.wait("document.querySelector('#pace').hidden", "nothing is planned")
        assert chromium.console() == []
