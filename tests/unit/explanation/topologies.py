"""Topologies to be explained; in a module, so that their bolts pickle."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

from tests.unit.topology.frame_parts import Doubled
from tests.unit.topology.frame_parts import spout as frame_spout
from txtopo import (
    BasicBolt,
    BatchBolt,
    Committer,
    Count,
    Fields,
    Last,
    Mean,
    PersistentAggregate,
    ReliableTopology,
    Sum,
    Topology,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.spouts import (
    MemorySpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    StreamSpout,
)

WORD = Fields("word string")
HOSTILE = [
    "<script>alert(1)<\\script>",
    "quo\"te's & [brackets] {x} | y; #1",
    "`1. list` **bold** --> end",
    "]]><svg-->",
    "x" * 255,
    "日本語" * 80,
    "right\u202eto left",
]


class Split(BasicBolt):
    output_fields = Fields("word string, length long")
    output_streams = {"long": WORD}  # noqa: RUF012 - as users write it

    def execute(self, tuple: Any, collector: Any) -> None: ...


class Pass(BasicBolt):
    output_fields = WORD

    def execute(self, tuple: Any, collector: Any) -> None: ...


class Write(BatchBolt, Committer):
    writes_nowhere_else = True

    def prepare(self, *arguments: Any) -> None: ...

    def execute(self, tuple: Any) -> None: ...

    def finish_batch(self) -> None: ...


def spout(*, opaque: bool = False) -> Any:
    kind: Any = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    return kind({0: [["a"]]}, WORD, 1)


def counting(url: str = "sqlite:///words.db") -> PersistentAggregate:
    return PersistentAggregate(open_state(url), "word", Count())


def words(tasks: int = 1, *, opaque: bool = False) -> Topology:
    """A spout, a bolt, an aggregate and a committer with this many tasks, and dead letters."""
    builder = TransactionalTopologyBuilder(
        "words", "lines", spout(opaque=opaque), 3, dead_letters=open_state("sqlite:///words.db")
    )
    builder.set_bolt("split", Split(), 4).shuffle_grouping("lines")
    aggregates = {"n": Count(), "mean": Mean("length"), "last": Last("length", order="length")}
    counts = PersistentAggregate(open_state("sqlite:///words.db"), "word", aggregates)
    builder.set_bolt("counts", counts).fields_grouping("split", "word")
    state = open_state("postgresql://me:secret@db/words")
    longest = builder.set_bolt("longest", Write(), tasks).fields_grouping(
        "split", "word", stream="long"
    )
    longest.with_state("longest", state)
    return builder.build_topology()


class Own(Write):
    """A committer that declares nothing."""

    writes_nowhere_else = False


class Foreign(MemoryTransactionalSpout):
    """A spout that is none of txtopo's."""


def own_database() -> Topology:
    """A committer without a state."""
    builder = TransactionalTopologyBuilder("own", "lines", spout())
    builder.set_bolt("write", Own()).global_grouping("lines")
    return builder.build_topology()


def foreign() -> Topology:
    """A count below a spout of a user's."""
    builder = TransactionalTopologyBuilder("foreign", "lines", Foreign({0: [["a"]]}, WORD, 1))
    builder.set_bolt("count", counting()).fields_grouping("lines", "word")
    return builder.build_topology()


def chain(ids: list[str]) -> Topology:
    """One bolt after the other, then a count."""
    builder = TransactionalTopologyBuilder("chain", ids[0], spout())
    for source, id in itertools.pairwise(ids):
        builder.set_bolt(id, Pass()).shuffle_grouping(source)
    builder.set_bolt("count", counting()).fields_grouping(ids[-1], "word")
    return builder.build_topology()


def tangle(bolts: int) -> Topology:
    """Many bolts, each below one to three of the eight before it."""
    chance, ids = Random(1), ["source"]
    builder = TransactionalTopologyBuilder("tangle", "source", spout())
    for number in range(bolts):
        bolt = builder.set_bolt(f"bolt-{number}", Pass(), chance.randint(1, 4))
        near = ids[-8:]
        for source in chance.sample(near, min(len(near), chance.randint(1, 3))):
            bolt.shuffle_grouping(source)
        ids.append(f"bolt-{number}")
    builder.set_bolt("count", counting()).fields_grouping(ids[-1], "word")
    return builder.build_topology()


def fan(bolts: int) -> Topology:
    """A spout that feeds each bolt of a chain, so that most edges are long."""
    builder = TransactionalTopologyBuilder("fan", "source", spout())
    before = "source"
    for number in range(bolts):
        bolt = builder.set_bolt(f"bolt-{number}", Pass()).shuffle_grouping(before)
        if number:
            bolt.shuffle_grouping("source")
        before = f"bolt-{number}"
    return builder.build_topology()


def frames() -> Topology:
    builder = TransactionalTopologyBuilder("frames", "words", frame_spout())
    builder.set_bolt("double", Doubled()).shuffle_grouping("words")
    builder.set_bolt("pass", Pass()).shuffle_grouping("double")
    builder.set_bolt("count", counting()).fields_grouping("double", "word")
    builder.set_bolt("other", counting("sqlite:///other.db")).fields_grouping("pass", "word")
    return builder.build_topology()


def sums() -> Topology:
    """A sum whose last digits depend on the order of its additions."""
    amounts = MemoryTransactionalSpout({0: [["a", 0.1]]}, Fields("word string, amount double"), 1)
    builder = TransactionalTopologyBuilder("sums", "amounts", amounts)
    sums = PersistentAggregate(open_state("sqlite:///sums.db"), "word", Sum("amount"))
    builder.set_bolt("sums", sums).fields_grouping("amounts", "word")
    return builder.build_topology()


def transactional() -> Topology:
    """A committer with a transactional state."""
    builder = TransactionalTopologyBuilder("transactional", "words", spout())
    state = open_state("sqlite:///kept.db", "transactional")
    keep = builder.set_bolt("keep", Write()).fields_grouping("words", "word")
    keep.with_state("kept", state)
    return builder.build_topology()


def query() -> Topology:
    builder = TransactionalTopologyBuilder("query", "stream", StreamSpout(WORD))
    builder.set_bolt("count", counting()).fields_grouping("stream", "word")
    return builder.build_topology()


def lines() -> ReliableTopology:
    builder = TopologyBuilder("lines")
    builder.set_spout("lines", MemorySpout([["a"]], WORD), 2)
    builder.set_bolt("split", Pass(), 4).shuffle_grouping("lines")
    builder.set_bolt("count", Pass(), 2).fields_grouping("split", "word")
    return builder.build_topology()
