"""Random small topologies, groupings, batches and failures agree with a fold in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.chance import examples
from tests.harness.runs import LOCAL, Storage, on, run_to_end
from tests.services.integration.bolts import WORDS, ArrowMultiply, Multiply, SumByKey
from txtopo import Config, FailedException, Topology, TransactionalTopologyBuilder, Tuple
from txtopo.builders import BoltDeclarer
from txtopo.collector import BatchOutputCollector
from txtopo.config import Carrier
from txtopo.spouts import (
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    Outage,
    Recut,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[str, int]]
GROUPINGS = ("shuffle", "fields", "global", "all", "none", "local_or_shuffle", "partial_key")


class FlakyMultiply(Multiply):
    """Fails the first attempts at one txid."""

    def __init__(self, factor: int, txid: int) -> None:
        super().__init__(factor)
        self.txid = txid

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        if tuple.attempt.txid == self.txid and tuple.attempt.attempt < 2:
            raise FailedException("by the script")
        super().execute(tuple, collector)


@dataclass(frozen=True, slots=True)
class Input:
    """What a bolt subscribes to: a component before it, by number, and how."""

    source: int
    grouping: str


@dataclass(frozen=True, slots=True)
class Bolt:
    """A bolt that multiplies amounts."""

    inputs: tuple[Input, ...]
    tasks: int
    factor: int
    arrow: bool
    fails_at: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A random topology.

    Attributes:
        data: Rows by partition.
        take: Rows of a partition in a batch.
        script: What an opaque spout does; None for a transactional one.
        spout_tasks: Parallelism of the spout.
        bolts: Component 0 is the spout, component n + 1 is the n-th bolt.
        commits: The components that the committer adds up.
        committer_tasks: Its parallelism.
    """

    data: Mapping[int, Rows]
    take: int
    script: tuple[Outage | Recut, ...] | None
    spout_tasks: int
    bolts: tuple[Bolt, ...]
    commits: frozenset[int]
    committer_tasks: int

    def build(self, storage: Storage) -> Topology:
        """Return the topology."""
        spout: MemoryTransactionalSpout | OpaqueMemoryTransactionalSpout
        if self.script is None:
            spout = MemoryTransactionalSpout(self.data, WORDS, self.take)
        else:
            spout = OpaqueMemoryTransactionalSpout(self.data, WORDS, self.take, self.script)
        builder = TransactionalTopologyBuilder("random", "0", spout, self.spout_tasks)
        for number, bolt in enumerate(self.bolts, start=1):
            multiply = (
                ArrowMultiply(bolt.factor)
                if bolt.arrow
                else FlakyMultiply(bolt.factor, bolt.fails_at)
            )
            declarer = builder.set_bolt(str(number), multiply, bolt.tasks)
            for each in bolt.inputs:
                subscribe(declarer, each)
        committer = builder.set_bolt("sums", SumByKey(), self.committer_tasks)
        for source in sorted(self.commits):
            committer.fields_grouping(str(source), "word")
        committer.with_state("sums", storage.state("sums"))
        return builder.build_topology()

    def fold(self) -> dict[str, int]:
        """Return the sum of each word."""
        spout: Counter[str] = Counter()
        for rows in self.data.values():
            for word, amount in rows:
                spout[word] += amount
        found = [spout]
        for bolt in self.bolts:
            sums: Counter[str] = Counter(dict.fromkeys(spout, 0))
            for each in bolt.inputs:
                copies = bolt.tasks if each.grouping == "all" else 1
                for word, total in found[each.source].items():
                    sums[word] += total * bolt.factor * copies
            found.append(sums)
        return {word: sum(found[source][word] for source in self.commits) for word in spout}


def subscribe(declarer: BoltDeclarer, each: Input) -> None:
    method = getattr(declarer, f"{each.grouping}_grouping")
    if each.grouping in ("fields", "partial_key"):
        method(str(each.source), "word")
    else:
        method(str(each.source))


tasks = st.integers(1, 3)
rows = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-5, 9)), max_size=12)
outages = st.builds(Outage, st.integers(0, 2), st.integers(1, 4), st.sampled_from([None, 0]))
recuts = st.builds(Recut, st.integers(1, 4), st.integers(0, 2), st.integers(0, 5))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    bolts: list[Bolt] = []
    for number in range(1, draw(st.integers(1, 5))):
        sources = draw(st.sets(st.integers(0, number - 1), min_size=1, max_size=2))
        inputs = tuple(Input(source, draw(st.sampled_from(GROUPINGS))) for source in sources)
        bolt = Bolt(
            inputs,
            draw(tasks),
            draw(st.integers(1, 3)),
            draw(st.booleans()),
            draw(st.integers(0, 4)),
        )
        bolts.append(bolt)
    scripts = st.lists(outages | recuts, max_size=4).map(tuple)
    return Plan(
        data=dict(enumerate(draw(st.lists(rows, min_size=1, max_size=3)))),
        take=draw(st.integers(1, 5)),
        script=draw(st.none() | scripts),
        spout_tasks=draw(tasks),
        bolts=tuple(bolts),
        commits=frozenset(draw(st.sets(st.integers(0, len(bolts)), min_size=1))),
        committer_tasks=draw(tasks),
    )


configs = st.builds(
    Config,
    carrier=st.just("local"),
    zookeeper=st.just("memory"),
    poll_interval_s=st.just(0.005),
    slots=st.integers(1, 4),
    max_spout_pending=st.sampled_from([1, 2, 3, 6, 30]),
)


@examples(8)
@given(plans(), configs)
def test_a_random_topology_leaves_what_plain_python_computes(plan: Plan, config: Config) -> None:
    storage = Storage.in_memory()

    changes = run_to_end(plan.build(storage), storage, config)

    assert changes.committed == list(range(1, len(changes.committed) + 1))
    assert storage.read("sums") == plan.fold()


@pytest.mark.slow
@examples(1_000)
@given(plans(), configs)
def test_many_random_topologies_leave_what_plain_python_computes(
    plan: Plan, config: Config
) -> None:
    storage = Storage.in_memory()

    run_to_end(plan.build(storage), storage, config)

    assert storage.read("sums") == plan.fold()


@pytest.mark.slow  # test_carriers_agree.py has a topology on each carrier
@pytest.mark.parametrize("carrier", ["rdd", "dataframe", "resident"])
@settings(max_examples=2, deadline=None, derandomize=True)
@given(plan=plans(), config=configs)
def test_a_random_topology_leaves_the_same_on_spark(
    spark: SparkSession, carrier: Carrier, plan: Plan, config: Config
) -> None:
    storage = Storage.in_memory()
    alone = replace(plan, committer_tasks=1)  # a state in memory is in the driver
    if carrier == "resident":
        config = replace(config, slots=2)  # the session has two cores

    run_to_end(alone.build(storage), storage, on(carrier, config), spark)

    assert storage.read("sums") == plan.fold()


def test_random_plans_cover_what_matters() -> None:
    """The strategy is only as good as what it draws: one plan with everything, by hand."""
    every = tuple(Input(0, grouping) for grouping in GROUPINGS[:1])
    bolt = Bolt(every, 2, 3, arrow=False, fails_at=2)
    behind = Bolt((Input(0, "all"), Input(1, "partial_key")), 3, 2, arrow=True, fails_at=0)
    data = {0: [("a", 1), ("b", 2), ("a", 3)], 1: [("c", 4)]}
    script = (Outage(0, 1), Recut(2, 1, 0))
    plan = Plan(data, 1, script, 2, (bolt, behind), frozenset({0, 1, 2}), 3)
    storage = Storage.in_memory()

    changes = run_to_end(plan.build(storage), storage, LOCAL)

    assert changes.failures
    assert plan.fold() == {"a": 4 + 12 + 24 + 24, "b": 2 + 6 + 12 + 12, "c": 4 + 12 + 24 + 24}
    assert storage.read("sums") == plan.fold()
