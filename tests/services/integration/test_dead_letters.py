"""Whole topologies with dead letters: each record is in the results or a dead letter, once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.harness.runs import LOCAL, Storage, on, run_to_end
from txtopo import (
    BasicBolt,
    BatchBolt,
    Committer,
    Count,
    DeadLetters,
    FailedException,
    Fields,
    PersistentAggregate,
    RecordFailed,
    Stream,
    Sum,
    TooManyDeadLetters,
    Topology,
    TransactionalTopologyBuilder,
    open_state,
    operations,
)
from txtopo.config import Carrier
from txtopo.dead_letters import dead_letter, in_order
from txtopo.errors import EmitError, StoreUnavailable, TopologyChanged
from txtopo.operations import Access
from txtopo.plugins.spouts import TransactionalCoordinator
from txtopo.runtime.progress import BatchCommitted
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.runtime.start import start_topology
from txtopo.spouts import (
    DataFrameTransactionalSpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    Recut,
    StreamSpout,
)
from txtopo.state import Ledger
from txtopo.testing import ScriptedTransactionalSpout, simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.harness.servers.kafka import KafkaBroker
    from tests.harness.servers.postgresql import PostgresServer

pytestmark = pytest.mark.integration
TEXT = Fields("text string")
ROWS = ["1", "2", "x", "3", "four", "5", "\0", "6", "", "7"]
GOOD = {1, 2, 3, 5, 6, 7}
BAD = ["x", "four", "\0", ""]


STREAMS: dict[str, Stream | Fields] = {"seen": TEXT, "picked": Stream(TEXT, direct=True)}


NAMED: dict[str, Stream | Fields] = {"dead_letters": TEXT}


class Parse(BasicBolt):
    """Emits on three streams before it knows whether the text is a number."""

    output_fields = Fields("number long")
    output_streams = STREAMS

    def execute(self, tuple: Any, collector: Any) -> None:
        collector.emit(tuple.values, "seen")
        collector.emit_direct(0, tuple.values, "picked")
        collector.emit_batch(pa.record_batch({"text": [tuple["text"]] * 2}), "seen")
        collector.emit([-1])
        collector.emit([int(tuple["text"])])


class Keep(BatchBolt, Committer):
    """Keeps how often each text came on each stream."""

    writes_nowhere_else = True

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.state, self.attempt = context.state("seen"), attempt
        self.found: dict[str, int] = {}

    def execute(self, tuple: Any) -> None:
        key = f"{tuple.source_stream} {tuple['text']}"
        self.found[key] = self.found.get(key, 0) + 1

    def finish_batch(self) -> None:
        with self.state.transaction(self.attempt) as state:
            for key, times in self.found.items():
                state.update(key, lambda before, more=times: (before or 0) + more)


def rows_of(texts: Sequence[str], take: int = 4) -> MemoryTransactionalSpout:
    return MemoryTransactionalSpout({0: [[text] for text in texts]}, TEXT, take)


def parsing(
    storage: Storage, spout: Any = None, tasks: int = 2, dead_letters: Any = None, bolt: Any = None
) -> Topology:
    letters = dead_letters or open_state(storage.url, storage.kind)
    builder = TransactionalTopologyBuilder(
        "parsing", "rows", spout or rows_of(ROWS), dead_letters=letters
    )
    parse = builder.set_bolt("parse", bolt or Parse(), tasks).shuffle_grouping("rows")
    parse.dead_letters_on(ValueError)
    counts = PersistentAggregate(storage.state("counts"), "number", Count())
    builder.set_bolt("counts", counts).fields_grouping("parse", "number")
    keep = builder.set_bolt("keep", Keep()).global_grouping("parse", stream="seen")
    keep.direct_grouping("parse", stream="picked").with_state("seen", storage.state("seen"))
    return builder.build_topology()


def letters_of(storage: Storage) -> dict[tuple[int, int], str]:
    return {
        key: json.loads(letter["record"])["text"]
        for key, letter in sorted(storage.read("dead_letters").items())
    }


def check(storage: Storage) -> None:
    assert storage.read("counts") == {-1: len(GOOD), **dict.fromkeys(GOOD, 1)}
    seen = {f"seen {number}": 3 for number in GOOD} | {f"picked {n}": 1 for n in GOOD}
    assert storage.read("seen") == seen
    assert letters_of(storage) == {(1, 1): "x", (2, 1): "\0", (2, 2): "four", (3, 1): ""}


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.rule("txtopo.dead_letters", "Rules", 1)
def test_what_was_emitted_for_a_bad_record_is_dropped_on_each_stream(
    kind: Any, tasks: int, caplog: pytest.LogCaptureFixture
) -> None:
    storage = Storage.in_memory(kind)

    changes = run_to_end(parsing(storage, tasks=tasks), storage)

    check(storage)
    told = [change.progress.tuples for change in changes.of(BatchCommitted)]
    assert [tuples.get("dead_letters", 0) for tuples in told] == [1, 2, 1]
    assert [tuples["parse"] for tuples in told] == [18, 12, 6]
    assert "txid 2: 2 dead letters" in caplog.text


@pytest.mark.parametrize("carrier", ["rdd", "dataframe", "resident"])
def test_dead_letters_are_the_same_on_spark(
    spark: SparkSession, carrier: Carrier, tmp_path: Path
) -> None:
    storage = Storage.in_sqlite(tmp_path)

    run_to_end(parsing(storage), storage, on(carrier), spark)

    check(storage)


def test_dead_letters_are_rows_in_sqlite_for_plain_sql(tmp_path: Path) -> None:
    storage = Storage.in_sqlite(tmp_path)

    run_to_end(parsing(storage), storage)

    check(storage)
    question = "SELECT batch, error, record FROM dead_letters_view WHERE component = 'parse'"
    with sqlite3.connect(tmp_path / "states.db") as connection:
        found = sorted(connection.execute(question))
    assert found[0] == (1, "ValueError", '{"text": "x"}')
    assert found[1] == (2, "ValueError", '{"text": "\\u0000"}')
    assert len(found) == 4


def test_dead_letters_that_are_deleted_stay_deleted(tmp_path: Path) -> None:
    storage = Storage.in_sqlite(tmp_path)
    spout = rows_of(ROWS)
    run_to_end(parsing(storage, spout), storage)
    with sqlite3.connect(tmp_path / "states.db") as connection:
        connection.execute("DELETE FROM dead_letters WHERE batch < 3")

    more = MemoryTransactionalSpout({0: [[t] for t in [*ROWS, "y"]]}, TEXT, 4)
    run_to_end(parsing(storage, more), storage)

    assert letters_of(storage) == {(3, 1): "", (4, 1): "y"}


def test_dead_letters_in_postgresql(postgresql: PostgresServer) -> None:
    storage = Storage(postgresql.create_database(f"letters_{uuid4().hex}"))

    run_to_end(parsing(storage), storage)

    check(storage)


def test_dead_letters_in_a_topic(kafka: KafkaBroker) -> None:
    from tests.unit.kafka.logs import Log
    from tests.unit.kafka.test_sink import seen
    from txtopo.bolts import KafkaSink

    log, storage = Log(kafka, partitions=1), Storage.in_memory()
    topology = parsing(storage, dead_letters=KafkaSink(kafka.servers, log.name))

    run_to_end(topology, storage)

    found = [json.loads(value) for value in seen(log)]
    assert [(each["batch"], json.loads(each["record"])["text"]) for each in found] == [
        (1, "x"),
        (2, "\0"),
        (2, "four"),
        (3, ""),
    ]
    assert found[0]["error"] == "ValueError"


class Named(BasicBolt):
    output_streams = NAMED

    def execute(self, tuple: Any, collector: Any) -> None:
        collector.emit(tuple.values, "dead_letters")


def test_names_of_a_topology_without_dead_letters_are_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A stream and a bolt of these names are counted like any others."""
    storage = Storage.in_memory()
    builder = TransactionalTopologyBuilder("named", "rows", rows_of(["a", "b"]))
    builder.set_bolt("named", Named()).shuffle_grouping("rows")
    builder.set_bolt("dead_letters", Named()).shuffle_grouping("named", stream="dead_letters")
    counts = PersistentAggregate(storage.state("counts"), "text", Count())
    declarer = builder.set_bolt("counts", counts)
    declarer.fields_grouping("dead_letters", "text", stream="dead_letters")

    changes = run_to_end(builder.build_topology(), storage)

    assert storage.read("counts") == {"a": 1, "b": 1}
    (committed,) = changes.of(BatchCommitted)
    assert committed.progress.tuples == {"rows": 2, "named": 2, "dead_letters": 2}
    assert "dead letters" not in caplog.text


class FailsOnce(ThreadScheduler):
    """Fails the first attempt at a step after its dead letters are durable."""

    def __init__(self) -> None:
        super().__init__("fails-once")
        self.seen: list[dict[Any, Any]] = []
        self.look: Any = None

    def point(self, name: str) -> None:
        if name == "write.after:dead_letters.dead_letters" and not self.seen:
            self.seen.append(self.look())
            raise StoreUnavailable("the store went away after it had written")


@pytest.mark.parametrize("first", [8, 3, 0])
@pytest.mark.rule("txtopo.dead_letters", "Rules", 2)
def test_a_replay_with_other_records_leaves_no_dead_letter_of_the_dropped_attempt(
    first: int,
) -> None:
    storage, scheduler = Storage.in_memory(), FailsOnce()
    script = [Recut(1, 0, first), Recut(1, 1, 4)]
    spout = OpaqueMemoryTransactionalSpout({0: [[text] for text in ROWS]}, TEXT, 4, script=script)
    scheduler.look = lambda: letters_of(storage)
    config = replace(LOCAL, max_spout_pending=1)

    run = start_topology(
        parsing(storage, spout).graph,
        None,
        config,
        (),
        scheduler=scheduler,
        ensemble=storage.ensemble,
    )
    run.process_all_available(60)
    run.stop(60)

    expected: dict[int, dict[Any, Any]] = {
        8: {(1, 1): "\0", (1, 2): "four", (1, 3): "x"},
        3: {(1, 1): "x"},
        0: {},
    }
    assert scheduler.seen == [expected[first]]
    check(storage)


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.rule("txtopo.dead_letters", "Rules", 4)
def test_a_batch_with_more_dead_letters_than_the_limit_ends_the_run(tasks: int) -> None:
    """The second batch has two; four tasks have one each."""
    storage = Storage.in_memory()
    letters = DeadLetters(open_state(storage.url), 1)
    topology = parsing(storage, tasks=tasks, dead_letters=letters)

    with pytest.raises(TooManyDeadLetters, match="got 2 or more; expected at most 1") as caught:
        run_to_end(topology, storage)

    assert (caught.value.count, caught.value.batch_records_max) == (2, 1)
    first = caught.value.first
    assert first is not None
    assert (first["component"], first["error"]) == ("parse", "ValueError")
    assert str(first["record"]) in ('{"text": "four"}', '{"text": "\\u0000"}')
    assert str(first["message"]) in str(caught.value)
    assert letters_of(storage) == {(1, 1): "x"}
    enough = parsing(storage, tasks=tasks, dead_letters=DeadLetters(open_state(storage.url), 2))
    run_to_end(enough, storage)
    check(storage)


@pytest.mark.rule("txtopo.dead_letters", "Rules", 4)
def test_a_task_stops_at_the_limit() -> None:
    """One task that gets a million bad records keeps no more of them than the limit."""
    storage = Storage.in_memory()
    topology = parsing(storage, rows_of(["x"] * 20_000, 20_000), tasks=1)

    with pytest.raises(TooManyDeadLetters, match="got 101 or more; expected at most 100"):
        run_to_end(topology, storage)


class Refuses(Parse):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def execute(self, tuple: Any, collector: Any) -> None:
        super().execute(tuple, collector)
        if tuple["text"] == "3":
            raise self.error


@pytest.mark.parametrize(
    "error", [EmitError("no"), ZeroDivisionError("no"), ConnectionError("no"), SystemExit(1)]
)
def test_an_error_that_is_not_the_records_ends_the_run(error: BaseException) -> None:
    """EmitError is a ValueError, which the bolt lists."""
    storage = Storage.in_memory()

    with pytest.raises(BaseException, match="no" if error.args == ("no",) else "SystemExit"):
        run_to_end(parsing(storage, bolt=Refuses(error)), storage)

    assert 3 not in storage.read("counts")
    assert letters_of(storage) == {}


def test_record_failed_makes_a_dead_letter_without_being_listed() -> None:
    storage = Storage.in_memory()
    topology = parsing(storage, bolt=Refuses(RecordFailed("no")))

    run_to_end(topology, storage)

    assert "3" in letters_of(storage).values()


class FailsTwice(Parse):
    tries: ClassVar[list[str]] = []

    def execute(self, tuple: Any, collector: Any) -> None:
        if tuple["text"] == "3" and len(self.tries) < 2:
            self.tries.append(tuple["text"])
            raise FailedException("not yet")
        super().execute(tuple, collector)


def test_a_failed_batch_is_replayed_and_decides_again() -> None:
    storage = Storage.in_memory()
    FailsTwice.tries.clear()

    changes = run_to_end(parsing(storage, bolt=FailsTwice()), storage)

    assert len(changes.failures) >= 2
    check(storage)


class Doubled(BasicBolt):
    """Runs below a committer."""

    output_fields = Fields("number long")

    def execute(self, tuple: Any, collector: Any) -> None:
        collector.emit([2 * tuple["number"]])
        if tuple["number"] % 2:
            raise RecordFailed(f"{tuple['number']} is odd")


class PassOn(Keep):
    output_fields = Fields("number long")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector = collector

    def execute(self, tuple: Any) -> None:
        self.collector.emit([int(tuple["text"])])

    def finish_batch(self) -> None: ...


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_basic_bolt_below_a_committer_makes_dead_letters(tasks: int) -> None:
    storage = Storage.in_memory()
    builder = TransactionalTopologyBuilder(
        "below", "rows", rows_of(["1", "2", "3", "4"]), dead_letters=open_state(storage.url)
    )
    builder.set_bolt("pass", PassOn(), tasks).shuffle_grouping("rows")
    builder.set_bolt("double", Doubled(), tasks).shuffle_grouping("pass")
    sums = PersistentAggregate(storage.state("sums"), (), Sum("number"))
    builder.set_bolt("sums", sums).global_grouping("double")

    run_to_end(builder.build_topology(), storage)

    found = [letter["record"] for _, letter in sorted(storage.read("dead_letters").items())]
    assert found == ['{"number": 1}', '{"number": 3}']
    assert list(storage.read("sums").values()) == [12]


def test_dead_letters_that_are_added_or_removed_are_a_changed_topology() -> None:
    storage = Storage.in_memory()
    run_to_end(parsing(storage), storage)
    builder = TransactionalTopologyBuilder("parsing", "rows", rows_of([*ROWS, "8"]))
    parse = builder.set_bolt("parse", Parse(), 2).shuffle_grouping("rows")
    counts = PersistentAggregate(storage.state("counts"), "number", Count())
    builder.set_bolt("counts", counts).fields_grouping("parse", "number")
    keep = builder.set_bolt("keep", Keep()).global_grouping("parse", stream="seen")
    keep.direct_grouping("parse", stream="picked").with_state("seen", storage.state("seen"))
    without = builder.build_topology()
    assert parse is not None

    with pytest.raises(TopologyChanged, match="'dead_letters'"):
        run_to_end(without, storage)

    run_to_end(without, storage, replace(LOCAL, allow_change=True))
    assert storage.read("counts")[8] == 1


def test_operators_verbs_treat_dead_letters_as_any_state(tmp_path: Path) -> None:
    storage = Storage.in_sqlite(tmp_path)
    topology, access = parsing(storage), Access(ensemble=storage.ensemble)
    run_to_end(topology, storage, replace(LOCAL, group_txids_max=1))
    assert operations.verify(topology, LOCAL, access=access) == []

    operations.rewind(topology, 2, LOCAL, access=access).apply()
    assert letters_of(storage) == {(1, 1): "x", (2, 1): "\0", (2, 2): "four"}
    run_to_end(topology, storage)
    again = {(1, 1): "x", (2, 1): "\0", (2, 2): "four", (4, 1): ""}
    assert letters_of(storage) == again  # txid 3 is left empty

    name = "dead_letters.dead_letters"
    operations.forget(topology, LOCAL, state=name, access=access).apply()
    shown = operations.show(topology, LOCAL, access=access)
    released = shown.states[name]
    assert isinstance(released, Ledger)
    assert released.topology == ""
    assert letters_of(storage) == again


def test_a_streaming_query_has_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage.in_sqlite(tmp_path)
    topology = parsing(storage, StreamSpout(TEXT), tasks=1)
    write_batch = topology.foreach_batch(slots=2)

    for number in range(3):
        texts = [(text,) for text in ROWS[4 * number : 4 * number + 4]]
        write_batch(spark.createDataFrame(texts, "text string"), number)
    write_batch(spark.createDataFrame([("",), ("7",)], "text string"), 2)

    check(storage)


class Texts(TransactionalCoordinator):
    def is_ready(self, txid: int, last: Any) -> bool:
        return txid <= 3

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        return 4 * txid - 4


def texts_of(spark: Any, attempt: Any, metadata: Any) -> Any:
    return spark.createDataFrame([(t,) for t in ROWS[metadata : metadata + 4]], "text string")


def test_a_bolt_below_a_dataframe_has_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage.in_sqlite(tmp_path)
    spout = DataFrameTransactionalSpout(Texts(), texts_of, TEXT)

    run_to_end(parsing(storage, spout), storage, on("dataframe"), spark)

    check(storage)


def folded(records: Sequence[Any]) -> dict[int, int]:
    good = [int(text) for batch, text in records if text.isdigit()]
    return {number: good.count(number) for number in good}


def letters_folded(records: Sequence[Any]) -> dict[Any, Any]:
    place = {"source": "rows", "stream": "default"}
    expected: dict[Any, Any] = {}
    for batch in {each[0] for each in records}:
        bad = [
            dead_letter("parse", RecordFailed("no number"), place, {"batch": b, "text": text})
            for b, text in records
            if b == batch and not text.isdigit()
        ]
        expected |= {(batch, at): row for at, row in enumerate(in_order(bad), 1)}
    return expected


class ParseBatch(BasicBolt):
    output_fields = Fields("number long")

    def execute(self, tuple: Any, collector: Any) -> None:
        collector.emit([int(tuple["text"]) if tuple["text"].isdigit() else -1])
        if not tuple["text"].isdigit():
            raise RecordFailed("no number")


def test_a_users_simulation_judges_dead_letters() -> None:
    rows = [[(txid, text) for text in ROWS[3 * txid - 3 : 3 * txid]] for txid in (1, 2, 3)]
    spout = ScriptedTransactionalSpout(Fields("batch long, text string"), rows)
    builder = TransactionalTopologyBuilder(
        "simulated", "rows", spout, dead_letters=open_state("memory:")
    )
    builder.set_bolt("parse", ParseBatch(), 2).shuffle_grouping("rows")
    counts = PersistentAggregate(open_state("memory:"), "number", Count())
    builder.set_bolt("counts", counts).fields_grouping("parse", "number")

    report = simulate(
        builder.build_topology(), {"counts": folded, "dead_letters": letters_folded}, seeds=20
    )

    assert report.txids >= 60
