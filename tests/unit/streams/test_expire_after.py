"""expire_after of operators, PersistentAggregate and Append: what is appended, kept and refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.runs import Storage, run_to_end
from tests.unit.streams.living import ROW, Lives, program
from tests.unit.streams.test_changed_programs import Changing
from tests.unit.streams.times import EVENT, at, events, tables_of
from txtopo import (
    Count,
    Fields,
    Mean,
    PersistentAggregate,
    StreamBuilder,
    Sum,
    Topology,
    TopologyError,
    TransactionalTopologyBuilder,
    open_state,
    topology_from_yaml,
)
from txtopo.bolts import Append
from txtopo.errors import StateUsageError, TopologyChanged, TxtopoError
from txtopo.outbox import Publisher
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state.backend import StateBackend

AFTER = "10 seconds"


# ------------------------------------------------------------ rows that are appended


def appending(rows: Any, asked: Any, state: Any) -> None:
    rows.append(state("t"), expire_after=AFTER)


@pytest.mark.rule("txtopo.streams.expiring_rows", "Rules", 1)
def test_the_key_of_a_row_begins_with_its_event_time() -> None:
    lives = Lives(program(appending))
    lives.run([("a", 1, 3), ("b", 2, 5)], 5)
    lives.run([("a", 4, 2)], 5)

    assert {key: row[:3] for key, row in lives.held().items()} == {
        (3, 1, 1): ("e1", "a", 1),
        (5, 1, 2): ("e2", "b", 2),
        (2, 2, 1): ("e3", "a", 4),
    }


@pytest.mark.rule("txtopo.streams.expiring_rows", "Rules", 1)
def test_without_event_time_it_begins_with_the_planned_time() -> None:
    lives = Lives(program(appending, event=False))
    lives.run([("a", 1, 3)], 7)

    assert list(lives.held()) == [(7, 1, 1)]


@pytest.mark.rule("txtopo.streams.expiring_rows", "Rules", 2)
@pytest.mark.parametrize("event", [True, False])
def test_rows_expire_by_that_time(event: bool) -> None:
    lives = Lives(program(appending, event=event))
    for second in (0, 5, 9.999, 10, 12):
        lives.run([("a", 1, second)], second)

    assert lives.delete() == 1
    assert [seen for seen, *_ in lives.held()] == [5, 9.999, 10, 12]


@pytest.mark.rule("txtopo.streams.expiring_rows", "Rules", 3)
def test_a_table_whose_rows_expire_is_no_outbox() -> None:
    storage = Storage.in_memory("opaque")
    builder = TransactionalTopologyBuilder("log", "s", numbers())
    bolt = Append(open_state(storage.url), Fields("key string, n long"), expire_after="1 hour")
    builder.set_bolt("log", bolt).shuffle_grouping("s")
    run_to_end(builder.build_topology(), storage)
    outbox = open_state(storage.url, table="log")

    with pytest.raises(StateUsageError, match="unless they expire"):
        Publisher(outbox, "mails", ensemble=storage.ensemble).__enter__()


@pytest.mark.integration
def test_several_tasks_append_rows_that_expire(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"

    def write(builder: StreamBuilder, rows: Any) -> None:
        rows.append(open_state(url, table="log"), expire_after="10 minutes", parallelism=3)

    (log,) = tables_of(write, events(("a", 0), ("b", 5), ("a", 1)), url, "log", take=2)

    assert sorted((seen, batch, row["id"]) for (seen, batch, _), row in log.items()) == [
        (at(0), 1, "e1"),
        (at(1), 2, "e3"),
        (at(5), 1, "e2"),
    ]


# ------------------------------------------------------------ aggregates of the core


def numbers() -> MemoryTransactionalSpout:
    return MemoryTransactionalSpout({0: [["a", 1], ["b", 2]]}, Fields("key string, n long"), 1)


def counting(aggregates: Any = None, **more: Any) -> Topology:
    builder = TransactionalTopologyBuilder("counting", "rows", MemoryTransactionalSpout({}, ROW, 1))
    given = aggregates or {"n": Sum("n"), "mean": Mean("n")}
    bolt = PersistentAggregate(open_state("memory:"), "key", given, expire_after=AFTER, **more)
    builder.set_bolt("t", bolt, 2).fields_grouping("rows", "key")
    return builder.build_topology()


@pytest.mark.rule("txtopo.builders.expiring_aggregates", "Rules", 1)
def test_an_aggregate_keeps_when_its_key_last_had_a_row() -> None:
    lives = Lives(counting())
    lives.run([("a", 1, 0), ("b", 1, 0)], 3)
    lives.run([("a", 2, 0)], 5)

    assert lives.held() == {"a": (3, 3, 2, 5), "b": (1, 1, 1, 3)}


@pytest.mark.rule("txtopo.builders.expiring_aggregates", "Rules", 2)
@pytest.mark.parametrize("deleted", [True, False])
def test_a_value_without_a_row_for_its_time_begins_again(deleted: bool) -> None:
    lives = Lives(counting({"n": Count()}))
    lives.run([("a", 1, 0), ("b", 1, 0)], 0)
    lives.run([("b", 1, 0)], 9.999)
    lives.run([], 10)
    lives.run([], 10)
    if deleted:
        assert lives.delete() == 1
    lives.run([("a", 1, 0), ("b", 1, 0)], 10)

    assert lives.held() == {"a": (1, 10), "b": (3, 10)}


@pytest.mark.integration
@pytest.mark.parametrize("group_txids_max", [1, 10])
def test_it_runs_as_any_aggregate_does(group_txids_max: int) -> None:
    storage = Storage.in_memory("opaque")
    builder = TransactionalTopologyBuilder("sums", "s", numbers())
    bolt = PersistentAggregate(open_state(storage.url), (), [Sum("n")], expire_after="1 hour")
    builder.set_bolt("sums", bolt, 2).shuffle_grouping("s")
    topology = builder.build_topology()
    assert topology.graph.needs_planned_time
    run_to_end(topology, storage)

    ((key, row),) = storage.read("sums").items()
    assert (key, row["sum_n"]) == ("global", 3)


def test_a_file_names_it_as_any_argument(tmp_path: Path) -> None:
    (tmp_path / "counting.yaml").write_text(
        """
topology: counting
spouts:
  - id: rows
    class: txtopo.spouts.MemoryTransactionalSpout
    arguments:
      {partitions: {0: [[a, 1]]}, fields: {fields: "key string, n long"}, batch_rows_max: 1}
bolts:
  - id: t
    class: txtopo.PersistentAggregate
    arguments:
      {state: {state: "memory:"}, key: key, aggregates: {class: txtopo.Count}, expire_after: 9 days}
streams:
  - {from: rows, to: t, grouping: fields, fields: [key]}
"""
    )

    topology = topology_from_yaml(tmp_path / "counting.yaml")

    assert list(topology.graph.components) == ["rows", "t.partials", "t"]


def test_the_name_of_its_other_bolt_may_not_be_taken() -> None:
    builder = TransactionalTopologyBuilder("counting", "t.partials", numbers())
    bolt = PersistentAggregate(open_state("memory:"), "key", Count(), expire_after=AFTER)
    builder.set_bolt("t", bolt).fields_grouping("t.partials", "key")

    with pytest.raises(TopologyError, match="rename yours"):
        builder.build_topology()


# ------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda state: PersistentAggregate(state(), "k", Count(), expire_after="soon"), "duration"),
        (lambda state: Append(state(), Fields("n long"), expire_after="0 days"), "out of range"),
        (lambda state: Append(state(), Fields("seen long"), expire_after=AFTER), "'seen'"),
        (
            lambda state: PersistentAggregate(
                state(), "k", Count(), retracted="gone", expire_after=AFTER
            ),
            "cannot take rows back",
        ),
        (
            lambda state: PersistentAggregate(
                state(kind="transactional"), "k", Count(), expire_after=AFTER
            ),
            "expected an opaque state",
        ),
        (
            lambda state: PersistentAggregate(state(mode="log"), "k", Count(), expire_after=AFTER),
            "mode 'table'",
        ),
    ],
)
def test_a_bolt_refuses_what_cannot_expire(make: Any, message: str) -> None:
    with pytest.raises(TxtopoError, match=message):
        make(lambda **more: open_state("memory:", **more))


def by_key(rows: Any, state: Any, **more: Any) -> Any:
    return rows.group_by("key").persistent_aggregate(state, expire_after=AFTER, **more)


@pytest.mark.rule("txtopo.streams.expiring_tables", "Rules", 6)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda back, state: by_key(back, state, n=Count()), "cannot take rows back"),
        (lambda back, state: back.store(state, key="key", expire_after=AFTER), "cannot take rows"),
        (
            lambda back, state: back.select("key", "n", gone="retracted").as_table(
                state, key="key", expire_after=AFTER
            ),
            "retracted='gone'",
        ),
    ],
)
def test_rows_that_are_taken_back_do_not_expire(make: Any, message: str) -> None:
    def write(rows: Any, asked: Any, state: Any) -> None:
        back = by_key(rows, state("above"), n=Count()).changes(retracted=True)
        make(back, state("below"))

    with pytest.raises(TopologyError, match=message):
        program(write)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda rows, state: by_key(rows, state(), seen=Count()), "'seen' twice"),
        (lambda rows, state: by_key(rows, state(kind="transactional"), n=Count()), "opaque"),
        (lambda rows, state: rows.store(state(), key="key", expire_after=10), "not a duration"),
        (
            lambda rows, state: rows.store(
                state(kind="transactional"), key="key", expire_after=AFTER
            ),
            "opaque",
        ),
        (
            lambda rows, state: rows.select("ts", seen="n").append(state(), expire_after=AFTER),
            "'seen'",
        ),
    ],
)
def test_an_operator_refuses_what_cannot_expire(make: Any, message: str) -> None:
    def write(rows: Any, asked: Any, state: Any) -> None:
        make(rows, lambda **more: state("t", **more))

    with pytest.raises(TopologyError, match=message):
        program(write)


@pytest.mark.integration
def test_values_without_a_time_do_not_expire_later() -> None:
    world = Changing("memory:")

    def counted(**more: Any) -> Any:
        def made(world: Changing, builder: StreamBuilder) -> None:
            rows = world.source(builder)
            rows.append(world.state("log"), expire_after=AFTER)  # so that there are watermarks
            groups = rows.group_by("key")
            groups.persistent_aggregate(world.state("counts"), n=Count(), **more)

        return made

    world.run(counted(), s=events(("a", 0)))

    with pytest.raises(TopologyChanged, match="by event time; expected a new table"):
        world.run(counted(expire_after="1 hour"), s=events(("a", 0), ("a", 1)))
    assert world.held("counts") == {"a": 1}


@pytest.mark.parametrize(
    "make",
    [
        lambda rows, state: rows.append(state, expire_after=AFTER),
        lambda rows, state: rows.store(state, key="key", expire_after=AFTER),
        lambda rows, state: by_key(rows, state, n=Count()),
        lambda rows, state: rows.group_by("key").update(
            lambda value, row: (1, None), "n long", state=state, expire_after=AFTER
        ),
        lambda rows, state: rows.as_changes(
            state, key="key", op="id", position="n", expire_after=AFTER
        ),
        lambda rows, state: rows.join(
            rows.select("key", m="n"), on="key", state=state, expire_after=AFTER
        ),
    ],
    ids=["append", "store", "persistent_aggregate", "update", "as_changes", "join"],
)
def test_a_store_that_deletes_nothing_is_refused_at_the_start(
    make: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    from state_backends.memory import MemoryBackend

    builder = StreamBuilder("kept")
    rows = builder.source("s", MemoryTransactionalSpout({0: []}, EVENT, 1))
    storage = Storage.in_memory("opaque")
    make(rows, open_state(storage.url, table="t"))
    topology = builder.build_topology()
    monkeypatch.setattr(MemoryBackend, "expire", StateBackend.expire)

    with pytest.raises(
        TopologyError, match=r"would expire but never be deleted; .*cannot delete rows"
    ):
        run_to_end(topology, storage)
