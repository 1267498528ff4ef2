"""Watching: what a start asks of the watcher of a run, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.runtime.loop_world import memory_state, topology_of
from txtopo import (
    AtLeastOnceConfig,
    Config,
    TopologyBuilder,
    TopologyEvent,
    TopologyListener,
    ZooKeeper,
)
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import CoordinatorUnavailable
from txtopo.runtime import watching
from txtopo.runtime.handle import RunHandle
from txtopo.runtime.watching import WATCHERS, RunKind
from txtopo.spouts import MemorySpout
from txtopo.topology.graph import Graph
from txtopo.tuples import Fields
from txtopo.ui.run_watcher import RunWatcher

MEMORY = Config(carrier="local", zookeeper="memory")


class Ear(TopologyListener):
    """Notes a name at each change."""

    def __init__(self, name: str, heard: list[tuple[str, str]]) -> None:
        self.name, self.heard = name, heard

    def on_change(self, change: TopologyEvent) -> None:
        self.heard.append((self.name, type(change).__name__))


class NotingWatcher(RunWatcher):
    """Notes what it is asked."""

    def __init__(self, graph: Graph, kind: RunKind, clock: Any, config: Config | None) -> None:
        super().__init__(graph, kind, clock, config)
        self.kind = kind
        self.calls: list[str] = []
        self.heard: list[tuple[str, str]] = []

    def all_listeners(self, listeners: Sequence[TopologyListener]) -> list[TopologyListener]:
        self.calls.append("around")
        return [
            Ear("first", self.heard),
            *super().all_listeners(listeners),
            Ear("last", self.heard),
        ]

    def attach(self, run: watching.WatchedRun) -> None:
        self.calls.append(f"attach to what is {run.status}")
        super().attach(run)

    def begin(self, run: RunHandle[Any], ensemble: MemoryEnsemble | None) -> None:
        self.calls.append(f"begin, {'no' if ensemble is None else 'an'} ensemble")
        super().begin(run, ensemble)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.calls.append(f"exit with {type(error).__name__}")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[NotingWatcher]:
    """The watchers of the runs of a test."""
    watchers: list[NotingWatcher] = []

    def make(
        graph: Graph, kind: RunKind, clock: Callable[[], float], config: Config | None
    ) -> NotingWatcher:
        watchers.append(NotingWatcher(graph, kind, clock, config))
        return watchers[-1]

    monkeypatch.setattr(WATCHERS, "get", lambda: make)
    return watchers


def test_a_start_asks_its_watcher_once_and_in_order(made: list[NotingWatcher]) -> None:
    with topology_of(memory_state()).start(config=MEMORY) as run:
        run.process_all_available(120)

    [watcher] = made
    assert watcher.kind == "transactional"
    assert run.board is watcher.figures
    assert watcher.calls == [
        "around",
        "attach to what is starting",
        "begin, an ensemble",
        "exit with NoneType",
    ]


def test_listeners_of_a_user_are_told_between_those_of_the_watcher(
    made: list[NotingWatcher],
) -> None:
    topology = topology_of(memory_state())
    own = Ear("own", [])
    with topology.start(config=MEMORY, listeners=[own]) as run:
        own.heard = made[0].heard
        run.process_all_available(120)

    names = [name for name, change in made[0].heard if change == "Stopped"]
    assert names == ["first", "own", "last"]


def test_an_at_least_once_topology_has_a_watcher_too(made: list[NotingWatcher]) -> None:
    builder = TopologyBuilder("clicks")
    builder.set_spout("clicks", MemorySpout([["a"]], Fields("word string")))
    with builder.build_topology().start(config=AtLeastOnceConfig(carrier="local")) as run:
        run.process_all_available(120)

    assert made[0].kind == "at-least-once"
    assert made[0].calls[-2:] == ["begin, no ensemble", "exit with NoneType"]


def test_a_watcher_is_told_that_the_start_has_failed(made: list[NotingWatcher]) -> None:
    away = ZooKeeper("127.0.0.1:1", connect_timeout_s=0.01)

    with pytest.raises(CoordinatorUnavailable):
        topology_of(memory_state()).start(config=Config(carrier="local", zookeeper=away))

    assert made[0].calls == ["around", "exit with CoordinatorUnavailable"]
