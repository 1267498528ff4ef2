"""Several spouts in one txid: each counts once, whatever the others do."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from tests.harness.dying import RaisingScheduler
from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import LOCAL, Changes
from tests.harness.sources import Opaque, Partitioned, Ranges, Source
from tests.unit.runtime.loop_world import memory_state, running
from txtopo import Config, Pace, PersistentAggregate, Topology, TransactionalTopologyBuilder
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import TopologyChanged, TxtopoError
from txtopo.metadata import Json
from txtopo.runtime.progress import BatchCommitted, BatchFailed
from txtopo.runtime.start import start_topology
from txtopo.state import Count, State, Sum

KINDS: dict[str, type[Ranges] | type[Partitioned] | type[Opaque]] = {
    "ranges": Ranges,
    "partitioned": Partitioned,
    "opaque": Opaque,
}


def built(state: State, *sources: Source, tasks: int = 1) -> Topology:
    """Count the rows of each source, which is named for the kind of its spout."""
    first, *others = sources
    spout = KINDS[first.name](first)
    builder = TransactionalTopologyBuilder("numbers", first.name, spout, tasks)
    for number, other in enumerate(others, 2):
        builder.set_spout(other.name, KINDS[other.name](other), number)
    aggregates = {"rows": Count(), "sum": Sum("number")}
    declarer = builder.set_bolt("count", PersistentAggregate(state, "source", aggregates))
    for source in sources:
        declarer.fields_grouping(source.name, "source")
    return builder.build_topology()


def counted(state: State) -> dict[str, tuple[int, int]]:
    with state.named("count").reader() as reader:
        return {key: (row["rows"], row["sum"]) for key, row in reader.items()}


def all_of(*sources: Source) -> dict[str, tuple[int, int]]:
    return {each.name: (each.rows, sum(range(each.rows))) for each in sources if each.rows}


def stored(ensemble: MemoryEnsemble) -> dict[int, dict[str, Any]]:
    """Return the records of the stored batches, by txid."""
    paths = [path for path in ensemble.nodes if "/batches/" in path]
    return {int(path.rpartition("/")[2]): json.loads(ensemble.nodes[path][0]) for path in paths}


def of_three(rows: int = 9) -> tuple[Source, Source, Source]:
    return Source("ranges", rows), Source("partitioned", rows - 2, 3), Source("opaque", rows - 4, 1)


@pytest.mark.rule("txtopo.runtime.batch_planner", "Rules", 2)
def test_spouts_of_all_kinds_are_in_one_txid_each_with_its_own_parallelism() -> None:
    state, ensemble, changes = memory_state(), MemoryEnsemble(), Changes()
    sources = of_three()

    with running(built(state, *sources), ensemble, changes, slots=2) as run:
        run.process_all_available(LIMIT_S)
        lag = run.last_progress.lag if run.last_progress else {}

    assert counted(state) == all_of(*sources)
    first = changes.of(BatchCommitted)[0].progress
    assert first.tuples == {"ranges": 2, "partitioned": 3, "opaque": 1}
    assert first.rows == 6
    assert lag == {"ranges/all": 0, "partitioned/0": 0, "opaque/0": 0}


@pytest.mark.rule("txtopo.runtime.batch_planner", "Rules", 1)
def test_the_metadata_of_a_txid_is_one_node_with_a_share_of_each_spout() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    with running(built(state, *of_three(5)), ensemble) as run:
        run.process_all_available(LIMIT_S)

    (last,) = [each for txid, each in stored(ensemble).items() if txid == max(stored(ensemble))]
    assert last["value"]["metadata"] == {
        "spouts": {
            "ranges": {"planned": [4, 5]},
            "partitioned": {"absent": None, "cut": {"0": [0, 3]}},
            "opaque": {"absent": None, "cut": {"0": [0, 1]}},
        }
    }
    assert {spout: [*parts] for spout, parts in last["value"]["content"].items()} == {
        "ranges": ["0"]
    }


@pytest.mark.rule("txtopo.runtime.batch_planner", "Rules", 1, 2)
def test_a_spout_that_has_nothing_is_absent_and_goes_on_where_it_was() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    sources = of_three(6)
    with running(built(state, *sources), ensemble) as run:
        run.process_all_available(LIMIT_S)
        for source in sources:  # one after the other: each alone in its txids
            source.rows += 3
            run.process_all_available(LIMIT_S)

    assert counted(state) == all_of(*sources)


@pytest.mark.rule("txtopo.runtime.batch_planner", "Rules", 3)
def test_a_source_out_of_reach_is_absent_with_one_warning_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    sources = here, away = Source("ranges", 9, 1), Source("opaque", 4)
    away.away = True
    caplog.set_level(logging.INFO, "txtopo.runtime")

    with running(built(state, *sources), ensemble, changes := Changes()) as run:
        wait_until(lambda: changes.committed[-1:] == [here.rows], "the other continues")
        assert counted(state) == all_of(here)
        wait_until(lambda: away.asks > 3, "it is asked again")
        away.away = False
        run.process_all_available(LIMIT_S)

    assert counted(state) == all_of(*sources)
    told = [each for each in caplog.records if "'opaque'" in each.getMessage()]
    assert [each.levelname for each in told] == ["WARNING", "INFO"]
    assert "unreachable; batches" in told[0].getMessage()
    assert "opaque cannot be reached" in told[0].getMessage()
    assert vars(told[0])["component"] == "opaque"
    assert "is back" in told[1].getMessage()


@pytest.mark.rule("txtopo.runtime.batch_planner", "Rules", 3)
def test_nobody_takes_a_topology_for_idle_while_a_source_is_out_of_reach() -> None:
    sources = Source("ranges", 1), Source("opaque", 4)
    sources[1].away = True
    state = memory_state()

    with running(built(state, *sources), MemoryEnsemble()) as run:
        with pytest.raises(TimeoutError):
            run.process_all_available(0.5)
        sources[1].away = False
        run.process_all_available(LIMIT_S)

    assert counted(state) == all_of(*sources)


@pytest.mark.rule("txtopo.runtime.batch_planner", "Rules", 4)
def test_an_exception_while_planning_names_its_spout() -> None:
    source, bad = Source("ranges", 1), Source("opaque", 1)
    bad.batch_rows = "none"  # type: ignore[assignment]

    with (
        running(built(memory_state(), source, bad), MemoryEnsemble(), changes := Changes()) as run,
        pytest.raises(TypeError),
    ):
        run.process_all_available(LIMIT_S)

    assert {each.component for each in changes.of(BatchFailed)} == {"opaque"}


def test_each_emitter_is_told_of_the_commits_that_it_has_a_part_in() -> None:
    sources = ranges, partitioned, opaque = of_three(6)
    opaque.fails = True
    state, changes = memory_state(), Changes()

    with running(built(state, *sources), MemoryEnsemble(), changes) as run:
        run.process_all_available(LIMIT_S)

    assert counted(state) == all_of(*sources)
    assert {each.component for each in changes.of(BatchFailed)} == {"opaque"}
    assert ranges.told[-1] == (3, [4, 6])
    assert partitioned.told[-1] == (2, {"0": [3, 4]})
    assert opaque.told[-1] == (2, {"0": [1, 2]})
    # All of them, whether they had a part in it or not.
    assert ranges.cleaned[-1] == partitioned.cleaned[-1] == opaque.cleaned[-1]


STEPS = (
    "store-metadata.after",
    "process.after",
    "begin.after:count.count",
    "write.after:count.count",
)


@pytest.mark.parametrize("step", [*STEPS, "advance.after"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_driver_that_dies_anywhere_loses_and_doubles_nothing(step: str, times: int) -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    sources = of_three(12)
    config = Config(
        carrier="local",
        zookeeper="memory",
        slots=2,
        backoff_s=0.01,
        group_txids_max=2,
        max_spout_pending=3,
    )
    run = start_topology(
        built(state, *sources).graph,
        None,
        config,
        scheduler=RaisingScheduler(step, times),
        ensemble=ensemble,
    )
    with pytest.raises((TxtopoError, RuntimeError), match="Died"):
        run.await_termination(20)
    sources[2].batch_rows = 2  # an opaque replay may bring other rows

    with running(built(state, *sources), ensemble) as run:
        run.process_all_available(LIMIT_S)

    assert counted(state) == all_of(*sources)


@pytest.mark.rule("txtopo.runtime.batch_planner", "Rules", 6)
@pytest.mark.parametrize("step", [None, "plan.after", "advance.before"])
def test_several_spouts_share_a_pace_wherever_the_driver_dies(step: str | None) -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    sources = Source("ranges", 5), Source("partitioned", 5), Source("opaque", 5)
    pace = Pace(max_rows_per_second=200.0, target_commit_s=5.0)
    paced = replace(LOCAL, pace=pace)
    if step is not None:
        run = start_topology(
            built(state, *sources).graph,
            None,
            paced,
            scheduler=RaisingScheduler(step, 3),
            ensemble=ensemble,
        )
        with pytest.raises((TxtopoError, RuntimeError), match="Died"):
            run.await_termination(20)

    with running(built(state, *sources), ensemble, pace=pace) as run:
        run.process_all_available(LIMIT_S)

    assert counted(state) == all_of(*sources)


# ------------------------------------------------------------ spouts come and go


def test_a_further_spout_is_a_changed_topology_unless_the_change_is_meant() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    old, new = Source("partitioned", 5), Source("opaque", 5)
    with running(built(state, old), ensemble) as run:
        run.process_all_available(LIMIT_S)
    before = dict(ensemble.nodes)
    old.rows += 4

    with (
        running(built(state, new, old), ensemble) as run,
        pytest.raises(TopologyChanged, match="component 'opaque' is new"),
    ):
        run.process_all_available(LIMIT_S)
    assert ensemble.nodes == before

    # The new one stands first: what is stored is of the old one all the same.
    with running(built(state, new, old), ensemble, allow_change=True) as run:
        run.process_all_available(LIMIT_S)
    assert counted(state) == all_of(old, new)
    with running(built(state, new, old), ensemble) as run:
        old.rows, new.rows = old.rows + 1, new.rows + 1
        run.process_all_available(LIMIT_S)
    assert counted(state) == all_of(old, new)


@pytest.mark.parametrize("kind", ["ranges", "partitioned", "opaque"])
@pytest.mark.parametrize(
    "step", ["claim.after-epoch", "store-metadata.after", "write.after:count.count"]
)
def test_a_spout_that_is_added_begins_at_its_beginning_wherever_the_driver_dies(
    kind: str, step: str
) -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    old, new = Source(kind, 8), Source("opaque" if kind != "opaque" else "ranges", 5)
    config = Config(
        carrier="local",
        zookeeper="memory",
        max_spout_pending=3,
        group_txids_max=1,
        allow_change=True,
    )
    for scheduler, sources in (
        # It dies with batches in flight, so some of the old form are to be replayed.
        (RaisingScheduler("write.before:count.count", 2), (old,)),
        (RaisingScheduler(step), (old, new)),
    ):
        run = start_topology(
            built(state, *sources).graph, None, config, scheduler=scheduler, ensemble=ensemble
        )
        with pytest.raises((TxtopoError, RuntimeError), match="Died"):
            run.await_termination(20)

    with running(built(state, old, new), ensemble) as run:
        run.process_all_available(LIMIT_S)

    assert counted(state) == all_of(old, new)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_spout_that_is_taken_out_leaves_the_others_where_they_were(left: int) -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    sources = of_three(8)
    with running(built(state, *sources), ensemble) as run:
        run.process_all_available(LIMIT_S)

    for kept in ([each for at, each in enumerate(sources) if at != left], [sources[left - 1]]):
        for source in kept:
            source.rows += 3
        with (
            running(built(state, *kept), ensemble) as run,
            pytest.raises(TopologyChanged, match="is gone"),
        ):
            run.process_all_available(LIMIT_S)
        with running(built(state, *kept), ensemble, allow_change=True) as run:
            run.process_all_available(LIMIT_S)
    assert counted(state) == all_of(*sources)


def test_a_spout_that_stays_alone_is_absent_from_a_batch_that_was_planned_without_it() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    one, other = Source("ranges", 2), Source("opaque", 9, 1)
    config = Config(carrier="local", zookeeper="memory", max_spout_pending=3, group_txids_max=1)
    run = start_topology(
        built(state, one, other).graph,
        None,
        config,
        scheduler=RaisingScheduler("write.before:count.count", 3),
        ensemble=ensemble,
    )
    with pytest.raises((TxtopoError, RuntimeError), match="Died"):
        run.await_termination(20)
    planned = stored(ensemble)[3]["value"]["metadata"]["spouts"]
    assert planned["ranges"] == {"absent": [0, 2]}

    one.rows += 2
    with running(built(state, one), ensemble, changes := Changes(), allow_change=True) as run:
        run.process_all_available(LIMIT_S)
    committed = [each.progress for each in changes.of(BatchCommitted)]
    assert [(each.txid, each.rows) for each in committed if each.txid == 3] == [(3, 0)]
    assert counted(state)[one.name] == all_of(one)[one.name]


def test_a_spout_of_another_name_does_not_take_the_position_of_one_that_is_gone() -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    old, new, third = Source("ranges", 5), Source("opaque", 9), Source("partitioned", 5)
    with running(built(state, old), ensemble) as run:
        run.process_all_available(LIMIT_S)

    def refused(*sources: Source) -> None:
        before = dict(ensemble.nodes)
        with (
            running(built(state, *sources), ensemble, allow_change=True) as run,
            pytest.raises(TopologyChanged, match=r"'\w+' is gone and .* 'opaque' is new.*keep the"),
        ):
            run.process_all_available(LIMIT_S)
        assert ensemble.nodes == before

    refused(new)
    for sources in ((old, third), (third,)):
        third.rows += 1
        with running(built(state, *sources), ensemble, allow_change=True) as run:
            run.process_all_available(LIMIT_S)
    refused(new)
    assert counted(state) == all_of(old, third)


def test_the_position_of_a_spout_that_is_gone_is_not_taken_for_that_of_the_one_left() -> None:
    """The second spout was added by a leader that died before it planned a batch."""
    state, ensemble = memory_state(), MemoryEnsemble()
    old, new = Source("ranges", 3), Source("partitioned", 9)
    with running(built(state, old), ensemble) as run:
        run.process_all_available(LIMIT_S)
    config = Config(carrier="local", zookeeper="memory", allow_change=True)
    scheduler = RaisingScheduler("claim.after-epoch")
    run = start_topology(
        built(state, old, new).graph, None, config, scheduler=scheduler, ensemble=ensemble
    )
    with pytest.raises((TxtopoError, RuntimeError), match="Died"):
        run.await_termination(20)

    with running(built(state, new), ensemble, allow_change=True) as run:
        run.process_all_available(LIMIT_S)
    assert counted(state) == all_of(old, new)


@pytest.mark.parametrize("other", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_spout_of_another_kind_under_the_same_id_is_refused(kind: str, other: str) -> None:
    state, ensemble = memory_state(), MemoryEnsemble()
    source = Source("numbers", 5)

    def topology(spout: Any) -> Topology:
        builder = TransactionalTopologyBuilder("numbers", "numbers", spout)
        declarer = builder.set_bolt("count", PersistentAggregate(state, "source", {"n": Count()}))
        declarer.fields_grouping("numbers", "source")
        return builder.build_topology()

    with running(topology(KINDS[kind](source)), ensemble) as run:
        run.process_all_available(LIMIT_S)
    with running(topology(KINDS[other](source)), ensemble, allow_change=True) as run:
        if kind == other:
            run.process_all_available(LIMIT_S)
            return
        with pytest.raises(TopologyChanged, match=r"component 'numbers' was .* give the spout ano"):
            run.process_all_available(LIMIT_S)


@pytest.mark.parametrize("kind", KINDS)
def test_the_nodes_of_one_spout_have_the_form_of_several(kind: str) -> None:
    ensemble = MemoryEnsemble()
    with running(built(memory_state(), Source(kind, 2)), ensemble) as run:
        run.process_all_available(LIMIT_S)

    (record,) = stored(ensemble).values()
    (data,) = [ensemble.nodes[path][0] for path in ensemble.nodes if "/batches/" in path]
    share: dict[str, Json] = {"planned": 1, "cut": {"0": [0, 2]}}
    value: dict[str, Json] = {
        "attempt": record["value"]["attempt"],
        "metadata": {"spouts": {kind: {"planned": [0, 2]} if kind == "ranges" else share}},
    }
    if kind != "opaque":
        value["content"] = {kind: {"0": [2, record["value"]["content"][kind]["0"][1]]}}
    expected = {"schema": 1, "write": record["write"], "value": value}
    assert data == json.dumps(expected, separators=(",", ":")).encode()
    (epoch,) = [json.loads(e[0]) for path, e in ensemble.nodes.items() if path.endswith("/epoch")]
    assert epoch["schema"] == 1
    assert {*epoch["value"]} == {*("epoch", "term", "terms", "leader", "ensemble", "topology")}
