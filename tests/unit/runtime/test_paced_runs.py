"""Runs of paced topologies, and what is refused before they start."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import create_engine, text

from tests.harness.metadata import with_cut
from tests.harness.polling import wait_until
from tests.harness.runs import WaitsForFile
from tests.unit.sources.data_sources import LinesSource, write
from txtopo import (
    BasicBolt,
    Config,
    Fields,
    Pace,
    Restart,
    TaskContext,
    Topology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
)
from txtopo.coordinator.protocol import Failed, NotReady, PlanBatch, Planned
from txtopo.errors import ConfigError, EmitError
from txtopo.plugins.spouts import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.runtime.progress import BatchCommitted, TopologyEvent, TopologyListener
from txtopo.spouts import (
    ClockTransactionalSpout,
    DataSourceSpout,
    DeltaTransactionalSpout,
    FilesTransactionalSpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    QueryTransactionalSpout,
)
from txtopo.ui.board import Board

NUMBER = Fields("n long")
LOCAL = Config(carrier="local", zookeeper="memory", poll_interval_s=0.01)
ROWS = [[n] for n in range(40)]


class Nothing(BasicBolt):
    def execute(self, tuple: Any, collector: Any) -> None:
        pass


def topology(spout: Any) -> Topology:
    builder = TransactionalTopologyBuilder("paced", "numbers", spout)
    builder.set_bolt("nothing", Nothing()).shuffle_grouping("numbers")
    return builder.build_topology()


class Commits(TopologyListener):
    def __init__(self) -> None:
        self.rows: list[int] = []
        self.times: list[float] = []
        self.paces: list[Any] = []

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted):
            self.rows.append(change.progress.rows)
            self.times.append(change.progress.timestamp_s)
            self.paces.append(change.progress.pace)


def run_all(spout: Any, config: Config) -> Commits:
    commits = Commits()
    with topology(spout).start(config=config, listeners=[commits]) as run:
        run.process_all_available()
    return commits


@pytest.mark.parametrize("kind", [MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout])
def test_a_rate_limits_each_batch_and_all_rows_are_read(kind: Any) -> None:
    spout = kind({0: ROWS, 1: [], 2: ROWS[:3]}, NUMBER, 100)
    commits = run_all(spout, replace(LOCAL, pace=Pace(max_rows_per_second=20)))

    assert sum(commits.rows) == 43
    assert max(commits.rows) <= 20
    assert any(pace["limited_by"] == "max_rows_per_second" for pace in commits.paces)


def test_waiting_for_all_that_is_available_waits_for_the_rate() -> None:
    """A spout that is held back is not one that has nothing."""
    spout = MemoryTransactionalSpout({0: ROWS}, NUMBER, 100)

    assert sum(run_all(spout, replace(LOCAL, pace=Pace(max_rows_per_second=100))).rows) == 40


def test_a_rest_below_the_minimum_is_read_after_the_delay() -> None:
    spout = MemoryTransactionalSpout({0: ROWS}, NUMBER, 15)
    commits = run_all(spout, replace(LOCAL, pace=Pace(min_batch_rows=15, max_batch_delay_s=0.1)))

    assert commits.rows == [15, 15, 10]


def test_a_target_runs_to_the_end() -> None:
    spout = MemoryTransactionalSpout({0: ROWS}, NUMBER, 7)

    assert sum(run_all(spout, replace(LOCAL, pace=Pace(target_commit_s=0.5))).rows) == 40


def test_the_board_says_what_limits_a_batch() -> None:
    spout = MemoryTransactionalSpout({0: ROWS}, NUMBER, 100)

    with topology(spout).start(config=replace(LOCAL, pace=Pace(max_rows_per_second=20))) as run:
        run.process_all_available()
        pace = run.board.figures()["pace"]
    assert pace["settings"] == {"max_rows_per_second": 20}
    assert pace["limited_by"] in (None, "max_rows_per_second")
    with topology(spout).start(config=LOCAL) as run:
        run.process_all_available()
        assert run.board.figures()["pace"] == {
            "limited_by": None,
            "rows_max": None,
            "settings": {},
            "window_txids": LOCAL.max_spout_pending,
            "window_full_at_s": None,
            "held_back": {},
        }


@pytest.mark.parametrize("restart", [None, Restart()])
def test_the_board_says_at_once_that_a_batch_is_held_back(restart: Restart | None) -> None:
    """No commit tells it: there is none before a minute is over."""
    spout = MemoryTransactionalSpout({0: ROWS}, NUMBER, 100)
    config = replace(LOCAL, pace=Pace(min_batch_rows=80, max_batch_delay_s=60.0))

    with topology(spout).start(config=config, restart=restart) as run:
        wait_until(lambda: (run.board.figures()["pace"] or {}).get("limited_by"), "it is held")
        version, pace = run.board.changes(0)["version"], run.board.figures()["pace"]
        assert run.board.changes(version)["figures"] is None

    assert (pace["limited_by"], pace["rows_max"]) == ("min_batch_rows", 0)
    assert pace["settings"] == {"min_batch_rows": 80, "max_batch_delay_s": 60.0}


def test_a_page_that_listens_is_told_that_a_batch_is_held_back() -> None:
    now: dict[str, Any] = {"limited_by": None}
    board = Board(
        "paced", "transactional", topology(MemoryTransactionalSpout({0: ROWS}, NUMBER, 1)).graph
    )
    board.attach(lambda: "running", lambda: dict(now))
    version = board.changes(0)["version"]
    assert board.changes(version)["figures"] is None

    now["limited_by"] = "min_batch_rows"

    assert board.changes(version)["figures"]["pace"] == {"limited_by": "min_batch_rows"}


def test_the_board_says_since_when_the_window_is_full(tmp_path: Path) -> None:
    go = tmp_path / "go"
    spout = MemoryTransactionalSpout({0: ROWS}, NUMBER, 10)
    builder = TransactionalTopologyBuilder("paced", "numbers", spout)
    builder.set_bolt("waits", WaitsForFile(go)).global_grouping("numbers")

    with builder.build_topology().start(config=replace(LOCAL, max_spout_pending=2)) as run:
        wait_until(lambda: run.board.figures()["pace"]["window_full_at_s"], "the window is full")
        figures = run.board.figures()
        assert figures["pace"]["window_txids"] == sum(figures["phases"].values()) == 2
        assert figures["pace"]["window_full_at_s"] >= figures["started_at_s"]
        assert run.board.figures()["pace"] == figures["pace"], "it counts from one moment"
        go.touch()
        run.process_all_available()
        assert run.board.figures()["pace"]["window_full_at_s"] is None


def test_without_a_pace_there_is_nothing_to_show() -> None:
    assert run_all(MemoryTransactionalSpout({0: ROWS}, NUMBER, 50), LOCAL).paces == [{}]


# ---------------------------------------------------------------- what cannot be divided or counted


class Plans(TransactionalCoordinator):
    """Eight rows a batch, whatever the limit."""

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return last.metadata != 5

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        return (previous_metadata or 0) + 1


class Emits(TransactionalEmitter):
    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None:
        for n in range(8):
            collector.emit([n])


class Generic(TransactionalSpout):
    output_fields = NUMBER

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return Plans()

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return Emits()


class Counts(PartitionedCoordinator):
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= 5

    def number_of_partitions(self) -> int:
        return 1


class TakesNoLimit(OpaquePartitionedTransactionalEmitter):
    def emit_partition_batch(
        self, attempt: Any, collector: Any, partition: int, last_metadata: Any
    ) -> Any:
        for n in range(8):
            collector.emit([n])
        return 0


class EmitsTooMuch(OpaquePartitionedTransactionalEmitter):
    def emit_partition_batch(
        self,
        attempt: Any,
        collector: Any,
        partition: int,
        last_metadata: Any,
        rows_max: int | None = None,
    ) -> Any:
        for n in range((rows_max or 0) + 1):
            collector.emit([n])
        return 0


class Opaque(OpaquePartitionedTransactionalSpout):
    output_fields = NUMBER

    def __init__(self, emitter: type[Any]) -> None:
        self.kind = emitter

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return Counts()

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return self.kind()


@pytest.mark.parametrize("spout", [Generic(), Opaque(TakesNoLimit)])
@pytest.mark.parametrize("group_txids_max", [1, 10])
def test_a_spout_that_takes_no_limit_is_paced_by_what_it_took(
    spout: Any, group_txids_max: int
) -> None:
    """Eight rows a batch at 40 a second: no batch is planned before the one before is paid."""
    config = replace(LOCAL, group_txids_max=group_txids_max, pace=Pace(max_rows_per_second=40))
    commits = run_all(spout, config)

    assert commits.rows == [8] * 5
    assert all(pace["limited_by"] == "max_rows_per_second" for pace in commits.paces[:-1])


@pytest.mark.parametrize(
    "pace",
    [Pace(target_commit_s=5), Pace(min_batch_rows=5, max_batch_delay_s=0.05)],
)
@pytest.mark.parametrize("spout", [Generic(), Opaque(TakesNoLimit)])
def test_settings_that_a_spout_knows_nothing_of_hold_no_batch_for_ever(
    spout: Any, pace: Pace
) -> None:
    assert run_all(spout, replace(LOCAL, pace=pace)).rows == [8] * 5


def several(*spouts: Any) -> Topology:
    builder = TransactionalTopologyBuilder("paced", "spout0", spouts[0])
    for number, spout in enumerate(spouts[1:], 1):
        builder.set_spout(f"spout{number}", spout)
    bolt = builder.set_bolt("nothing", Nothing())
    for number in range(len(spouts)):
        bolt.shuffle_grouping(f"spout{number}")
    return builder.build_topology()


@pytest.mark.parametrize(
    "pace",
    [
        Pace(max_rows_per_second=60),
        Pace(target_commit_s=0.5),
        Pace(min_batch_rows=30, max_batch_delay_s=0.1),
    ],
)
def test_spouts_of_all_kinds_share_a_limit_and_all_rows_are_read(pace: Pace) -> None:
    commits = Commits()
    topology = several(
        MemoryTransactionalSpout({0: ROWS, 1: ROWS[:3]}, NUMBER, 100),
        OpaqueMemoryTransactionalSpout({0: ROWS}, NUMBER, 100),
        Generic(),
    )
    with topology.start(config=replace(LOCAL, pace=pace), listeners=[commits]) as run:
        run.process_all_available()

    assert sum(commits.rows) == 40 + 3 + 40 + 5 * 8
    if pace.max_rows_per_second:
        assert max(commits.rows) <= 60 + 8, "one batch that cannot be divided is above it"


@pytest.mark.parametrize(("rows", "is_idle"), [([], True), (ROWS[:3], False)])
def test_a_clock_is_never_held_back_and_rows_that_are_held_back_are_not_idle(
    rows: list[list[int]], is_idle: bool
) -> None:
    builder = TransactionalTopologyBuilder("paced", "clock", ClockTransactionalSpout("1 second"))
    builder.set_spout("numbers", MemoryTransactionalSpout({0: rows}, NUMBER, 100))
    bolt = builder.set_bolt("nothing", Nothing())
    bolt.shuffle_grouping("clock").shuffle_grouping("numbers")
    config = replace(LOCAL, pace=Pace(min_batch_rows=10, max_batch_delay_s=60.0))
    planner = BatchPlanner(builder.build_topology().graph, config, Clock())
    planner.begin({}, 1)
    planned = planner.plan(PlanBatch(TransactionAttempt(1, 0, 1), 0, None))

    assert isinstance(planned, Planned)
    assert planned.idle == is_idle
    assert not planned.metadata.of("clock").absent
    assert planned.metadata.of("numbers").absent


def test_a_clock_takes_nothing_of_a_rate() -> None:
    """Below one row for each of its ticks, the rows beside it would never have their turn."""
    graph = several(ClockTransactionalSpout("1 second"), Generic()).graph
    times = Clock()
    planner = BatchPlanner(graph, replace(LOCAL, pace=Pace(max_rows_per_second=0.5)), times)
    planner.begin({}, 1)
    times.now_s += 1
    planned = planner.plan(PlanBatch(TransactionAttempt(1, 0, 1), 0, None))
    assert isinstance(planned, Planned)
    assert planned.metadata.of("spout1").absent
    planner.committed(1, {"spout0": {"default": 1}})
    times.now_s += 1
    ask = PlanBatch(TransactionAttempt(2, 0, 1), 1, planned.metadata)

    planned = planner.plan(ask)
    assert isinstance(planned, Planned)
    assert not planned.metadata.of("spout1").absent


@pytest.mark.parametrize("rows", [-1, True, "5", 5.0])
def test_a_number_of_planned_rows_that_is_none_is_refused(
    rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A negative one would fill the bucket of the rate."""
    monkeypatch.setattr(Plans, "planned_rows", lambda self, metadata: rows, raising=False)
    graph, times = several(Generic()).graph, Clock()
    planner = BatchPlanner(graph, replace(LOCAL, pace=Pace(max_rows_per_second=10)), times)
    planner.begin({}, 1)
    times.now_s += 1
    failed = planner.plan(PlanBatch(TransactionAttempt(1, 0, 1), 0, None))

    assert isinstance(failed, Failed)
    assert "planned_rows of spout 'spout0' did not return a number" in str(failed.failure)


def test_a_share_goes_to_whoever_has_rows_and_a_plan_that_fails_costs_nothing() -> None:
    full = MemoryTransactionalSpout({0: ROWS}, NUMBER, 100)
    graph, times = several(full, MemoryTransactionalSpout({0: []}, NUMBER, 100)).graph, Clock()
    planner = BatchPlanner(graph, replace(LOCAL, pace=Pace(max_rows_per_second=10)), times)
    planner.begin({}, 1)
    times.now_s += 1
    planned = planner.plan(PlanBatch(TransactionAttempt(1, 0, 1), 0, None))
    assert isinstance(planned, Planned)
    assert planned.metadata.pace == {
        "rows_max": {"spout0": [10]},
        "credit": 0.0,
        "at_s": 1.0,
    }
    assert planned.metadata.of("spout1").absent


@pytest.mark.rule("txtopo.pacing", "Rules", 4)
def test_an_emitter_that_emits_more_than_its_limit_ends_the_run() -> None:
    run = topology(Opaque(EmitsTooMuch)).start(
        config=replace(LOCAL, pace=Pace(max_rows_per_second=5))
    )

    with run, pytest.raises(EmitError, match=r"got [0-9]+ tuples; expected at most rows_max="):
        run.process_all_available()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"max_rows_per_second": 0}, "max_rows_per_second must be a finite number above 0; got 0"),
        ({"max_rows_per_second": -1}, "got -1"),
        ({"max_rows_per_second": float("nan")}, "got nan"),
        ({"max_rows_per_second": float("inf")}, "got inf"),
        ({"max_rows_per_second": "5"}, "got '5'"),
        ({"max_rows_per_second": True}, "got True"),
        ({"target_commit_s": 0}, "target_commit_s must be a finite number above 0"),
        ({"target_commit_s": float("nan")}, "got nan"),
        ({"min_batch_rows": 0, "max_batch_delay_s": 1}, "at least 1; got 0"),
        ({"min_batch_rows": 2.5, "max_batch_delay_s": 1}, "got 2.5"),
        ({"min_batch_rows": 5}, "min_batch_rows is given without max_batch_delay_s"),
        ({"max_batch_delay_s": 5}, "max_batch_delay_s is given without min_batch_rows"),
        (
            {"min_batch_rows": 5, "max_batch_delay_s": 0.01},
            "below poll_interval_s; got 0.01; expected at least 0.05",
        ),
        (
            {"min_batch_rows": 11, "max_batch_delay_s": 1, "max_rows_per_second": 10},
            "got 11; expected at most 10, one second's worth",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config(pace=Pace(**settings))

    assert told in str(error.value)
    assert str(error.value.facts["setting"]).removeprefix("pace.") in settings


def test_a_restart_goes_on_from_the_stored_level_of_the_rate() -> None:
    """The clocks stand still meanwhile, so there is nothing to give."""
    spout = MemoryTransactionalSpout({0: ROWS}, NUMBER, 100)
    graph = topology(spout).graph
    times = Clock()
    config = replace(LOCAL, pace=Pace(max_rows_per_second=10))
    first = BatchPlanner(graph, config, times)
    first.begin({}, 1)
    times.now_s += 1
    planned = first.plan(PlanBatch(TransactionAttempt(1, 0, 1), 0, None))
    assert isinstance(planned, Planned)
    assert planned.metadata.pace == {"rows_max": {"numbers": [10]}, "credit": 0.0, "at_s": 1.0}

    stored = {1: with_cut(planned.metadata, {"0": [0, 10]}, graph.spout.id)}
    second = BatchPlanner(graph, config, times)
    second.begin(stored, 2)
    ask = PlanBatch(TransactionAttempt(2, 0, 2), 1, stored[1])
    assert second.plan(ask) == NotReady(ask.attempt, held=True)
    assert second.pace == {"rows_max": 0, "limited_by": "max_rows_per_second"}


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def wall_clock(self) -> float:
        return self.now_s


# ---------------------------------------------------------------- the spouts that txtopo brings


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table of 40 rows, of which each key has two."""
    url = f"sqlite:///{tmp_path / 'numbers.db'}"
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE numbers (n INTEGER)"))
        for n in range(40):
            connection.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": n // 2})
    return url


def query(url: str, **limits: int) -> QueryTransactionalSpout:
    return QueryTransactionalSpout(url, "numbers", "n", NUMBER, settle_s=0, **limits)


def test_a_query_waits_for_rows_and_reads_the_rest_after_the_delay(table: str) -> None:
    config = replace(LOCAL, pace=Pace(min_batch_rows=30, max_batch_delay_s=0.1))

    assert run_all(query(table, batch_rows_max=30), config).rows == [30, 10]


def test_a_query_keeps_equal_keys_together_and_pays_back(table: str) -> None:
    commits = run_all(query(table), replace(LOCAL, pace=Pace(max_rows_per_second=45)))

    assert sum(commits.rows) == 40
    assert all(rows % 2 == 0 for rows in commits.rows)


def test_a_minimum_above_the_limit_of_the_spout_is_refused(table: str, tmp_path: Path) -> None:
    config = replace(LOCAL, pace=Pace(min_batch_rows=31, max_batch_delay_s=1))

    for spout in (
        query(table, batch_rows_max=30),
        FilesTransactionalSpout(tmp_path, NUMBER, batch_rows_max=30),
        DataSourceSpout(LinesSource, {"path": str(tmp_path)}, batch_rows_max=30),
    ):
        with pytest.raises(ConfigError, match="got 31; expected at most batch_rows_max=30"):
            topology(spout).start(config=config)


@pytest.mark.parametrize("kind", [MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout])
def test_a_minimum_above_what_all_partitions_give_is_refused(kind: Any) -> None:
    spout = kind({0: ROWS, 1: ROWS}, NUMBER, 10)
    config = replace(LOCAL, pace=Pace(min_batch_rows=21, max_batch_delay_s=1))

    said = r"got 21; expected at most 20, which is batch_rows_max=10 times 2 partitions"
    with pytest.raises(ConfigError, match=said):
        topology(spout).start(config=config)
    assert (
        sum(run_all(spout, replace(config, pace=Pace(min_batch_rows=20, max_batch_delay_s=1))).rows)
        == 80
    )


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_files_are_limited_by_rows(tmp_path: Path, suffix: str) -> None:
    content = ("n\n" + "".join(f"{n}\n" for n in range(40))).encode()
    (tmp_path / f"a.{suffix}").write_bytes(
        gzip.compress(content) if suffix.endswith("gz") else content
    )
    spout = FilesTransactionalSpout(tmp_path, NUMBER)
    commits = run_all(spout, replace(LOCAL, pace=Pace(max_rows_per_second=25)))

    assert sum(commits.rows) == 40
    assert suffix.endswith("gz") or max(commits.rows) <= 25


@pytest.mark.parametrize("format", ["csv", "csv.gz", "parquet"])
def test_files_gather_until_a_batch_has_its_minimum(tmp_path: Path, format: str) -> None:
    """They are counted from the rows at the beginning of the first one."""

    def write_file(name: str) -> None:
        path = tmp_path / f"{name}.{format}"
        if format == "parquet":
            pq.write_table(pa.table({"n": [*range(20)]}), path)
            return
        content = ("n\n" + "".join(f"{10 + n}\n" for n in range(20))).encode()
        path.write_bytes(gzip.compress(content) if format.endswith("gz") else content)

    write_file("a")
    spout = FilesTransactionalSpout(tmp_path, NUMBER, "parquet" if format == "parquet" else "csv")
    config = replace(LOCAL, pace=Pace(min_batch_rows=35, max_batch_delay_s=60.0))
    commits = Commits()
    with topology(spout).start(config=config, listeners=[commits]) as run:
        wait_until(lambda: run.board.figures()["pace"]["limited_by"], "the first file waits")
        write_file("b")
        wait_until(lambda: commits.rows, "two files are enough")

    assert commits.rows == [40]


def delta(folder: Path, *files: int, **limits: Any) -> DeltaTransactionalSpout:
    """Return a spout of a table with these numbers of rows in its versions."""
    deltalake = pytest.importorskip("deltalake")
    for rows in files:
        deltalake.write_deltalake(folder, pa.table({"n": [*range(rows)]}), mode="append")
    return DeltaTransactionalSpout(folder, NUMBER, **limits)


@pytest.mark.parametrize("has_statistics", [True, False])
def test_a_delta_table_is_limited_by_whole_files_and_pays_back(
    tmp_path: Path, has_statistics: bool
) -> None:
    spout = delta(tmp_path / "table", 4, 4, 30, 4)
    if not has_statistics:
        for entry in (tmp_path / "table" / "_delta_log").glob("*.json"):
            entry.write_text(entry.read_text().replace("numRecords", "numbers"))
    graph, times = topology(spout).graph, Clock()
    planner = BatchPlanner(graph, replace(LOCAL, pace=Pace(max_rows_per_second=10)), times)
    planner.begin({}, 1)
    batches: list[Planned] = []
    for second in range(1, 9):
        times.now_s = second
        last = batches[-1].metadata if batches else None
        txid = len(batches) + 1
        planned = planner.plan(PlanBatch(TransactionAttempt(txid, 0, 1), txid - 1, last))
        if isinstance(planned, Planned):
            batches.append(planned)

    credits = [each.metadata.pace["credit"] for each in batches if each.metadata.pace]
    assert credits == [2.0, -20.0, 6.0], "8 rows, 30, and, when they are paid, 4"


def test_a_delta_table_waits_for_rows_and_a_full_batch_does_not(tmp_path: Path) -> None:
    config = replace(LOCAL, pace=Pace(min_batch_rows=30, max_batch_delay_s=60.0))
    spout = delta(tmp_path / "table", 10, 10)
    commits = Commits()
    with topology(spout).start(config=config, listeners=[commits]) as run:
        wait_until(lambda: run.board.figures()["pace"]["limited_by"], "20 rows wait")
        delta(tmp_path / "table", 10)
        wait_until(lambda: commits.rows, "30 rows are enough")
    assert commits.rows == [30]

    quick = replace(LOCAL, pace=Pace(min_batch_rows=30, max_batch_delay_s=0.1))
    full = run_all(delta(tmp_path / "table", batch_files_max=1), quick)
    assert full.rows == [10, 10, 10], "two are full, and the last one has waited"


@pytest.mark.parametrize("signature", ["old", "new"])
def test_a_data_source_is_limited_if_its_reader_takes_a_limit(
    tmp_path: Path, signature: str
) -> None:
    write(tmp_path / "p0", *range(7))
    spout = DataSourceSpout(LinesSource, {"path": str(tmp_path), "signature": signature})
    commits = run_all(spout, replace(LOCAL, pace=Pace(max_rows_per_second=5)))

    assert sum(commits.rows) == 7
    assert max(commits.rows) <= (5 if signature == "new" else 7)


def test_rows_of_a_data_source_gather_for_the_delay(tmp_path: Path) -> None:
    write(tmp_path / "p0", *range(7))
    spout = DataSourceSpout(LinesSource, {"path": str(tmp_path), "signature": "old"})
    planner = spout.coordinator(
        replace(LOCAL, pace=Pace(min_batch_rows=9, max_batch_delay_s=60.0)),
        TaskContext("paced", "numbers", 0, 1),
    )
    assert planner.is_ready(1, LastBatch())
    assert planner.unread(LastBatch()) is None
    write(tmp_path / "p0", *range(9))

    assert planner.is_ready(1, LastBatch()), "it is asked again, since it was held back"
    planned = planner.initialize_transaction(1, None)
    assert isinstance(planned, dict)
    assert planned["end"] == {"p0": 16}
