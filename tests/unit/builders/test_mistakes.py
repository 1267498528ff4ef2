"""Each mistake in a definition is found when the topology is built, with a message that helps.

The numbers are those of the list of bad input that the project keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.builders.bolts import WORD, Streams, Words, builder, refused
from txtopo import (
    Config,
    PersistentAggregate,
    TransactionalTopologyBuilder,
)
from txtopo.errors import ConfigError, TopologyError, TopologyWarning
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import Count, open_state

SPOUT = MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)


def test_1_no_spout() -> None:
    nothing: Any = None
    with pytest.raises(TopologyError, match="spout is missing; got None for 'spout'"):
        TransactionalTopologyBuilder("t", "spout", nothing)


def test_1_a_bolt_is_no_spout() -> None:
    wrong: Any = Words()
    with pytest.raises(
        TopologyError, match=r"spout 's' is not a spout; got .*none of their methods"
    ):
        TransactionalTopologyBuilder("t", "s", wrong)


def test_1_a_spout_without_fields() -> None:
    class Silent(MemoryTransactionalSpout):
        output_fields = None

    silent = Silent({}, WORD, 1)
    silent.output_fields = None
    with pytest.raises(TopologyError, match="spout 's' declares no fields"):
        TransactionalTopologyBuilder("t", "s", silent)


def test_2_a_spout_without_bolts_is_warned_of() -> None:
    with pytest.warns(TopologyWarning, match="a spout but no bolts") as caught:
        builder().build_topology()
    assert caught[0].filename == __file__


@pytest.mark.parametrize("id", ["spout", "a"])
def test_3_duplicate_id(id: str) -> None:
    def define(made: TransactionalTopologyBuilder) -> None:
        made.set_bolt("a", Words()).shuffle_grouping("spout")
        made.set_bolt(id, Words())

    refused(define, f"component id '{id}' is used twice")


def test_4_unknown_source_suggests_the_nearest() -> None:
    error = refused(
        lambda made: made.set_bolt("a", Words()).shuffle_grouping("sput"),
        "'a' subscribes to unknown component 'sput'; did you mean 'spout'",
    )
    assert error.source == "sput"


def test_4_unknown_source_that_is_like_none_lists_all() -> None:
    refused(
        lambda made: made.set_bolt("a", Words()).shuffle_grouping("xyz"),
        "unknown component 'xyz'; known are 'spout'",
    )


def test_5_unknown_stream_suggests_the_nearest() -> None:
    def define(made: TransactionalTopologyBuilder) -> None:
        made.set_bolt("a", Streams()).shuffle_grouping("spout")
        made.set_bolt("b", Words()).shuffle_grouping("a", stream="error")

    refused(define, "unknown stream 'error' of 'a'; did you mean 'errors'")


def test_5_a_persistent_aggregate_has_no_stream() -> None:
    def define(made: TransactionalTopologyBuilder) -> None:
        count = PersistentAggregate(open_state("memory:"), "word", Count())
        made.set_bolt("count", count).shuffle_grouping("spout")
        made.set_bolt("b", Words()).shuffle_grouping("count")

    refused(define, "a PersistentAggregate does not emit")


@pytest.mark.parametrize("method", ["fields_grouping", "partial_key_grouping"])
def test_6_grouping_on_an_undeclared_field(method: str) -> None:
    refused(
        lambda made: getattr(made.set_bolt("a", Words()), method)("spout", ["wrd"]),
        "of bolt 'a' on stream 'default' of 'spout' names undeclared field 'wrd'; "
        "did you mean 'word'",
    )


def test_6_fields_grouping_without_fields() -> None:
    refused(lambda made: made.set_bolt("a", Words()).fields_grouping("spout", []), "names no field")


def test_66_unknown_component_field_or_stream_is_rejected() -> None:
    """Storm's check 66."""
    refused(lambda made: made.set_bolt("a", Words()).shuffle_grouping("x"), "unknown component")
    refused(
        lambda made: made.set_bolt("a", Words()).fields_grouping("spout", "x"), "undeclared field"
    )
    refused(
        lambda made: made.set_bolt("a", Words()).shuffle_grouping("spout", stream="x"),
        "unknown stream",
    )


def test_7_cycle() -> None:
    def define(made: TransactionalTopologyBuilder) -> None:
        made.set_bolt("a", Words()).shuffle_grouping("spout").shuffle_grouping("b")
        made.set_bolt("b", Words()).shuffle_grouping("a")

    refused(define, "cycle; got 'a' -> 'b' -> 'a'")


BAD_IDS = {
    "": "is empty",
    " ": "is empty",
    "a/b": "has a '/'",
    "..": r"has a '\.\.'",
    "a..b": r"has a '\.\.'",
    ".": r"is '\.'",
    "a\0b": "has a NUL",
    "x" * 256: "is too long, 256 characters",
    "__acker": "starts with '__', which is reserved",
}


@pytest.mark.parametrize(("id", "fault"), BAD_IDS.items())
def test_8_bad_ids(id: str, fault: str) -> None:
    makers: dict[str, Callable[[], object]] = {
        "topology": lambda: TransactionalTopologyBuilder(id, "s", SPOUT),
        "spout": lambda: TransactionalTopologyBuilder("t", id, SPOUT),
        "bolt": lambda: builder().set_bolt(id, Words()),
    }
    for what, make in makers.items():
        with pytest.raises(TopologyError, match=f"^{what} id {fault}"):
            make()


def test_8_an_id_that_is_no_string() -> None:
    wrong: Any = 7
    with pytest.raises(TopologyError, match="id is of the wrong type; got 7; expected a string"):
        TransactionalTopologyBuilder(wrong, "s", SPOUT)


@pytest.mark.parametrize("parallelism", [0, -1, True, 2.0, "2", None])
def test_9_bad_parallelism(parallelism: Any) -> None:
    with pytest.raises(TopologyError, match="parallelism of 'a' is wrong; got"):
        builder().set_bolt("a", Words(), parallelism)
    with pytest.raises(TopologyError, match="parallelism of 's' is wrong; got"):
        TransactionalTopologyBuilder("t", "s", SPOUT, parallelism)


@pytest.mark.parametrize("pending", [0, -1, True, 1.5])
def test_10_max_spout_pending_below_one(pending: Any) -> None:
    with pytest.raises(ConfigError, match="max_spout_pending must be a whole number of at least 1"):
        Config(max_spout_pending=pending)


def test_12_no_committer_is_warned_of() -> None:
    made = builder()
    made.set_bolt("a", Words()).shuffle_grouping("spout")

    with pytest.warns(
        TopologyWarning, match="no committer; so its batches are computed, but nothing"
    ):
        made.build_topology()


def test_the_same_stream_twice() -> None:
    refused(
        lambda made: (
            made.set_bolt("a", Words()).shuffle_grouping("spout").fields_grouping("spout", "word")
        ),
        "'a' subscribes twice to stream 'default' of 'spout'",
    )


def test_a_bolt_without_input() -> None:
    refused(lambda made: made.set_bolt("a", Words()), "bolt 'a' has no input")


def test_direct_grouping_and_direct_streams_belong_together() -> None:
    def define(made: TransactionalTopologyBuilder) -> None:
        made.set_bolt("a", Streams()).shuffle_grouping("spout")
        made.set_bolt("b", Words()).shuffle_grouping("a", stream="picked")

    refused(define, "the stream is declared direct, so its emitter picks the tasks")
    refused(
        lambda made: made.set_bolt("a", Words()).direct_grouping("spout"),
        r"direct grouping of bolt 'a' .* needs a direct stream",
    )


def test_a_custom_grouping_that_is_none() -> None:
    wrong: Any = object()
    refused(
        lambda made: made.set_bolt("a", Words()).custom_grouping("spout", wrong),
        "custom grouping of bolt 'a' is of the wrong type",
    )
