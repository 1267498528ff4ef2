"""The examples in the docstrings of public names run, and print what they show."""

from __future__ import annotations

import doctest
import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.harness.runs import started
from tests.unit.test_site import FACES
from txtopo import (
    BasicBolt,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    ReliableTopology,
    Topology,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.bolts import Append
from txtopo.ensemble import MemoryEnsemble
from txtopo.outbox import Publisher
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout
from txtopo.testing import FeederSpout

LOCAL = Config(carrier="local", zookeeper="memory")
WORD = Fields("word string")


class Ends(BasicBolt):
    """Emits nothing."""

    def execute(self, tuple: Any, collector: Any) -> None:
        """Take a tuple."""


def counting() -> TransactionalTopologyBuilder:
    spout = MemoryTransactionalSpout({0: [["the"], ["cat"], ["the"]]}, WORD, 1)
    builder = TransactionalTopologyBuilder("words", "words", spout)
    counts = PersistentAggregate(open_state("sqlite:///counts.db"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("words", "word")
    return builder


def counts(records: Sequence[tuple[str]]) -> Mapping[str, int]:
    return Counter(word for (word,) in records)


def reliable(spout: Any) -> ReliableTopology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    builder.set_bolt("ends", Ends()).shuffle_grouping("words")
    return builder.build_topology()


def counted() -> dict[str, object]:
    topology: Topology = counting().build_topology()
    with topology.start(config=LOCAL) as run:
        run.process_all_available()
    return {}


def counted_twice() -> dict[str, object]:
    builder = counting()
    for table in ("a", "b"):
        counts = PersistentAggregate(open_state("sqlite:///both.db", table=table), "word", Count())
        builder.set_bolt(table, counts).fields_grouping("words", "word")
    with builder.build_topology().start(config=LOCAL) as run:
        run.process_all_available()
    return {}


def appended() -> dict[str, object]:
    ensemble, mails = MemoryEnsemble(), Fields("to string")
    spout = MemoryTransactionalSpout({0: [["ann"], ["bob"]]}, mails, 1)
    builder = TransactionalTopologyBuilder("shop", "mails", spout)
    builder.set_bolt("outbox", Append(open_state("sqlite:///mails.db"), mails)).shuffle_grouping(
        "mails"
    )
    with started(builder.build_topology(), LOCAL, ensemble) as run:
        run.process_all_available()
    return {"Publisher": partial(Publisher, ensemble=ensemble), "config": LOCAL}


def fed() -> dict[str, object]:
    feeder = FeederSpout(WORD)
    return {"feeder": feeder, "topology": reliable(feeder)}


TAKEN_FOR_GRANTED: Mapping[str, Any] = {
    "ClockTransactionalSpout": lambda: {"builder": counting()},
    "ProgressBar": lambda: {"topology": counting().build_topology(), "config": LOCAL},
    "Publisher": appended,
    "ReliableRun": lambda: {"topology": reliable(MemorySpout([["a"], ["b"]], WORD))},
    "SimulatedCluster": fed,
    "StateReader": counted,
    "read_together": counted_twice,
    "simulate": lambda: {"topology": counting().build_topology(), "counts": counts},
    "TopologyRun": lambda: {"topology": counting().build_topology()},
}
"""What an example has not made itself, by the name of what it is an example of."""


def examples() -> list[Any]:
    """Return the examples of each public name and of its methods, each once."""
    finder, found = doctest.DocTestFinder(exclude_empty=True), dict[object, Any]()
    for face in FACES:
        module = importlib.import_module(face)
        for name in module.__all__:
            thing = getattr(module, name)
            if hasattr(thing, "__module__"):
                for each in finder.find(thing, name):
                    found[(each.filename, each.lineno)] = each
    tests = [each for each in found.values() if each.examples]
    return [pytest.param(each, id=each.name) for each in tests]


@pytest.mark.integration
@pytest.mark.parametrize("example", examples())
def test_an_example_runs_and_prints_what_it_shows(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    public = {
        name: getattr(module, name)
        for module in map(importlib.import_module, FACES)
        for name in module.__all__
    }
    granted = TAKEN_FOR_GRANTED.get(example.name, dict)()
    example.globs = {**public, **example.globs, **granted}
    said: list[str] = []

    doctest.DocTestRunner(verbose=False).run(example, out=said.append)

    assert not said, "".join(said)
