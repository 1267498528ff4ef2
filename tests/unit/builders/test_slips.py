"""Slips of those who know Storm or Spark: each is answered with what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.runs import LOCAL
from tests.unit.builders.bolts import WORD, Save, Streams, builder
from tests.unit.reliable.bolts import AckEveryOther, Forward
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    BatchOutputCollector,
    Count,
    Fields,
    PersistentAggregate,
    TopologyBuilder,
    TopologyListener,
    Tuple,
    open_state,
)
from txtopo.errors import TxtopoError
from txtopo.groupings import DirectGrouping, ShuffleGrouping
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout
from txtopo.testing import complete_topology


def started(**arguments: Any) -> object:
    made = builder()
    made.set_bolt("save", Save()).shuffle_grouping("spout").with_state("s", open_state("memory:"))
    return made.build_topology().start(**{"config": LOCAL, **arguments})


def reliable() -> TopologyBuilder:
    made = TopologyBuilder("words")
    made.set_spout("spout", MemorySpout([["a"]], WORD))
    return made


def aggregate(*arguments: Any) -> object:
    return PersistentAggregate(*arguments)


MEMORY = open_state("memory:")
WRONG_FIELDS: Any = "word string"
SLIPS: dict[str, tuple[Callable[[], object], str]] = {
    "a config as the session": (lambda: started(spark=LOCAL), r"pass settings as start\(config="),
    "what open_session returns": (
        lambda: started(spark=(None, True)),
        "got tuple; .* whether txtopo built it",
    ),
    "one listener": (
        lambda: started(listeners=TopologyListener()),
        r"got TopologyListener; .*write listeners=\[listener\]",
    ),
    "one listener, at least once": (
        lambda: reliable().build_topology().start(listeners=TopologyListener()),  # type: ignore[arg-type]
        r"write listeners=\[listener\]",
    ),
    "a url as the state": (
        lambda: aggregate("postgresql://ann:secret@host/db", "word", Count()),
        r"state of a PersistentAggregate is of the wrong type; got 'postgresql://ann:\*\*\*@host",
    ),
    "an aggregate's class": (
        lambda: aggregate(MEMORY, "word", Count),
        r"Count.* is not an aggregate",
    ),
    "an aggregate's name": (
        lambda: aggregate(MEMORY, "word", "count"),
        "'count' is not an aggregate",
    ),
    "aggregates by name": (
        lambda: aggregate(MEMORY, "word", {"n": "count"}),
        "is not an aggregate",
    ),
    "two keys": (lambda: aggregate(MEMORY, "a", "b"), r"one list: .*\['a', 'b'\]"),
    "rows of text": (lambda: MemorySpout(["a"], WORD), r"got 'a'; expected a list of 1 values"),
    "fields of text": (lambda: MemorySpout([], WRONG_FIELDS), r"write e\.g\. Fields\('word string"),
    "fields of text in batches": (
        lambda: MemoryTransactionalSpout({}, WRONG_FIELDS, 1),
        "got 'word string'; expected Fields",
    ),
    "a bolt of the other API": (
        lambda: builder().set_bolt("a", AckEveryOther()),  # type: ignore[arg-type]
        "it is a Bolt, which a TopologyBuilder takes",
    ),
    "a spout of the other API": (
        lambda: TopologyBuilder().set_spout("a", MemoryTransactionalSpout({}, WORD, 1)),  # type: ignore[arg-type]
        "it is a PartitionedTransactionalSpout, which a TransactionalTopologyBuilder takes",
    ),
}


@pytest.mark.parametrize(("slip", "message"), SLIPS.values(), ids=SLIPS)
def test_a_slip_is_answered_with_what_to_write(slip: Callable[[], object], message: str) -> None:
    with pytest.raises(TxtopoError, match=message) as caught:
        slip()
    assert "secret" not in str(caught.value)


class EmitText(BasicBolt):
    """Emits a text in the place of a list of values."""

    output_fields = Fields("word string")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit("three")


def test_a_text_that_is_emitted_is_no_list_of_values() -> None:
    made = reliable()
    made.set_bolt("text", EmitText()).shuffle_grouping("spout")

    with pytest.raises(TxtopoError, match=r"got 'three'; .*write emit\(\[value\]\)"):
        complete_topology(made.build_topology(), {"spout": [["a"]]})


def test_a_stream_may_be_the_second_argument_as_in_storm() -> None:
    made = builder()
    made.set_bolt("a", Streams()).shuffle_grouping("spout", "default")
    made.set_bolt("b", Save()).direct_grouping("a", "picked").shuffle_grouping("a", "errors")
    edges = made.build_topology().graph.edges()

    assert [(e.stream, e.grouping) for e in edges] == [
        ("default", ShuffleGrouping()),
        ("picked", DirectGrouping()),
        ("errors", ShuffleGrouping()),
    ]


def test_none_of_these_checks_refuses_what_is_right() -> None:
    made = reliable()
    made.set_bolt("a", Forward()).shuffle_grouping("spout", "default")

    with made.build_topology().start(
        None, AtLeastOnceConfig(carrier="local"), [TopologyListener()]
    ) as run:
        run.process_all_available(60)
