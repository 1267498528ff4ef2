"""What a builder builds from a right definition."""

from __future__ import annotations

import pytest

from tests.unit.builders.bolts import WORD, Columns, Save, Split, Streams, ToFirst, Words, builder
from txtopo import Fields, PersistentAggregate, TransactionalTopologyBuilder
from txtopo.groupings import (
    AllGrouping,
    CustomGrouping,
    DirectGrouping,
    FieldsGrouping,
    GlobalGrouping,
    LocalOrShuffleGrouping,
    NoneGrouping,
    PartialKeyGrouping,
    ShuffleGrouping,
)
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import Count, Sum, open_state
from txtopo.topology.bolt_kinds import ARROW_BOLT, BASIC_BOLT, BATCH_BOLT, PERSISTENT_AGGREGATE
from txtopo.topology.spout_kinds import PartitionedKind


def test_each_grouping_is_declared_by_its_method() -> None:
    made = builder()
    made.set_bolt("source", Streams()).shuffle_grouping("spout")
    ready = made.set_bolt("save", Save(), 2)
    ready.shuffle_grouping("spout").fields_grouping("source", "word")
    ready.direct_grouping("source", stream="picked").none_grouping("source", stream="errors")
    more = made.set_bolt("more", Save())
    more.partial_key_grouping("spout", WORD).local_or_shuffle_grouping("source")
    more.all_grouping("source", stream="errors").global_grouping("save")
    grouping = ToFirst()
    made.set_bolt("own", Words()).custom_grouping("spout", grouping)

    found = {
        (e.source, e.stream, e.target): e.grouping for e in made.build_topology().graph.edges()
    }

    assert found == {
        ("spout", "default", "source"): ShuffleGrouping(),
        ("spout", "default", "save"): ShuffleGrouping(),
        ("source", "default", "save"): FieldsGrouping(("word",)),
        ("source", "picked", "save"): DirectGrouping(),
        ("source", "errors", "save"): NoneGrouping(),
        ("spout", "default", "more"): PartialKeyGrouping(("word",)),
        ("source", "default", "more"): LocalOrShuffleGrouping(),
        ("source", "errors", "more"): AllGrouping(),
        ("save", "default", "more"): GlobalGrouping(),
        ("spout", "default", "own"): found[("spout", "default", "own")],
    }
    assert isinstance(found[("spout", "default", "own")], CustomGrouping)


def test_roles_and_committers_follow_from_what_the_objects_are() -> None:
    made = builder()
    count = PersistentAggregate(open_state("memory:"), "word", Count())
    made.set_bolt("split", Split()).shuffle_grouping("spout")
    made.set_bolt("save", Save()).shuffle_grouping("split")
    made.set_committer_bolt("columns", Columns()).shuffle_grouping("split")
    made.set_bolt("count", count, 3).fields_grouping("split", ["word"])
    components = made.build_topology().graph.components

    roles = {id: (component.kind, component.committer) for id, component in components.items()}
    assert roles == {
        "spout": (PartitionedKind(), False),
        "split": (BASIC_BOLT, False),
        "save": (BATCH_BOLT, True),
        "columns": (ARROW_BOLT, True),
        "count": (PERSISTENT_AGGREGATE, True),
    }
    assert components["count"].parallelism == 3


def test_sources_may_be_declared_after_those_who_subscribe_to_them() -> None:
    made = builder()
    made.set_bolt("save", Save()).global_grouping("split")
    made.set_bolt("split", Split()).shuffle_grouping("spout")

    assert list(made.build_topology().graph.components) == ["spout", "split", "save"]


def test_the_table_of_a_state_is_its_name_unless_it_has_one() -> None:
    made = builder()
    save = made.set_bolt("save", Save()).shuffle_grouping("spout")
    save.with_state("counts", open_state("memory:"))
    save.with_state("totals", open_state("memory:", table="sums"))

    states = made.build_topology().graph.components["save"].states

    assert {name: state.table for name, state in states.items()} == {
        "counts": "counts",
        "totals": "sums",
    }


def test_a_persistent_aggregate_gives_its_state_the_columns() -> None:
    rows = MemoryTransactionalSpout({}, Fields("word string, day date, amount int"), 1)
    made = TransactionalTopologyBuilder("t", "spout", rows)
    sums = PersistentAggregate(
        open_state("memory:"), ["word", "day"], {"n": Count(), "total": Sum("amount")}
    )
    made.set_bolt("sums", sums).fields_grouping("spout", ["word", "day"])

    (state,) = made.build_topology().graph.components["sums"].states.values()

    assert state.table == "sums"
    assert state.key == Fields("word string, day date")
    assert state.value == Fields("n long, total long")
    assert state.aggregates == (Count(), Sum("amount"))


def test_a_built_topology_no_longer_changes_with_its_bolts() -> None:
    """Prototypes are pickled when the topology is built."""
    bolt = Save()
    made = builder()
    made.set_bolt("save", bolt).shuffle_grouping("spout")
    topology = made.build_topology()
    bolt.__dict__["later"] = True

    prototype = topology.graph.components["save"].prototype

    assert isinstance(prototype, Save)
    assert not hasattr(prototype, "later")


def test_the_id_of_a_topology_is_that_of_its_graph() -> None:
    made = builder()
    made.set_bolt("save", Save()).shuffle_grouping("spout")

    assert made.build_topology().id == "words"


@pytest.mark.parametrize("id", ["a", "my topology", "wörter-1.2", "x" * 255, "a_.b"])
def test_ids_may_hold_what_zookeeper_allows(id: str) -> None:
    made = TransactionalTopologyBuilder(id, id, MemoryTransactionalSpout({}, WORD, 1))
    made.set_bolt("save", Save()).shuffle_grouping(id)

    assert made.build_topology().id == id
