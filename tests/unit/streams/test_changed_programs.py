"""A program with event time changes between two starts: what has closed stays closed, and once."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import started
from tests.unit.runtime.evolving import SETTINGS
from tests.unit.streams.times import EVENT, at, events, minutes
from txtopo import Config, Count, Fields, StreamBuilder, TopologyError, open_state
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import StoreBehindCoordinator, TopologyChanged
from txtopo.operations import rebuild
from txtopo.operations.session import Access
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import State
from txtopo.streams import DataStream, session, sliding, tumbling

FIVE = tumbling("5 minutes")
Program = Callable[["Changing", StreamBuilder], object]


@dataclass
class Changing:
    """A topology whose program changes, with what outlives its runs: its store and ensemble.

    Attributes:
        url: The store.
        ensemble: The ensemble.
        rows: The rows of each source; a later start has more of them.
    """

    url: str
    ensemble: MemoryEnsemble = field(default_factory=MemoryEnsemble)
    rows: Mapping[str, Sequence[Sequence[Any]]] = field(default_factory=dict)
    _anchor: State | None = None

    def __post_init__(self) -> None:
        self._anchor = open_state(self.url)  # keeps what is in memory between two runs
        self.url = self._anchor.url

    def state(self, table: str) -> State:
        return open_state(self.url, table=table)

    def source(self, builder: StreamBuilder, id: str = "s", **declared: Any) -> DataStream:
        given = {"event_time": "ts", "max_ahead": None, **declared}
        spout = MemoryTransactionalSpout({0: self.rows[id]}, EVENT, 1)
        return builder.source(id, spout, **given)

    def count(self, stream: DataStream, window: Any = FIVE, **more: Any) -> None:
        """Count in windows, and how often each window has closed, and with how many rows."""
        counted = stream.group_by().window(window)
        table = counted.persistent_aggregate(self.state("rev"), n=Count(), **more)
        closed = table.final().select("n", w="window_start").group_by("w")
        closed.persistent_aggregate(self.state("closed"), times=Count())

    def run(self, program: Program, marks: State | None = None, **rows: Any) -> None:
        """Run a program to its end; it is a change if the program before was another one."""
        self.rows = rows
        builder = StreamBuilder("d", marks=marks)
        program(self, builder)
        config = Config(**SETTINGS, allow_change=bool(self.ensemble.nodes))
        with started(builder.build_topology(), config, self.ensemble) as run:
            run.process_all_available(LIMIT_S)

    def start(self, program: Program, **rows: Any) -> None:
        """Run a program without leave to change."""
        self.rows = rows
        builder = StreamBuilder("d")
        program(self, builder)
        with started(builder.build_topology(), Config(**SETTINGS), self.ensemble) as run:
            run.process_all_available(LIMIT_S)

    def held(self, table: str) -> dict[Any, Any]:
        with open_state(self.url, table=table).reader() as reader:
            return dict(sorted(reader.items(), key=str))

    @property
    def closed(self) -> dict[float | None, int]:
        """How often each window has closed, by its start in minutes after noon."""
        return {minutes(start): times for start, times in self.held("closed").items()}

    def counted(self, table: str = "rev") -> dict[float | None, int]:
        """The counts of a table of windows, by their starts in minutes after noon."""
        return {minutes(_start(key)): row["n"] for key, row in self.held(table).items()}


def _start(key: Any) -> datetime.datetime:
    found = key if isinstance(key, datetime.datetime) else key[0]
    assert isinstance(found, datetime.datetime)
    return found


@pytest.fixture
def world() -> Changing:
    return Changing("memory:")


@pytest.fixture
def sqlite(tmp_path: Path) -> Changing:
    return Changing(f"sqlite:///{tmp_path}/s.db")


def steps(first: int, last: int, every: int = 5) -> list[list[Any]]:
    """Rows in distances of some minutes, from one to another."""
    return events(*(("x", minute) for minute in range(first, last + 1, every)))


def once(*starts: float) -> dict[float, int]:
    return dict.fromkeys(starts, 1)


def plain(world: Changing, builder: StreamBuilder) -> None:
    world.count(world.source(builder))


OLD = events(("x", 0), ("x", 6), ("x", 11))
NEW = [*OLD, *events(("x", 1), ("x", 16), ("x", 30))]
"""The first three close 12:00 and 12:05; then a row is late for the first window."""

LATER = [["b1", "x", 1, at(20)], ["b2", "x", 1, at(31)]]


def assert_each_once(world: Changing) -> None:
    assert world.closed == once(0, 5, 10, 15)
    assert world.counted() == {0: 1, 5: 1, 10: 1, 15: 1, 30: 1}
    assert world.counted("rev_late") == {0: 1}


def test_a_program_that_does_not_change_goes_on(world: Changing) -> None:
    world.run(plain, s=OLD)
    assert world.closed == once(0, 5)

    world.start(plain, s=NEW)

    assert_each_once(world)


# ------------------------------------------------------------ other operators and tables


def one_before(table: str) -> Program:
    def program(world: Changing, builder: StreamBuilder) -> None:
        rows = world.source(builder)
        first = rows.group_by("id").window(tumbling("1 hour"))
        first.persistent_aggregate(world.state(table), id="first", n=Count())
        world.count(rows)

    return program


def test_an_operator_that_is_put_first_moves_no_watermark(world: Changing) -> None:
    world.run(plain, s=OLD)
    world.run(one_before("first"), s=NEW)

    assert_each_once(world)


def test_another_table_of_the_first_operator_moves_no_watermark(world: Changing) -> None:
    world.run(one_before("first"), s=OLD)
    world.run(one_before("second"), s=NEW)

    assert_each_once(world)
    assert not world.held("second_late"), "the new table begins with a watermark of its own"


def test_another_name_of_an_operator_moves_no_watermark(world: Changing) -> None:
    def renamed(world: Changing, builder: StreamBuilder) -> None:
        world.count(world.source(builder), id="another")

    world.run(plain, s=OLD)
    world.run(renamed, s=NEW)

    assert_each_once(world)


def test_an_operator_that_is_taken_out_moves_no_watermark(world: Changing) -> None:
    world.run(one_before("first"), s=OLD)
    world.run(plain, s=NEW)

    assert_each_once(world)


def test_marks_that_would_begin_again_are_refused(world: Changing) -> None:
    world.run(plain, s=OLD)

    with pytest.raises(
        TopologyChanged, match="state 'marks' of 'marks' would begin from the start"
    ) as found:
        world.run(plain, world.state("other"), s=NEW)

    text = "give StreamBuilder(marks=open_state(url, table='…')) the earlier table"
    assert text in str(found.value)
    assert world.closed == once(0, 5)


def test_marks_may_have_another_table_with_all_that_are_below_them(sqlite: Changing) -> None:
    def others(world: Changing, builder: StreamBuilder) -> None:
        counted = world.source(builder).group_by().window(FIVE)
        counted.persistent_aggregate(world.state("other"), n=Count())

    sqlite.run(plain, s=OLD)
    sqlite.run(others, sqlite.state("other_marks"), s=NEW)

    assert sqlite.counted("other") == {0: 1, 15: 1, 30: 1}


def test_marks_may_move_to_the_table_that_is_named(world: Changing) -> None:
    world.run(plain, s=OLD)
    world.run(one_before("first"), world.state("d_marks"), s=NEW)

    assert_each_once(world)


def test_marks_in_another_store_are_missed(sqlite: Changing, tmp_path: Path) -> None:
    """The first operator is in another store, and the default is beside it."""
    other = Changing(f"sqlite:///{tmp_path}/other.db")

    def elsewhere(world: Changing, builder: StreamBuilder) -> None:
        rows = world.source(builder)
        first = rows.group_by("id").window(tumbling("1 hour"))
        first.persistent_aggregate(other.state("first"), n=Count())
        world.count(rows)

    sqlite.run(plain, s=OLD)
    with pytest.raises(StoreBehindCoordinator, match=r"'marks\.marks'.*was the URL changed"):
        sqlite.run(elsewhere, s=NEW)
    sqlite.run(elsewhere, sqlite.state("d_marks"), s=NEW)

    assert_each_once(sqlite)


@pytest.mark.parametrize("window", [tumbling("10 minutes"), session("5 minutes"),
                                    sliding("5 minutes", every="1 minute"),
                                    tumbling("5 minutes", offset="1 minute")])  # fmt: skip
def test_other_windows_in_the_same_table_are_refused(world: Changing, window: Any) -> None:
    def others(world: Changing, builder: StreamBuilder) -> None:
        world.count(world.source(builder), window, id="renamed")

    world.run(plain, s=OLD)

    with pytest.raises(TopologyChanged, match="rows of 'renamed' would mean something else"):
        world.run(others, s=NEW)
    assert world.closed == once(0, 5)


def test_other_windows_in_a_table_of_their_own_begin(sqlite: Changing) -> None:
    def others(world: Changing, builder: StreamBuilder) -> None:
        counted = world.source(builder).group_by().window(tumbling("10 minutes"))
        counted.persistent_aggregate(world.state("tens"), n=Count())

    sqlite.run(plain, s=OLD)
    sqlite.run(others, s=NEW)

    assert sqlite.counted("tens") == {0: 1, 10: 1, 30: 1}


# ------------------------------------------------------------ another largest row


def largest(by: Any, smallest: Any = (), table: str = "best") -> Program:
    def program(world: Changing, builder: StreamBuilder) -> None:
        rows = world.source(builder)
        rows.group_by("key").max_by(world.state(table), by=by, smallest=smallest, id="best")

    return program


@pytest.mark.parametrize("other", [largest(("n", "ts")), largest("ts"), largest("n", "n")])
def test_rows_that_were_chosen_by_other_columns_are_refused(
    world: Changing, other: Program
) -> None:
    """Rows that are larger by the new columns may have been left out before."""
    world.run(largest("n"), s=OLD)
    held = world.held("best")

    with pytest.raises(TopologyChanged, match="rows of 'best' would mean something else"):
        world.run(other, s=NEW)
    assert world.held("best") == held


def test_rows_that_are_chosen_by_other_columns_have_a_table_of_their_own(
    sqlite: Changing,
) -> None:
    sqlite.run(largest("n"), s=OLD)
    sqlite.run(largest("ts", "ts", "earliest"), s=NEW)

    assert [row["ts"] for row in sqlite.held("earliest").values()] == [at(1)]


# ------------------------------------------------------------ other sources


def merged(world: Changing, builder: StreamBuilder) -> None:
    rows, others = world.source(builder), world.source(builder, "t")
    world.count(builder.merge(rows, others))


@pytest.mark.rule("txtopo.streams.event_time", "Rules", 8)
def test_a_source_that_is_merged_in_closes_nothing_again(world: Changing) -> None:
    world.run(plain, s=OLD)
    world.run(merged, s=NEW, t=LATER)

    assert world.closed == once(0, 5, 10, 15, 20)
    assert world.counted("rev_late") == {0: 1}


def test_a_source_without_a_row_that_is_merged_in_holds_the_watermark_back(world: Changing) -> None:
    world.run(plain, s=OLD)
    world.run(merged, s=NEW, t=[])

    assert world.closed == once(0, 5)
    assert world.counted("rev_late") == {0: 1}


def test_a_source_that_is_taken_out_closes_nothing_again(world: Changing) -> None:
    def both(world: Changing, builder: StreamBuilder) -> None:
        deduplicated(world, builder.merge(world.source(builder), world.source(builder, "t")))

    def alone(world: Changing, builder: StreamBuilder) -> None:
        deduplicated(world, world.source(builder))

    def deduplicated(world: Changing, rows: DataStream) -> None:
        world.count(rows)
        seen = rows.drop_duplicates("id", within="5 minutes", state=world.state("seen"))
        seen.group_by("id").persistent_aggregate(world.state("unique"), n=Count())

    rows = steps(0, 45)
    world.run(both, s=rows[:5], t=rows[:5])
    before = world.closed
    world.run(alone, s=rows)

    assert before == once(0, 5, 10, 15)
    assert world.closed == once(*range(0, 45, 5))
    assert world.held("unique") == {f"e{number}": 1 for number in range(1, 11)}


def test_a_longer_delay_holds_the_watermark_where_it_is(world: Changing) -> None:
    def slower(world: Changing, builder: StreamBuilder) -> None:
        world.count(world.source(builder, delay="10 minutes"))

    world.run(plain, s=OLD)
    world.start(slower, s=NEW)

    assert world.closed == once(0, 5, 10, 15)
    assert world.counted("rev_late") == {0: 1}


# ------------------------------------------------------------ another event time


def timed(**declared: Any) -> Program:
    def program(world: Changing, builder: StreamBuilder) -> None:
        world.count(world.source(builder, **declared))

    return program


@pytest.mark.parametrize(("before", "after"), [({}, {"by": "key"}), ({"by": "key"}, {}),
                                           ({"by": "key"}, {"by": ("key", "n")})])  # fmt: skip
@pytest.mark.rule("txtopo.streams.event_time", "Rules", 9)
def test_other_parts_are_a_change_and_then_the_old_ones_do_not_count(
    world: Changing, before: Any, after: Any
) -> None:
    rows = steps(0, 100)
    world.run(timed(**before), s=rows[:5])
    closed = world.closed

    with pytest.raises(TopologyChanged, match=r"rows of 's\.times' was event time 'ts' by "):
        world.start(timed(**after), s=rows)
    assert world.closed == closed
    several = after.get("by") == ("key", "n")
    world.run(timed(**after), s=rows)

    # Each row is a part of its own then, so the first new one holds the watermark.
    assert world.closed == once(*range(0, 25 if several else 100, 5))
    assert not world.held("rev_late")


def test_another_column_is_a_change_and_then_the_old_marks_do_not_count(world: Changing) -> None:
    def by(column: str) -> Program:
        def program(world: Changing, builder: StreamBuilder) -> None:
            fields = Fields(f"id string, key string, n long, {column} timestamp")
            spout = MemoryTransactionalSpout({0: world.rows["s"]}, fields, 1)
            world.count(builder.source("s", spout, event_time=column, max_ahead=None))

        return program

    rows = steps(0, 100)
    world.run(by("ts"), s=rows[:5])
    with pytest.raises(
        TopologyChanged, match=r"was event time 'ts' by .* is event time 'happened' by "
    ):
        world.start(by("happened"), s=rows)
    world.run(by("happened"), s=rows)

    assert world.closed == once(*range(0, 100, 5))


# ------------------------------------------------------------ other joins


def joined(upper: str, how: Any = "inner", id: str | None = None) -> Program:
    def program(world: Changing, builder: StreamBuilder) -> None:
        rows = world.source(builder)
        right = rows.select(id2="id", at="ts")
        both = rows.join(right, {"id": "id2"}, how=how, within=("0 seconds", upper),
                         state=world.state("joined"), id=id)  # fmt: skip
        world.count(both)

    return program


@pytest.mark.parametrize(("upper", "last"), [("0 minutes", 60), ("40 minutes", 25)])
def test_another_interval_of_a_join_above_closes_nothing_again(
    world: Changing, upper: str, last: int
) -> None:
    rows = steps(0, 65)
    world.run(joined("20 minutes"), s=rows[:10])
    before = world.closed
    world.run(joined(upper), s=rows)

    assert before == once(0, 5, 10, 15, 20)
    assert world.closed == once(*range(0, last + 1, 5) if last == 60 else range(0, last, 5))
    assert not world.held("rev_late")


def columns(left: str, right: str = "at=ts", table: str = "joined", late: Any = False) -> Program:
    """Join rows of which some columns are selected, as new=old."""

    def program(world: Changing, builder: StreamBuilder) -> None:
        lefts, rights = (dict(each.split("=") for each in side.split()) for side in (left, right))
        rows = world.source(builder)
        both = rows.select("id", **lefts).join(
            rows.select(id2="id", **rights), {"id": "id2"}, within=("0 seconds", "1 hour"),
            state=world.state(table), late=late and world.state(late),
        )  # fmt: skip
        both.group_by("id").persistent_aggregate(world.state("out"), rows=Count())

    return program


JOINED = "key=key n=n ts=ts"


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(columns("n=n key=key ts=ts"), id="another order"),
        pytest.param(columns("key=n n=key ts=ts"), id="another type"),
        pytest.param(columns("key=key ts=ts"), id="a column less"),
        pytest.param(columns(JOINED, "at=ts more=n"), id="a column more on the right"),
    ],
)
@pytest.mark.rule("txtopo.streams.interval_join", "Rules", 9)
def test_other_columns_of_a_join_in_the_same_table_are_refused(
    world: Changing, changed: Program
) -> None:
    rows = events(("a", 0), ("b", 1))
    world.run(columns(JOINED), s=rows[:1])
    before = dict(world.ensemble.nodes)

    with pytest.raises(TopologyChanged, match=r"buffered rows of 'joined' was left .*is left "):
        world.start(changed, s=rows)
    with pytest.raises(
        TopologyChanged, match=r"buffered rows of 'joined' would mean .* give the state another"
    ):
        world.run(changed, s=rows)
    assert world.ensemble.nodes == before


def test_other_columns_of_a_join_begin_in_another_table_beside_the_same_late_rows(
    world: Changing,
) -> None:
    rows = events(("a", 0), ("a", 90), ("a", 5), ("b", 95))
    world.run(columns("key=key ts=ts", late="late"), s=rows[:3])
    world.run(columns(JOINED, table="new", late="late"), s=rows)

    assert world.held("out") == {"e1": 1, "e2": 1, "e4": 1}
    late = [(row["side"], row["id"], row["n"]) for row in world.held("late").values()]
    assert late == [("left", "e3", None), ("right", "e3", None)]


def test_another_name_of_a_join_goes_on_with_the_same_columns(world: Changing) -> None:
    rows = steps(0, 65)
    world.run(joined("20 minutes"), s=rows[:10])
    world.run(joined("20 minutes", id="renamed"), s=rows)

    assert world.closed == once(*range(0, 45, 5))


# ------------------------------------------------------------ tables of late rows


def without_duplicates(*names: str) -> Program:
    def program(world: Changing, builder: StreamBuilder) -> None:
        rows = world.source(builder).select(*names)
        rows = rows.drop_duplicates("id", within="1 minute", state=world.state("seen"))
        rows.group_by("key").persistent_aggregate(world.state("out"), rows=Count())

    return program


def test_values_that_expire_by_event_time_do_not_go_on_by_planned_time(world: Changing) -> None:
    def program(**time: Any) -> Program:
        def made(world: Changing, builder: StreamBuilder) -> None:
            world.source(builder, **time).group_by("key").update(
                lambda value, row: ((value or 0) + 1, None),
                "value long",
                state=open_state(world.url, table="numbers", value=Fields("value long")),
                expire_after="1 hour",
            )

        return made

    world.run(program(), s=events(("a", 0)))

    with pytest.raises(TopologyChanged, match=r"by planned time; expected .* by event time; the"):
        world.run(program(event_time=None), s=events(("a", 0), ("a", 1)))
    assert world.held("numbers") == {"a": {"value": 1, "seen": at(0)}}


@pytest.mark.parametrize("url", ["memory", "sqlite"])
def test_rows_that_were_late_before_a_column_came_have_nothing_there(
    url: str, request: pytest.FixtureRequest
) -> None:
    world: Changing = request.getfixturevalue("world" if url == "memory" else url)
    rows = events(("a", 0), ("a", 30), ("a", 5), ("a", 6))
    world.run(without_duplicates("id", "key", "ts"), s=rows[:3])
    world.run(without_duplicates("id", "key", "n", "ts"), s=rows)

    late = world.held("seen_late").values()
    assert [(row["id"], row["n"]) for row in late] == [("e3", None), ("e4", 4)]


# ------------------------------------------------------------ names


def test_a_source_named_like_several_has_a_watermark_of_its_own(world: Changing) -> None:
    def program(world: Changing, builder: StreamBuilder) -> None:
        a, b, both = (world.source(builder, id) for id in ("a", "b", "a+b"))
        counting(world, builder.merge(a, b), "merged")
        counting(world, both, "third")

    early, late = steps(0, 2, 1), events(("x", 100), ("x", 50), ("x", 2))
    world.run(program, None, **{"a": early, "b": early, "a+b": late})

    assert world.counted("merged") == {0: 6}
    assert not world.held("merged_late")
    assert world.counted("third") == {100: 1}
    assert world.counted("third_late") == {0: 1, 50: 1}


def test_a_source_named_like_one_that_is_behind_has_a_watermark_of_its_own(world: Changing) -> None:
    def program(world: Changing, builder: StreamBuilder) -> None:
        a, b = world.source(builder, "a"), world.source(builder, "a-3600000000")
        right = a.select(id2="id", at="ts")
        within = ("0 minutes", "1 hour")
        both = a.join(right, {"id": "id2"}, within=within, state=world.state("joined"))
        counting(world, both, "below")
        counting(world, b, "alone")

    rows = steps(0, 20)
    world.run(program, None, **{"a": rows, "a-3600000000": events(("x", 90), ("x", 1))})

    assert world.counted("below") == once(0, 5, 10, 15, 20)
    assert not world.held("below_late")
    assert world.counted("alone_late") == {0: 1}


def counting(world: Changing, stream: DataStream, table: str) -> None:
    counted = stream.group_by().window(FIVE)
    counted.persistent_aggregate(world.state(table), n=Count())


def test_one_table_name_in_two_stores_is_refused(tmp_path: Path) -> None:
    worlds = [Changing(f"sqlite:///{tmp_path}/{name}.db", rows={"s": OLD}) for name in "ab"]
    builder = StreamBuilder("d")
    rows = worlds[0].source(builder)
    counting(worlds[0], rows, "counts")

    with pytest.raises(TopologyError, match="two tables 'COUNTS' in different stores"):
        counting(worlds[1], rows, "COUNTS")


def test_a_first_operator_with_event_time_begins(sqlite: Changing) -> None:
    def without(world: Changing, builder: StreamBuilder) -> None:
        total = world.source(builder).group_by("key")
        total.persistent_aggregate(world.state("total"), n=Count())

    def both(world: Changing, builder: StreamBuilder) -> None:
        without(world, builder)
        counted = world.source(builder, "t").group_by().window(FIVE)
        counted.persistent_aggregate(world.state("counts"), n=Count())

    sqlite.run(without, s=OLD)
    sqlite.run(both, s=NEW, t=OLD)

    assert sqlite.counted("counts") == {0: 1, 5: 1, 10: 1}
    assert sqlite.held("total") == {"x": 6}


def test_all_batches_are_computed_again_with_other_tables_and_other_marks(world: Changing) -> None:
    def again(world: Changing, builder: StreamBuilder) -> None:
        counting(world, world.source(builder), "again")

    def rebuilt(marks: State | None) -> None:
        builder = StreamBuilder("d", marks=marks)
        again(world, builder)
        access = Access(ensemble=world.ensemble)
        rebuild(builder.build_topology(), Config(**SETTINGS), access=access).apply()

    world.run(plain, s=OLD)
    with pytest.raises(TopologyChanged, match=r"a new table.*'marks\.marks': 3"):
        rebuilt(None)
    rebuilt(world.state("marks"))
    world.run(again, world.state("marks"), s=OLD)

    assert world.counted("again") == {0: 1, 5: 1, 10: 1}
