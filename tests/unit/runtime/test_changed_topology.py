"""A topology that is another one than ran under its id before is told from ZooKeeper (row 55)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S
from tests.unit.runtime.loop_world import Total, expected, memory_state, running, stored
from txtopo import Config, Fields, Topology, TransactionalTopologyBuilder
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import ConfigError, ForeignStateError, TopologyChanged
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import State, open_state
from txtopo.topology.graph import fingerprint

ROWS = [[amount] for amount in range(36)]


def built(state: State, bolt: str = "total", table: str = "totals", tasks: int = 1) -> Topology:
    spout = MemoryTransactionalSpout({0: ROWS}, Fields("amount long"), 3)
    builder = TransactionalTopologyBuilder("totals", "spout", spout, tasks)
    declarer = builder.set_bolt(bolt, Total())
    declarer.global_grouping("spout").with_state("totals", state.named(table))
    return builder.build_topology()


@pytest.mark.parametrize("changed", [("sum", "totals"), ("total", "sums")])
@pytest.mark.row(55)
def test_another_bolt_or_table_is_an_error_before_anything_is_written(
    changed: tuple[str, str],
) -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    with running(built(state), ensemble) as run:
        run.process_all_available(LIMIT_S)
    before = dict(ensemble.nodes)

    with (
        running(built(state, *changed), ensemble) as run,
        pytest.raises(
            TopologyChanged, match=r"is gone; .* is new|was opaque table 'totals'"
        ) as caught,
    ):
        run.process_all_available(LIMIT_S)
    assert caught.value.changes
    assert ensemble.nodes == before


@pytest.mark.row(55)
def test_a_change_that_is_meant_is_taken_once_and_remembered() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    with running(built(state), ensemble) as run:
        run.process_all_available(LIMIT_S)

    with running(built(state, bolt="sum"), ensemble, allow_change=True) as run:
        run.process_all_available(LIMIT_S)
    with running(built(state, bolt="sum"), ensemble) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (12, expected())


def test_only_what_is_named_may_change() -> None:
    """Who allows another column by a habit does not lose a state by a typing error."""
    state, ensemble = memory_state(), MemoryEnsemble()
    with running(built(state), ensemble) as run:
        run.process_all_available(LIMIT_S)
    before = dict(ensemble.nodes)

    renamed = built(state, bolt="sum")
    for allowed in (["columns", "source"], ["components"], ["states", "columns"]):
        with (
            running(renamed, ensemble, allow_change=allowed) as run,
            pytest.raises(
                TopologyChanged, match=re.escape("Config(allow_change=['components', 'states'])")
            ),
        ):
            run.process_all_available(LIMIT_S)
        assert ensemble.nodes == before

    with running(renamed, ensemble, allow_change={"components", "states"}) as run:
        run.process_all_available(LIMIT_S)
    assert stored(state) == (12, expected())


@pytest.mark.parametrize("changes", ["states", [], {"colour"}, 1, None])
def test_a_change_that_cannot_be_named_is_refused(changes: Any) -> None:
    with pytest.raises(ConfigError, match=r"allow_change cannot be used; .* such as \{'states'"):
        Config(allow_change=changes)


def test_a_renamed_component_takes_its_state_over_and_its_old_name_is_refused() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    with running(built(state), ensemble) as run:
        run.process_all_available(LIMIT_S)

    with running(built(state, bolt="sum"), ensemble, allow_change=True) as run:
        run.process_all_available(LIMIT_S)
    with state.named("totals").reader() as reader:
        assert reader.ledger is not None
        assert (reader.ledger.component, reader.ledger.state) == ("sum", "totals")


def test_names_of_components_may_go_round() -> None:
    """Two states whose components take each other's names; the ledgers name the former ones."""
    states, ensemble = [memory_state(), memory_state()], MemoryEnsemble()

    def of(first: str, second: str) -> Topology:
        spout = MemoryTransactionalSpout({0: ROWS}, Fields("amount long"), 3)
        builder = TransactionalTopologyBuilder("two", "spout", spout)
        for bolt, state in zip((first, second), states, strict=True):
            declarer = builder.set_bolt(bolt, Total()).global_grouping("spout")
            declarer.with_state("totals", state.named("totals"))
        return builder.build_topology()

    for names in (("one", "two"), ("two", "one"), ("two", "three"), ("one", "two")):
        with running(of(*names), ensemble, allow_change=True) as run:
            run.process_all_available(LIMIT_S)
    assert [stored(state) for state in states] == [(12, expected())] * 2


def test_a_state_is_not_taken_from_a_component_that_is_still_there(tmp_path: Path) -> None:
    """Also with allow_change: both would write to one table, and each take the other for itself."""
    urls = (f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/a.db?timeout=7")
    for settings in ({}, {"allow_change": True}):
        builder = TransactionalTopologyBuilder(
            "two", "spout", MemoryTransactionalSpout({0: ROWS}, Fields("amount long"), 3)
        )
        for bolt, url in zip(("one", "other"), urls, strict=True):
            declarer = builder.set_bolt(bolt, Total()).global_grouping("spout")
            declarer.with_state("totals", open_state(url, value=Fields("total long"), table="t"))
        ensemble = MemoryEnsemble()
        with (
            running(builder.build_topology(), ensemble, **settings) as run,
            pytest.raises(ForeignStateError, match=r"component 'other'.*component 'one'"),
        ):
            run.process_all_available(LIMIT_S)
        assert not [path for path in ensemble.nodes if "/batches/" in path], "a batch was planned"


def test_more_tasks_are_no_other_topology() -> None:
    state = memory_state()

    assert fingerprint(built(state).graph) == fingerprint(built(state, tasks=4).graph)


@pytest.mark.parametrize("setting", [{"history_txids": -1}, {"history_txids": True}])
def test_a_history_that_cannot_be_is_refused(setting: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="history_txids"):
        Config(**setting)  # type: ignore[arg-type]
