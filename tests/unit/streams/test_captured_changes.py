"""Captured tables: which events count, what is taken back, truncates, timelines, and expiry."""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
from typing import Any

import pytest

from tests.unit.streams.captured import TIME, Captured, batch_of, txids_of
from tests.unit.streams.test_changed_programs import Changing
from tests.unit.streams.times import at, events, tables_of
from tests.unit.streams.txids import second
from tests.unit.streams.worlds import run
from txtopo import Count, Fields, StreamBuilder, Sum, TopologyError, open_state
from txtopo.errors import EmitError, RecordFailed, SchemaDrift, TopologyChanged
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import DataStream
from txtopo.streams.captured_changes import OPERATIONS, CapturedTable

WATERMARK = ("watermark", "default")


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 1)
def test_the_row_that_was_emitted_is_taken_back() -> None:
    table = Captured()

    assert table.run(("c", "a", 1, 10), ("r", "b", 2, 11)) == ["+a=1", "+b=2"]
    assert table.run(("u", "a", 3, 12), ("d", "b", None, 13)) == ["-a=1", "+a=3", "-b=2"]
    assert table.run(("insert", "b", 4, 14), ("delete", "a", 9, 15)) == ["-a=3", "+b=4"]


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 1)
def test_an_operation_says_what_is_now_not_what_was() -> None:
    """After a gap in the log an update may be the first that is seen of a key, or an insert not."""
    table = Captured()

    assert table.run(("u", "a", 1, 10)) == ["+a=1"]
    assert table.run(("c", "a", 2, 11)) == ["-a=1", "+a=2"]
    assert table.run(("d", "b", None, 12)) == []


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 2)
def test_an_event_counts_once() -> None:
    table = Captured()
    table.run(("c", "a", 1, 10), ("c", "a", 1, 10))

    assert table.run(("c", "a", 1, 10), ("c", "a", 7, 10)) == []
    table.run(("d", "a", None, 20))
    assert table.run(("d", "a", None, 20), ("c", "a", 1, 10)) == []
    assert table.rows == {}


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 2)
def test_an_event_before_the_delete_of_its_key_does_not_bring_it_back() -> None:
    table = Captured()
    assert table.run(("d", "a", None, 20)) == []

    assert table.run(("u", "a", 1, 19)) == []
    assert table.run(("c", "a", 2, 20)) == []
    assert table.run(("c", "a", 3, 21)) == ["+a=3"]


HISTORY = [("c", "a", 1, 10), ("u", "a", 2, 20), ("d", "a", None, 30), ("c", "a", 4, 40)]


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 2)
@pytest.mark.parametrize("take", [1, 2, 4])
def test_the_order_of_arrival_makes_no_difference(take: int) -> None:
    for order in itertools.permutations(HISTORY):
        table = Captured()
        for start in range(0, len(order), take):
            table.run(*order[start : start + take])
            last = max(order[: start + take], key=lambda event: event[3])
            assert table.rows == ({} if last[0] == "d" else {"a": last[2]})


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 2)
def test_positions_are_compared_column_by_column() -> None:
    table = Captured(position=("at", "line"))
    table.run(("c", "a", 1, 10, "b"))

    assert table.run(("u", "a", 2, 9, "c"), ("u", "a", 3, 10, "a")) == []
    assert table.run(("u", "a", 4, 10, "c")) == ["-a=1", "+a=4"]
    assert table.run(("u", "a", 5, 11, "a")) == ["-a=4", "+a=5"]


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 3)
def test_without_positions_the_last_that_arrived_counts() -> None:
    table = Captured(position=())

    assert table.run(("c", "a", 1, 9), ("u", "a", 2, 8), ("c", "b", 3, 7)) == ["+a=2", "+b=3"]
    assert table.run(("d", "a", None, 1), ("u", "b", 4, 1)) == ["-a=2", "-b=3", "+b=4"]
    assert list(table.txids.held("t")) == [("b",)]
    assert table.run(("c", "a", 5, 1), ("d", "a", None, 1), ("c", "a", 6, 1)) == ["+a=6"]


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 3, 4)
def test_without_positions_a_truncate_removes_what_arrived_before() -> None:
    table = Captured(position=(), on_truncate="clear")
    table.run(("c", "a", 1), ("c", "b", 2))

    assert table.run(("u", "a", 3), ("t", None), ("c", "c", 4)) == ["-a=1", "-b=2", "+c=4"]
    assert list(table.txids.held("t")) == [("c",)]


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 4)
def test_a_truncate_removes_what_is_not_after_it() -> None:
    """A row that is after it may have arrived before."""
    table = Captured(on_truncate="clear")
    table.run(("c", "a", 1, 10), ("c", "b", 2, 40), ("d", "c", None, 12), ("c", "d", 5, 30))

    assert table.run(("t", None, None, 30)) == ["-a=1", "-d=5"]
    assert table.known() == {"b": 40}
    assert table.run(("t", None, None, 30), ("t", None, None, 20)) == []


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 4)
def test_the_position_of_a_truncate_outlives_the_rows() -> None:
    table = Captured(on_truncate="clear")
    table.run(("c", "a", 1, 10))
    table.run(("t", None, None, 30), ("c", "a", 2, 31))
    assert table.rows == {"a": 2}
    table.run()

    assert table.run(("u", "a", 3, 11), ("c", "b", 4, 29), ("c", "c", 5, 30)) == []
    assert table.run(("t", None, None, 50), ("t", None, None, 40), ("c", "d", 6, 45)) == ["-a=2"]
    assert table.run(("c", "d", 6, 50), ("c", "e", 7, 51)) == ["+e=7"]


def test_a_row_that_comes_again_with_its_truncate_stays_as_it_is() -> None:
    table = Captured(on_truncate="clear")
    table.run(("c", "a", 1, 10), ("c", "b", 2, 11))

    assert table.run(("t", None, None, 20), ("c", "a", 1, 21), ("c", "b", 3, 22)) == [
        "-b=2",
        "+b=3",
    ]
    assert table.known() == {"a": 21, "b": 22}


@pytest.mark.parametrize("position", [("at",), ()])
def test_a_truncate_is_refused_by_default(position: Any) -> None:
    with pytest.raises(EmitError, match=r"t was truncated|'t' was truncated.*on_truncate"):
        Captured(position=position).run(("t", None, None, 30))


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 1)
def test_a_zero_is_taken_back_as_it_was_emitted() -> None:
    """-0.0 and 0.0 are equal, so the second one is not emitted, and would be taken back."""
    fields = Fields("op string, id double, v double, at long")
    txids = txids_of(CapturedTable(fields, ("id",), ("v",), "op", OPERATIONS, ("at",)))
    rows = [["c", 1, -0.0, 1], ["u", 1, 0.0, 2], ["u", 1, 5, 3], ["c", -0.0, 2, 4]]

    found = [txids.run({"rows": batch_of([row], fields)}, None) for row in rows]
    shown = [[(str(row["id"]), str(row["v"]), row["retracted"]) for row in each] for each in found]
    assert shown == [
        [("1.0", "0.0", False)],
        [],
        [("1.0", "0.0", True), ("1.0", "5.0", False)],
        [("0.0", "2.0", False)],
    ]


LINES = {"timeline": "line", "on_new_timeline": "snapshot", "on_truncate": "clear"}


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 5)
def test_another_timeline_fills_the_table_again() -> None:
    """Positions of the other server may be smaller; rows that it does not have go."""
    table = Captured(**LINES)
    table.run(("c", "a", 1, 10, "x"), ("c", "b", 2, 11, "x"), ("d", "c", None, 12, "x"))

    assert table.run(("r", "a", 1, 1, "y"), ("r", "c", 3, 1, "y")) == ["-b=2", "+c=3"]
    assert table.known() == {"a": 1, "c": 1}
    assert table.run(("u", "a", 4, 90, "x"), ("r", "d", 5, 1, "y")) == ["+d=5"]


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 5)
def test_a_timeline_that_was_left_is_left_for_ever() -> None:
    table = Captured(**LINES)
    for line in "xyz":
        table.run(("r", line, 1, 1, line))

    assert table.run(("u", "x", 2, 9, "x"), ("t", None, None, 9, "y")) == []
    assert table.rows == {"z": 1}


def test_several_timelines_may_come_in_one_batch() -> None:
    table = Captured(**LINES)
    table.run(("r", "a", 1, 1, "x"))

    assert table.run(
        ("u", "a", 2, 2, "x"), ("r", "b", 3, 1, "y"), ("u", "a", 4, 3, "x"), ("r", "c", 5, 1, "z")
    ) == ["-a=1", "+c=5"]
    assert table.run(("u", "b", 6, 9, "y")) == []


def test_a_truncate_of_a_timeline_ends_with_it() -> None:
    table = Captured(**LINES)
    table.run(("t", None, None, 50, "x"), ("c", "a", 1, 51, "x"))

    assert table.run(("r", "a", 2, 1, "y"), ("r", "b", 3, 1, "y")) == ["-a=1", "+a=2", "+b=3"]
    assert table.run(("t", None, None, 1, "y"), ("c", "b", 4, 2, "y")) == ["-a=2", "-b=3", "+b=4"]


def test_what_a_timeline_does_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    table = Captured(**LINES)
    table.run(("r", "a", 1, 1, "x"))
    assert not caplog.messages
    table.run(("r", "b", 3, 1, "y"), ("u", "a", 2, 2, "x"))

    assert caplog.messages == [
        "'t': txid 2: the log continues in timeline 'y', after 'x': "
        "all earlier rows are taken back",
        "'t': txid 2: 1 events of timelines that were left are ignored",
    ]


def test_another_timeline_is_refused_by_default() -> None:
    table = Captured(timeline="line")
    table.run(("c", "a", 1, 10, "x"))

    with pytest.raises(EmitError, match=r"'y' after 'x'.*on_new_timeline"):
        table.run(("c", "a", 1, 10, "y"))


def expiring(**more: Any) -> Captured:
    return Captured(expire_after=datetime.timedelta(seconds=10), **more)


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 6)
def test_a_delete_is_forgotten_after_its_time() -> None:
    table = expiring()
    table.run(("c", "a", 1, 10), ("c", "b", 1, 10), now=100)
    table.run(("d", "a", None, 20), now=100)

    assert table.run(("u", "a", 2, 15), now=109.999) == []
    assert table.known() == {"a": 20, "b": 10}
    assert table.run(("u", "a", 2, 15), now=110) == ["+a=2"]
    table.run(now=1000)
    assert table.known() == {"a": 15, "b": 10}


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 6)
def test_a_delete_is_forgotten_by_event_time() -> None:
    """The watermark of the previous txid counts."""
    table = expiring(time=TIME, watermark=WATERMARK)
    table.run(("c", "a", 1, 10, None, 50), ("d", "a", None, 20, None, 60), now=69.999)

    assert table.run(("u", "a", 2, 15, None, 55), now=70) == []
    assert table.run(("u", "a", 3, 16, None, 55), now=70) == ["+a=3"]


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 6)
def test_a_delete_that_is_forgotten_need_not_be_gone() -> None:
    """A store deletes it some time later, or never."""
    table = expiring()
    table.run(("d", "a", None, 20), now=100)
    table.run(now=200)
    assert table.known() == {}
    table.txids.expired = None
    assert table.known() == {"a": 20}

    assert table.run(("c", "a", 1, 5), now=200) == ["+a=1"]


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 7)
def test_the_events_of_a_key_become_one_change_in_the_order_of_keys() -> None:
    table = Captured()

    assert table.run(("c", "b", 1, 1), ("c", "a", 1, 2), ("u", "b", 2, 3)) == ["+a=1", "+b=2"]
    assert table.run(("u", "b", 3, 4), ("d", "b", None, 5), ("c", "b", 2, 6)) == []
    assert table.known() == {"a": 2, "b": 6}
    assert table.run(("u", "a", None, 7)) == ["-a=1", "+a=None"]
    assert table.run(("u", "a", None, 8), ("c", "c", 1, 9), ("d", "c", None, 10)) == []


@pytest.mark.rule("txtopo.streams.captured_changes", "Rules", 8)
def test_what_cannot_be_used_is_refused() -> None:
    table = Captured(timeline="line", on_truncate="clear")
    bad = [
        ("x", "a", 1, 1, "l"),
        (None, "a", 1, 2, "l"),
        ("c", None, 1, 3, "l"),
        ("u", "a", 1, None, "l"),
        ("d", "a", 1, 4, None),
        ("t", None, None, None, "l"),
    ]

    assert table.run(*bad, ("c", "b", 1, 5, "l")) == ["+b=1"]
    assert [(row["op"], row["key"]) for row in table.refused] == [each[:2] for each in bad]


def test_operations_may_have_other_names() -> None:
    operations = {"+I": "insert", "-U": "ignore", "+U": "update", "-D": "delete"}
    table = Captured(operations=operations)

    assert table.run(("+I", "a", 1, 1), ("-U", None, None, None)) == ["+a=1"]
    assert table.run(("-U", "a", 1, 2), ("+U", "a", 2, 3)) == ["-a=1", "+a=2"]
    assert table.run(("-D", "a", 2, 4)) == ["-a=2"]
    assert not table.refused


SALE = "op string, id long, shop string, pieces long, at long"
SALES: list[list[Any]] = [
    ["c", 1, "north", 5, 1],
    ["c", 2, "south", 7, 2],
    ["u", 1, "south", 6, 3],
    ["d", 2, None, None, 4],
]


def topology(rows: list[list[Any]], url: str, *, dead: Any = None, **declared: Any) -> Any:
    builder = StreamBuilder("sales", dead_letters=dead)
    log = builder.source("log", MemoryTransactionalSpout({0: rows}, Fields(SALE), 1))
    given: dict[str, Any] = {"key": "id", "position": "at", **declared}
    sales = log.as_changes(open_state(url, table="sales"), **given)
    sums = sales.group_by("shop").persistent_aggregate(
        open_state(url, table="sums"), n=Count(), pieces=Sum("pieces")
    )
    assert sums.name == "sums"
    return builder.build_topology()


def held(url: str, table: str) -> dict[Any, Any]:
    with open_state(url, table=table).reader() as reader:
        return dict(reader.items())


def test_aggregates_below_are_those_of_the_captured_table(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'sales.db'}"
    run(topology(SALES, url))

    assert held(url, "sums") == {"north": {"n": 0, "pieces": 0}, "south": {"n": 1, "pieces": 6}}


def test_refused_events_become_dead_letters(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'sales.db'}"
    rows = [*SALES[:2], ["c", None, "east", 1, 9], ["?", 3, "east", 1, 9], *SALES[2:]]
    run(topology(rows, url, dead=open_state(url)))

    assert held(url, "sums")["south"] == {"n": 1, "pieces": 6}
    found = [row["message"] for row in held(url, "dead_letters").values()]
    assert ["None in column 'id'" in found[0], "'?' in column 'op'" in found[1]] == [True, True]


def test_a_refused_event_ends_the_run_without_dead_letters(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'sales.db'}"

    with pytest.raises(RecordFailed, match=r"None in column 'at'.*neither NULL nor NaN"):
        run(topology([["c", 1, "north", 5, None]], url))


def test_a_truncate_that_is_refused_ends_the_run_and_commits_nothing(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'sales.db'}"

    with pytest.raises(EmitError, match=r"op='t', at=9.*on_truncate=\"clear\""):
        run(topology([*SALES, ["t", None, None, None, 9]], url))
    assert held(url, "sums")["south"] == {"n": 1, "pieces": 6}


KINDS: dict[str, list[Any]] = {
    "string": ["a", "b"],
    "binary": [b"a", b"b"],
    "boolean": [False, True],
    "byte": [1, 2],
    "short": [1, 2],
    "int": [1, 2],
    "long": [1, 2],
    "float": [-0.5, 1.5],
    "double": [-math.inf, 1.5],
    "decimal(18,2)": [decimal.Decimal("-1.50"), decimal.Decimal("1.5")],
    "date": [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)],
    "timestamp": [second(0), second(0.000001)],
    "timestamp_ntz": [datetime.datetime(1960, 1, 1), datetime.datetime(2026, 1, 1)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_each_type_is_a_value_a_position_and_an_operation(kind: str) -> None:
    first, last = KINDS[kind]
    fields = Fields(f"id long, at {kind}, v {kind}")
    operations: Any = {first: "delete", last: "insert"}
    table = CapturedTable(fields, ("id",), ("v",), "v", operations, ("at",))
    rows = [[1, last, last], [1, first, first], [2, first, last], [2, last, first]]

    found = txids_of(table).run({"rows": batch_of(rows[:3], fields)}, None)
    assert [(row["id"], row["v"]) for row in found] == [(1, last), (2, last)]
    found = txids_of(table).run({"rows": batch_of(rows, fields)}, None)
    assert [(row["id"], row["v"]) for row in found] == [(1, last)]


def log(fields: str = SALE, **source: Any) -> DataStream:
    builder = StreamBuilder("sales")
    return builder.source("log", MemoryTransactionalSpout({0: []}, Fields(fields), 1), **source)


def state(table: str = "sales", **more: Any) -> Any:
    return open_state("memory:", table=table, **more)


def test_the_columns_are_those_of_the_table() -> None:
    rows = log(SALE + ", line string").as_changes(
        state(), "id", position="at", timeline="line", id="captured"
    )

    assert (rows.name, rows.retracted, rows.time) == ("captured", "retracted", None)
    assert rows.fields == Fields("id long, shop string, pieces long, retracted boolean")
    some = log().as_changes(state(), "id", ["pieces", "at"], position="at")
    assert some.fields.names == ("id", "pieces", "at", "retracted")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"key": "di"}, "unknown column 'di'"),
    ({"key": ()}, "no key columns"),
    ({"value": ["id"]}, "column 'id' twice"),
    ({"op": "operation"}, "unknown column 'operation'"),
    ({"op": "at"}, "expected string.*operations="),
    ({"operations": {"I": "put"}}, "operations .* are wrong"),
    ({"operations": {}}, "operations .* are wrong"),
    ({"operations": {1: "insert"}}, "do not fit column 'op'"),
    ({"position": "place"}, "unknown column 'place'"),
    ({"timeline": "at"}, "its timeline.*expected string"),
    ({"on_truncate": "ignore"}, "'refuse' or 'clear'"),
    ({"on_new_timeline": "clear"}, "'refuse' or 'snapshot'"),
    ({"expire_after": "1 hour"}, "has expire_after, but no position"),
    ({"expire_after": "soon", "position": "at"}, "is not a duration"),
    ({"state": "memory:"}, "wrong type"),
    ({"state": state(kind="transactional")}, "opaque"),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_a_mistake_is_found_where_it_is(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        log().as_changes(**{"state": state(), "key": "id", **given})


@pytest.mark.parametrize("name", ["retracted", "gone_since", "log_at"])
def test_a_column_of_its_own_may_not_be_one_of_the_table(name: str) -> None:
    with pytest.raises(TopologyError, match=f"column '{name}' twice"):
        log(f"{SALE}, {name} long").as_changes(state(), "id", position="at")


def test_rows_that_are_taken_back_are_no_events() -> None:
    changes = log().as_changes(state(), "id", position="at")
    with pytest.raises(TopologyError, match="as_changes above the table"):
        changes.as_changes(state("again"), "id", op="shop")


@pytest.mark.parametrize(("length", "rows"), [("1 hour", {"a": 15, "z": 1}), ("2 hours", {"z": 1})])
def test_a_topology_forgets_deletes_by_its_watermark(
    length: str, rows: dict[str, int], tmp_path: Any
) -> None:
    url = f"sqlite:///{tmp_path / 'rows.db'}"

    def write(builder: StreamBuilder, events: DataStream) -> None:
        changes = events.as_changes(
            open_state(url, table="captured"),
            "id",
            ["number"],
            op="key",
            position="n",
            expire_after=length,
        )
        changes.as_table(open_state(url, table="rows"), "id")

    given = [["a", "c", 10, at(0)], ["a", "d", 20, at(1)], ["z", "c", 1, at(61)]]
    (found,) = tables_of(
        lambda builder, log: write(builder, log.select("id", "key", "n", "ts", number="n")),
        [*given, ["a", "u", 15, at(62)]],
        url,
        "rows",
    )
    assert found == rows


def test_an_aggregate_does_not_go_on_above_another_state(tmp_path: Any) -> None:
    """It would count each row again that begins in the other state."""
    changing = Changing(f"sqlite:///{tmp_path / 'sales.db'}")

    def program(table: str) -> Any:
        def write(changing: Changing, builder: StreamBuilder) -> None:
            log = changing.source(builder, event_time=None).select("n", "id", op="key")
            rows = log.as_changes(changing.state(table), "id", position="n", value="n")
            rows.group_by("n").persistent_aggregate(changing.state("counts"), rows=Count())

        return write

    changing.run(program("sales"), s=events(("c", 1)))
    with pytest.raises(TopologyChanged, match="would begin from the start"):
        changing.run(program("others"), s=events(("c", 1), ("c", 2)))


@pytest.mark.parametrize("time", [None, "ts"])
def test_a_state_does_not_go_on_with_other_positions(time: str | None, tmp_path: Any) -> None:
    """Nor with a key, a timeline or a time of another kind."""
    changing = Changing(f"sqlite:///{tmp_path / 'sales.db'}")

    def program(**declared: Any) -> Any:
        def write(changing: Changing, builder: StreamBuilder) -> None:
            rows = changing.source(builder, event_time=time).select("ts", "n", "id", op="key")
            rows.as_changes(changing.state("sales"), "id", **declared)

        return write

    changing.run(program(position="n"), s=events(("c", 1)))
    with pytest.raises(SchemaDrift, match="column 'n' is new"):
        changing.run(program(position="ts"), s=events(("c", 1), ("u", 2)))
    with pytest.raises(TopologyChanged, match="positions and times would be compared"):
        changing.run(program(position="n", timeline="op"), s=events(("c", 1), ("u", 2)))
    changing.run(program(position="n", on_truncate="clear"), s=events(("c", 1), ("d", 2)))
    if time is None:  # else there would be new watermarks for an old table
        changing.run(program(position="n", expire_after="1 hour"), s=events(("c", 1), ("d", 2)))
