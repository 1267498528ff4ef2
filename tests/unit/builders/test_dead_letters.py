"""Dead letters as a builder takes them: what is refused, and what the graph shows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.runs import LOCAL
from txtopo import (
    ArrowBolt,
    AtLeastOnceConfig,
    BasicBolt,
    Count,
    DeadLetters,
    Fields,
    PersistentAggregate,
    RecordFailed,
    Stream,
    TopologyBuilder,
    TopologyError,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.errors import EmitError
from txtopo.fingerprint import differences
from txtopo.spouts import (
    MemorySpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    StreamSpout,
)
from txtopo.state import State
from txtopo.topology.graph import fingerprint

FIELDS = Fields("word string")
WORDS = MemoryTransactionalSpout({0: [["a"]]}, FIELDS, 1)


OWN = {"dead_letters": Stream(FIELDS)}


class Pass(BasicBolt):
    output_fields = FIELDS

    def execute(self, tuple: Any, collector: Any) -> None:
        collector.emit(tuple.values)


class PassBatch(ArrowBolt):
    output_fields = FIELDS

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None: ...

    def execute(self, batch: Any) -> None: ...

    def finish_batch(self) -> None: ...


class OwnStream(Pass):
    output_streams = OWN


def memory() -> State:
    return open_state("memory:")


def built(dead_letters: Any, spout: Any = WORDS, bolt: Any = None) -> Any:
    builder = TransactionalTopologyBuilder("words", "spout", spout, dead_letters=dead_letters)
    builder.set_bolt("pass", bolt or Pass()).shuffle_grouping("spout")
    counts = PersistentAggregate(memory(), "word", Count())
    builder.set_bolt("count", counts).fields_grouping("pass", "word")
    return builder.build_topology()


def test_the_graph_shows_where_dead_letters_come_from_and_go_to() -> None:
    graph = built(memory()).graph

    letters = graph.components["dead_letters"]
    assert {s.source for s in letters.subscriptions} == {"spout", "pass"}
    assert {s.stream for s in letters.subscriptions} == {"dead_letters"}
    assert "dead_letters" in graph.committing
    assert letters.states["dead_letters"].table == "dead_letters"
    assert str(letters.states["dead_letters"].key) == "Fields('batch long, number long')"


def test_adding_or_removing_dead_letters_is_a_change_of_the_topology() -> None:
    with_them, without = fingerprint(built(memory()).graph), fingerprint(built(None).graph)

    assert [each.text for each in differences(without, with_them)] == [
        "component 'dead_letters' is new",
        "state 'dead_letters' of 'dead_letters' is new",
    ]


def test_a_state_may_name_its_table() -> None:
    graph = built(open_state("memory:", table="bad_words")).graph

    assert graph.components["dead_letters"].states["dead_letters"].table == "bad_words"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "sqlite:///a.db",
            "dead_letters is of the wrong type; got 'sqlite:///a.db'; expected what",
        ),
        (Pass(), "expected what open_state"),
        (DeadLetters(memory(), 0), "batch_records_max of the dead letters is wrong; got 0"),
        (DeadLetters(memory(), True), "batch_records_max of the dead letters is wrong; got True"),
        (open_state("memory:", key=Fields("word string")), "has columns of its own"),
        (open_state("memory:", mode="log"), "is in mode 'log'"),
    ],
)
def test_what_cannot_take_dead_letters_is_refused(given: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        built(given)


def test_names_of_the_dead_letters_are_refused() -> None:
    builder = TransactionalTopologyBuilder("words", "dead_letters", WORDS, dead_letters=memory())
    builder.set_bolt("pass", Pass()).shuffle_grouping("dead_letters")
    with pytest.raises(
        TopologyError, match="id 'dead_letters' is reserved for the topology's dead"
    ):
        builder.build_topology()

    with pytest.raises(TopologyError, match="stream 'dead_letters' of 'pass' has the name"):
        built(memory(), bolt=OwnStream())

    built(None, bolt=OwnStream())


def test_a_topology_in_which_nothing_makes_dead_letters_is_refused() -> None:
    with pytest.raises(
        TopologyError, match="none of its components can produce a dead letter; expected a spout"
    ):
        built(memory(), StreamSpout(FIELDS), PassBatch())


def test_a_transactional_state_does_not_take_them_from_an_opaque_spout() -> None:
    spout = OpaqueMemoryTransactionalSpout({0: [["a"]]}, FIELDS, 1)

    with pytest.raises(TopologyError, match="'dead_letters' is transactional and the spout"):
        built(open_state("memory:", kind="transactional"), spout)


def test_the_table_of_another_state_is_refused() -> None:
    state = open_state("memory:", table="count")
    builder = TransactionalTopologyBuilder("words", "spout", WORDS, dead_letters=state)
    counts = PersistentAggregate(state, "word", Count())
    builder.set_bolt("count", counts).fields_grouping("spout", "word")

    with pytest.raises(TopologyError, match="two states use the same table"):
        builder.build_topology()


def declared(*errors: Any, bolt: Any = None) -> Any:
    builder = TransactionalTopologyBuilder("words", "spout", WORDS, dead_letters=memory())
    declarer = builder.set_bolt("pass", bolt or Pass()).shuffle_grouping("spout")
    return declarer.dead_letters_on(*errors)


class TooOld(RecordFailed):
    """An exception of a user's own."""


def test_exceptions_of_a_record_can_be_listed() -> None:
    rule = declared(ValueError, KeyError, TooOld).component().dead_letters

    assert rule is not None
    assert rule.errors == (ValueError, KeyError, TooOld)


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ((), "None, which is not a class of exceptions"),
        (("ValueError",), "which is not a class of exceptions"),
        ((int,), "which is not a class of exceptions"),
        ((ValueError(),), "which is not a class of exceptions"),
        ((Exception,), "which a lost connection or a mistake in the bolt may raise as well"),
        ((KeyboardInterrupt,), "which a lost connection or a mistake"),
        ((ValueError, EmitError), "which txtopo raises for other reasons"),
    ],
)
def test_other_exceptions_cannot_be_listed(errors: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        declared(*errors)


def test_only_a_basic_bolt_lists_exceptions() -> None:
    with pytest.raises(
        TopologyError, match="'pass' cannot produce dead letters; its role is 'arrow bolt'"
    ):
        declared(ValueError, bolt=PassBatch())


def test_a_bolt_that_lists_exceptions_needs_a_place_for_dead_letters() -> None:
    builder = TransactionalTopologyBuilder("words", "spout", WORDS)
    builder.set_bolt("pass", Pass()).shuffle_grouping("spout").dead_letters_on(ValueError)

    with pytest.raises(TopologyError, match="'pass' has dead_letters_on, but the topology has no"):
        builder.build_topology()


def test_an_at_least_once_topology_has_no_dead_letters() -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("spout", MemorySpout([["a"]], FIELDS))
    declarer = builder.set_bolt("refuse", Refuse()).shuffle_grouping("spout")

    assert not hasattr(declarer, "dead_letters_on")
    config = AtLeastOnceConfig(carrier="local")
    with builder.build_topology().start(config=config) as run, pytest.raises(RecordFailed):
        run.await_termination(60)


class Refuse(Pass):
    def execute(self, tuple: Any, collector: Any) -> None:
        raise RecordFailed("no")


def test_without_dead_letters_record_failed_ends_the_run_and_says_how_it_would_not() -> None:
    with pytest.raises(RecordFailed) as caught:
        built(None, bolt=Refuse()).start(config=LOCAL).process_all_available(60)

    assert any("dead_letters=open_state(…)" in note for note in caught.value.__notes__)
