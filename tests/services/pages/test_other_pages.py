"""The page of an at-least-once topology and the list of topologies, in Chromium."""

from __future__ import annotations

import time

import pytest

from tests.harness.browser import Browser
from tests.harness.runs import Storage, running
from tests.services.pages.payments import Pace, payments
from tests.services.pages.test_topology_page import PAGED
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    FailedException,
    Fields,
    Page,
    TopologyBuilder,
    Tuple,
)
from txtopo.collector import BatchOutputCollector
from txtopo.operations.ensemble import Ensemble
from txtopo.spouts import MemorySpout
from txtopo.ui.pages.server import PageServer
from txtopo.ui.pages.sources import EnsembleSource

pytestmark = pytest.mark.service("chromium")


class Halting(BasicBolt):
    """Passes numbers on, a bit slowly, and fails every tenth the first time."""

    output_fields = Fields("number long")

    def __init__(self) -> None:
        self.failed: set[int] = set()

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        number = int(tuple[0])
        time.sleep(0.005)
        if number % 10 == 0 and number not in self.failed:
            self.failed.add(number)
            raise FailedException(f"no luck with {number}")
        collector.emit([number])


def test_an_at_least_once_topology_shows_its_trees_and_no_timeline(chromium: Browser) -> None:
    builder = TopologyBuilder("jobs")
    rows = [[number] for number in range(200)]
    builder.set_spout("numbers", MemorySpout(rows, Fields("number long"), repeat=1000))
    builder.set_bolt("halting", Halting()).shuffle_grouping("numbers")
    config = AtLeastOnceConfig(carrier="local", slots=1, page=Page(port=0), max_spout_pending=50)
    with builder.build_topology().start(None, config) as run:
        chromium.size(1440, 900)
        chromium.open(f"{run.page_url}/topologies/jobs")
        cell = "document.querySelector('#bolts tbody tr')?.cells"
        chromium.wait(f"parseInt({cell}?.[1].innerText) > 50", "the bolt has executed tuples")
        assert "halting" in chromium.text("#bolts")
        figures = chromium.text("#trees")
        for name in ("pending", "acked", "failed", "timed out", "replays", "emit to ack, p50"):
            assert name in figures
        acker = "document.querySelector('#ackers tbody tr')?.cells"
        chromium.wait(f"parseInt({acker}?.[3].innerText) > 50", "an acker has completed trees")
        assert chromium.run(f"return [...{acker}].slice(0, 2).map((c) => c.innerText)") == [
            "0",
            "0",
        ]
        assert "tuples a second" in chromium.text("#figures")
        chromium.wait("document.querySelector('#failures tbody tr')", "failed trees are shown")
        assert "trees failed" in chromium.text("#failures")
        assert chromium.run("return document.querySelector('#timeline-section').hidden")
        chromium.size(375, 800)
        widths = chromium.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert widths == [375, 375]
        assert chromium.console() == []


MANY = """
page.ask = () => {};
page.items = Array.from({length: 1000}, (_, n) => ({
  topology: `orders-${n}`, kind: 'transactional', status: n % 7 ? 'running' : 'standby',
  txid: (n * 37) % 1000, rows_per_second: n / 3, lag_records: n % 5 ? n : null, started_at_s: 1e9,
  last_failure: n % 9 ? null : {cause: '<b>x</b>'}}));
page.asked = true; page.render();
"""


def test_a_thousand_topologies_are_sorted_and_filtered_with_the_same_rows(
    chromium: Browser,
) -> None:
    builder = TopologyBuilder("jobs")
    builder.set_spout("numbers", MemorySpout([[1]], Fields("number long")))
    builder.set_bolt("halting", Halting()).shuffle_grouping("numbers")
    config = AtLeastOnceConfig(carrier="local", slots=1, page=Page(port=0))
    with builder.build_topology().start(None, config) as run:
        chromium.size(1440, 900)
        chromium.open(f"{run.page_url}/topologies")
        chromium.wait("page.asked", "the list is there")
        chromium.run(MANY)
        rows = "document.querySelectorAll('#topologies tbody tr').length"
        assert chromium.run(f"return {rows}") == 1000
        nodes = chromium.memory()["nodes"]
        first = "document.querySelector('#topologies tbody tr').cells[4].innerText"
        heads = "document.querySelectorAll('#topologies th')"
        chromium.run(f"{heads}[4].querySelector('button').click()")
        assert chromium.run(f"return [{first}, {heads}[4].ariaSort]") == ["999", "descending"]
        chromium.run(f"{heads}[4].querySelector('button').click()")
        assert chromium.run(f"return [{first}, {heads}[4].ariaSort]") == ["0", "ascending"]
        assert chromium.memory()["nodes"] == nodes
        chromium.run(
            "const f = document.querySelector('#filter'); f.value = 'standby orders-99';"
            "f.dispatchEvent(new Event('input'))"
        )
        shown = chromium.run(
            "return [...document.querySelectorAll('#topologies tbody tr')]"
            ".map(row => row.cells[0].innerText)"
        )
        assert sorted(shown) == ["orders-994"]
        assert "1 of 1" in chromium.text("#count")
        assert chromium.console() == []


def test_the_page_of_an_ensemble_shows_the_summary_and_names_the_page_of_the_run(
    chromium: Browser,
) -> None:
    storage = Storage.in_memory()
    with (
        running(payments(storage, Pace(convert_s=0.02)), storage, PAGED) as run,
        Ensemble.open(PAGED, ensemble=storage.ensemble) as ensemble,
        PageServer(EnsembleSource(ensemble, "ensemble")) as server,
    ):
        chromium.size(1440, 900)
        chromium.open(f"{server.url}/topologies")
        row = "document.querySelector('#topologies tbody tr')"
        chromium.wait(f"{row}?.innerText.includes('running')", "the run is listed")
        chromium.run(f"{row}.querySelector('a').click()")
        figure = "document.querySelector('#figures dd')"
        chromium.wait(f"parseInt({figure}?.innerText) > 0", "the summary is shown")
        before = chromium.run(f"return parseInt({figure}.innerText)")
        chromium.wait(f"parseInt({figure}.innerText) > {before}", "the summary changes")
        assert chromium.run("return document.querySelector('#page a').href").startswith(
            run.page_url
        )
        assert chromium.run("return document.querySelector('#whole').hidden")
        assert chromium.console() == []
