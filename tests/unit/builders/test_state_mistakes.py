"""States that do not fit their bolt, spout or inputs are refused when the topology is built.

The numbers are those of the list of bad input that the project keeps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.builders.bolts import Save, Words, builder, refused
from txtopo import (
    Fields,
    PersistentAggregate,
    TransactionalTopologyBuilder,
)
from txtopo.errors import TopologyError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import Count, State, Sum, TopN, open_state


def test_13_two_committers_on_one_table() -> None:
    store = open_state("memory:")

    def define(made: TransactionalTopologyBuilder) -> None:
        made.set_bolt("a", Save()).shuffle_grouping("spout").with_state("counts", store)
        made.set_bolt("b", Save()).shuffle_grouping("spout").with_state("counts", store)

    error = refused(define, "use the same table; got 'counts' of 'a' and 'counts' of 'b'")
    assert error.table == "counts"


def test_13_one_file_under_two_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    names = (f"sqlite:///{tmp_path}/a.db", f"sqlite+pysqlite:///{tmp_path}/link/a.db")

    def define(made: TransactionalTopologyBuilder) -> None:
        for id, name in zip("ab", names, strict=True):
            save = made.set_bolt(id, Save()).shuffle_grouping("spout")
            save.with_state("counts", State(name))

    refused(define, "use the same table")


def test_13_one_store_with_two_tables_is_right() -> None:
    store = open_state("memory:")
    made = builder()
    made.set_bolt("a", Save()).shuffle_grouping("spout").with_state("one", store)
    made.set_bolt("b", Save()).shuffle_grouping("spout").with_state("two", store)

    assert made.build_topology()


def test_a_transactional_state_below_an_opaque_spout() -> None:
    def define(made: TransactionalTopologyBuilder) -> None:
        save = made.set_bolt("save", Save()).shuffle_grouping("spout")
        save.with_state("counts", open_state("memory:", kind="transactional"))

    refused(
        define,
        "state 'counts' of 'save' is transactional and the spout 'spout' is opaque; a replay of "
        "an opaque spout may deliver another batch",
        opaque=True,
    )


def test_a_transactional_state_beside_another_state_of_its_committer() -> None:
    def define(made: TransactionalTopologyBuilder) -> None:
        save = made.set_bolt("save", Save()).shuffle_grouping("spout")
        save.with_state("old", open_state("memory:", kind="transactional"))
        save.with_state("new", open_state("memory:"))

    refused(define, "state 'old' of 'save' is transactional and may feed state 'new' of 'save'; if")


@pytest.mark.parametrize("last", [Save(), PersistentAggregate(open_state("memory:"), (), Count())])
def test_a_transactional_state_above_another_state(last: Any) -> None:
    def define(made: TransactionalTopologyBuilder) -> None:
        save = made.set_bolt("save", Save()).shuffle_grouping("spout")
        save.with_state("counts", open_state("memory:", kind="transactional"))
        made.set_bolt("between", Words()).shuffle_grouping("save")
        below = made.set_bolt("last", last).shuffle_grouping("between")
        if isinstance(last, Save):
            below.with_state("last", open_state("memory:"))

    error = refused(define, "may feed state 'last' of 'last'; if the run is killed")
    assert (error.component, error.state) == ("save", "counts")


def test_transactional_states_that_feed_no_other_are_right() -> None:
    store = open_state("memory:", kind="transactional")
    made = builder()
    aggregate = PersistentAggregate(store, "word", Count())
    made.set_bolt("count", aggregate).shuffle_grouping("spout")
    made.set_bolt("one", Save()).shuffle_grouping("spout").with_state("one", store)
    made.set_bolt("top", Save()).shuffle_grouping("spout").with_state("top", open_state("memory:"))
    made.set_bolt("two", Save()).shuffle_grouping("top").with_state("two", store)

    assert made.build_topology()


@pytest.mark.parametrize(
    ("kind", "opaque"), [("opaque", True), ("opaque", False), ("transactional", False)]
)
def test_every_other_pair_of_spout_and_state_is_right(kind: Any, opaque: bool) -> None:
    made = builder(opaque=opaque)
    save = made.set_bolt("save", Save()).shuffle_grouping("spout")
    save.with_state("counts", open_state("memory:", kind=kind))

    assert made.build_topology()


def test_a_state_on_a_bolt_that_is_no_committer() -> None:
    refused(
        lambda made: (
            made.set_bolt("a", Words())
            .shuffle_grouping("spout")
            .with_state("s", open_state("memory:"))
        ),
        "state 's' is on bolt 'a', which is not a committer",
    )


def test_a_state_name_that_is_used_twice() -> None:
    def define(made: TransactionalTopologyBuilder) -> None:
        save = made.set_bolt("save", Save()).shuffle_grouping("spout")
        save.with_state("s", open_state("memory:")).with_state("s", open_state("memory:"))

    refused(define, "bolt 'save' has two states with the same name; got 's' twice")


def test_a_state_that_is_none() -> None:
    wrong: Any = "sqlite:///x.db"
    refused(
        lambda made: made.set_bolt("save", Save()).with_state("s", wrong),
        "state 's' of bolt 'save' is of the wrong type; got 'sqlite:///x.db'; expected what",
    )


def test_a_second_state_for_a_persistent_aggregate() -> None:
    count = PersistentAggregate(open_state("memory:"), "word", Count())
    refused(
        lambda made: made.set_bolt("count", count).with_state("s", open_state("memory:")),
        "PersistentAggregate 'count' already has its state",
    )


def test_an_aggregate_of_a_missing_field() -> None:
    total = PersistentAggregate(open_state("memory:"), "word", Sum("amount"))
    refused(
        lambda made: made.set_bolt("total", total).shuffle_grouping("spout"),
        "'total' cannot use stream 'default' of 'spout': unknown field 'amount'",
    )


def test_inputs_of_an_aggregate_that_differ_in_type() -> None:
    class Numbers(Words):
        output_fields = Fields("word long")

    def define(made: TransactionalTopologyBuilder) -> None:
        count = PersistentAggregate(open_state("memory:"), "word", Count())
        made.set_bolt("a", Numbers()).shuffle_grouping("spout")
        made.set_bolt("count", count).shuffle_grouping("spout").shuffle_grouping("a")

    refused(
        define,
        "inputs of PersistentAggregate 'count' differ in the fields that it uses; got stream",
    )


def test_a_log_of_partials_for_a_committer_of_ones_own() -> None:
    def define(made: TransactionalTopologyBuilder) -> None:
        save = made.set_bolt("save", Save()).shuffle_grouping("spout")
        save.with_state("counts", open_state("memory:", mode="log"))

    refused(define, "'counts' of 'save' is in mode 'log'")


def test_json_between_components() -> None:
    class Documents(Words):
        output_fields = Fields("word string, document json")

    refused(
        lambda made: made.set_bolt("make", Documents()).shuffle_grouping("spout"),
        "field 'document' of stream 'default' of 'make' has the type json, which is only for the "
        "values",
    )


def test_an_aggregate_that_a_log_cannot_combine() -> None:
    log = open_state("memory:", mode="log")

    def define(made: TransactionalTopologyBuilder) -> None:
        top = PersistentAggregate(log, (), TopN("word"))
        made.set_bolt("top", top).shuffle_grouping("spout")

    refused(define, "cannot keep TopN in column 'topn_word' in mode 'log'")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("url", "one", "other", "uses"),
    [
        ("sqlite:////nowhere/a.db", "x", "x_deleted", ["the index of tombstones", "the table"]),
        ("sqlite:////nowhere/a.db", "x", "X_Txid", ["the index by txid", "the table"]),
        ("sqlite:////nowhere/a.db", "x", "x_view", ["the view", "the table"]),
        ("postgresql://u@h/d", "words", "words_touched", ["the list of keys", "the table"]),
        ("postgresql://u@h/d", "words", "words_deleted", ["the index of tombstones", "the table"]),
        ("mariadb://u@h/d", "words", "words_touched", ["the list of keys", "the table"]),
        ("mariadb://u@h/d", "words", "words_view", ["the view", "the table"]),
    ],
)
def test_a_state_with_the_name_of_anothers_bookkeeping(
    url: str, one: str, other: str, uses: list[str], turned: bool
) -> None:
    def define(made: TransactionalTopologyBuilder) -> None:
        names = (other, one) if turned else (one, other)
        for id, name in zip("ab", names, strict=True):
            save = made.set_bolt(id, Save()).shuffle_grouping("spout")
            save.with_state(name, open_state(url))

    error = refused(define, "two states collide in their store")
    first, second = reversed(uses) if turned else uses
    assert f"is {first} of" in str(error)
    assert f"and {second} of" in str(error)
    assert all(f"{name!r} of" in str(error) for name in (one, other))


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("sqlite:////nowhere/a.db", ("x", "x_touched")),
        ("postgresql://u@h/d", ("x", "x_txid")),
        ("postgresql://u@h/d", ("x", "x_stage")),
        ("mariadb://u@h/d", ("x", "x_deleted")),
        ("redis://h", ("x", "x_deleted")),
        ("memory:", ("x", "x_view")),
        ("delta:///nowhere/d", ("x", "_txtopo_checksums")),
    ],
)
def test_names_that_the_store_tells_apart_are_right(url: str, names: tuple[str, str]) -> None:
    made, store = builder(), open_state(url)
    for id, name in zip("ab", names, strict=True):
        made.set_bolt(id, Save()).shuffle_grouping("spout").with_state(name, store)

    assert made.build_topology()


def test_the_state_of_an_aggregate_has_the_name_of_its_bolt_in_messages() -> None:
    """It has no other name until the topology is built."""
    rows = MemoryTransactionalSpout({}, Fields("txid string, n long"), 1)
    made = TransactionalTopologyBuilder("t", "spout", rows)
    count = PersistentAggregate(open_state("memory:"), "txid", Count())
    made.set_bolt("totals", count).shuffle_grouping("spout")

    with pytest.raises(TopologyError, match=r"^state 'totals' has a column 'txid'"):
        made.build_topology()


def test_two_states_of_one_table_are_told_with_the_url_that_the_user_wrote() -> None:
    store = open_state("sqlite:///counts.db", table="same")

    def define(made: TransactionalTopologyBuilder) -> None:
        made.set_bolt("a", Save()).shuffle_grouping("spout").with_state("one", store)
        made.set_bolt("b", Save()).shuffle_grouping("spout").with_state("two", store)

    refused(define, r"of State\('sqlite:///counts.db', opaque, table='same'\)")
