"""The fields of a grouping: several names, or one list; a stream only by keyword; in both APIs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.unit.builders.bolts import Streams
from tests.unit.reliable.bolts import Forward
from txtopo import Committer, Fields, Stream, TopologyBuilder, TransactionalTopologyBuilder
from txtopo.errors import TopologyError
from txtopo.groupings import FieldsGrouping, PartialKeyGrouping
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout

ORDER = Fields("customer string, country string, errors string")
PAID = {"paid": ORDER.select(["customer", "country"])}


class Orders(Streams, Committer):
    output_fields = ORDER
    output_streams: Mapping[str, Stream | Fields] = PAID


class ReliableOrders(Forward):
    output_fields = ORDER
    output_streams: Mapping[str, Stream | Fields] = PAID


def transactional() -> TransactionalTopologyBuilder:
    spout = MemoryTransactionalSpout({}, ORDER, 1)
    builder = TransactionalTopologyBuilder("orders", "spout", spout)
    builder.set_bolt("orders", Orders()).shuffle_grouping("spout")
    return builder


def at_least_once() -> TopologyBuilder:
    builder = TopologyBuilder("orders")
    builder.set_spout("spout", MemorySpout([], ORDER))
    builder.set_bolt("orders", ReliableOrders()).shuffle_grouping("spout")
    return builder


both = pytest.mark.parametrize("made", [transactional, at_least_once])
Made = Callable[[], Any]


def grouping_of(builder: Any, *arguments: Any, method: str = "fields_grouping", **more: Any) -> Any:
    bolt = Orders() if isinstance(builder, TransactionalTopologyBuilder) else ReliableOrders()
    getattr(builder.set_bolt("bolt", bolt), method)("orders", *arguments, **more)
    graph = builder.build_topology().graph
    return next(edge.grouping for edge in graph.edges() if edge.target == "bolt")


@both
@pytest.mark.parametrize(
    "arguments",
    [("customer", "country"), (["customer", "country"],), (ORDER.select(["customer", "country"]),)],
)
def test_several_fields_are_named_one_by_one_or_in_a_list(
    made: Made, arguments: tuple[Any, ...]
) -> None:
    names = ("customer", "country")

    assert grouping_of(made(), *arguments) == FieldsGrouping(names)
    assert grouping_of(made(), *arguments, stream="paid") == FieldsGrouping(names)
    partial = grouping_of(made(), *arguments, method="partial_key_grouping")
    assert partial == PartialKeyGrouping(names)


@both
def test_the_fields_may_be_given_by_keyword(made: Made) -> None:
    assert grouping_of(made(), fields=["customer"]) == FieldsGrouping(("customer",))


@both
def test_one_wrong_name_of_several_is_answered_with_the_nearest(made: Made) -> None:
    with pytest.raises(TopologyError, match=r"undeclared field 'contry'; did you mean 'country'\?"):
        grouping_of(made(), "customer", "contry")


@both
def test_a_stream_where_a_field_is_expected_is_named_by_the_keyword(made: Made) -> None:
    """Storm's fieldsGrouping(component, stream, fields)."""
    with pytest.raises(
        TopologyError,
        match=r"undeclared field 'paid'; it is a stream of 'orders'; write stream='paid' after the "
        r"fields, which are 'customer', 'country'",
    ):
        grouping_of(made(), "paid", "customer")


@both
@pytest.mark.parametrize("fields", [["customer"], Fields("customer string"), 3])
def test_a_name_beside_a_list_is_refused(made: Made, fields: Any) -> None:
    with pytest.raises(
        TopologyError,
        match=r"the fields of fields_grouping of bolt 'bolt' are not names; got 'paid', .*; write "
        r"fields_grouping\(source, 'first', 'second'\), with stream='name'",
    ):
        grouping_of(made(), "paid", fields)
