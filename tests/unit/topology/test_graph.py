"""The graph orders components, finds their levels and cuts the two phases apart."""

from __future__ import annotations

import pytest

from txtopo.errors import TopologyError
from txtopo.groupings import ShuffleGrouping
from txtopo.topology.bolt_kinds import BATCH_BOLT
from txtopo.topology.component import Component, Subscription
from txtopo.topology.graph import Edge, Graph
from txtopo.topology.spout_kinds import (
    DataFrameKind,
    SpoutKind,
    StreamKind,
    TransactionalKind,
)
from txtopo.tuples import Fields, Stream

STREAMS = {"default": Stream(Fields("word string"))}
SPOUT = Component("spout", TransactionalKind(), object(), 1, STREAMS)


def bolt(id: str, *sources: str, committer: bool = False) -> Component:
    inputs = tuple(Subscription(source, "default", ShuffleGrouping()) for source in sources)
    return Component(id, BATCH_BOLT, object(), 1, STREAMS, inputs, committer)


def test_sources_stand_before_those_who_subscribe_to_them() -> None:
    graph = Graph.of("t", [bolt("c", "b", "a"), bolt("b", "a"), bolt("a", "spout"), SPOUT])

    assert list(graph.components) == ["spout", "a", "b", "c"]
    assert graph.spout is SPOUT


def test_the_level_is_the_longest_distance_from_the_spout() -> None:
    components = [SPOUT, bolt("a", "spout"), bolt("b", "a"), bolt("c", "spout", "b", "a")]
    graph = Graph.of("t", components)

    assert graph.levels == {"spout": 0, "a": 1, "b": 2, "c": 3}


def test_edges_follow_the_subscriptions() -> None:
    graph = Graph.of("t", [SPOUT, bolt("a", "spout"), bolt("b", "spout", "a")])

    assert graph.edges() == (
        Edge("spout", "default", "a", ShuffleGrouping()),
        Edge("spout", "default", "b", ShuffleGrouping()),
        Edge("a", "default", "b", ShuffleGrouping()),
    )


def test_all_that_hangs_below_a_committer_is_in_the_commit_phase() -> None:
    """The bolts A to D of Storm's page: committer D below committer B, one commit phase."""
    graph = Graph.of(
        "t",
        [
            SPOUT,
            bolt("a", "spout"),
            bolt("b", "a", committer=True),
            bolt("c", "b", "a"),
            bolt("d", "c", committer=True),
            bolt("e", "a"),
        ],
    )

    assert graph.committing == {"b", "c", "d"}


def test_a_cycle_is_named_in_the_direction_of_its_streams() -> None:
    """Item 7."""
    components = [SPOUT, bolt("a", "spout", "c"), bolt("b", "a"), bolt("c", "b"), bolt("d", "c")]

    with pytest.raises(TopologyError, match=r"cycle; got 'a' -> 'b' -> 'c' -> 'a'"):
        Graph.of("t", components)


def test_a_bolt_that_feeds_itself_is_a_cycle() -> None:
    with pytest.raises(TopologyError, match="cycle; got 'a' -> 'a'"):
        Graph.of("t", [SPOUT, bolt("a", "spout", "a")])


def test_there_is_a_spout_at_least() -> None:
    with pytest.raises(TopologyError, match="needs at least one spout; got none"):
        Graph.of("t", [])


@pytest.mark.parametrize("kind", [StreamKind(), DataFrameKind()])
def test_a_spout_whose_batches_nobody_plans_for_tasks_stays_alone(kind: SpoutKind) -> None:
    alone = Component("frames", kind, object(), 1, STREAMS)

    with pytest.raises(
        TopologyError, match=r"'frames' cannot share .* got 's' as well; .* only spout"
    ):
        Graph.of("t", [Component("s", SPOUT.kind, object(), 1, STREAMS), alone])
