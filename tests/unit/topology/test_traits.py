"""The traits of a spout or bolt: each is read, and each class of ours makes the right ones.

:data:`READ` has one observation for each trait, of a topology with it and without it. One that
nobody reads would look the same. What follows from a trait is tested where that is done, below
``tests/unit``: groups in ``runtime/test_one_by_one.py``, changes of programs in
``streams/test_changed_programs.py``, planned time in ``runtime/test_stamps.py``, sinks in
``bolts``, replays of a spout that is not repeatable in ``sources/test_data_source.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any
from unittest import mock

import pytest

from state_backends.memory import MemoryBackend
from txtopo import (
    BasicBolt,
    BatchBolt,
    Committer,
    Config,
    Count,
    DataFrameBolt,
    Fields,
    PersistentAggregate,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.bolts import KafkaSink
from txtopo.builders.dead_letters import SINK, _can_make
from txtopo.errors import FieldsError, TopologyError
from txtopo.explanation.explaining import explain_topology
from txtopo.explanation.explanation import Explanation
from txtopo.operations.fork import _notes, _refused
from txtopo.runtime.needs import needed_servers
from txtopo.runtime.run_context import open_states
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.runtime.spout_planner import SpoutPlanner
from txtopo.servers import Server
from txtopo.spouts import (
    ClockTransactionalSpout,
    MemorySpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    StreamSpout,
)
from txtopo.stages.compiled_topology import compile_topology
from txtopo.stages.groups import why_one_by_one
from txtopo.state import StateKind
from txtopo.state.registry import State
from txtopo.topology.changes import added_states, refused_change
from txtopo.topology.elsewhere import emitters_to_ask
from txtopo.topology.graph import Graph, fingerprint
from txtopo.traits import Meaning, Traits, traits_of

WORD = Fields("word string")
BATCHES = {0: [["a"]]}


class Told(BatchBolt, Committer):
    """A committer with the traits that a test gives it."""

    writes_nowhere_else = True
    output_fields = WORD

    def __init__(self, told: Traits) -> None:
        self._told = told

    @property
    def traits(self) -> Traits:
        return self._told

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None: ...

    def execute(self, tuple: Any) -> None: ...

    def finish_batch(self) -> None: ...


class ToldSpout(MemoryTransactionalSpout):
    def __init__(self, told: Traits) -> None:
        super().__init__(BATCHES, WORD, 1)
        self._told = told

    @property
    def traits(self) -> Traits:
        return self._told


class ToldQueue(MemorySpout):
    def __init__(self, told: Traits) -> None:
        super().__init__([["a"]], WORD)
        self._told = told

    @property
    def traits(self) -> Traits:
        return self._told


class Passing(BasicBolt):
    output_fields = WORD

    def execute(self, tuple: Any, collector: Any) -> None: ...


def topology(
    bolt: Traits, spout: Any = None, *, tasks: int = 1, kind: StateKind = "opaque", table: str = "t"
) -> Graph:
    """Return a spout and a committer with these traits; an opaque one feeds a count."""
    spout = spout or MemoryTransactionalSpout(BATCHES, WORD, 1)
    builder = TransactionalTopologyBuilder("told", "words", spout)
    told = builder.set_bolt("told", Told(bolt), tasks).fields_grouping("words", "word")
    told.with_state("kept", open_state("memory:", kind, table))
    if kind == "opaque":
        counts = PersistentAggregate(open_state("memory:", table="counts"), "word", Count())
        builder.set_bolt("counts", counts).fields_grouping("told", "word")
    return builder.build_topology().graph


def refusal(build: Callable[[], object]) -> str | None:
    try:
        build()
    except TopologyError as error:
        return str(error)
    return None


def change(traits: Traits, table: str = "t") -> str | None:
    """Return why a bolt that had no traits may not get these."""
    known, graph = fingerprint(topology(Traits())), topology(traits, table=table)
    return refused_change(graph, known, added_states(fingerprint(graph), known))


def explained(traits: Traits) -> Explanation:
    return explain_topology(topology(traits), Config(carrier="local"))


def one_by_one(traits: Traits) -> str | None:
    graph = topology(traits, kind="transactional")
    return why_one_by_one(graph, compile_topology(graph, Config(), 1), {})


def two_queues(traits: Traits) -> str | None:
    builder = TopologyBuilder("queues")
    for name in ("first", "second"):
        builder.set_spout(name, ToldQueue(traits))
    return refusal(builder.build_topology)


def time_only(traits: Traits) -> bool:
    spout = topology(Traits(), ToldSpout(traits)).spout
    return SpoutPlanner("told", spout, Config()).time_only


def sink_of_dead_letters(traits: Traits) -> tuple[str, ...]:
    builder = TransactionalTopologyBuilder(
        "told", "words", MemoryTransactionalSpout(BATCHES, WORD, 1), dead_letters=Told(traits)
    )
    builder.set_bolt("pass", Passing()).shuffle_grouping("words")
    return builder.build_topology().graph.components[SINK].traits.operators


def never_deleted(traits: Traits) -> str | None:
    with mock.patch.object(MemoryBackend, "deletes_expired", False):
        return refusal(lambda: open_states(topology(traits), ThreadScheduler("told")))


def no_amount(fields: Fields) -> None:
    raise FieldsError(f"there is no amount; got {fields}")


def taking(names: Sequence[str]) -> Told:
    return Told(Traits(operators=tuple(names)))


def opaque() -> OpaqueMemoryTransactionalSpout:
    return OpaqueMemoryTransactionalSpout(BATCHES, WORD, 1)


READ: dict[str, tuple[object, Callable[[Traits], object]]] = {
    "needs_planned_time": (True, lambda told: topology(told).needs_planned_time),
    "lookups": ({"shops": None}, lambda told: topology(told).lookups),
    "client_modules": (("pika",), lambda told: topology(told).client_modules),
    "connects_to": (
        [Server("the shop", (("shop", 443),))],
        lambda told: needed_servers(topology(told), Config(zookeeper="memory")),
    ),
    "operators": (("map",), lambda told: explained(told).components[1].operators),
    "repeatable": (
        False,
        lambda told: refusal(lambda: topology(Traits(), ToldSpout(told), kind="transactional")),
    ),
    "takes_from": (("queue 'a'",), two_queues),
    "brings_time_only": (True, time_only),
    "emitter_writes_nowhere_else": (
        True,
        lambda told: emitters_to_ask(topology(Traits(), ToldSpout(told))),
    ),
    "state": (
        State("memory:", table="own", key=WORD, value=Fields("n long")),
        lambda told: topology(told).components["told"].states.keys(),
    ),
    "reads_states": (False, one_by_one),
    "rows": (Meaning("hours", "they are hours"), change),
    "buffered": (Meaning("left word", "it has no names"), change),
    "asks_outside": (
        True,
        lambda told: compile_topology(topology(told), Config(), 1).answering,
    ),
    "makes_dead_letters": (True, lambda told: _can_make(topology(told).components["told"])),
    "begins_with_below": ("it would close again", lambda told: change(told, "another")),
    "retractions": ("default", lambda told: change(told, "another")),
    "expires": (True, never_deleted),
    "one_task": ("one producer", lambda told: refusal(lambda: topology(told, tasks=2))),
    "refuses_opaque": ("it was seen", lambda told: refusal(lambda: topology(told, opaque()))),
    "check_input": (no_amount, lambda told: refusal(lambda: topology(told))),
    "with_dead_letters": (taking, sink_of_dead_letters),
    "cannot_fork": ("it is of its topic", lambda told: [*_refused(topology(told), "memory:")]),
    "renamed_in_forks": (
        "another group",
        lambda told: [*_notes(topology(Traits(), ToldSpout(told)))],
    ),
    "holds": ("records", lambda told: explained(told).components[1].states[0].holds),
    "delivery": ("for those who wait", lambda told: explained(told).delivery),
}
"""Each trait: a value of it, and what a reader makes of traits with or without it."""


def test_each_trait_has_its_reader_here() -> None:
    assert list(READ) == [each.name for each in fields(Traits)]


@pytest.mark.parametrize("name", READ)
def test_a_trait_is_read(name: str) -> None:
    value, look = READ[name]

    assert look(Traits(**{name: value})) != look(Traits())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["rows", "buffered"])
def test_a_meaning_that_may_change_is_only_told(name: str) -> None:
    free = Traits(**{name: Meaning("hours")})  # type: ignore[arg-type]

    assert change(free) is None
    assert list(fingerprint(topology(free)).components["told"].meanings.values()) == ["hours"]


def test_what_refuses_a_topology_says_why_in_the_words_of_the_trait() -> None:
    told = Traits(one_task="one producer; do more above")

    expected = "Told 'told' has parallelism 2; expected 1: one producer; do more above"
    assert refusal(lambda: topology(told, tasks=2)) == expected


class Attributes(Passing):
    needs_planned_time = True
    client_modules = ("pika",)


class Queue(MemorySpout):
    takes_from = ("queue 'a'",)


class Cut(MemoryTransactionalSpout):
    repeatable = False


@pytest.mark.parametrize(
    ("prototype", "expected"),
    [
        (Attributes(), Traits(needs_planned_time=True, client_modules=("pika",))),
        (Queue([["a"]], WORD), Traits(takes_from=("queue 'a'",))),
        (Cut(BATCHES, WORD, 1), Traits(repeatable=False)),
        (opaque(), Traits(repeatable=False)),
        (
            ClockTransactionalSpout("1 minute"),
            Traits(needs_planned_time=True, brings_time_only=True),
        ),
        (PersistentAggregate(open_state("memory:"), "word", Count()), Traits(reads_states=False)),
        (StreamSpout(WORD), Traits()),
        (DataFrameBolt(), Traits()),
        (object(), Traits()),
    ],
)
def test_the_attributes_of_a_class_become_its_traits(prototype: object, expected: Traits) -> None:
    assert traits_of(prototype) == expected


def test_an_attribute_of_the_object_counts_like_one_of_its_class() -> None:
    bolt = Passing()
    bolt.needs_planned_time = True

    assert traits_of(bolt).needs_planned_time


def test_the_traits_of_a_sink_say_what_kafka_cannot_do() -> None:
    sink = KafkaSink("broker:9092", "words")

    told = traits_of(sink)

    assert told.state is sink.state
    assert not told.reads_states
    assert "one producer" in str(told.one_task)
    assert "cannot be taken back" in str(told.refuses_opaque)
    assert "one Kafka transaction" in str(told.holds)
    assert "committed records" in str(told.delivery)


def test_something_else_that_is_called_traits_is_refused() -> None:
    class Brave(Passing):
        traits = ("brave",)  # type: ignore[assignment]

    with pytest.raises(
        TopologyError, match=r"traits of Brave .* got \('brave',\); expected Traits"
    ):
        traits_of(Brave())
