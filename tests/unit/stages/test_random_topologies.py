"""Random small topologies against a plain Python fold of the same graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from tests.unit.stages.bolts import ArrowPass, Pass, Recorder
from tests.unit.stages.running import (
    RowsSpout,
    Topology,
    aggregate,
    bolt,
    grouped,
    recording,
    run_of,
    spout,
)
from txtopo.groupings import (
    AllGrouping,
    FieldsGrouping,
    GlobalGrouping,
    Grouping,
    LocalOrShuffleGrouping,
    NoneGrouping,
    PartialKeyGrouping,
    ShuffleGrouping,
)
from txtopo.state.aggregates import Count
from txtopo.topology.bolt_kinds import ARROW_BOLT, BASIC_BOLT, BATCH_BOLT
from txtopo.topology.component import Component

GROUPINGS: list[Grouping] = [
    ShuffleGrouping(),
    FieldsGrouping(("word",)),
    GlobalGrouping(),
    AllGrouping(),
    NoneGrouping(),
    LocalOrShuffleGrouping(),
    PartialKeyGrouping(("word",)),
]
Words = list[str]


@dataclass(frozen=True)
class Plan:
    """Bolt i has inputs (source, grouping); source 0 is the spout, source i is bolt i."""

    inputs: list[list[tuple[int, Grouping]]]
    parallelism: list[int]
    kinds: list[str]
    committers: frozenset[int]
    batches: list[Words]
    spout_tasks: int


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    bolts = draw(st.integers(1, 5))
    inputs = []
    for at in range(1, bolts + 1):
        sources = draw(st.sets(st.integers(0, at - 1), min_size=1, max_size=2))
        inputs.append([(s, draw(st.sampled_from(GROUPINGS))) for s in sorted(sources)])
    words = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12)
    return Plan(
        inputs=inputs,
        parallelism=[draw(st.integers(1, 4)) for _ in range(bolts)],
        kinds=[draw(st.sampled_from(["basic", "batch", "arrow"])) for _ in range(bolts)],
        committers=frozenset(draw(st.sets(st.integers(1, bolts), max_size=2))),
        batches=draw(st.lists(words, min_size=1, max_size=3)),
        spout_tasks=draw(st.integers(1, 3)),
    )


def components(plan: Plan) -> list[Component]:
    rows = [[[word] for word in words] for words in plan.batches]
    found = [spout(RowsSpout(rows, "word string"), plan.spout_tasks)]
    names = ["spout"]
    for at, inputs in enumerate(plan.inputs, 1):
        kind = "batch" if at in plan.committers else plan.kinds[at - 1]
        prototype, bolt_kind = {
            "basic": (Pass("word string"), BASIC_BOLT),
            "batch": (Recorder("word string"), BATCH_BOLT),
            "arrow": (ArrowPass("word string"), ARROW_BOLT),
        }[kind]
        edges = [grouped(grouping, names[source]) for source, grouping in inputs]
        found.append(
            bolt(
                f"b{at}",
                prototype,
                *edges,
                parallelism=plan.parallelism[at - 1],
                kind=bolt_kind,
                committer=at in plan.committers,
            )
        )
        names.append(f"b{at}")
    everything = [grouped(ShuffleGrouping(), name) for name in names]
    return [*found, aggregate("total", "word", Count(), *everything)]


def model(plan: Plan, words: Words) -> dict[str, int]:
    """Count what every component emits: a copy of each word for each delivery."""
    emitted: list[dict[str, int]] = [{word: words.count(word) for word in set(words)}]
    for at, inputs in enumerate(plan.inputs):
        mine: dict[str, int] = {}
        for source, grouping in inputs:
            times = plan.parallelism[at] if isinstance(grouping, AllGrouping) else 1
            for word, count in emitted[source].items():
                mine[word] = mine.get(word, 0) + count * times
        emitted.append(mine)
    total: dict[str, int] = {}
    for each in emitted:
        for word, count in each.items():
            total[word] = total.get(word, 0) + count
    return total


@examples(15)
@given(plans(), st.integers(1, 4))
def test_every_topology_delivers_what_its_groupings_say(plan: Plan, slots: int) -> None:
    topology = Topology(*components(plan), slots=slots)

    with recording():
        ran = topology.run(run_of(len(plan.batches)))

    assert ran.outcome.failure is None
    assert ran.txids == list(range(1, len(plan.batches) + 1))
    for words, batch, commit in zip(plan.batches, ran.outcome.processed, ran.commits, strict=True):
        assert commit.failure is None
        assert dict(topology.merged("total", batch, commit)) == model(plan, words)


@examples(6)
@given(plans())
def test_slots_and_runs_change_no_task(plan: Plan) -> None:
    """All but local_or_shuffle, whose meaning is a slot."""
    inputs = [
        [(s, ShuffleGrouping() if g == LocalOrShuffleGrouping() else g) for s, g in edges]
        for edges in plan.inputs
    ]
    plan = Plan(**{**vars(plan), "inputs": inputs, "kinds": ["batch"] * len(plan.kinds)})
    txids = len(plan.batches)

    def seen(slots: int, run_txids: int) -> dict[Any, list[Any]]:
        topology = Topology(*components(plan), slots=slots)
        tasks: dict[Any, list[Any]] = {}
        with recording() as recorded:
            for first in range(1, txids + 1, run_txids):
                topology.run(run_of(min(run_txids, txids + 1 - first), first=first))
            for row in recorded:
                tasks.setdefault(row[:3], []).append(row[3:])
        return tasks

    one_by_one = seen(1, 1)

    assert seen(2, txids) == one_by_one
    assert seen(3, 2) == one_by_one
