"""Which user code may write elsewhere than to the states, and what a declaration covers."""

from __future__ import annotations

from typing import Any

import pytest

from txtopo import (
    ArrowBolt,
    BasicBolt,
    BatchBolt,
    Committer,
    Count,
    DataFrameBolt,
    Fields,
    PersistentAggregate,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.bolts import KafkaSink
from txtopo.builders.transactional import Topology
from txtopo.plugins.spouts import TransactionalEmitter
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.topology.elsewhere import (
    declares_it,
    emitter_may_write_elsewhere,
    emitters_to_ask,
    may_write_elsewhere,
)

WORD = Fields("word string")


class Own(BatchBolt, Committer):
    output_fields = WORD

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None: ...

    def execute(self, tuple: Any) -> None: ...

    def finish_batch(self) -> None: ...


class Below(BasicBolt):
    output_fields = WORD

    def execute(self, tuple: Any, collector: Any) -> None: ...


class Known(Own):
    writes_nowhere_else = True


class KnownToo(Known):
    """What a class of a user's declares holds for those derived from it, as any attribute does."""

    def finish_batch(self) -> None: ...


class ChangedSink(KafkaSink):
    """What txtopo's class declares does not hold for code of a user's in its place."""

    def finish_batch(self) -> None: ...


class NamedSink(KafkaSink):
    """Overrides nothing that is called."""

    def __init__(self) -> None:
        super().__init__("localhost:9092", "words", value="word")


class DeclaredSink(ChangedSink):
    writes_nowhere_else = True


class Truthy(Own):
    writes_nowhere_else: Any = "yes"


@pytest.mark.parametrize("kind", [BasicBolt, BatchBolt, ArrowBolt, DataFrameBolt])
def test_nothing_is_declared_by_default(kind: type) -> None:
    assert kind.writes_nowhere_else is False  # type: ignore[attr-defined]


def test_a_class_or_an_object_declares_it() -> None:
    one = Own()
    one.writes_nowhere_else = True

    assert declares_it(one)
    assert declares_it(Known())
    assert declares_it(KnownToo())
    assert not declares_it(Own())
    assert not declares_it(Truthy())


def test_a_declaration_of_txtopos_covers_its_own_methods() -> None:
    arguments: Any = {"servers": "localhost:9092", "topic": "words", "value": "word"}

    assert declares_it(KafkaSink(**arguments))
    assert declares_it(NamedSink())
    assert not declares_it(ChangedSink(**arguments))
    assert declares_it(DeclaredSink(**arguments))


def topology(committer: BatchBolt) -> Topology:
    spout = MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)
    builder = TransactionalTopologyBuilder("words", "words", spout)
    builder.set_bolt("above", Below()).shuffle_grouping("words")
    builder.set_bolt("own", committer).global_grouping("above")
    builder.set_bolt("below", Below()).shuffle_grouping("own")
    counts = PersistentAggregate(open_state("memory:"), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("below", "word")
    return builder.build_topology()


def test_every_bolt_of_the_commit_phase_has_to_declare_it_and_no_other() -> None:
    """One below a committer runs in the commit phase, though it is not a committer."""
    assert may_write_elsewhere(topology(Own()).graph) == {"own", "below"}
    assert may_write_elsewhere(topology(Known()).graph) == {"below"}


class Quiet(TransactionalEmitter):
    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None: ...


class Commits(Quiet):
    def commit(self, attempt: Any, metadata: Any) -> None: ...


class Reports(Commits):
    writes_nowhere_else = True


class Alone:
    """An emitter that is derived from none of ours."""

    def commit(self, attempt: Any, metadata: Any) -> None: ...


def test_an_emitter_with_a_commit_has_to_declare_it() -> None:
    assert [
        emitter_may_write_elsewhere(each)
        for each in (Quiet(), object(), None, Commits(), Alone(), Reports())
    ] == [False, False, False, True, True, False]


class Foreign(MemoryTransactionalSpout):
    """A spout of a user's, of which an open emitter tells more."""


def test_the_emitters_of_txtopos_spouts_are_known_before_they_are_open() -> None:
    def asked(spout: Any) -> tuple[str, ...]:
        builder = TransactionalTopologyBuilder("words", "words", spout)
        counts = PersistentAggregate(open_state("memory:"), "word", Count())
        builder.set_bolt("counts", counts).fields_grouping("words", "word")
        return emitters_to_ask(builder.build_topology().graph)

    assert asked(MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)) == ()
    assert asked(Foreign({0: [["a"]]}, WORD, 1)) == ("words",)
