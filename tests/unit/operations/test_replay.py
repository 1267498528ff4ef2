"""Replay: a batch of the past is computed again, equal to what was committed, writing nothing."""

from __future__ import annotations

import datetime
import io
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, started
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.harness.sources import Opaque, Partitioned, Ranges, Source
from tests.unit.command.documents import document
from tests.unit.operations.conftest import Make
from tests.unit.operations.deployment import BATCHES, ROWS, Deployment, Poisoned
from txtopo import (
    BasicBolt,
    BatchBolt,
    BatchOutputCollector,
    Committer,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    StreamBuilder,
    Sum,
    TaskContext,
    Topology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
    ZooKeeper,
    open_state,
)
from txtopo.bolts import KafkaSink
from txtopo.command.program import WRONG_CALL, run
from txtopo.ensemble import MemoryEnsemble
from txtopo.ensemble.nodes import batch_path
from txtopo.errors import EmitError, PoisonBatchError, StateUsageError
from txtopo.operations import Access, Replay, replay, rewind, show
from txtopo.operations.overlay import KeyChange
from txtopo.operations.replay import DIFFERS, EQUAL, NOT_COMPARED
from txtopo.operations.replay_text import replay_text
from txtopo.runtime.start import start_topology
from txtopo.spouts import (
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    Outage,
    StreamSpout,
)
from txtopo.state import State
from txtopo.state.aggregates import OwnAggregate
from txtopo.streams import tumbling

ONE_BY_ONE = replace(LOCAL, group_txids_max=1)
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


def replayed(deployment: Deployment, txid: int, topology: Topology | None = None) -> Replay:
    return replay(
        topology or deployment.topology(), txid, deployment.config, access=deployment.access()
    )


def compared(found: Replay) -> set[str]:
    return {*found.content.values(), *(each.compared for each in found.states.values())}


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.rule("txtopo.operations.replay", "Rules", 1)
@pytest.mark.rule("txtopo.operations.replay", "Rules", 3)
def test_a_replay_of_the_last_txid_does_what_was_committed(
    make: Make, opaque: bool, group: int
) -> None:
    deployment = make(opaque=opaque, group=group)
    deployment.run()

    found = replayed(deployment, BATCHES)

    rows = range((BATCHES - 1) * ROWS, BATCHES * ROWS)
    (change,) = found.states["a.totals"].changes.values()
    assert (change.before, change.after) == ((sum(range(rows[0])),), (sum(range(rows[-1] + 1)),))
    assert found.first_txid == (BATCHES if group == 1 else BATCHES - 1)
    assert found.differences == ()
    (content,) = found.content.values()
    assert content == EQUAL if not opaque else content.startswith(NOT_COMPARED)
    assert {each.compared for each in found.states.values()} == {EQUAL}
    (batch,) = found.components["a"].received["spout.default"]
    assert batch.column("amount").to_pylist() == [*rows]


@pytest.mark.rule("txtopo.operations.overlay", "Rules", 2)
def test_a_txid_within_a_group_reads_what_the_members_before_it_wrote(memory: Make) -> None:
    deployment = memory(group=3)
    deployment.run(batches=6)

    found = replayed(deployment, 5)

    (change,) = found.states["a.totals"].changes.values()
    before, after = (sum(range(at * ROWS)) for at in (4, 5))
    assert (found.first_txid, change.before, change.after) == (4, (before,), (after,))
    assert found.states["a.totals"].compared.startswith(NOT_COMPARED)


@pytest.mark.rule("txtopo.operations.overlay", "Rules", 1)
def test_a_state_without_the_past_is_read_as_it_is_and_not_compared(memory: Make) -> None:
    deployment = memory()
    deployment.run()

    found = replayed(deployment, 2)

    assert found.content == {"spout": EQUAL}
    assert "as it is now, with txid 5" in found.states["a.totals"].how
    assert found.states["a.totals"].compared.startswith(NOT_COMPARED)


@pytest.mark.integration
def test_delta_has_the_values_of_then(tmp_path: Path) -> None:
    first, second = (open_state(f"delta:///{tmp_path}/{at}") for at in range(2))
    deployment = Deployment((first, second), id="past", group=2)
    deployment.run()

    found = replayed(deployment, 2)

    (change,) = found.states["a.totals"].changes.values()
    assert (change.before, change.after) == ((sum(range(ROWS)),), (sum(range(2 * ROWS)),))
    assert compared(found) == {EQUAL}


def test_a_replay_writes_nothing(make: Make) -> None:
    deployment = make()
    deployment.run()
    held = deployment.held(), deployment.ledgers(), dict(deployment.ensemble.nodes)

    for txid in range(1, BATCHES + 1):
        replayed(deployment, txid)

    assert (deployment.held(), deployment.ledgers(), dict(deployment.ensemble.nodes)) == held
    deployment.run(batches=2 * BATCHES)
    total = sum(range(2 * BATCHES * ROWS))
    assert deployment.held() == ((2 * BATCHES, total), (2 * BATCHES, total))


@pytest.mark.rule("txtopo.operations.replay", "Rules", 2)
def test_what_differs_from_what_was_committed_is_named(memory: Make) -> None:
    deployment = memory()
    deployment.run()
    rows = [[amount + 1] for amount in range(BATCHES * ROWS)]
    builder = TransactionalTopologyBuilder(
        deployment.id, "spout", MemoryTransactionalSpout({0: rows}, Fields("amount long"), ROWS)
    )
    for name, state in zip("ab", deployment.states, strict=True):
        declarer = builder.set_bolt(name, Poisoned(None)).global_grouping("spout")
        declarer.with_state("totals", state.named(f"totals_{name}"))

    found = replayed(deployment, BATCHES, builder.build_topology())

    assert len(found.differences) == 3
    assert found.content["spout"].startswith(f"{DIFFERS} in partition 0: got [2, ")
    assert found.states["a.totals"].compared == (
        f"{DIFFERS} in 1 of 1 keys, as ('total',): got (47,), committed was (45,)"
    )


class Convert(BasicBolt):
    """Fails on one word."""

    output_fields = Fields("number long")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit([int(tuple["word"])])


def converting(words: Sequence[str]) -> Topology:
    spout = MemoryTransactionalSpout({0: [[word] for word in words]}, Fields("word string"), 3)
    builder = TransactionalTopologyBuilder("converting", "words", spout)
    builder.set_bolt("convert", Convert(), 2).shuffle_grouping("words")
    counts = PersistentAggregate(open_state("memory:"), "number", Count())
    builder.set_bolt("counts", counts).fields_grouping("convert", "number")
    return builder.build_topology()


def test_a_poison_batch_shows_the_row_on_which_it_fails(tmp_path: Path) -> None:
    topology, ensemble = converting(["1", "2", "3", "4", "x", "6"]), MemoryEnsemble()
    config = replace(ONE_BY_ONE, attempts_max=1)
    with started(topology, config, ensemble) as run:
        with pytest.raises((PoisonBatchError, ValueError)):
            run.process_all_available(LIMIT_S)
        found = replay(topology, 2, config, access=Access(ensemble=ensemble))

    assert not found.committed
    raised = found.raised
    assert raised is not None
    assert (raised.component, raised.row, raised.source) == (
        "convert",
        {"word": "x"},
        "words.default",
    )
    assert isinstance(raised.error, ValueError)
    assert "int(tuple" in raised.text
    assert found.failure is not None
    assert "invalid literal" in found.failure
    paths = found.write(tmp_path / "rows")
    assert tmp_path / "rows" / "words.out.default.parquet" in paths
    assert pq.read_table(paths[0]).num_rows == 3


@pytest.mark.rule("txtopo.operations.replay", "Rules", 3)
@pytest.mark.parametrize("word", [0, 2])
def test_a_poison_batch_of_an_opaque_spout_is_planned_again(word: int) -> None:
    """Nothing is stored of it, since it was never processed."""
    words = [["x"] if at == word else [str(at)] for at in range(4)]
    spout = OpaqueMemoryTransactionalSpout({0: words}, Fields("word string"), 2)
    builder = TransactionalTopologyBuilder("opaque", "words", spout)
    builder.set_bolt("convert", Convert()).shuffle_grouping("words")
    counts = PersistentAggregate(open_state("memory:"), "number", Count())
    builder.set_bolt("counts", counts).fields_grouping("convert", "number")
    topology, ensemble = builder.build_topology(), MemoryEnsemble()
    invalid = pytest.raises(ValueError, match="invalid literal")
    with started(topology, ONE_BY_ONE, ensemble) as run, invalid:
        run.process_all_available(LIMIT_S)
    txid, nodes = 1 + word // 2, dict(ensemble.nodes)

    found = replay(topology, txid, ONE_BY_ONE, access=Access(ensemble=ensemble))

    assert found.raised is not None
    assert found.raised.row == {"word": "x"}
    assert ensemble.nodes == nodes
    with pytest.raises(StateUsageError, match="it was not planned yet"):
        replay(topology, txid + 1, ONE_BY_ONE, access=Access(ensemble=ensemble))


@pytest.mark.parametrize(
    ("txid", "text"),
    [
        (0, "txids begin at 1"),
        (-3, "txids begin at 1"),
        (99, "it was not planned yet"),
        (1, "history_txids=1 keeps 1 before the last group"),
    ],
)
def test_a_txid_without_metadata_is_refused_with_the_reason(
    memory: Make, txid: int, text: str
) -> None:
    deployment = memory()
    deployment.history = 1
    deployment.run()

    with pytest.raises(StateUsageError, match=text):
        replayed(deployment, txid)


def test_a_streaming_query_has_no_txids_here() -> None:
    builder = TransactionalTopologyBuilder("query", "words", StreamSpout(Fields("word string")))
    counts = PersistentAggregate(open_state("memory:"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("words", "word")

    with pytest.raises(StateUsageError, match="driven by a streaming query"):
        replay(builder.build_topology(), 1, ONE_BY_ONE, access=Access(ensemble=MemoryEnsemble()))


def test_a_partition_that_was_silent_emits_nothing_again() -> None:
    """It keeps the position of an earlier batch."""
    rows = {at: [[f"{at}{number}"] for number in range(4)] for at in range(2)}
    spout = OpaqueMemoryTransactionalSpout(
        rows, Fields("word string"), 1, script=(Outage(txid=2, partition=1),)
    )
    builder = TransactionalTopologyBuilder("silent", "words", spout)
    counts = PersistentAggregate(open_state("memory:"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("words", "word")
    topology, ensemble = builder.build_topology(), MemoryEnsemble()
    with started(topology, ONE_BY_ONE, ensemble) as run:
        run.process_all_available(LIMIT_S)

    found = replay(topology, 2, ONE_BY_ONE, access=Access(ensemble=ensemble))

    (batch,) = found.components["words"].emitted["default"]
    assert batch.column("word").to_pylist() == ["01"]


def test_a_txid_that_a_verb_wrote_has_no_batch(memory: Make) -> None:
    deployment = memory(opaque=True)
    deployment.run(batches=3)
    access = deployment.access()
    rewind(deployment.topology(), 2, deployment.config, access=access).apply()

    with pytest.raises(StateUsageError, match="it has no batch, because rewind wrote it"):
        replayed(deployment, 3)
    deployment.run(batches=3)
    assert replayed(deployment, 4).differences == ()
    kept = show(deployment.topology(), deployment.config, access=access).batches[3]
    assert isinstance(kept, dict)
    assert kept["verb"] == "rewind"


def test_a_topology_that_never_ran_has_no_txid(memory: Make) -> None:
    with pytest.raises(StateUsageError, match="ZooKeeper has no txid"):
        replayed(memory(), 1)


class Executes(BatchBolt, Committer):
    """Executes a statement on a table of the user's."""

    def prepare(
        self, config: Config, context: TaskContext, collector: Any, attempt: TransactionAttempt
    ) -> None:
        self.context, self.attempt, self.rows = context, attempt, 0

    def execute(self, tuple: Tuple) -> None:
        self.rows += 1

    def finish_batch(self) -> None:
        with self.context.state("seen").transaction(self.attempt) as state:
            state.put(self.attempt.txid, self.rows)
            state.execute("INSERT INTO own VALUES (:rows)", {"rows": self.rows})


@pytest.mark.rule("txtopo.operations.overlay", "Rules", 3)
def test_a_statement_is_shown_and_not_executed(tmp_path: Path) -> None:
    import sqlalchemy as sa

    url = f"sqlite:///{tmp_path}/own.db"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE own (seen_rows INTEGER)"))
    spout = MemoryTransactionalSpout({0: [["a"], ["b"], ["c"]]}, Fields("word string"), 2)
    builder = TransactionalTopologyBuilder("executing", "words", spout)
    declarer = builder.set_bolt("own", Executes()).global_grouping("words")
    declarer.with_state(
        "seen", open_state(url, key=Fields("txid_of long"), value=Fields("seen_rows long"))
    )
    topology, ensemble = builder.build_topology(), MemoryEnsemble()
    with started(topology, ONE_BY_ONE, ensemble) as run:
        run.process_all_available(LIMIT_S)

    found = replay(topology, 2, ONE_BY_ONE, access=Access(ensemble=ensemble))

    (statement,) = found.states["own.seen"].statements
    assert "INSERT INTO own" in str(statement.statement)
    assert "would execute: INSERT INTO own" in str(found)
    with engine.begin() as connection:
        assert connection.execute(sa.text("SELECT * FROM own")).all() == [(2,), (1,)]


# ------------------------------------------------- each kind of topology, at each of its txids


def sums(batches: int, url: str) -> Topology:
    """Several spouts, of which one is opaque, and an aggregate."""
    builder = TransactionalTopologyBuilder("sums", "ranges", Ranges(Source("ranges", 2 * batches)))
    builder.set_spout("partitioned", Partitioned(Source("partitioned", 2 * batches)))
    builder.set_spout("opaque", Opaque(Source("opaque", 2 * batches)))
    aggregate = PersistentAggregate(open_state(url), "source", Sum("number"))
    declarer = builder.set_bolt("sum", aggregate)
    for source in ("ranges", "partitioned", "opaque"):
        declarer.fields_grouping(source, "source")
    return builder.build_topology()


def log(batches: int, url: str) -> Topology:
    """An aggregate whose table is a log of partial ones."""
    words = [[word] for word in ["a", "b", "a", "c", "b", "a", "c", "c", "a", "b"]][: 2 * batches]
    spout = MemoryTransactionalSpout({0: words}, Fields("word string"), 2)
    builder = TransactionalTopologyBuilder("log", "words", spout)
    folder = url.removeprefix("sqlite:///")
    aggregate = PersistentAggregate(open_state(f"delta:///{folder}", mode="log"), "word", Count())
    builder.set_bolt("counts", aggregate).fields_grouping("words", "word")
    return builder.build_topology()


def windows(batches: int, url: str) -> Topology:
    """Windows on event time, with what is late and what closes."""
    minutes = [0, 2, 6, 4, 8, 9, 13, 3, 20, 1][: 2 * batches]
    sales = [["ns"[m % 2], m, NOON + datetime.timedelta(minutes=m)] for m in minutes]
    fields = Fields("shop string, amount long, ts timestamp")
    builder = StreamBuilder("windows")
    spout = MemoryTransactionalSpout({0: sales}, fields, 2)
    rows = builder.source("sales", spout, event_time="ts", delay="2 minutes")
    revenue = (
        rows.group_by("shop")
        .window(tumbling("5 minutes"))
        .persistent_aggregate(open_state(url, table="revenue"), revenue=Sum("amount"))
    )
    revenue.final().store(open_state(url, table="closed"), key=("window_start", "shop"))
    return builder.build_topology()


def joins(batches: int, url: str) -> Topology:
    """Two streams, joined over time."""
    minutes = [0, 2, 6, 4, 8, 9, 13, 3, 40, 41][: 2 * batches]
    orders = [[f"o{m % 3}", m, NOON + datetime.timedelta(minutes=m)] for m in minutes]
    builder = StreamBuilder("joins")
    names = (
        "order_id string, total long, ts timestamp",
        "order_id string, paid long, at timestamp",
    )
    left, right = (
        builder.source(
            id,
            MemoryTransactionalSpout({0: orders}, Fields(fields), 2),
            event_time=fields.split()[-2],
            delay="1 minute",
            max_ahead=None,
        )
        for id, fields in zip(("orders", "payments"), names, strict=True)
    )
    joined = left.join(
        right,
        on="order_id",
        within=("0 minutes", "5 minutes"),
        how="left",
        state=open_state(url, table="waiting"),
    )
    joined.store(open_state(url, table="pairs"), key=("order_id", "ts", "at"))
    return builder.build_topology()


@pytest.mark.parametrize(
    "make_topology", [sums, log, windows, joins], ids=lambda each: each.__name__
)
def test_a_replay_of_each_txid_of_each_kind_of_topology_is_equal(
    tmp_path: Path, make_topology: Callable[[int, str], Topology]
) -> None:
    ensemble, url = MemoryEnsemble(), f"sqlite:///{tmp_path}/states.db"
    for txid in range(1, 6):
        topology = make_topology(txid, url)
        with started(topology, ONE_BY_ONE, ensemble) as run:
            run.process_all_available(LIMIT_S)

        found = replay(topology, txid, ONE_BY_ONE, access=Access(ensemble=ensemble))

        assert found.failure is None
        assert found.differences == ()
        states = {each.compared for each in found.states.values()}
        assert states == {EQUAL}, str(found)
        assert EQUAL in found.content.values()
        assert any(each.changes for each in found.states.values())


# ------------------------------------------------------------------------------ the command


def typed(*arguments: str) -> int:
    return run(["--set", "carrier=local", *arguments])


@pytest.fixture
def failed(
    zookeeper: ZooKeeperProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, ...]:
    """A topology whose second batch fails; the arguments that replay a txid of it."""
    monkeypatch.chdir(tmp_path)
    hosts = f"{zookeeper.hosts}/{uuid.uuid4()}"
    topology = converting(["1", "2", "3", "4", "x", "6"])
    config = replace(ONE_BY_ONE, zookeeper=ZooKeeper(hosts))
    run = start_topology(topology.graph, None, config)
    with pytest.raises(ValueError, match="invalid literal"):
        run.await_termination(LIMIT_S)
    module = ModuleType("converting_here")
    module.topology = topology  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return ("--zookeeper", hosts, "replay", "converting_here:topology", "--txid")


def test_the_command_tells_a_failure_by_its_status_and_as_json(
    failed: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(*failed, "1", "--component", "counts") == 0
    assert "component 'convert'" not in capsys.readouterr().out

    assert typed(*failed, "2", "--json", "--out", "rows") == 1

    shown = document("replay", capsys.readouterr().out)
    assert shown["raised"]["row"] == {"word": "x"}
    assert "invalid literal" in shown["failure"]
    assert Path("rows/words.out.default.parquet").is_file()
    assert typed(*failed, "2", "--component", "cuonts") == WRONG_CALL
    assert "did you mean 'counts'" in capsys.readouterr().err
    assert typed(*failed, "77") == WRONG_CALL


def test_the_debugger_stops_in_the_users_code(
    failed: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("p tuple['word']\nq\n"))

    assert typed(*failed, "2", "--pdb") == 1

    out = capsys.readouterr().out
    assert "-> collector.emit([int(tuple" in out
    assert "(Pdb) 'x'" in out


def test_a_sink_is_not_connected_to(memory: Make) -> None:
    deployment = memory()
    deployment.run()
    builder = TransactionalTopologyBuilder(
        deployment.id,
        "spout",
        MemoryTransactionalSpout(
            {0: [[amount] for amount in range(BATCHES * ROWS)]}, Fields("amount long"), ROWS
        ),
    )
    builder.set_bolt("text", Texts()).global_grouping("spout")
    sink = KafkaSink("192.0.2.1:9092", "topic", value="text")
    builder.set_bolt("sink", sink).global_grouping("text")

    found = replayed(deployment, 2, builder.build_topology())

    assert found.failure is None
    assert len(found.states["sink.sink"].changes) == ROWS
    assert found.states["sink.sink"].compared.startswith(NOT_COMPARED)


class Texts(BasicBolt):
    """Amounts as text."""

    output_fields = Fields("text string")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit([str(tuple["amount"])])


# ------------------------------------------------------ states and txids that do not fit together

TWOS = replace(LOCAL, group_txids_max=3, max_spout_pending=9, poll_interval_s=1.5, slots=1)
WORDS = [["a"], ["b"], ["a"], ["c"], ["b"], ["a"], ["c"], ["c"], ["a"], ["b"], ["a"], ["a"]]


def counting(
    *states: State, drop: str | None = None, sink: bool = False, words: Sequence[Any] = WORDS
) -> Topology:
    """Counts words in each of some states."""
    spout = MemoryTransactionalSpout({0: words}, Fields("word string"), 2)
    builder = TransactionalTopologyBuilder("counting", "words", spout)
    builder.set_bolt("kept.words", Without(drop)).shuffle_grouping("words")
    for at, state in enumerate(states):
        counts = PersistentAggregate(state, "word", Count())
        builder.set_bolt(f"counts{at}", counts).fields_grouping("kept.words", "word")
    if sink:
        kafka = KafkaSink("192.0.2.1:9092", "topic", value="word")
        builder.set_bolt("sink", kafka).global_grouping("kept.words")
    return builder.build_topology()


class Without(BasicBolt):
    """Drops one word."""

    output_fields = Fields("word string")

    def __init__(self, drop: str | None) -> None:
        self.drop = drop

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if tuple["word"] != self.drop:
            collector.emit([tuple["word"]])


def ran(topology: Topology, config: Config = ONE_BY_ONE) -> MemoryEnsemble:
    ensemble = MemoryEnsemble()
    with started(topology, config, ensemble) as run:
        run.process_all_available(LIMIT_S)
    return ensemble


@pytest.mark.parametrize("other", ["transactional", "new", "sink"])
def test_states_without_the_past_begin_with_the_group_of_those_that_have_it(other: str) -> None:
    first, second = open_state("memory:"), open_state("memory:", "transactional")
    there = [first, second] if other == "transactional" else [first]
    ensemble = ran(counting(*there), TWOS)
    now = [first, open_state("memory:")] if other == "new" else there

    found = replay(counting(*now, sink=other == "sink"), 6, TWOS, access=Access(ensemble=ensemble))

    assert found.failure is None
    assert found.first_txid == 4
    assert found.states["counts0.counts0"].compared == EQUAL


def test_a_state_that_is_new_is_empty_and_nothing_is_made_for_it(tmp_path: Path) -> None:
    first = open_state("memory:")
    ensemble = ran(counting(first))
    new = open_state(f"sqlite:///{tmp_path}/new.db")

    found = replay(counting(first, new), 6, ONE_BY_ONE, access=Access(ensemble=ensemble))

    assert (found.failure, found.first_txid) == (None, 6)
    assert found.states["counts1.counts1"].changes == {("a",): KeyChange(None, (2,))}
    assert [*tmp_path.iterdir()] == []


def test_a_state_that_is_behind_takes_all_others_back_to_its_txid() -> None:
    """A crash between the writes to two stores leaves it one group behind."""
    first, behind = open_state("memory:"), open_state("memory:")
    ensemble = ran(counting(first, open_state("memory:")), TWOS)
    ran(counting(open_state("memory:"), behind, words=WORDS[:6]), TWOS)
    current, sixth, planned = (f"/counting/{name}" for name in ("current", *map(batch, (6, 7))))
    stored, version = ensemble.nodes[current]
    ensemble.nodes[current] = stored.replace(b'"current":7', b'"current":4'), version
    stored, version = ensemble.nodes[sixth]
    ensemble.nodes[planned] = stored.replace(b"[10,2]", b"[12,2]"), version
    topology = counting(first, behind, words=[*WORDS, ["a"], ["b"]])

    found = replay(
        topology, 7, replace(TWOS, check_replays=False), access=Access(ensemble=ensemble)
    )

    assert (found.failure, found.first_txid) == (None, 4)
    one, other = (found.states[f"counts{at}.counts{at}"] for at in range(2))
    assert one.changes == other.changes
    assert one.changes[("a",)] == KeyChange((6,), (7,))


def batch(txid: int) -> str:
    return batch_path(txid).removeprefix("/")


def test_a_txid_in_flight_begins_where_the_one_before_it_ends() -> None:
    """Of both only the plan is stored, since an earlier one of their run failed."""
    state = open_state("memory:")
    config, ensemble = replace(TWOS, attempts_max=1), MemoryEnsemble()
    with (
        started(failing(state, "6"), config, ensemble) as run,
        pytest.raises(ValueError, match="invalid literal"),
    ):
        run.process_all_available(LIMIT_S)

    found = replay(failing(state, None), 6, config, access=Access(ensemble=ensemble))

    (batch,) = found.components["words"].emitted["default"]
    assert (found.first_txid, batch.column("word").to_pylist()) == (4, ["10", "11"])


def failing(state: State, word: str | None) -> Topology:
    words = [["x"] if str(each) == word else [str(each)] for each in range(12)]
    spout = MemoryTransactionalSpout({0: words}, Fields("word string"), 2)
    builder = TransactionalTopologyBuilder("failing", "words", spout)
    builder.set_bolt("convert", Convert()).shuffle_grouping("words")
    counts = PersistentAggregate(state, "number", Count())
    builder.set_bolt("counts", counts).fields_grouping("convert", "number")
    return builder.build_topology()


@pytest.mark.integration
def test_a_log_tells_the_key_that_is_not_written_any_more(tmp_path: Path) -> None:
    state = open_state(f"delta:///{tmp_path}/log", mode="log")
    ensemble = ran(counting(state))

    found = replay(counting(state, drop="b"), 5, ONE_BY_ONE, access=Access(ensemble=ensemble))

    assert found.states["counts0.counts0"].compared.startswith(f"{DIFFERS} in 1 of 2 keys")


def test_tasks_are_not_compared_with_those_of_another_parallelism() -> None:
    def ranges(tasks: int) -> Topology:
        spout = Ranges(Source("ranges", 4))
        builder = TransactionalTopologyBuilder("ranges", "ranges", spout, tasks)
        aggregate = PersistentAggregate(state, "source", Sum("number"))
        builder.set_bolt("sum", aggregate).fields_grouping("ranges", "source")
        return builder.build_topology()

    state = open_state("memory:")
    ensemble = ran(ranges(2))

    found = replay(ranges(1), 1, ONE_BY_ONE, access=Access(ensemble=ensemble))

    assert found.content["ranges"].startswith(NOT_COMPARED)


class EmitsText(BasicBolt):
    """Emits a text for one number, which its stream does not take."""

    output_fields = Fields("number long")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit(["five" if tuple["number"] == 5 else tuple["number"]])


def test_a_row_that_is_not_to_blame_is_not_named() -> None:
    """Values are checked when many rows are together."""
    rows = [[number] for number in range(20_000)]
    spout = MemoryTransactionalSpout({0: rows}, Fields("number long"), len(rows))
    builder = TransactionalTopologyBuilder("text", "numbers", spout)
    builder.set_bolt("text", EmitsText()).shuffle_grouping("numbers")
    topology, ensemble = builder.build_topology(), MemoryEnsemble()
    config = replace(ONE_BY_ONE, attempts_max=1)
    with started(topology, config, ensemble) as run, pytest.raises(EmitError):
        run.process_all_available(LIMIT_S)

    raised = replay(topology, 1, config, access=Access(ensemble=ensemble)).raised

    assert raised is not None
    assert (raised.component, raised.row) == ("text", None)


class Fails(OwnAggregate):
    """A sum that cannot be combined with what is stored."""

    def value_type(self, inputs: Fields) -> str:
        return "long"

    def zero(self) -> int:
        return 0

    def add(self, value: int, *items: Any) -> int:
        return value + 1

    def combine(self, left: int, right: int) -> int:
        if left and right:
            raise ValueError("cannot be combined")
        return left + right


def test_an_aggregate_that_fails_in_the_write_fails_the_batch() -> None:
    spout = MemoryTransactionalSpout({0: [["a"], ["a"]]}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("fails", "words", spout)
    aggregate = PersistentAggregate(open_state("memory:"), "word", Fails("word"))
    builder.set_bolt("counts", aggregate).fields_grouping("words", "word")
    topology, ensemble = builder.build_topology(), MemoryEnsemble()
    config = replace(ONE_BY_ONE, attempts_max=1)
    with (
        started(topology, config, ensemble) as run,
        pytest.raises(ValueError, match="cannot be combined"),
    ):
        run.process_all_available(LIMIT_S)

    found = replay(topology, 2, config, access=Access(ensemble=ensemble))

    assert found.raised is not None
    assert (found.raised.component, found.failure) == ("counts", "ValueError: cannot be combined")


def test_the_states_of_a_component_with_a_dot_in_its_name_are_shown() -> None:
    spout = MemoryTransactionalSpout({0: [["a"]]}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("dots", "words", spout)
    counts = PersistentAggregate(open_state("memory:"), "word", Count())
    builder.set_bolt("the.counts", counts).fields_grouping("words", "word")
    topology = builder.build_topology()
    ensemble = ran(topology)

    found = replay(topology, 1, ONE_BY_ONE, access=Access(ensemble=ensemble))

    assert "1 key written" in replay_text(found, "the.counts")
    assert "1 key written" not in replay_text(found, "words")
