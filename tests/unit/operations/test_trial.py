"""Trial: a changed program computes txids of the past beside the running one, and is compared."""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, started
from tests.unit.command.documents import document
from tests.unit.operations.test_replay import NOON, windows
from tests.unit.topology.frame_parts import By, spout
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
    open_state,
)
from txtopo.bolts import KafkaSink
from txtopo.ensemble import MemoryEnsemble
from txtopo.errors import ForeignStateError, StateUsageError, TopologyChanged
from txtopo.operations import Access, Trial, TriedState, trial
from txtopo.operations.beginnings import Beginnings
from txtopo.operations.overlay import OverlayState, PastRows
from txtopo.operations.past import rows_after
from txtopo.operations.replay import DIFFERS, EQUAL, NOT_COMPARED
from txtopo.operations.table_comparison import compared_stored
from txtopo.operations.trial_text import trial_json
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.state import Ledger, State, StateKind
from txtopo.state.backend import Key, Puts, Snapshot, StateTable
from txtopo.state.declaration import declaration
from txtopo.state.evolution import table_change
from txtopo.state.values import Row, first_row
from txtopo.streams import tumbling
from txtopo.topology.graph import fingerprint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID = "words"
WORDS = ("cat", "dog", "cat", "eel", "dog", "cat", "cat", "eel", "dog", "fox")
"""Two in each of five txids."""
CONFIG = replace(LOCAL, group_txids_max=1)


class Clean(BasicBolt):
    """Makes a word of each word, or none."""

    output_fields = Fields("word string, size long")

    def __init__(self, clean: Callable[[str], str | None]) -> None:
        self.clean = clean

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if (word := self.clean(tuple["word"])) is not None:
            collector.emit([word, len(word)])


def as_it_is(word: str) -> str | None:
    return word


def planted(word: str) -> str | None:
    """Lose the eels, and misspell the dogs."""
    return None if word == "eel" else word.replace("dog", "dgo")


def poison(word: str) -> str | None:
    if word == "eel":
        raise ValueError("no fish")
    return word


@dataclass
class Words:
    """A topology that counts words, its stores, and programs that change it.

    Attributes:
        state: Where its tables are.
        ensemble: Its ZooKeeper.
        group: How many txids are committed in one write.
    """

    state: State
    ensemble: MemoryEnsemble = field(default_factory=MemoryEnsemble)
    group: int = 1

    def topology(
        self,
        clean: Callable[[str], str | None] = as_it_is,
        *,
        rows: Sequence[str] = WORDS,
        batches: int = 5,
        id: str = ID,
        spouts: tuple[str, ...] = ("words",),
        opaque: bool = False,
        tables: tuple[tuple[str, str], ...] = (("counts", "counts"),),
        what: Any = None,
        key: str = "word",
        cleans: type[Clean] = Clean,
        state: State | None = None,
    ) -> Topology:
        """Return a program; *tables* has the bolts with the names of their tables."""
        source: list[list[Any]] = [[word] for word in rows[: 2 * batches]]
        kind = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
        sources = {name: kind({0: source}, Fields("word string"), 2) for name in spouts}
        first, *more = spouts
        builder = TransactionalTopologyBuilder(id, first, sources[first])
        for name in more:
            builder.set_spout(name, sources[name])
        declarer = builder.set_bolt("clean", cleans(clean))
        for name in spouts:
            declarer.shuffle_grouping(name)
        for bolt, table in tables:
            aggregate = PersistentAggregate(
                (state or self.state).named(table), key, what or {"n": Count()}
            )
            builder.set_bolt(bolt, aggregate).fields_grouping("clean", key)
        return builder.build_topology()

    def spout(self, rows: Sequence[str]) -> MemoryTransactionalSpout:
        return MemoryTransactionalSpout({0: [[each] for each in rows]}, Fields("word string"), 2)

    def run(self, batches: int = 5, **changes: Any) -> Words:
        config = replace(
            CONFIG,
            group_txids_max=self.group,
            max_spout_pending=3 * self.group,
            poll_interval_s=0.01 if self.group == 1 else 1.5,
        )
        topology = self.topology(batches=batches, **changes)
        with started(topology, config, self.ensemble) as run:
            run.process_all_available(LIMIT_S)
        return self

    def tried(self, topology: Topology, first: int, last: int | None = None, **more: Any) -> Trial:
        return trial(topology, first, last, CONFIG, access=Access(ensemble=self.ensemble), **more)


@pytest.fixture
def words(tmp_path: Path) -> Words:
    return Words(open_state(f"sqlite:///{tmp_path}/words.db"))


def rows(state: TriedState) -> dict[str, Any]:
    """Return the words that differ: the changed count, and the running one."""
    assert state.comparison is not None
    return {
        each.key[0]: (each.here and each.here[0], each.there and each.there[0])
        for each in state.comparison.differences
    }


@pytest.mark.parametrize(("first", "last"), [(1, 5), (2, 4), (5, 5)])
@pytest.mark.rule("txtopo.operations.trial", "Rules", 1)
def test_a_planted_mistake_is_named_with_its_rows(words: Words, first: int, last: int) -> None:
    """Only the last txid is begun with the rows of then; yet both begin with the same ones."""
    words.run()
    now = {"cat": 4, "dog": 3, "eel": 2, "fox": 1}
    before = dict.fromkeys(now, 0) | {"cat": 4, "dog": 2, "eel": 2} if first == 5 else now
    part = WORDS[2 * (first - 1) : 2 * last]

    found = words.tried(words.topology(planted), first, last, against=words.topology())

    dogs, eels = part.count("dog"), part.count("eel")
    expected: dict[str, Any] = {"dgo": (dogs, None), "dog": (before["dog"], before["dog"] + dogs)}
    if eels:
        expected["eel"] = (before["eel"], before["eel"] + eels)
    state = found.states["counts.counts"]
    assert rows(state) == expected
    assert not found.equal
    assert found.differing == ("counts.counts",)
    assert found.differences == ()
    assert found.start == ()
    assert found.failure is None
    assert found.spouts == {"words": EQUAL}
    assert len(found.times_s) == len(found.running_times_s) == last - first + 1
    assert state.comparison is not None
    assert len(state.comparison.only_here) == 1
    assert len(state.comparison.changed) == len(expected) - 1
    text = str(found)
    assert "only in the changed program: 1 row" in text
    assert f"{{'word': 'dgo'}}: {{'n': {dogs}}}" in text
    assert f"{{'word': 'dog'}}: n {before['dog'] + dogs} → {before['dog']}" in text
    assert text.endswith("different: counts.counts")


@pytest.mark.parametrize(("first", "last"), [(1, 5), (2, 3), (5, 5)])
@pytest.mark.parametrize("group", [1, 3])
def test_the_program_that_runs_is_equal_to_itself(
    tmp_path: Path, group: int, first: int, last: int
) -> None:
    words = Words(open_state("memory:"), group=group).run()

    found = words.tried(words.topology(), first, last, against=words.topology())

    assert found.equal, str(found)
    assert found.states["counts.counts"].written > 0
    assert str(found).endswith("equal")


@pytest.mark.rule("txtopo.operations.trial", "Rules", 2)
def test_without_the_running_program_a_table_is_compared_with_what_its_store_held(
    words: Words,
) -> None:
    words.run()

    equal = words.tried(words.topology(), 5)
    found = words.tried(words.topology(planted), 5)

    assert equal.equal, str(equal)
    assert equal.spouts == {"words": EQUAL}
    assert rows(found.states["counts.counts"]) == {"dgo": (1, None), "dog": (2, 3)}
    assert found.states["counts.counts"].compared_with == "what its store held after txid 5"


@pytest.mark.rule("txtopo.operations.trial", "Rules", 3)
def test_a_table_that_moved_on_is_not_compared_and_so_not_equal(words: Words) -> None:
    words.run()

    moved_on = words.tried(words.topology(), 4, 4)
    begun_later = words.tried(words.topology(), 4, 5)

    for found in (moved_on, begun_later):
        state = found.states["counts.counts"]
        assert state.comparison is None
        assert state.compared_with.startswith(NOT_COMPARED)
        assert "as it is now, with txid 5" in state.begins
        assert not found.equal
        assert found.differing == ()
        assert str(found).endswith("not every table was compared")


@pytest.mark.integration
def test_delta_begins_as_of_a_version_and_is_compared_with_another(tmp_path: Path) -> None:
    kinds: tuple[StateKind, ...] = ("opaque", "transactional")
    for kind in kinds:
        words = Words(open_state(f"delta:///{tmp_path}/{kind}", kind))
        words.run()

        assert words.tried(words.topology(), 2, 4).equal
        found = words.tried(words.topology(planted), 2, 4)

        state = found.states["counts.counts"]
        assert state.begins == "as of txid 1, by the history of its store"
        assert rows(state) == {"dgo": (1, None), "dog": (1, 2), "eel": (None, 2)}


def test_a_range_within_a_group_begins_with_the_group() -> None:
    words = Words(open_state("memory:"), group=5).run()
    first = trial_group(words)
    assert first < 5

    found = words.tried(words.topology(), 5)

    assert (found.first_txid, found.begun_txid) == (5, first)
    assert found.equal
    assert "with which the states begin, computed first" in str(found)


def trial_group(words: Words) -> int:
    """Return the first txid of the last group."""
    with words.state.named("counts").reader() as reader:
        assert reader.ledger is not None
        return reader.ledger.writer.first_txid


def test_a_trial_touches_nothing_of_the_running_topology(words: Words, tmp_path: Path) -> None:
    words.run()

    def held() -> Any:
        with sqlite3.connect(tmp_path / "words.db") as connection:
            dump = [*connection.iterdump()]
        content = (tmp_path / "words.db").read_bytes()
        return dump, content, dict(words.ensemble.nodes), sorted(map(str, tmp_path.iterdir()))

    before = held()
    changed = words.topology(
        planted, tables=(("counts", "counts"), ("more", "more")), what={"m": Sum("size")}
    )
    other_store = words.topology(planted, state=open_state(f"sqlite:///{tmp_path}/other.db"))

    for topology in (words.topology(planted), changed, other_store):
        words.tried(topology, 2, 5)
        words.tried(topology, 5, against=words.topology())

    assert held() == before


def test_windows_of_a_stream_are_compared(tmp_path: Path) -> None:
    ensemble, url = MemoryEnsemble(), f"sqlite:///{tmp_path}/states.db"
    running = windows(5, url)
    with started(running, CONFIG, ensemble) as run:
        run.process_all_available(LIMIT_S)

    def tried(topology: Topology, **more: Any) -> Trial:
        return trial(topology, 5, 5, CONFIG, access=Access(ensemble=ensemble), **more)

    changed = changed_windows(url)

    assert tried(windows(5, url)).equal
    whole = trial(windows(5, url), 1, 5, CONFIG, against=running, access=Access(ensemble=ensemble))
    assert (whole.equal, whole.differing) == (False, ())
    assert whole.states["closed.closed"].comparison is None, "all windows had closed before"
    for found in (tried(changed), tried(changed, against=running)):
        assert "revenue" in " ".join(found.differing)
        assert not found.equal


def changed_windows(url: str) -> Topology:
    """Return the program of :func:`windows` with all sales in one shop."""
    minutes = [0, 2, 6, 4, 8, 9, 13, 3, 20, 1]
    sales = [["n", minute, NOON + datetime.timedelta(minutes=minute)] for minute in minutes]
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


@pytest.mark.rule("txtopo.operations.beginnings", "Rules", 3)
def test_a_new_column_has_its_default_in_rows_of_the_past(words: Words) -> None:
    words.run()
    changed = words.topology(planted, what={"letters": Sum("size"), "n": Count()})

    found = words.tried(changed, 5, against=words.topology())

    state = found.states["counts.counts"]
    assert state.comparison is not None
    assert state.comparison.left_out == ("letters",)
    assert {each.key[0]: (each.here, each.there) for each in state.comparison.differences} == {
        "dgo": ((3, 1), None),
        "dog": ((None, 2), (3,)),
    }
    assert found.start == ("a start would need Config(allow_change=['columns'])",)
    (difference,) = found.differences
    assert "state 'counts' of 'counts' was" in difference
    assert words.tried(changed, 5).states["counts.counts"].comparison == state.comparison


@pytest.mark.rule("txtopo.operations.beginnings", "Rules", 2)
def test_a_new_state_begins_empty_and_a_missing_one_is_told(words: Words) -> None:
    words.run()
    changed = words.topology(tables=(("counts", "counts"), ("more", "more")))

    found = words.tried(changed, 4, 5, against=words.topology())
    without = words.tried(words.topology(), 5, against=changed)

    assert found.states["more.more"].begins == "empty, because it is new"
    assert found.states["more.more"].written == 4
    assert found.states["more.more"].comparison is None
    assert found.start == ("a start would need Config(allow_change=['components', 'states'])",)
    assert found.equal
    assert without.gone == ("more.more",)
    assert "state 'more.more': only in the running program" in str(without)


def test_a_renamed_bolt_keeps_its_table(words: Words) -> None:
    words.run()
    changed = words.topology(tables=(("tally", "counts"),))

    found = words.tried(changed, 5, against=words.topology())

    assert found.equal, str(found)
    assert words.tried(changed, 5).equal
    assert list(found.states) == ["tally.tally"]
    assert found.gone == ()


def test_columns_that_no_start_would_change_begin_empty_and_are_not_compared(words: Words) -> None:
    words.run()
    changed = words.topology(key="size")

    for found in (words.tried(changed, 5, against=words.topology()), words.tried(changed, 5)):
        assert (
            found.states["counts.counts"].begins == "empty, because its table has different columns"
        )
        assert found.states["counts.counts"].compared_with.startswith(NOT_COMPARED)
        assert "its key cannot change" in found.start[-1]
        assert not found.equal


def test_a_table_that_a_start_would_refuse_begins_empty(words: Words, tmp_path: Path) -> None:
    words.run()
    others = open_state(f"sqlite:///{tmp_path}/others.db")
    missing = words.tried(words.topology(state=others), 5, against=words.topology())
    Words(others).run(id="other", batches=2)

    foreign = words.tried(words.topology(state=others), 5, against=words.topology())

    assert missing.states["counts.counts"].begins == "empty, as its table is"
    assert foreign.states["counts.counts"].begins == (
        "empty, because its table belongs to another topology"
    )
    for found in (missing, foreign):
        assert found.start
        assert found.states["counts.counts"].compared_with.startswith(NOT_COMPARED)
        assert not found.equal


def test_a_new_spout_brings_nothing_since_no_txid_has_a_plan_of_it(words: Words) -> None:
    words.run()

    found = words.tried(words.topology(spouts=("words", "more")), 4, against=words.topology())

    assert found.equal, str(found)
    assert "component 'more' is new" in found.differences[0]


def test_a_spout_that_brings_other_rows_is_told(words: Words) -> None:
    words.run()
    other = words.topology(rows=(*WORDS[:8], "emu", "fox"))
    short = words.topology(batches=4)

    for running in (words.topology(), None):
        found = words.tried(other, 4, against=running)
        assert found.spouts["words"] == f"{DIFFERS} from txid 5 on: it delivered other rows"
        lost = words.tried(short, 4, against=running)
        assert lost.failure is not None
        assert lost.failure.txid == 5
        assert lost.failure.error.startswith("OffsetRegression")
        assert lost.spouts["words"].startswith(NOT_COMPARED)


@pytest.mark.rule("txtopo.operations.trial", "Rules", 4)
def test_a_failure_is_told_with_its_row(words: Words) -> None:
    words.run()

    found = words.tried(words.topology(poison), 1, against=words.topology())

    failure = found.failure
    assert failure is not None
    assert (failure.txid, failure.component, failure.running) == (2, "clean", False)
    assert failure.raised is not None
    assert failure.raised.row == {"word": "eel"}
    assert failure.error == "ValueError: no fish"
    assert found.states["counts.counts"].compared_with == f"{NOT_COMPARED}: txid 2 failed"
    assert not found.equal
    assert "on the row of words.default: {'word': 'eel'}" in str(found)
    assert str(found).endswith("failed")


def test_an_opaque_spout_repeats_its_stored_batches(words: Words) -> None:
    words.run(opaque=True)

    assert words.tried(words.topology(opaque=True), 5).equal
    found = words.tried(words.topology(planted, opaque=True), 5)
    assert rows(found.states["counts.counts"]) == {"dgo": (1, None), "dog": (2, 3)}
    assert found.spouts["words"].startswith(NOT_COMPARED)


def test_the_rows_of_a_trial_can_be_left_in_a_store(words: Words, tmp_path: Path) -> None:
    words.run()
    url = f"sqlite:///{tmp_path}/scratch.db"

    found = words.tried(words.topology(planted), 4, store=url)

    assert found.tables == ("counts",)
    with open_state(url, table="counts").reader() as reader:
        assert reader.ledger is not None
        assert (reader.ledger.txid, reader.ledger.topology) == (5, "words (tried)")
        assert dict(reader.items()) == {"cat": 5, "dgo": 1, "fox": 2}
    with pytest.raises(StateUsageError, match=r"table 'counts' of .*scratch.db exists"):
        words.tried(words.topology(planted), 4, store=url)
    with (
        started(words.topology(state=open_state(url)), CONFIG, MemoryEnsemble()) as run,
        pytest.raises(ForeignStateError),
    ):
        run.process_all_available(LIMIT_S)


def test_no_table_of_the_topology_is_scratch(words: Words, tmp_path: Path) -> None:
    words.run()
    changed = words.topology(tables=(("counts", "counts"), ("more", "more")))

    with pytest.raises(StateUsageError, match=r"table 'counts' of .*words.db belongs to the"):
        words.tried(changed, 4, store=f"sqlite:///{tmp_path}/../{tmp_path.name}/words.db")
    assert words.tried(changed, 4).states["more.more"].begins == "empty, because it is new"


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (3, 2, "there are no txids to compute; got first txid 3, which is after 2"),
        (7, None, "there are no txids to compute; got first txid 7, which is after 5"),
        (0, 3, "txids begin at 1"),
        (3, 9, "it was not planned yet; ZooKeeper has txids 1 to 5"),
    ],
)
def test_a_range_that_is_not_stored_is_refused(
    words: Words, first: int, last: int | None, text: str
) -> None:
    words.run()

    with pytest.raises(StateUsageError, match=text):
        words.tried(words.topology(), first, last)


def test_programs_of_two_topologies_are_refused(words: Words) -> None:
    words.run()

    with pytest.raises(StateUsageError, match="the programs belong to different topologies"):
        words.tried(words.topology(id="other"), 1, against=words.topology())
    with pytest.raises(StateUsageError, match="ZooKeeper has no txid"):
        words.tried(words.topology(id="other"), 1, 5)


def test_a_spout_of_another_kind_cannot_read_the_txids(words: Words) -> None:
    words.run()

    with pytest.raises(TopologyChanged, match="the txids of the past cannot be read"):
        words.tried(words.topology(opaque=True), 1)


def test_the_json_is_as_documented(words: Words) -> None:
    words.run()
    for changed in (as_it_is, planted, poison):
        found = words.tried(words.topology(changed), 5, 5, against=words.topology())

        printed = document("try", json.dumps(trial_json(found)))

        assert printed["equal"] == found.equal


class Timed(Clean):
    """Asks for the time at which a batch was planned."""

    needs_planned_time = True


def test_txids_without_the_planned_time_are_refused_if_a_program_asks_for_it(words: Words) -> None:
    words.run()

    with pytest.raises(StateUsageError, match="txid 2 was planned without what the program needs"):
        words.tried(words.topology(cleans=Timed), 2)


def test_a_sink_is_not_connected_to(words: Words) -> None:
    words.run()

    def sinking(clean: Callable[[str], str | None]) -> Topology:
        builder = TransactionalTopologyBuilder(ID, "words", words.spout(WORDS))
        builder.set_bolt("clean", Clean(clean)).shuffle_grouping("words")
        sink = KafkaSink("127.0.0.1:1", "cleaned", value=("word",))
        builder.set_bolt("sink", sink).global_grouping("clean")
        return builder.build_topology()

    found = words.tried(sinking(planted), 4, against=sinking(as_it_is))
    alone = words.tried(sinking(as_it_is), 4)

    assert found.differing == ("sink.sink",)
    assert alone.states["sink.sink"].begins.startswith("empty, because it is a sink")
    assert alone.states["sink.sink"].compared_with == (
        f"{NOT_COMPARED}: what was sent is not read back"
    )
    assert not alone.equal
    assert alone.gone == ("counts.counts",)


def test_parts_of_a_log_are_compared(tmp_path: Path) -> None:
    words = Words(open_state(f"delta:///{tmp_path}/log", mode="log")).run()

    assert words.tried(words.topology(), 2, 4, against=words.topology()).equal
    found = words.tried(words.topology(planted), 2, 4, against=words.topology())

    assert found.differing == ("counts.counts",)
    assert {*rows(found.states["counts.counts"])} == {"dgo", "dog", "eel"}
    assert not words.tried(words.topology(), 5).equal, "a log is not compared with its store"


class Stamps(BatchBolt, Committer):
    """Executes a statement for each batch."""

    def __init__(self, text: str) -> None:
        self.text = text

    def prepare(
        self, config: Config, context: TaskContext, collector: Any, attempt: TransactionAttempt
    ) -> None:
        self.context, self.attempt, self.rows = context, attempt, 0

    def execute(self, tuple: Tuple) -> None:
        self.rows += 1

    def finish_batch(self) -> None:
        with self.context.state("seen").transaction(self.attempt) as state:
            state.put(str(self.attempt.txid), self.rows)
            state.execute(self.text, {"rows": self.rows})


def test_statements_are_compared_and_not_executed(tmp_path: Path) -> None:
    words = Words(open_state(f"sqlite:///{tmp_path}/own.db"))
    with sqlite3.connect(tmp_path / "own.db") as connection:
        connection.execute("CREATE TABLE own (seen_rows INTEGER)")

    def executing(text: str) -> Topology:
        builder = TransactionalTopologyBuilder(ID, "words", words.spout(WORDS))
        declarer = builder.set_bolt("own", Stamps(text)).global_grouping("words")
        declarer.with_state("seen", words.state)
        return builder.build_topology()

    running = executing("INSERT INTO own VALUES (:rows)")
    with started(running, CONFIG, words.ensemble) as run:
        run.process_all_available(LIMIT_S)

    equal = words.tried(executing("INSERT INTO own VALUES (:rows)"), 4, against=running)
    found = words.tried(executing("INSERT INTO own VALUES (2 * :rows)"), 4, against=running)
    alone = words.tried(running, 5)

    assert equal.equal, str(equal)
    assert found.differing == ("own.seen",)
    assert "the running program made other statements" in str(found)
    assert alone.states["own.seen"].compared_with.endswith("statements were not executed")
    with sqlite3.connect(tmp_path / "own.db") as connection:
        assert connection.execute("SELECT COUNT(*) FROM own").fetchone() == (5,)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("what", ["tasks", "frames"])
def test_a_trial_runs_on_spark(tmp_path: Path, spark: SparkSession, what: str) -> None:
    words = Words(open_state(f"sqlite:///{tmp_path}/words.db"))
    access = Access(spark=spark, ensemble=words.ensemble)
    if what == "tasks":
        running, changed = words.topology(), words.topology(planted)
    else:
        running, changed = (
            framed(words.state, "word", "amount"),
            framed(words.state, "word", "amount * 2 AS amount"),
        )
    with started(running, replace(CONFIG, carrier="auto"), words.ensemble, spark=spark) as run:
        run.process_all_available(LIMIT_S)

    equal = trial(running, 1, config=CONFIG, against=running, on="spark", access=access)
    found = trial(changed, 1, config=CONFIG, against=running, on="spark", access=access)

    assert equal.equal, str(equal)
    assert found.failure is None
    assert found.differing


def framed(state: State, *columns: str) -> Topology:
    builder = TransactionalTopologyBuilder(ID, "spout", spout())
    builder.set_bolt("changed", By(*columns)).shuffle_grouping("spout")
    sums = PersistentAggregate(state.named("sums"), "word", {"total": Sum("amount")})
    builder.set_bolt("sums", sums).fields_grouping("changed", "word")
    return builder.build_topology()


@pytest.mark.rule("txtopo.operations.beginnings", "Rules", 1)
def test_all_programs_begin_with_the_rows_of_one_moment() -> None:
    """Also if the topology commits while they are opened."""
    words = Words(open_state("memory:")).run(batches=4)
    graph = words.topology().graph
    with ExitStack() as stack:
        beginnings = Beginnings(ID, fingerprint(graph), 4, 5, stack)
        first = beginnings.of(graph)
        words.run(batches=5)

        second = beginnings.of(graph)

        assert [each.how for each in first.values()] == [each.how for each in second.values()]
        (one,), (other,) = (
            [each.overlay.rows([("cat",), ("dog",)]) for each in found.values()]
            for found in (first, second)
        )
        assert one == other


def test_a_program_without_a_common_table_is_not_equal(words: Words) -> None:
    words.run()
    changed = words.topology(tables=(("others", "others"),))

    found = words.tried(changed, 4, against=words.topology())

    assert found.gone == ("counts.counts",)
    assert not found.equal


class Rows(Snapshot):
    """Rows of a store."""

    def __init__(self, rows: Mapping[Key, Row]) -> None:
        self._rows = rows

    @property
    def ledger(self) -> None:
        return None

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        return {key: self._rows[key] for key in keys if key in self._rows}

    def items(self) -> Iterator[tuple[Key, Row]]:
        return iter(self._rows.items())


@pytest.mark.parametrize("expires", [True, False])
def test_what_the_running_program_deleted_is_told_but_not_what_has_expired(expires: bool) -> None:
    """The program that runs has deleted days 1 and 2; or its store has, since they expired."""
    range_by = "day" if expires else None
    table = StateTable("days", "opaque", Fields("day long"), Fields("n long"), range_by=range_by)
    old = {(day,): first_row(1, (day,)) for day in (1, 2, 3)}
    state = OverlayState(table, PastRows(Rows(old)), Ledger(ID, 0, 1))
    attempt = TransactionAttempt(2, 0, 1)
    state.admit(attempt)
    state.commit(attempt, Puts({(2,): (7,), (4,): (4,)}))
    if expires:
        state.expired(2, 2)
    now = Rows({(3,): old[(3,)], (4,): first_row(2, (5,))})

    found = compared_stored(state, table, PastRows(now), table, 2)

    differing = [each.key for each in found.differences]
    assert differing == ([(4,)] if expires else [(1,), (2,), (4,)])


class Numbers(BatchBolt, Committer):
    """Emits how many rows there were so far, after each batch."""

    output_fields = Fields("rows long")

    def prepare(
        self, config: Config, context: TaskContext, collector: Any, attempt: TransactionAttempt
    ) -> None:
        self.context, self.attempt, self.collector, self.rows = context, attempt, collector, 0

    def execute(self, tuple: Tuple) -> None:
        self.rows += 1

    def finish_batch(self) -> None:
        with self.context.state("seen").transaction(self.attempt) as state:
            rows = state.get("rows", 0) + self.rows
            state.put("rows", rows)
        self.collector.emit([rows])


@pytest.mark.integration
@pytest.mark.rule("txtopo.operations.trial", "Rules", 2)
def test_below_a_state_of_another_time_nothing_is_compared_with_stores(tmp_path: Path) -> None:
    words = Words(open_state("memory:"))
    builder = TransactionalTopologyBuilder(ID, "words", words.spout(WORDS))
    declarer = builder.set_bolt("numbers", Numbers()).global_grouping("words")
    declarer.with_state("seen", words.state)
    counts = PersistentAggregate(open_state(f"delta:///{tmp_path}/counts"), "rows", {"n": Count()})
    builder.set_bolt("counts", counts).fields_grouping("numbers", "rows")
    topology = builder.build_topology()
    with started(topology, CONFIG, words.ensemble) as run:
        run.process_all_available(LIMIT_S)

    found = words.tried(topology, 2, 3)

    assert found.states["counts.counts"].begins == "as of txid 1, by the history of its store"
    assert found.states["counts.counts"].compared_with == (
        f"{NOT_COMPARED}: state 'seen' of 'numbers' does not begin as of txid 1"
    )
    assert words.tried(topology, 2, 3, against=topology).equal


@pytest.mark.integration
def test_a_range_that_ends_within_a_group_is_not_compared_with_a_store(tmp_path: Path) -> None:
    words = Words(open_state(f"delta:///{tmp_path}/grouped"), group=5).run()
    assert trial_group(words) < 5

    found = words.tried(words.topology(), 4, 4)

    assert found.states["counts.counts"].compared_with == (
        f"{NOT_COMPARED}: its store no longer has what it held after txid 4"
    )


def test_rows_from_before_the_last_txid_are_known_if_the_topology_moves_on() -> None:
    words = Words(open_state("memory:")).run()
    state = words.topology().graph.components["counts"].states["counts"]
    with ExitStack() as stack:
        found = [rows_after(state.layout(), state.open(), txid, stack) for txid in (5, 4, 3)]

        seen = [
            None
            if each is None or each.snapshot is None
            else {key[0]: each.values(row) for key, row in each.snapshot.items()}
            for each in found
        ]

    assert seen == [
        {"cat": (4,), "dog": (3,), "eel": (2,), "fox": (1,)},
        {"cat": (4,), "dog": (2,), "eel": (2,), "fox": None},
        None,
    ]


def test_ranges_are_read_from_rows_with_other_columns() -> None:
    stored = StateTable("t", "opaque", Fields("k long"), Fields("day long"), range_by="day")
    columns = Fields("note string, day long")
    declared = replace(stored, value=columns, defaults=(("note", "-"),))
    change = table_change(declaration(stored), declared, "t")
    rows = {(key,): first_row(1, (key,)) for key in range(4)}
    state = OverlayState(declared, PastRows(Rows(rows), change=change), Ledger(ID, 0, 1))

    with state.snapshot() as snapshot:
        found = dict(snapshot.between(declared, 1, 2, 2))

    assert found[2,].current == ("-", 2)


@pytest.mark.parametrize("opaque", [False, True])
def test_a_repaired_program_is_tried_on_the_batch_that_fails(opaque: bool) -> None:
    words = Words(open_state("memory:"))
    config = replace(CONFIG, attempts_max=1)
    with (
        started(words.topology(poison, opaque=opaque), config, words.ensemble) as run,
        pytest.raises(ValueError, match="no fish"),
    ):
        run.process_all_available(LIMIT_S)

    found = words.tried(words.topology(planted, opaque=opaque), 2, 2)

    state = found.states["counts.counts"]
    assert state.begins == "as it is, with txid 1"
    assert state.written == 1
    assert state.compared_with == f"{NOT_COMPARED}: txid 2 is not committed"


class Days(BatchBolt, Committer):
    """Puts the size of each word, and lets all sizes up to a bound expire."""

    def __init__(self, up_to: int) -> None:
        self.up_to = up_to

    def prepare(
        self, config: Config, context: TaskContext, collector: Any, attempt: TransactionAttempt
    ) -> None:
        self.context, self.attempt, self.words = context, attempt, dict[str, int]()

    def execute(self, tuple: Tuple) -> None:
        self.words[tuple["word"]] = self.attempt.txid

    def finish_batch(self) -> None:
        with self.context.state("days").transaction(self.attempt) as state:
            for word, day in self.words.items():
                state.put(word, day)
            state.expire(self.up_to)


@pytest.mark.rule("txtopo.operations.trial", "Rules", 1)
def test_rows_that_only_one_program_lets_expire_differ(words: Words) -> None:
    """In txid 5 come "dog" and "fox"; the rows of "cat" and "eel" are of txid 4."""
    state = words.state.named("days")
    days = replace(state, key=Fields("word string"), value=Fields("day long")).ranged("day")

    def expiring(up_to: int) -> Topology:
        builder = TransactionalTopologyBuilder(ID, "words", words.spout(WORDS))
        builder.set_bolt("days", Days(up_to)).global_grouping("words").with_state("days", days)
        return builder.build_topology()

    running = expiring(0)
    with started(running, CONFIG, words.ensemble) as run:
        run.process_all_available(LIMIT_S)

    equal = words.tried(expiring(0), 5, against=running)
    fewer = words.tried(expiring(4), 5, against=running)
    more = words.tried(running, 5, against=expiring(4))

    assert equal.equal, str(equal)
    assert rows(fewer.states["days.days"]) == {"cat": (None, 4), "eel": (None, 4)}
    assert rows(more.states["days.days"]) == {"cat": (4, None), "eel": (4, None)}


@pytest.mark.rule("txtopo.operations.trial", "Rules", 3)
def test_below_a_state_that_may_take_all_rows_for_repeated_ones_nothing_is_equal(
    words: Words,
) -> None:
    """Its table is read as it is now, so both programs drop each row, and neither counts one."""
    times = [[word, NOON + datetime.timedelta(minutes=at)] for at, word in enumerate(WORDS)]
    spout = MemoryTransactionalSpout({0: times}, Fields("word string, ts timestamp"), 2)

    def first_ones(wanted: str) -> Topology:
        builder = StreamBuilder(ID)
        stream = builder.source("words", spout, event_time="ts", delay="1 hour", max_ahead=None)
        stream = stream.drop_duplicates("word", within="1 day", state=words.state.named("seen"))
        stream = stream.filter(lambda row: wanted in row["word"], id="wanted")
        stream.group_by("word").persistent_aggregate(words.state.named("counts"), n=Count())
        return builder.build_topology()

    with started(first_ones(""), CONFIG, words.ensemble) as run:
        run.process_all_available(LIMIT_S)

    found = words.tried(first_ones("nothing"), 1, against=first_ones(""))
    exact = words.tried(first_ones(""), 5, against=first_ones(""))

    assert found.states["counts.counts"].compared_with.startswith(
        f"{NOT_COMPARED}: no row was written, below state 'marks' of 'marks'"
    )
    assert not found.equal
    assert exact.equal, str(exact)


@pytest.mark.rule("txtopo.operations.trial", "Rules", 3)
@pytest.mark.parametrize("against", [True, False])
def test_tables_without_a_column_in_common_are_not_compared(words: Words, against: bool) -> None:
    words.run()
    changed = words.topology(planted, what={"other": Count()})

    found = words.tried(changed, 5, against=words.topology() if against else None)

    state = found.states["counts.counts"]
    assert state.compared_with == f"{NOT_COMPARED}: they have no value column in common"
    assert not found.equal
