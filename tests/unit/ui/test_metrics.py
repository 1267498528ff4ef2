"""Metrics: what is exported is what the page lists, and what dashboard and alerts use."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import Changes
from tests.unit.runtime.loop_world import memory_state, running, topology_of
from tests.unit.test_layout import ROOT
from txtopo import AtLeastOnceConfig, Fields, TopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.reliable.start import start_reliable
from txtopo.runtime.handle import ReliableRun, TopologyRun
from txtopo.runtime.histogram import Histogram
from txtopo.runtime.progress import (
    AckerProgress,
    BatchCommitted,
    BatchFailed,
    BatchPlanned,
    ErrorReported,
    Leading,
    Progress,
    Progressed,
    ReliableProgress,
    SlotLost,
    Stopped,
)
from txtopo.runtime.watching import Figures
from txtopo.spouts import MemorySpout
from txtopo.ui import metrics
from txtopo.ui.board import LAG_UNITS, Board
from txtopo.ui.metrics import METRICS

ROW = re.compile(r"^\| `(txtopo_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", re.MULTILINE)
USED = re.compile(r"(txtopo_\w+)(?:\{([^}]*)\})?")
DASHBOARD = ROOT / "docker" / "grafana" / "txtopo.json"
ALERTS = ROOT / "docker" / "prometheus" / "alerts.yml"


def board_of(
    lag: Mapping[str, int] | None = None,
    lost: Mapping[str, str] | None = None,
    component: str = "total",
) -> Board:
    """Return the board of a run that has committed one txid, and failed once at the next."""
    board = Board("totals", "transactional", topology_of(memory_state()).graph)
    held: dict[str, Any] = {"held_back": {"(clock)": "it went ahead"}}
    board.attach(lambda: "running", lambda: held)
    board.on_change(Leading("totals", 3, 1, None))
    attempt = TransactionAttempt(1, 0, 3)
    board.on_change(BatchPlanned(attempt, 0.5))
    progress = Progress(
        attempt=attempt,
        timestamp_s=1_000.0,
        rows=3,
        rows_total=3,
        rows_per_second=0.0,
        failures=0,
        failures_total=0,
        lag=lag or {},
        lost=lost or {},
        tuples={"spout": 3},
        processing_s=2.0,
        commit_s=100.0,
        state_s={"total.totals": 0.0005},
        component_s={"total": 0.25},
        zookeeper_s=(0.001, 0.002),
        driver_bytes=77,
    )
    board.on_change(BatchCommitted(progress))
    later = TransactionAttempt(2, 0, 3)
    board.on_change(BatchPlanned(later, 0.5))
    board.on_change(BatchFailed(later, "counted", ValueError("odd"), component, 2, 0.5))
    return board


def trees_board() -> Board:
    board = Board("clicks", "at-least-once", topology_of(memory_state()).graph)
    progress = ReliableProgress(
        *(0.0, 500, 90, 4, 3, 2, 1, 5, 1),
        executed={"total": 95},
        emitted_by={"spout": 500},
        latencies=Histogram(),
        ackers=[AckerProgress(0, 0, 1, 60, 3, 2), AckerProgress(1, 4, 0, 30, 1, 1)],
    )
    board.on_change(Progressed(progress))
    board.on_change(SlotLost(0, "its worker died"))
    board.on_change(ErrorReported("total", 0, ValueError("odd")))
    return board


def read(board: Figures) -> dict[str, Metric]:
    """Return the metrics of txtopo, as Prometheus understands them."""
    families = text_string_to_metric_families(metrics.text(board).decode())
    return {each.name: each for each in families if each.name.startswith("txtopo_")}


def values(family: Metric) -> dict[tuple[str, ...], float]:
    """Return the values of a metric, by its labels besides the topology."""
    return {
        tuple(v for name, v in sorted(each.labels.items()) if name != "topology"): each.value
        for each in family.samples
    }


def exported() -> dict[str, set[str]]:
    """Return the names of all series, with their labels."""
    found: dict[str, set[str]] = {}
    units = dict.fromkeys(("bytes", "versions", "keys", "offsets", "seconds"), 2)
    others = {"first/files": 3, **units}  # the files are of the first part of a sequence
    boards = [board_of({"0": 3}), board_of(others), trees_board()]
    for board in boards:
        for family in read(board).values():
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_the_trees_of_each_acker_are_exported() -> None:
    families = read(trees_board())

    ended = values(families["txtopo_acker_ended"])
    assert values(families["txtopo_acker_trees"]) == {("0", "0"): 1, ("1", "4"): 0}
    assert {each[:2]: count for each, count in ended.items() if each[2] == "4"} == {
        ("1", "completed"): 30,
        ("1", "failed"): 1,
        ("1", "timed out"): 1,
    }


def test_each_status_of_a_run_is_exported() -> None:
    told = (TopologyRun.__doc__ or "").partition("``status`` is one of")[2].partition(".")[0]
    statuses = {each.strip() for each in " ".join(told.split()).split(",")}
    board = board_of()
    board.attach(lambda: "killed")

    assert statuses == set(metrics.STATUSES)
    assert values(read(board)["txtopo_status"])["killed",] == 1
    assert sum(values(read(board)["txtopo_status"]).values()) == 1


@pytest.mark.parametrize("of", [board_of, trees_board], ids=["transactional", "at least once"])
def test_a_run_that_is_killed_leads_until_it_has_finished(of: Callable[[], Board]) -> None:
    board = of()
    board.attach(lambda: "killed")
    before = values(read(board)["txtopo_leading"])
    board.on_change(Stopped(board.topology, None))

    assert before == {(): 1}
    assert values(read(board)["txtopo_leading"]) == {(): 0}


def test_of_two_drivers_of_an_at_least_once_topology_one_leads() -> None:
    builder = TopologyBuilder("clicks")
    builder.set_spout("clicks", MemorySpout([], Fields("click string")))
    ensemble = MemoryEnsemble()
    config = AtLeastOnceConfig(carrier="local", zookeeper="memory")
    graph = builder.build_topology().graph

    def leads(run: ReliableRun) -> bool:
        return values(read(run.board)["txtopo_leading"]) == {(): 1}

    with start_reliable(graph, None, config, ensemble=ensemble) as first:
        wait_until(lambda: leads(first), "the first one leads")
        with start_reliable(graph, None, config, ensemble=ensemble) as second:
            wait_until(lambda: second.status == "standby", "the second one waits")
            assert not leads(second)
            first.stop()
            assert not leads(first)
            wait_until(lambda: leads(second), "the second one leads")


def test_who_runs_a_topology_without_zookeeper_leads_until_the_end() -> None:
    board = trees_board()
    board.attach(lambda: "running")
    before = values(read(board)["txtopo_leading"])
    board.attach(lambda: "failed")

    assert before == {(): 1}
    assert values(read(board)["txtopo_leading"]) == {(): 0}


def test_all_metrics_are_exported_with_their_labels_and_nothing_else_is() -> None:
    found: dict[str, tuple[str, set[str]]] = {}
    for board in (board_of({"0": 3}), board_of(dict.fromkeys(LAG_UNITS, 9)), trees_board()):
        for family in read(board).values():
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = set(family.samples[0].labels) - {"topology", "le"}
            found[name] = (family.type, labels)

    assert found == {each.name: (each.type, set(each.labels)) for each in METRICS.values()}


def test_every_series_names_its_topology_and_none_its_txid() -> None:
    for name, labels in exported().items():
        assert "topology" in labels, name
        assert not {"txid", "attempt"} & labels, name


def test_the_page_lists_all_metrics() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    listed = [
        (name, type, re.findall(r"\w+", labels), text)
        for name, type, labels, text in ROW.findall(page)
    ]

    assert sorted(listed) == sorted(
        (each.name, each.type, list(each.labels), each.meaning) for each in METRICS.values()
    )


def test_the_values_are_those_of_the_board() -> None:
    found = read(board_of({"0": 3, "1": 4}, {"1": "offsets 3 to 7"}))

    assert values(found["txtopo_committed_txid"]) == {(): 1}
    assert values(found["txtopo_epoch"]) == {(): 3}
    assert values(found["txtopo_leading"]) == {(): 1}
    assert values(found["txtopo_status"])[("running",)] == 1
    assert sum(values(found["txtopo_status"]).values()) == 1
    assert values(found["txtopo_last_commit_timestamp_seconds"]) == {(): 1_000}
    assert values(found["txtopo_lag_records"]) == {("0",): 3, ("1",): 4}
    assert values(found["txtopo_partitions"]) == {("yes",): 2, ("no",): 0}
    assert values(found["txtopo_losses"]) == {(): 1}
    assert values(found["txtopo_attempts_failed"])[("total", "counted")] == 1
    assert values(found["txtopo_attempts_failed"])[("", "infrastructure")] == 0
    assert values(found["txtopo_failures_in_a_row"]) == {(): 2}
    assert values(found["txtopo_in_flight_txids"])[("planned",)] == 1
    assert values(found["txtopo_driver_bytes"]) == {(): 77}
    assert values(found["txtopo_rows"]) == {("spout",): 3, ("total",): 0}


def test_a_histogram_counts_up_from_a_millisecond_to_what_is_longer_than_a_minute() -> None:
    found = read(board_of())

    commit = {
        each.labels.get("le", each.name): each.value
        for each in found["txtopo_commit_seconds"].samples
    }
    assert (commit["0.001"], commit["60.0"], commit["+Inf"]) == (0, 0, 1)
    assert commit["txtopo_commit_seconds_sum"] == 100.0
    written = {
        each.labels.get("le", each.name): each.value
        for each in found["txtopo_zookeeper_write_seconds"].samples
    }
    assert (written["0.001"], written["0.0025"], written["60.0"]) == (1, 2, 2)
    assert written["txtopo_zookeeper_write_seconds_count"] == 2
    (computed,) = (
        each
        for each in found["txtopo_component_commit_seconds"].samples
        if each.name.endswith("_sum")
    )
    assert (computed.labels["component"], computed.value) == ("total", 0.25)


def test_of_ten_thousand_partitions_a_hundred_have_a_series_and_the_sum_is_right() -> None:
    lag = {f"words:{number}": number for number in range(10_000)}
    board = board_of(lag)

    found = values(read(board)["txtopo_lag_records"])
    assert len(found) == 101
    assert sum(found.values()) == sum(lag.values())
    assert found[("words:9999",)] == 9999
    assert values(read(board)["txtopo_partitions"]) == {("yes",): 100, ("no",): 9900}
    assert len(metrics.text(board)) < 50_000


@pytest.mark.parametrize(
    "name",
    [
        'a "quoted" one',
        "two\nlines",
        "back\\slash\\n",
        "<script>alert(1)</script>",
        "é…\U0001f600",
        "",
    ],
)
def test_a_label_is_read_back_as_it_was(name: str) -> None:
    found = read(board_of({name: 7}, component=name or "total"))

    assert values(found["txtopo_lag_records"]) == {(name,): 7}
    assert values(found["txtopo_attempts_failed"])[name or "total", "counted"] == 1


def test_records_and_units_of_several_spouts_have_their_own_metrics() -> None:
    lag = {"topic/0": 3, "topic/1": 4, "one/versions": 2, "two/versions": 5}
    found = read(board_of(lag))

    assert values(found["txtopo_lag_records"]) == {("topic/0",): 3, ("topic/1",): 4}
    assert values(found["txtopo_lag_versions"]) == {(): 7}


def test_long_labels_are_cut_and_stay_different() -> None:
    one, other = 5_000 * "x" + "1", 5_000 * "x" + "2"
    found = values(read(board_of({one: 1, other: 2}))["txtopo_lag_records"])

    assert sorted(found.values()) == [1, 2]
    assert all(len(name) <= 200 for (name,) in found)


def test_half_a_character_does_not_end_the_scrape() -> None:
    (name,) = values(read(board_of({"half \ud800": 1}))["txtopo_lag_records"])

    assert name == ("half \\ud800",)


def test_the_metrics_of_a_run_agree_with_its_board() -> None:
    changes = Changes()
    with running(topology_of(memory_state()), MemoryEnsemble(), changes) as run:
        run.process_all_available(LIMIT_S)
        wait_until(lambda: run.board.figures()["txid"] == 12, "the last commit is told")
        found = read(run.board)
    groups = sorted({each.progress.group for each in changes.of(BatchCommitted)})
    first, last = groups[-1]

    assert values(found["txtopo_batches"]) == {(): 12}
    assert values(found["txtopo_rows"])[("spout",)] == 36
    counts = {
        each.name.removesuffix("_seconds_count"): each.value
        for metric in found.values()
        for each in metric.samples
        if each.name.endswith("_seconds_count")
    }
    for phase in ("plan", "process", "wait", "commit"):
        assert counts[f"txtopo_{phase}"] == 12, phase
    # A state is written once for each group.
    assert counts["txtopo_store_commit"] == len(groups)
    assert counts["txtopo_component_commit"] == len(groups)
    assert values(found["txtopo_group_txids"])[()] == last - first + 1


def used_in(text: str) -> list[tuple[str, set[str]]]:
    """Return the series of txtopo that expressions use, with the labels that they ask for."""
    return [
        (name, set(re.findall(r"(\w+)\s*[=!]", labels or "")))
        for name, labels in USED.findall(text)
    ]


def test_the_dashboard_uses_only_what_is_exported() -> None:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    known = exported()
    panels = [each for each in dashboard["panels"] if each["type"] != "row"]

    assert len(panels) > 20
    for panel in panels:
        for target in panel["targets"]:
            assert panel["datasource"]["uid"] == target["datasource"]["uid"] == "${datasource}"
            used = used_in(target["expr"])
            assert used, panel["title"]
            for name, labels in used:
                assert name in known, panel["title"]
                assert labels <= known[name], panel["title"]
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - {"instance"}
            assert shown <= set.union(*(known[name] for name, _ in used)), panel["title"]
    assert {each["name"] for each in dashboard["templating"]["list"]} == {"datasource", "topology"}


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    seen: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert seen.setdefault((x, y), panel["title"]) == panel["title"]


def test_the_alerts_use_only_what_is_exported() -> None:
    known = exported()
    used = used_in(ALERTS.read_text())

    assert len(used) > 10
    for name, labels in used:
        assert name in known
        assert labels <= known[name], name


def test_the_page_lists_all_alerts() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()

    alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    assert re.findall(r"^\| `(Txtopo\w+)` \|", page, re.MULTILINE) == alerts
