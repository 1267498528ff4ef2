"""The stamp that a batch got when it was planned is the same in every attempt at it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.dying import RaisingScheduler
from tests.harness.metadata import of_one
from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, on, started
from tests.harness.sources import Source
from tests.unit.runtime.stamping import (
    ONE_BY_ONE,
    SPOUTS,
    Stamp,
    Stamps,
    stamped,
    stamps_in,
    stored_stamps,
)
from txtopo import (
    BasicBolt,
    TaskContext,
    Topology,
    TopologyBuilder,
    TransactionalTopologyBuilder,
)
from txtopo.config import Carrier
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.ensemble.nodes import metadata_from_json, metadata_to_json
from txtopo.errors import (
    ConfigError,
    EmitError,
    InfrastructureError,
    SourceDataLost,
    TopologyChanged,
    TopologyError,
    TxtopoError,
)
from txtopo.metadata import NOT_BEGUN, BatchMetadata, Json, SpoutShare
from txtopo.runtime.stamp_planner import StampPlanner
from txtopo.runtime.start import start_topology
from txtopo.spouts import (
    DataFrameTransactionalSpout,
    MemorySpout,
    MemoryTransactionalSpout,
    StreamSpout,
)
from txtopo.state import open_state
from txtopo.traits import Traits
from txtopo.tuples import Fields, Tuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("kind", SPOUTS)
def test_every_task_in_both_phases_is_told_when_the_batch_was_planned(kind: str) -> None:
    state, ensemble = open_state("memory:"), MemoryEnsemble()
    begun = datetime.now(UTC) - timedelta(milliseconds=1)

    with started(stamped(state, Source("numbers", 8), kind=kind), ONE_BY_ONE, ensemble) as run:
        run.process_all_available(LIMIT_S)

    stamps = stamps_in(state)
    assert [*stamps] == [1, 2, 3, 4]
    assert sorted(stamps.values()) == [*stamps.values()]
    assert begun <= stamps[1] <= stamps[4] <= datetime.now(UTC)
    told = {txid: stamp.timestamp() * 1000 for txid, stamp in stamps.items()}
    assert {txid: stamp["time"] for txid, stamp in stored_stamps(ensemble).items()}.items() <= (
        told.items()
    )


def test_several_spouts_share_the_stamp_of_their_txid() -> None:
    state, ensemble = open_state("memory:"), MemoryEnsemble()

    with started(stamped(state, Source("a", 4), Source("b", 2)), ONE_BY_ONE, ensemble) as run:
        run.process_all_available(LIMIT_S)

    assert len(stamps_in(state)) == 2
    (node,) = [
        e[0] for path, e in ensemble.nodes.items() if path.endswith("/batches/" + "2".zfill(20))
    ]
    assert [*json.loads(node)["value"]["metadata"]] == ["spouts", "stamp"]


@pytest.mark.parametrize("kind", SPOUTS)
@pytest.mark.parametrize("step", ["store-metadata.after", "turn.after", "advance.before"])
@pytest.mark.rule("txtopo.runtime.stamp_planner", "Rules", 3)
def test_a_batch_that_is_done_again_after_a_crash_has_the_time_of_its_plan(
    kind: str, step: str
) -> None:
    state, ensemble, source = open_state("memory:"), MemoryEnsemble(), Source("numbers", 6)
    scheduler = RaisingScheduler(step, 2)
    topology = stamped(state, source, kind=kind)
    run = start_topology(topology.graph, None, ONE_BY_ONE, scheduler=scheduler, ensemble=ensemble)
    with pytest.raises((TxtopoError, RuntimeError), match="Died"):
        run.await_termination(LIMIT_S)
    planned = stored_stamps(ensemble)

    with started(topology, ONE_BY_ONE, ensemble) as run:
        run.process_all_available(LIMIT_S)

    told = {txid: stamp.timestamp() * 1000 for txid, stamp in stamps_in(state).items()}
    assert planned
    assert {txid: stamp["time"] for txid, stamp in planned.items()}.items() <= told.items()


@pytest.mark.spark
@pytest.mark.parametrize("carrier", ["rdd", "resident", "dataframe"])
def test_the_carriers_of_spark_bring_the_time_along(
    carrier: Carrier, spark: SparkSession, tmp_path: Path
) -> None:
    rows = [[number] for number in range(40)]
    spout = MemoryTransactionalSpout({0: rows[:20], 1: rows[20:]}, Fields("number long"), 5)
    builder = TransactionalTopologyBuilder("stamps", "numbers", spout, 2)
    builder.set_bolt("stamp", Stamp(), 2).shuffle_grouping("numbers")
    state = open_state(f"sqlite:///{tmp_path}/stamps.db", table="stamps")
    columns = state.with_columns(Fields("number long"), Fields("planned_time timestamp"))
    stamps = builder.set_bolt("stamps", Stamps()).global_grouping("stamp")
    stamps.with_state("stamps", columns)

    with started(
        builder.build_topology(), on(carrier, LOCAL), MemoryEnsemble(), spark=spark
    ) as run:
        run.process_all_available(LIMIT_S)

    assert [*stamps_in(state)] == [1, 2, 3, 4]


class Clocks:
    """Two clocks that a test sets."""

    def __init__(self, wall_s: float = 1000.0) -> None:
        self.wall_s, self.now_s = wall_s, 0.0

    def now(self) -> float:
        return self.now_s

    def wall_clock(self) -> float:
        return self.wall_s


class Table:
    """A table whose newest version a test sets."""

    refresh_s = 10.0
    client_modules = ()
    connects_to = ()

    def __init__(self, newest: Json = 1) -> None:
        self.version, self.looks, self.away = newest, 0, False
        self.error: type[TxtopoError] = InfrastructureError

    def check(self) -> None:
        """Say nothing: it is there."""

    def knows(self, version: Json) -> bool:
        return version != "another source's"

    def newest(self, held: Json, time_ms: int) -> Json:
        assert held is None or self.knows(held)
        self.looks += 1
        if self.away:
            raise self.error("the table cannot be reached")
        return self.version


class Joining(Stamp):
    """A bolt that joins a table."""

    table = Table()

    @property
    def traits(self) -> Traits:
        return replace(super().traits, lookups={"shops": self.table})


def looking(table: Table) -> Topology:
    """Return a topology with a bolt that joins a table."""
    stamp = Joining()
    stamp.table = table
    spout = MemoryTransactionalSpout({0: [[1]]}, Fields("number long"), 1)
    builder = TransactionalTopologyBuilder("looks", "numbers", spout)
    builder.set_bolt("stamp", stamp).shuffle_grouping("numbers")
    with pytest.warns(match="no committer"):
        return builder.build_topology()


def planner(table: Table, clocks: Clocks) -> StampPlanner:
    graph = looking(table).graph
    graph.components["stamp"].prototype.table = table  # type: ignore[attr-defined]
    return StampPlanner(graph, clocks)


@pytest.mark.rule("txtopo.runtime.stamp_planner", "Rules", 1)
def test_the_time_of_a_txid_is_never_before_that_of_the_txid_before() -> None:
    clocks = Clocks()
    first = planner(Table(), clocks).planned(1, None)
    clocks.wall_s -= 100

    second = planner(Table(), clocks).planned(2, BatchMetadata(stamp=first))

    assert first == {"time": 1_000_000, "tables": {"shops": 1}}
    assert second == first


@pytest.mark.rule("txtopo.runtime.stamp_planner", "Rules", 1)
def test_planned_time_that_stands_still_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks()
    plans = planner(Table(), clocks)
    first = BatchMetadata(stamp=plans.planned(1, None))

    for clocks.wall_s in (1000.0, 996.0, 900.0, 901.0, 1001.0, 800.0):
        plans.planned(2, first)

    text = "until the clock of this driver catches up, which is "
    assert [each.partition(text)[2][:7] for each in caplog.messages] == ["100.0 s", "200.0 s"]


def test_a_run_whose_clock_jumps_plans_without_it_and_says_so() -> None:
    class Jumping(RaisingScheduler):
        ahead_s = 0.0

        def wall_clock(self) -> float:
            return super().wall_clock() + self.ahead_s

    source, ensemble, scheduler = Source("numbers", 8), MemoryEnsemble(), Jumping("never")
    begun = datetime.now(UTC) - timedelta(milliseconds=1)
    run = start_topology(
        stamped(open_state("memory:"), source).graph,
        None,
        ONE_BY_ONE,
        scheduler=scheduler,
        ensemble=ensemble,
    )
    with run:
        run.process_all_available(LIMIT_S)
        scheduler.ahead_s = 86_400.0
        source.rows = 12
        run.process_all_available(LIMIT_S)
        assert "went ahead by 86400 s" in run.board.figures()["pace"]["held_back"]["(clock)"]

    ahead_ms = [
        each["latest"] - each["time"]
        for each in stored_stamps(ensemble).values()
        if "latest" in each
    ]
    assert ahead_ms
    assert ahead_ms == pytest.approx([86_400_000] * len(ahead_ms), abs=1)
    times = [stamp["time"] / 1000 for stamp in stored_stamps(ensemble).values()]
    assert begun.timestamp() <= min(times) <= max(times) <= datetime.now(UTC).timestamp()


def test_a_driver_that_begins_with_a_clock_ahead_plans_by_that_of_the_ensemble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ahead(RaisingScheduler):
        def wall_clock(self) -> float:
            return super().wall_clock() + 86_400

    begun_s = time.time()
    monkeypatch.setattr(MemoryTransactionalState, "written_s", lambda *_: time.time())
    ensemble, topology = MemoryEnsemble(), stamped(open_state("memory:"), Source("numbers", 8))
    with start_topology(
        topology.graph, None, ONE_BY_ONE, scheduler=Ahead("never"), ensemble=ensemble
    ) as run:
        run.process_all_available(LIMIT_S)

    times = [stamp["time"] / 1000 for stamp in stored_stamps(ensemble).values()]
    assert begun_s - 1 <= min(times) <= max(times) <= time.time() + 60


@pytest.mark.rule("txtopo.runtime.stamp_planner", "Rules", 2)
def test_a_newer_version_is_looked_for_after_the_refresh_only() -> None:
    clocks, table = Clocks(), Table(1)
    plans = planner(table, clocks)
    first = BatchMetadata(stamp=plans.planned(1, None))
    table.version = 2

    clocks.now_s = 9.9
    assert plans.planned(2, first) == first.stamp
    clocks.now_s = 10.0
    assert plans.planned(3, first) == {"time": 1_000_000, "tables": {"shops": 2}}
    assert table.looks == 2


@pytest.mark.parametrize("error", [InfrastructureError, ConfigError, EmitError, SourceDataLost])
@pytest.mark.rule("txtopo.runtime.stamp_planner", "Rules", 2)
def test_a_table_that_cannot_be_used_keeps_its_version_and_one_without_a_version_is_an_error(
    error: type[TxtopoError], caplog: pytest.LogCaptureFixture
) -> None:
    clocks, table = Clocks(), Table(1)
    table.error = error
    plans = planner(table, clocks)
    first = BatchMetadata(stamp=plans.planned(1, None))
    table.away = True

    for clocks.now_s in (20.0, 40.0):
        assert plans.planned(2, first) == first.stamp
    text = "lookup 'shops' found no newer version that it can use, and keeps version 1 from txid 2"
    assert caplog.text.count(text) == 1
    with pytest.raises(error, match="cannot be reached"):
        planner(table, clocks).planned(1, None)


@pytest.mark.rule("txtopo.runtime.stamp_planner", "Rules", 3)
def test_batches_that_were_planned_without_a_stamp_get_them_at_a_takeover_and_no_others() -> None:
    clocks = Clocks()
    known: dict[str, Json] = {"time": 5_000_000, "tables": {"shops": 1}}
    stored = {
        3: of_one("committed"),
        4: of_one("known", stamp=known),
        5: of_one("a lookup was added", stamp={"time": 6_000_000}),
        6: of_one("planned before"),
    }

    completed = planner(Table(7), clocks).completed(stored, current=4)

    made: dict[str, Json] = {"time": 6_000_000, "tables": {"shops": 7}}
    stamps = {txid: each.stamp for txid, each in completed.items()}
    assert stamps == {3: None, 4: known, 5: made, 6: made}


@pytest.mark.rule("txtopo.runtime.stamp_planner", "Rules", 4)
def test_a_version_of_another_source_is_not_kept_and_is_refused_in_an_uncommitted_txid() -> None:
    clocks, table = Clocks(), Table(1)
    plans = planner(table, clocks)
    other = BatchMetadata(stamp={"time": 5, "tables": {"shops": "another source's"}})

    assert plans.planned(2, other) == {"time": 1_000_000, "tables": {"shops": 1}}
    assert plans.completed({1: other}, current=2) == {1: other}
    with pytest.raises(
        TopologyChanged, match=r"source of lookup 'shops' has changed, but txid 2 was .*quarantine"
    ):
        plans.completed({1: other, 2: other}, current=2)
    table.away = True
    with pytest.raises(InfrastructureError, match="cannot be reached"):
        planner(table, clocks).planned(2, other)


def test_a_topology_that_begins_to_ask_goes_on_with_what_was_planned_before() -> None:
    state, ensemble, source = open_state("memory:"), MemoryEnsemble(), Source("numbers", 4)
    plain = stamped(state, source)
    for each in plain.graph.components.values():
        each.prototype.needs_planned_time = False  # type: ignore[attr-defined]
    with started(plain, ONE_BY_ONE, ensemble) as run, pytest.raises(TopologyError, match="asks"):
        run.process_all_available(LIMIT_S)

    with started(stamped(state, source), ONE_BY_ONE, ensemble) as run:
        run.process_all_available(LIMIT_S)

    assert [*stamps_in(state)] == [1, 2]


@pytest.mark.parametrize(
    "metadata",
    [
        of_one(1, {"0": 2}, stamp={"time": 3}),
        of_one(1, pace={"rows_max": {"spout": [1]}}, stamp={"time": 3, "tables": {"shops": 4}}),
        BatchMetadata({"a": SpoutShare(1), "b": NOT_BEGUN}, stamp={"time": 3}),
    ],
)
def test_stamps_are_read_as_they_were_written(metadata: BatchMetadata) -> None:
    assert metadata_from_json(1, json.loads(json.dumps(metadata_to_json(metadata)))) == metadata


def test_stamps_of_another_form_are_refused() -> None:
    for stamp in ({}, {"time": "now"}, {"time": -1}, {"time": 1, "more": 2}, {"time": True}, 7):
        with pytest.raises(TxtopoError, match="cannot be read"):
            metadata_from_json(1, {"spouts": {}, "stamp": stamp})  # type: ignore[dict-item]


def test_a_batch_that_is_cut_again_keeps_its_stamp() -> None:
    assert of_one(1, {"0": 1}, stamp={"time": 3}).cut_again() == of_one(1, stamp={"time": 3})


def test_a_stream_spout_keeps_no_plan_so_it_can_give_no_time() -> None:
    builder = TransactionalTopologyBuilder("stamps", "stream", StreamSpout(Fields("number long")))
    builder.set_bolt("stamp", Stamp()).shuffle_grouping("stream")

    with pytest.raises(
        TopologyError, match=r"'stamp' asks for planned time, .* delivers its batches"
    ):
        builder.build_topology()


def test_plans_of_spark_keep_no_stamp_so_they_can_give_no_time() -> None:
    def nothing(*_: object) -> Any:
        raise AssertionError("nobody plans or reads")

    spout = DataFrameTransactionalSpout(nothing, nothing, Fields("number long"))
    builder = TransactionalTopologyBuilder("stamps", "frames", spout)
    builder.set_bolt("stamp", Stamp()).shuffle_grouping("frames")

    with pytest.raises(TopologyError, match=r"asks for planned time, .* plans of Spark"):
        builder.build_topology()


def test_a_topology_without_batches_has_no_planned_time() -> None:
    class Stamped(BasicBolt):
        needs_planned_time = True

        def execute(self, tuple: Tuple, collector: object) -> None:
            pass

    builder = TopologyBuilder("stamps")
    builder.set_spout("numbers", MemorySpout([[1]], Fields("number long")))
    builder.set_bolt("stamp", Stamped()).shuffle_grouping("numbers")

    with pytest.raises(TopologyError, match=r"asks for planned time, .* at-least-once topology"):
        builder.build_topology()


def test_a_task_that_did_not_ask_is_told_how_to() -> None:
    context = TaskContext("words", "count", 0, 1)

    with pytest.raises(TopologyError, match=r"needs_planned_time = True"):
        _ = context.planned_time
    with pytest.raises(TopologyError, match="expected a topology with lookups"):
        _ = context.versions
