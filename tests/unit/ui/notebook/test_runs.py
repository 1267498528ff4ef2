"""Runs and progresses as HTML, and watching a run outside of a notebook."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    BatchCommitted,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Topology,
    TopologyBuilder,
    TopologyEvent,
    TopologyListener,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.errors import StateUsageError
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout

WORD = Fields("word string")
CONFIG = Config(carrier="local", zookeeper="memory")
HOSTILE = "<script>alert(1)</script>"
WAIT_S = 120.0


class Pass(BasicBolt):
    """Fails at the word that is hostile."""

    output_fields = WORD

    def execute(self, tuple: Any, collector: Any) -> None:
        if tuple["word"] == HOSTILE:
            raise ValueError(HOSTILE)
        collector.emit([tuple["word"]])


def topology(*words: str) -> Topology:
    spout = MemoryTransactionalSpout({0: [[word] for word in words]}, WORD, 1)
    builder = TransactionalTopologyBuilder("<b>words</b>".replace("/", "|"), "spout", spout)
    builder.set_bolt("pass", Pass()).shuffle_grouping("spout")
    count = PersistentAggregate(open_state("memory:"), "word", Count())
    builder.set_bolt("count", count).fields_grouping("pass", "word")
    return builder.build_topology()


def test_a_run_shows_status_txids_and_latencies_before_during_and_after() -> None:
    run = topology("a", "b").start(config=CONFIG)
    first = run._repr_html_()
    run.process_all_available(WAIT_S)
    during = run._repr_html_()
    run.stop(WAIT_S)
    after = run._repr_html_()

    assert "starting" in first or "running" in first
    assert "running" in during
    assert "committed" in during
    assert "p99, ms" in during
    assert "stopped" in after
    assert "<b>words" not in after
    assert "&lt;b&gt;words" in after


def test_the_failure_that_ended_a_run_is_shown_as_text() -> None:
    run = topology("a", HOSTILE).start(config=CONFIG)
    run.watch(WAIT_S)
    shown = run._repr_html_()

    assert "failed" in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    with pytest.raises(ValueError, match="alert"):
        run.await_termination(WAIT_S)


def test_a_progress_shows_its_rows_and_the_tuples_of_each_component() -> None:
    with topology("a").start(config=CONFIG) as run:
        run.process_all_available(WAIT_S)
        assert run.last_progress is not None
        shown = run.last_progress._repr_html_()

    assert "txid 1 is committed" in shown
    assert "tuples of pass" in shown
    assert "lag of 0" in shown


def test_an_at_least_once_run_shows_its_trees() -> None:
    builder = TopologyBuilder("trees")
    builder.set_spout("spout", MemorySpout([["a"], ["b"]], WORD))
    builder.set_bolt("pass", Pass()).shuffle_grouping("spout")
    with builder.build_topology().start(config=AtLeastOnceConfig(carrier="local")) as run:
        run.process_all_available(WAIT_S)
        assert run.last_progress is not None
        for shown in (run._repr_html_(), run.last_progress._repr_html_()):
            assert "acked per second" in shown
            assert "pending" in shown


def test_watching_prints_lines_and_ends_with_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    started = threading.Event()

    class Stop(TopologyListener):
        def on_change(self, change: TopologyEvent) -> None:
            if isinstance(change, BatchCommitted) and change.progress.txid == 2:
                assert started.wait(WAIT_S)  # it may be told before start() returns
                run.stop()

    run = topology("a", "b").start(config=CONFIG, listeners=[Stop()])
    started.set()
    run.watch()

    lines = capsys.readouterr().out.splitlines()
    assert not run.is_active
    assert "stopped, txid 2, 2 rows" in lines[-1]


def test_watching_ends_when_the_time_is_up_and_leaves_the_run_alone() -> None:
    with topology("a").start(config=CONFIG) as run:
        run.process_all_available(WAIT_S)
        run.watch(0)
        assert run.is_active


def test_a_listener_cannot_wait_for_its_own_run_by_watching_it() -> None:
    refused: list[Exception] = []
    started = threading.Event()

    class Watch(TopologyListener):
        def on_change(self, change: TopologyEvent) -> None:
            if isinstance(change, BatchCommitted):
                assert started.wait(WAIT_S)
                try:
                    run.watch()
                except StateUsageError as error:
                    refused.append(error)

    run = topology("a").start(config=CONFIG, listeners=[Watch()])
    started.set()
    run.process_all_available(WAIT_S)
    run.stop(WAIT_S)

    assert "watch was called by a listener" in str(refused[0])
