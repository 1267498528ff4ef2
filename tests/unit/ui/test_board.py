"""The board: what it keeps of a run, and how little."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import Changes
from tests.unit.runtime.loop_world import Total, memory_state, running, topology_of
from tests.unit.runtime.ranges import ranges
from tests.unit.runtime.test_log import SAMPLES
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Config,
    FailedException,
    Fields,
    Restart,
    TopologyBuilder,
    Tuple,
)
from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.runtime.progress import (
    AckerProgress,
    BatchCommitted,
    BatchesAbandoned,
    BatchesProcessed,
    BatchFailed,
    BatchPlanned,
    CommitStarted,
    ErrorReported,
    Leading,
    ProcessingStarted,
    Progress,
    Progressed,
    ReliableProgress,
    Started,
    Stopped,
    TopologyEvent,
    TreesFailed,
)
from txtopo.spouts import MemorySpout
from txtopo.state import open_state
from txtopo.testing import Shared
from txtopo.ui.board import Board


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class World:
    """A board that is told of a run by hand."""

    def __init__(self) -> None:
        self.clock = Clock()
        topology = topology_of(memory_state())
        self.board = Board("totals", "transactional", topology.graph, self.clock)
        self.board.attach(lambda: "running")
        self.rows, self.component_s = 0, {"total": 0.04}
        self.board.on_change(Started("totals"))

    def lead(
        self,
        epoch: int = 1,
        current: int = 1,
        adopted: int | None = None,
        adopted_first: int | None = None,
    ) -> None:
        self.board.on_change(Leading("totals", epoch, current, adopted, adopted_first))

    def plan(self, txid: int, plan_s: float = 0.5) -> None:
        self.board.on_change(BatchPlanned(TransactionAttempt(txid, 0, 1), plan_s))

    def process(self, *attempts: TransactionAttempt) -> None:
        self.board.on_change(ProcessingStarted(attempts, f"job of {attempts[0]}"))

    def commit(
        self,
        attempt: TransactionAttempt,
        rows: int = 3,
        lag: Mapping[str, int] | None = None,
        lost: Mapping[str, str] | None = None,
        group: tuple[int, int] | None = None,
    ) -> None:
        self.board.on_change(BatchesProcessed((attempt,)))
        self.board.on_change(CommitStarted(attempt))
        self.rows += rows
        progress = Progress(
            attempt=attempt,
            timestamp_s=self.clock.now_s,
            rows=rows,
            rows_total=self.rows,
            rows_per_second=0.0,
            failures=0,
            failures_total=0,
            lag=lag or {},
            lost=lost or {},
            tuples={"spout": rows, "total": 1},
            processing_s=2.0,
            commit_s=0.25,
            state_s={"total.totals": 0.2},
            component_s=self.component_s,
            zookeeper_s=(0.01,),
            group=group or (attempt.txid, attempt.txid),
        )
        self.board.on_change(BatchCommitted(progress))

    def whole(self, txid: int, rows: int = 3) -> None:
        """Plan, process and commit a txid."""
        self.plan(txid)
        self.process(TransactionAttempt(txid, 0, 1))
        self.commit(TransactionAttempt(txid, 0, 1), rows)


def test_a_txid_has_a_time_for_each_phase_that_it_passed() -> None:
    world = World()
    world.lead()
    attempt = TransactionAttempt(1, 0, 1)
    for change in (
        BatchPlanned(attempt, 0.5),
        ProcessingStarted((attempt,), "job of 1:0@1"),
        BatchesProcessed((attempt,)),
        CommitStarted(attempt),
    ):
        world.board.on_change(change)
        world.clock.now_s += 1.0
    done = Progress(attempt, 0.0, 3, 3, 0.0, 0, 0, processing_s=1.0, commit_s=1.0)
    world.board.on_change(BatchCommitted(done))

    assert world.board.txids() == [
        {
            "txid": 1,
            "rows": 3,
            "plan_s": 0.5,
            "group": None,
            "attempts": [
                {
                    "attempt": 0,
                    "epoch": 1,
                    "phase": "committed",
                    "planned_at_s": 1000.0,
                    "processing_at_s": 1001.0,
                    "processed_at_s": 1002.0,
                    "committing_at_s": 1003.0,
                    "ended_at_s": 1004.0,
                    "job": "job of 1:0@1",
                    "failure": None,
                    "abandoned_with": None,
                }
            ],
        }
    ]
    latency = world.board.figures()["latency"]
    assert {phase: each["p50_s"] for phase, each in latency.items()} == {
        "plan": 0.5,
        "process": 1.0,
        "wait": 1.0,
        "commit": 1.0,
    }


def test_the_summary_is_small_and_says_who_runs_what_since_when() -> None:
    world = World()
    world.lead(epoch=7)
    world.plan(1)
    world.process(TransactionAttempt(1, 0, 7))
    world.clock.now_s += 5.0
    world.commit(TransactionAttempt(1, 0, 7), rows=100, lag={"0": 300, "1": 11})
    error = ValueError("<script>" + 1000 * "x")
    failed = BatchFailed(TransactionAttempt(2, 0, 7), "counted", error, "total", 1, 0.5)
    world.board.on_change(failed)
    world.board.page = "http://127.0.0.1:8080"

    summary = world.board.summary()

    assert len(summary["last_failure"].pop("cause")) == 200
    process = summary.pop("process")
    assert process["pid"] == os.getpid()
    assert set(process) == {"host", "pid"}
    assert summary == {
        "topology": "totals",
        "kind": "transactional",
        "status": "running",
        "epoch": 7,
        "txid": 1,
        "rows_per_second": 20.0,
        "lag_records": 311,
        "lag": {"records": 311},
        "rows_total": 100,
        "last_failure": {"at_s": 1005.0, "txid": 2, "component": "total"},
        "started_at_s": 1000.0,
        "updated_at_s": 1005.0,
        "page": "http://127.0.0.1:8080",
    }


@pytest.mark.parametrize(
    "change", [each for each, _, _ in SAMPLES], ids=[type(each).__name__ for each, _, _ in SAMPLES]
)
def test_the_board_takes_every_kind_of_event(change: TopologyEvent) -> None:
    world = World()
    before = world.board.changes(0)["version"]
    world.board.on_change(change)

    assert world.board.changes(before)["figures"] is not None


def test_a_failure_shows_what_it_took_with_it_and_the_attempts_after_it() -> None:
    world = World()
    world.lead()
    first, second = TransactionAttempt(1, 0, 1), TransactionAttempt(2, 0, 1)
    world.plan(1)
    world.plan(2)
    world.process(first, second)
    error = FailedException("odd")
    world.board.on_change(BatchFailed(first, "counted", error, "total", 1, 0.5))
    world.board.on_change(BatchesAbandoned((second,), first))

    assert world.board.figures()["phases"] == {"PLANNED": 2}

    world.process(TransactionAttempt(1, 1, 1))
    world.commit(TransactionAttempt(1, 1, 1))
    one, two = world.board.txids()
    assert [each["phase"] for each in one["attempts"]] == ["failed", "committed"]
    assert one["attempts"][0]["failure"] == {
        "kind": "counted",
        "component": "total",
        "cause": "FailedException: odd",
        "failures": 1,
    }
    assert [each["phase"] for each in two["attempts"]] == ["abandoned"]
    assert two["attempts"][0]["abandoned_with"] == 1
    assert world.board.counters["replayed_txids"] == 1
    figures = world.board.figures()
    assert figures["attempts_failed"] == {"counted": 1}
    assert figures["failures_total"] == 1
    assert world.board.failures() == [
        {
            "at_s": 1000.0,
            "txid": 1,
            "attempt": 0,
            "epoch": 1,
            "batches": 1,
            "kind": "counted",
            "component": "total",
            "task": None,
            "cause": "FailedException: odd",
            "failures": 1,
            "pause_s": 0.5,
        }
    ]


def test_after_a_failure_that_ends_the_run_nothing_waits_to_be_tried_again() -> None:
    world = World()
    world.lead()
    attempts = [TransactionAttempt(txid, 0, 1) for txid in (1, 2, 3)]
    for each in attempts:
        world.plan(each.txid)
    error = ValueError("odd")
    world.board.on_change(BatchFailed(attempts[1], "fatal", error, "total", 1, None))
    world.board.on_change(BatchesAbandoned((attempts[2],), attempts[1]))

    assert world.board.figures()["phases"] == {"PLANNED": 1}
    phases = [row["attempts"][-1]["phase"] for row in world.board.txids()]
    assert phases == ["planned", "failed", "abandoned"]


def test_batches_that_failed_as_one_run_each_show_the_failure() -> None:
    world = World()
    world.lead()
    attempts = [TransactionAttempt(txid, 0, 1) for txid in (1, 2, 3)]
    for each in attempts:
        world.plan(each.txid)
    world.process(*attempts)
    error = TimeoutError("late")
    world.board.on_change(BatchFailed(attempts[0], "counted", error, None, 1, 0.0, batches=3))

    phases = [each["attempts"][0]["phase"] for each in world.board.txids()]
    assert phases == ["failed", "failed", "failed"]
    assert world.board.figures()["attempts_failed"] == {"counted": 3}


def test_a_new_term_ends_what_was_in_flight_and_an_adopted_txid_counts_as_committed() -> None:
    world = World()
    world.lead()
    for txid in (1, 2):
        world.plan(txid)
        world.process(TransactionAttempt(txid, 0, 1))
    world.lead(epoch=2, current=2, adopted=1)

    one, two = world.board.txids()
    assert one["attempts"][0]["phase"] == "committed"
    assert two["attempts"][0]["phase"] == "abandoned"
    figures = world.board.figures()
    assert (figures["adopted"], figures["txid"]) == (1, 1)
    assert figures["phases"] == {}


def test_every_txid_of_a_group_that_is_adopted_counts_as_committed() -> None:
    world = World()
    world.lead()
    for txid in (1, 2, 3):
        world.plan(txid)
        world.process(TransactionAttempt(txid, 0, 1))
    world.lead(epoch=2, current=3, adopted=2, adopted_first=1)

    rows = world.board.txids()
    phases = [row["attempts"][0]["phase"] for row in rows]
    assert phases == ["committed", "committed", "abandoned"]
    assert [row["group"] for row in rows] == [[1, 2], [1, 2], None]


def test_the_parts_of_a_commit_are_those_of_the_last_hundred() -> None:
    world = World()
    world.lead()
    before = world.board.figures()
    for txid in range(1, 102):
        world.component_s = {"total": txid / 1_000}
        world.whole(txid)
    figures = world.board.figures()

    assert before["zookeeper"] is None
    assert {each["commit"] for each in before["components"] + before["states"]} == {None}
    components = {each["component"]: each["commit"] for each in figures["components"]}
    assert components == {"spout": None, "total": {"p50_s": 0.051, "p99_s": 0.1}}
    (state,) = figures["states"]
    assert (state["component"], state["commit"]) == ("total", {"p50_s": 0.2, "p99_s": 0.2})
    assert figures["zookeeper"] == {"p50_s": 0.01, "p99_s": 0.01}


def test_the_group_of_a_txid_is_shown_if_it_was_not_committed_alone() -> None:
    world = World()
    world.lead()
    for txid, group in ((1, (1, 1)), (2, (2, 3)), (3, (2, 3))):
        world.plan(txid)
        world.process(TransactionAttempt(txid, 0, 1))
        world.commit(TransactionAttempt(txid, 0, 1), group=group)

    assert [row["group"] for row in world.board.txids()] == [None, [2, 3], [2, 3]]
    counters = world.board.counters
    assert (counters["run_txids"], counters["group_txids"]) == (1, 2)


def test_the_first_attempt_and_the_last_nineteen_are_kept() -> None:
    world = World()
    world.lead()
    world.plan(1)
    for number in range(30):
        attempt = TransactionAttempt(1, number, 1)
        world.process(attempt)
        error = FailedException("odd")
        world.board.on_change(BatchFailed(attempt, "counted", error, None, number + 1, 0.0))

    (row,) = world.board.txids()
    assert [each["attempt"] for each in row["attempts"]] == [0, *range(11, 30)]
    assert len(world.board.failures()) == 30
    assert world.board.failures(last=2)[0]["attempt"] == 28


def test_what_is_kept_is_bounded_however_many_txids_pass() -> None:
    world = World()
    world.lead()
    for txid in range(1, 3_001):
        world.clock.now_s += 10.0
        world.whole(txid)
        error = FailedException("odd")
        world.board.on_change(
            BatchFailed(TransactionAttempt(txid + 1, 0, 1), "counted", error, None, 1, 0.0)
        )

    assert world.board.counters["failures_in_a_row"] == 1
    assert [row["txid"] for row in world.board.txids(last=10**6)] == [*range(2002, 3002)]
    assert [row["txid"] for row in world.board.txids(last=2)] == [3000, 3001]
    assert len(world.board.failures()) == 100
    assert len(world.board.history()) == 360
    assert len(json.dumps(world.board.txids())) < 1_000_000


def test_more_txids_may_be_in_flight_than_rows_are_kept() -> None:
    world = World()
    world.lead()
    for txid in range(1, 1_501):
        world.plan(txid)
    world.process(TransactionAttempt(1, 0, 1))
    world.commit(TransactionAttempt(1, 0, 1))

    assert world.board.figures()["phases"] == {"PLANNED": 1_499}
    assert world.board.txids()[-1]["txid"] == 1_500
    assert world.board.histograms["plan"].sum_s == 0.5


def test_ten_thousand_partitions_are_counted_and_the_hundred_furthest_behind_are_shown() -> None:
    world = World()
    world.lead()
    world.plan(1)
    world.process(TransactionAttempt(1, 0, 1))
    lag = {f"words:{number}": number for number in range(10_000)}
    world.commit(TransactionAttempt(1, 0, 1), lag=lag, lost={"words:9999": "offsets 3 to 7"})

    figures = world.board.figures()
    assert figures["lag_records"] == sum(range(10_000))
    assert figures["partitions_total"] == 10_000
    assert len(figures["partitions"]) == 100
    assert figures["partitions"][0] == {
        "partition": "words:9999",
        "lag_records": 9999,
        "lost": "offsets 3 to 7",
    }
    assert len(json.dumps(figures)) < 20_000


def test_files_and_bytes_are_not_added_up_as_records() -> None:
    world = World()
    world.lead()
    world.process(TransactionAttempt(1, 0, 1))
    world.commit(TransactionAttempt(1, 0, 1), lag={"files": 3, "bytes": 5_000_000})

    assert world.board.figures()["lag_records"] is None
    assert world.board.figures()["partitions_total"] == 2


def test_rates_are_those_of_the_last_seconds_and_fall_to_zero_at_rest() -> None:
    world = World()
    world.lead()
    for txid in range(1, 41):
        world.clock.now_s += 1.0
        world.whole(txid, rows=100 if txid > 20 else 5)

    components = {each["component"]: each for each in world.board.figures()["components"]}
    assert world.board.summary()["rows_per_second"] == 100.0
    assert components["spout"]["tuples_total"] == 2100
    assert components["spout"]["tuples_per_second"] == 100.0

    world.clock.now_s += 60.0
    assert world.board.summary()["rows_per_second"] == 0.0
    assert {each["tuples_per_second"] for each in world.board.figures()["components"]} == {0.0}


def test_the_history_has_one_sample_each_ten_seconds_also_at_rest() -> None:
    world = World()
    world.lead()
    for txid in range(1, 16):
        world.clock.now_s += 1.0
        world.whole(txid, rows=100)
    world.clock.now_s += 20.0

    first, second, third = world.board.history()
    assert (first["at_s"], first["txids"], first["rows_per_second"]) == (1010.0, 9, 90.0)
    assert (second["txids"], third["txids"], third["rows_per_second"]) == (6, 0, 0.0)
    assert first["commit_p99_s"] == 0.25
    assert third["commit_p99_s"] is None
    assert {"plan_p50_s", "process_p50_s", "wait_p50_s", "lag_records"} < first.keys()


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_does_no_harm(jump_s: float) -> None:
    world = World()
    world.lead()
    world.whole(1)
    world.clock.now_s += jump_s
    world.whole(2)
    world.clock.now_s += 15.0
    world.whole(3)

    assert len(world.board.history()) <= 3
    assert world.board.figures()["txid"] == 3
    assert world.board.summary()["rows_per_second"] >= 0.0
    waited = world.board.histograms["wait"]
    assert sum(waited.counts) == 3
    assert waited.sum_s >= 0.0


def test_changes_are_only_what_changed_since_the_version_that_is_asked_for() -> None:
    world = World()
    world.lead()
    world.whole(1)
    all = world.board.changes(0)

    assert [row["txid"] for row in all["txids"]] == [1]
    assert all["figures"]["txid"] == 1

    none = world.board.changes(all["version"])
    assert (none["figures"], none["txids"], none["failures"]) == (None, [], [])

    world.whole(2)
    error = FailedException("odd")
    world.board.on_change(
        BatchFailed(TransactionAttempt(3, 0, 1), "counted", error, "total", 1, 0.5)
    )
    some = world.board.changes(none["version"])
    assert [row["txid"] for row in some["txids"]] == [2, 3]
    assert [row["txid"] for row in some["failures"]] == [3]
    assert some["figures"]["txid"] == 2


@pytest.mark.parametrize("since", [-1, 10**9])
def test_a_version_that_this_board_never_gave_is_answered_with_all(since: int) -> None:
    world = World()
    world.lead()
    world.whole(1)

    assert [row["txid"] for row in world.board.changes(since)["txids"]] == [1]


def test_a_status_that_changes_without_an_event_is_a_change() -> None:
    world = World()
    world.lead()
    before = world.board.changes(0)["version"]
    world.board.attach(lambda: "deactivated")

    figures = world.board.changes(before)["figures"]
    assert figures is not None
    assert figures["status"] == "deactivated"


def test_a_rate_that_falls_to_zero_is_a_change() -> None:
    world = World()
    world.lead()
    world.clock.now_s += 1.0
    world.whole(1)
    before = world.board.changes(0)["version"]
    world.clock.now_s += 60.0

    figures = world.board.changes(before)["figures"]
    assert figures is not None
    assert figures["rows_per_second"] == 0.0


def test_failed_trees_and_errors_of_one_kind_are_one_row_a_second() -> None:
    world = World()
    for _ in range(500):
        world.board.on_change(TreesFailed("words", 0, ("a", "b"), "timed out"))
        world.board.on_change(ErrorReported("count", 1, ValueError("odd")))
    before = world.board.changes(0)["version"]
    world.clock.now_s += 1.0
    world.board.on_change(TreesFailed("words", 0, ("c",), "timed out"))

    trees, errors, later = world.board.failures()
    assert (trees["kind"], trees["failures"], trees["task"]) == ("trees timed out", 1000, 0)
    assert (errors["kind"], errors["failures"]) == ("reported ValueError", 500)
    assert errors["cause"] == "ValueError: odd"
    assert (later["failures"], later["txid"]) == (1, None)
    assert world.board.changes(before)["failures"] == [later]
    assert world.board.figures()["failures_total"] == 1501


def test_an_at_least_once_topology_has_trees_and_no_txids() -> None:
    world = World()
    progress = ReliableProgress(
        timestamp_s=1.0,
        emitted=500,
        acked=90,
        failed=4,
        timed_out=3,
        replays=2,
        pending=1,
        backlog=5,
        slots_lost=1,
        acked_per_second=9.0,
        latency_p50_s=0.1,
        latency_p99_s=0.2,
        executed={"count": 95},
        emitted_by={"words": 500, "count": 95},
        acked_by={"count": 90},
        failed_by={"count": 4},
        trees_lost=7,
        ackers=[AckerProgress(0, 0, 1, 90, 4, 3)],
    )
    world.board.on_change(Progressed(progress))
    world.clock.now_s += 15.0

    figures = world.board.figures()
    assert figures["trees"] == {
        "pending": 1,
        "acked": 90,
        "failed": 4,
        "timed_out": 3,
        "replays": 2,
        "backlog": 5,
        "acked_per_second": 9.0,
        "latency_p50_s": 0.1,
        "latency_p99_s": 0.2,
        "slots_lost": 1,
        "trees_lost": 7,
        "ackers": [
            {"number": 0, "slot": 0, "trees": 1, "completed": 90, "failed": 4, "timed_out": 3}
        ],
        "bolts": [{"component": "count", "executed": 95, "emitted": 95, "acked": 90, "failed": 4}],
    }
    assert figures["rows_total"] == 500
    assert world.board.txids() == []
    (sample,) = world.board.history()
    assert (sample["acked_per_second"], sample["pending"]) == (9.0, 1)


def test_the_error_that_ended_a_run_is_the_last_failure() -> None:
    world = World()
    world.board.on_change(Stopped("totals", FailedException("odd")))

    assert world.board.failures()[-1]["kind"] == "ended"
    assert world.board.summary()["last_failure"]["cause"] == "FailedException: odd"


def test_the_board_shows_no_password() -> None:
    topology = topology_of(open_state("postgresql://me:secret@localhost/db?password=secret"))
    board = Board("totals", "transactional", topology.graph)

    assert "secret" not in json.dumps(board.figures())
    (state,) = board.figures()["states"]
    assert (state["state"], state["table"], state["kind"]) == ("total.totals", "totals", "opaque")


# ---------------------------------------------------------------- of real runs


class Gate(Shared):
    """Opens when the test says so."""

    def __init__(self) -> None:
        self.opened = threading.Event()


class Odd(Total):
    """Fails the batch of txid 5 once, when the gate opens."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def finish_batch(self) -> None:
        if self.attempt.txid == 5 and not self.attempt.attempt:
            self.gate.opened.wait(LIMIT_S)
            raise FailedException("odd")
        super().finish_batch()


def test_the_board_of_a_run_has_all_phases_of_each_txid() -> None:
    with running(topology_of(memory_state()), MemoryEnsemble(), group_txids_max=1) as run:
        run.process_all_available(LIMIT_S)
        wait_until(lambda: run.board.figures()["txid"] == 12, "the last commit is told")
        figures, rows = run.board.figures(), run.board.txids()

    assert [row["txid"] for row in rows] == [*range(1, 13)]
    for row in rows:
        (attempt,) = row["attempts"]
        times = [
            attempt[f"{phase}_at_s"]
            for phase in ("planned", "processing", "processed", "committing", "ended")
        ]
        assert None not in times
        assert times == sorted(times)
        assert attempt["phase"] == "committed"
        assert attempt["job"].startswith("txtopo:totals:1:")
        assert row["rows"] == 3
    assert figures["status"] == "running"
    assert figures["rows_total"] == 36
    assert figures["phases"] == {}
    histograms = run.board.histograms
    counts = {name: sum(each.counts) for name, each in histograms.items()}
    assert 12 <= counts.pop("zookeeper") <= 48
    parts = ("commit:total.totals", "component:total")
    assert counts == dict.fromkeys(("plan", "process", "wait", "commit", *parts), 12)
    counters = run.board.counters
    assert (counters["batches"], counters["terms"]) == (12, 1)
    assert counters["driver_bytes"] > 0
    assert all(histograms[part].sum_s > 0 for part in parts)
    assert sum(histograms[part].sum_s for part in parts) <= histograms["commit"].sum_s
    assert run.board.summary()["status"] == "stopped"


def test_a_run_tells_which_attempts_a_failure_took_with_it() -> None:
    gate, changes = Gate(), Changes()
    topology = topology_of(open_state("memory:", kind="opaque"), Odd(gate), opaque=True)
    settings = {"max_spout_pending": 4, "group_txids_max": 1}
    with running(topology, MemoryEnsemble(), changes, **settings) as run:
        wait_until(lambda: len(changes.of(BatchPlanned)) == 8, "5 to 8 are in flight")
        gate.opened.set()
        run.process_all_available(LIMIT_S)
        wait_until(lambda: run.board.figures()["txid"] == 12, "the last commit is told")

    (told,) = changes.of(BatchesAbandoned)
    assert str(told.failed) == "5:0@1"
    assert [each.txid for each in told.attempts] == [6, 7, 8]
    failed, later = (run.board.txids()[txid - 1]["attempts"] for txid in (5, 6))
    assert [each["phase"] for each in failed] == ["failed", "committed"]
    assert [each["phase"] for each in later] == ["abandoned", "committed"]
    assert later[0]["abandoned_with"] == 5
    assert run.board.figures()["phases"] == {}


def test_a_stop_abandons_what_is_in_flight() -> None:
    """The spout's lag blocks the first commit, so that others are in flight at the stop."""
    gate, changes = Gate(), Changes()

    def lag(metadata: Any) -> dict[str, int]:
        gate.opened.wait(LIMIT_S)
        return {}

    topology = ranges(memory_state(), lag=lag)
    alone = {"max_spout_pending": 4, "group_txids_max": 1}
    with running(topology, MemoryEnsemble(), changes, **alone) as run:
        changes.wait_for(CommitStarted)
        wait_until(lambda: len(changes.of(BatchPlanned)) == 4, "the window is full")
        run._driver.post(run._driver.stop)
        changes.wait_for(BatchesAbandoned)
        gate.opened.set()
        run.stop(LIMIT_S)

    (told,) = changes.of(BatchesAbandoned)
    assert told.failed is None
    assert {each.txid for each in told.attempts} == {2, 3, 4}
    assert run.board.figures()["txid"] == 1
    phases = [row["attempts"][-1]["phase"] for row in run.board.txids()]
    assert phases == ["committed", "abandoned", "abandoned", "abandoned"]


@pytest.mark.parametrize(
    ("told", "shown"),
    [({0: 3}, 3), ({"0": 2.0}, 2), ({"0": "many"}, None), ({"0": float("nan")}, None), (7, None)],
)
def test_a_lag_of_a_spout_that_is_none_does_not_spoil_the_board(told: Any, shown: Any) -> None:
    topology = ranges(memory_state(), lag=lambda metadata: told)
    with running(topology, MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)
        wait_until(lambda: run.board.figures()["txid"] == 12, "the last commit is told")

        assert run.board.summary()["lag_records"] == shown


def test_threads_read_the_board_while_its_run_goes_on() -> None:
    world, over, problems = World(), threading.Event(), []
    board = world.board
    world.lead()

    def read() -> None:
        since = 0
        try:
            while not over.is_set():
                changes = board.changes(since)
                since = changes["version"]
                txids = [row["txid"] for row in changes["txids"]]
                assert txids == sorted(txids)
                json.dumps([changes, board.figures(), board.history(), board.counters])
                assert sum(board.histograms["commit"].counts) <= board.counters["batches"]
        except BaseException as error:
            problems.append(error)
            raise

    readers = [threading.Thread(target=read) for _ in range(3)]
    for each in readers:
        each.start()
    for txid in range(1, 3_001):
        world.clock.now_s += 0.1
        world.whole(txid)
        error = FailedException("odd")
        world.board.on_change(
            BatchFailed(TransactionAttempt(txid + 1, 0, 1), "counted", error, None, 1, 0.0)
        )
    over.set()
    for each in readers:
        each.join(LIMIT_S)

    assert problems == []
    assert board.counters["batches"] == 3_000


def test_one_board_lives_across_restarts_of_a_run() -> None:
    class Away(Shared):
        left = 2

    class Asking(Total):
        away = Away()

        def finish_batch(self) -> None:
            if self.attempt.txid == 5 and self.away.left:
                self.away.left -= 1
                raise ConnectionError("the service is away")
            super().finish_batch()

    config = Config(carrier="local", zookeeper="memory", poll_interval_s=0.005)
    again = Restart(times=5, backoff_s=0.01)
    with topology_of(memory_state(), Asking()).start(None, config, restart=again) as run:
        run.process_all_available(LIMIT_S)
        wait_until(lambda: run.board.figures()["txid"] == 12, "the last commit is told")
        figures = run.board.figures()

    assert figures["restarts"] == 2
    assert figures["epoch"] == 3
    assert figures["rows_total"] == 36
    assert figures["status"] == "running"
    row = run.board.txids()[4]
    phases = [(each["epoch"], each["phase"]) for each in row["attempts"]]
    assert phases == [(1, "failed"), (2, "failed"), (3, "committed")]
    assert [each["kind"] for each in run.board.failures()].count("restarting") == 2


def test_an_at_least_once_run_has_a_board_too() -> None:
    class Forward(BasicBolt):
        output_fields = Fields("word string")

        def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
            collector.emit([tuple["word"]])

    builder = TopologyBuilder("words")
    builder.set_spout("words", MemorySpout([["a"], ["b"]], Fields("word string")))
    builder.set_bolt("forward", Forward()).shuffle_grouping("words")
    config = AtLeastOnceConfig(carrier="local", slots=1)
    with builder.build_topology().start(None, config) as run:
        run.process_all_available(LIMIT_S)

    figures = run.board.figures()
    assert figures["kind"] == "at-least-once"
    assert figures["trees"]["acked"] == 2
    assert [each["component"] for each in figures["components"]] == ["words", "forward"]
    assert figures["trees"]["bolts"][0]["executed"] == 2
    assert figures["status"] == "stopped"
    assert sum(run.board.histograms["ack"].counts) == 2
