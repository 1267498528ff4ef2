"""A sequence reads one spout to its end, switches once, and continues with another."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from txtopo import Config, Fields, Pace, PersistentAggregate, TransactionalTopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.builders import Topology
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.coordinator.protocol import PlanBatch, Planned
from txtopo.errors import (
    ConfigError,
    EmitError,
    TopologyChanged,
    TopologyError,
    TopologyWarning,
)
from txtopo.metadata import BatchMetadata, Json
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.runtime.spout_planner import SpoutPlanner
from txtopo.spouts import (
    ClockTransactionalSpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    Recut,
    SequenceSpout,
)
from txtopo.spouts.sequence import PartSpout, SequenceCoordinator, SequencePosition
from txtopo.spouts.spout import (
    Emitter,
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.state import Count, open_state
from txtopo.testing.conformance.spout_driver import SpoutDriver, StoredMetadata
from txtopo.topology.component import spout_kind
from txtopo.topology.elsewhere import emitter_may_write_elsewhere, emitters_to_ask
from txtopo.topology.graph import Graph, fingerprint
from txtopo.tuples import Stream

WORDS = Fields("word string")
CONTEXT = TaskContext("words", "spout", 0, 1)
CONFIG = Config(carrier="local", zookeeper="memory")


def rows(name: str, count: int) -> list[list[str]]:
    return [[f"{name}-{at}"] for at in range(count)]


def memory(name: str, count: int = 5, take: int = 2) -> MemoryTransactionalSpout:
    return MemoryTransactionalSpout({0: rows(name, count), 1: rows(f"{name}'", count)}, WORDS, take)


def opaque(name: str, count: int = 5, take: int = 2) -> OpaqueMemoryTransactionalSpout:
    partitions = {0: rows(name, count), 1: rows(f"{name}'", count)}
    return OpaqueMemoryTransactionalSpout(partitions, WORDS, take, [Recut(2, 1, 1)])


class Numbered(TransactionalSpout):
    """Brings one number a batch, and tells what happens to its parts.

    Attributes:
        told: What happened.
    """

    output_fields = WORDS
    ends = True
    told: list[object]

    def __init__(self, name: str, count: int, first: int = 0) -> None:
        self.name, self.count, self.first = name, count, first
        self.told = TOLD

    def beginning_at(self, place: Json) -> Numbered:
        if type(place) is not int:
            raise ConfigError(f"{place!r} is not a number", setting="begins")
        return Numbered(self.name, self.count, place)

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        TOLD.append(("open", self.name, self.first))
        return _Coordinator(self)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return _Emitter(self)


TOLD: list[object] = []
"""What happened. The spouts are copied, so they cannot keep it."""


class _Coordinator(TransactionalCoordinator):
    def __init__(self, spout: Numbered) -> None:
        self.spout = spout

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        TOLD.append(("ask", self.spout.name, txid, last.txid, last.metadata))
        return self._next(last.metadata) < self.spout.count

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        return self._next(previous_metadata)

    def ended(self, last: LastBatch) -> bool:
        return True

    def lag(self, metadata: Json) -> Mapping[str, int]:
        return {"numbers": self.spout.count - self._next(metadata)}

    def held_back(self) -> str:
        return f"what {self.spout.name} holds back"

    def close(self) -> None:
        TOLD.append(("close", self.spout.name, self.spout.first))

    def _next(self, metadata: Json) -> int:
        return metadata + 1 if isinstance(metadata, int) else self.spout.first


class _Emitter(TransactionalEmitter):
    def __init__(self, spout: Numbered) -> None:
        self.spout = spout

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        TOLD.append(("emit", self.spout.name, attempt.txid, metadata))
        collector.emit([f"{self.spout.name}-{metadata}"])

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        TOLD.append(("commit", self.spout.name, attempt.txid, metadata))

    def cleanup_before(self, txid: int) -> None:
        TOLD.append(("cleanup", self.spout.name, txid))


class Asked:
    """``begins`` that counts how often it is asked."""

    def __init__(self, place: Json = None) -> None:
        self.place = place

    def __call__(self, end: Json) -> Json:
        TOLD.append(("begins", end))
        return self.place


class Starts(Protocol):
    def __call__(self, spout: SequenceSpout, stored: StoredMetadata | None = None) -> SpoutDriver:
        """Start a topology with the spout."""
        ...


@pytest.fixture
def start() -> Iterator[Starts]:
    TOLD.clear()
    with ExitStack() as stack:

        def started(spout: SequenceSpout, stored: StoredMetadata | None = None) -> SpoutDriver:
            driver = SpoutDriver(spout, 1, stored)
            stack.callback(driver.close)
            return driver

        yield started


def read(driver: SpoutDriver, batches: int = 1) -> list[str]:
    """Read and commit all, and return the words."""
    found: list[str] = []
    while done := driver.next(batches):
        driver.commit()
        found += [str(word) for batch in done for (word,) in batch.rows]
    return found


PARTS: Mapping[Any, Sequence[str]] = {memory: ("", "'"), opaque: ("", "'"), Numbered: ("",)}
"""What the names of the words end with, by what brings them."""


def plan(driver: SpoutDriver, txid: int) -> Any:
    return driver.stored.of(txid).of("spout").planned


def words(*names: str, first: int = 0, count: int = 5) -> list[str]:
    return sorted(f"{name}-{at}" for name in names for at in range(first, count))


def told(kind: str) -> list[Any]:
    return [each for each in TOLD if isinstance(each, tuple) and each[0] == kind]


# ---------------------------------------------------------------- what it reads


@pytest.mark.parametrize("then", [memory, opaque, Numbered])
@pytest.mark.parametrize("first", [memory, opaque, Numbered])
def test_all_of_the_first_part_comes_and_then_all_of_the_second(
    first: Any, then: Any, start: Starts
) -> None:
    driver = start(SequenceSpout(first("a", 5), then("b", 5)))

    found = read(driver, batches=3)

    ends = [at for at, word in enumerate(found) if word.startswith("a")]
    assert ends == list(range(len(ends)))
    names = [f"{name}{more}" for name, kind in (("a", first), ("b", then)) for more in PARTS[kind]]
    assert sorted(found) == words(*names)


def test_it_runs_in_a_topology() -> None:
    state = open_state("memory:", kind="opaque")
    builder = TransactionalTopologyBuilder(
        "words", "spout", SequenceSpout(memory("a"), opaque("b"), {"1": 3}), parallelism=2
    )
    count = PersistentAggregate(state, "word", Count())
    builder.set_bolt("count", count).fields_grouping("spout", "word")

    with builder.build_topology().start(config=CONFIG) as run:
        run.process_all_available(60)
        lag = run.last_progress.lag if run.last_progress else {}

    assert {name.partition("/")[0] for name in lag} == {"then"}


# ---------------------------------------------------------------- rules


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 1)
@pytest.mark.parametrize("first", [memory, opaque, Numbered])
def test_it_switches_only_when_the_first_part_is_committed(first: Any, start: Starts) -> None:
    driver = start(SequenceSpout(first("a", 5), memory("b"), Asked()))

    batches = driver.next(10)
    last = batches[-1].txid

    assert not driver.next()
    assert not told("begins")
    driver.commit()
    (switch,) = driver.next()
    assert switch.rows == ()
    assert plan(driver, switch.txid) == {"part": "then", "after": last + 1}


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 1)
@pytest.mark.rule("txtopo.runtime.batch_planner", "Rules", 5)
def test_it_switches_while_batches_of_another_spout_are_in_flight() -> None:
    spout = SequenceSpout(Numbered("a", 1), Numbered("b", 1))
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    builder.set_spout("busy", Numbered("busy", 100))
    with pytest.warns(TopologyWarning):
        planner = BatchPlanner(builder.build_topology().graph, CONFIG)

    def planned(txid: int, last: BatchMetadata | None, *in_flight: BatchMetadata) -> BatchMetadata:
        answer = planner.plan(PlanBatch(TransactionAttempt(txid, 0, 1), txid - 1, last), in_flight)
        assert isinstance(answer, Planned)
        return answer.metadata

    one = planned(1, None)
    two = planned(2, one, one)
    three = planned(3, two, two)
    planner.close()

    assert [each.takes_part("spout") for each in (one, two, three)] == [True, False, True]
    assert three.of("spout").planned == {"part": "then", "after": 3}
    assert all(each.takes_part("busy") for each in (one, two, three))


def test_it_does_not_switch_while_the_first_part_waits_for_something() -> None:
    """A spout that is not ready has perhaps records that have not settled."""

    class Waiting(Numbered):
        def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
            planner = _Coordinator(self)
            planner.ended = lambda last: False  # type: ignore[method-assign]
            return planner

    planner = SequenceSpout(Waiting("a", 0), memory("b")).coordinator(CONFIG, CONTEXT)

    assert not planner.is_ready(1, LastBatch())


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 2)
def test_begins_is_asked_once_and_its_answer_is_in_all_plans(start: Starts) -> None:
    spout = SequenceSpout(Numbered("a", 3), Numbered("b", 9), Asked(4))
    driver = start(spout)
    for _ in range(4):
        driver.next()
        driver.commit()
    assert told("begins") == [("begins", 2)]

    driver = start(spout, driver.stored)

    assert read(driver) == words("b", first=4, count=9)
    assert told("begins") == [("begins", 2)]
    assert plan(driver, 9) == {"part": "then", "after": 4, "begins": 4, "batch": 8}


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 2)
def test_a_rewind_to_before_the_switch_continues_with_the_first_part(start: Starts) -> None:
    driver = start(SequenceSpout(Numbered("a", 3), Numbered("b", 5), Asked(0)))
    driver.next()
    driver.next()
    driver.commit()
    before = StoredMetadata(dict(driver.stored.metadata), driver.stored.committed, 7)
    assert read(driver)[-1] == "b-4"

    driver = start(SequenceSpout(Numbered("a", 4), Numbered("b", 5), Asked(3)), before)

    assert read(driver) == ["a-2", "a-3", "b-3", "b-4"]
    assert told("begins") == [("begins", 2), ("begins", 3)]


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 2)
def test_a_coordinator_that_looks_again_does_not_ask_begins_again() -> None:
    TOLD.clear()
    planner = SequenceSpout(Numbered("a", 0), Numbered("b", 5), Asked(1)).coordinator(
        CONFIG, CONTEXT
    )

    assert [planner.is_ready(1, LastBatch()) for _ in range(2)] == [True, True]
    assert told("begins") == [("begins", None)]


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 3)
def test_each_part_has_txids_and_positions_of_its_own(start: Starts) -> None:
    driver = start(SequenceSpout(Numbered("a", 2), Numbered("b", 2)))

    read(driver)

    assert [each[1:] for each in told("emit")] == [
        ("a", 1, 0),
        ("a", 2, 1),
        ("b", 1, 0),
        ("b", 2, 1),
    ]
    assert [each[1:] for each in told("commit")] == [each[1:] for each in told("emit")]
    assert told("cleanup") == [
        ("cleanup", "a", 2),
        ("cleanup", "a", 3),
        ("cleanup", "b", 1),
        ("cleanup", "b", 2),
        ("cleanup", "b", 3),
    ]
    assert [each[1:] for each in told("ask") if each[1] == "b"][:2] == [
        ("b", 1, 0, None),
        ("b", 2, 1, 0),
    ]


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 3)
@pytest.mark.parametrize("then", [Numbered, opaque])
def test_after_a_rewind_to_the_switch_the_second_part_begins_with_its_txid_1(
    then: Any, start: Starts
) -> None:
    """A rewind stores the plan of the switch at a later txid; Kafka takes txid 1 for its start."""
    spout = SequenceSpout(Numbered("a", 2), then("b", 5), Asked())
    driver = start(spout)
    for _ in range(3):
        driver.next()
        driver.commit()
    rewound = StoredMetadata({6: driver.stored.metadata[3]}, 6, 7)
    TOLD.clear()

    driver = start(spout, rewound)
    (one,) = driver.next()

    assert plan(driver, 7)["after"] == 6
    assert [word for (word,) in one.rows][:1] == ["b-0"]
    if then is Numbered:
        assert told("emit") == [("emit", "b", 1, 0)]
    driver.commit()
    assert sorted(read(driver))[-1].endswith("-4")
    assert not told("begins")


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 3)
@pytest.mark.parametrize("kind", [memory, opaque])
def test_partitions_of_both_parts_do_not_share_their_positions(kind: Any, start: Starts) -> None:
    """In one run with the switch, and in one that begins after it."""
    driver = start(SequenceSpout(kind("a", 4), kind("b", 7)))
    driver.next(5)
    driver.commit()

    switch, one = driver.next(2)

    assert switch.metadata.of("spout").cut == {}
    assert one.rows == (("b-0",), ("b-1",), ("b'-0",), ("b'-1",))
    driver.commit()
    driver = start(SequenceSpout(kind("a", 4), kind("b", 7)), driver.stored)
    assert sorted(read(driver)) == words("b", "b'", first=2, count=7)


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 3)
def test_a_replay_of_the_switch_begins_at_no_position_of_the_first_part(start: Starts) -> None:
    spout = SequenceSpout(opaque("a", 4), opaque("b", 7))
    driver = start(spout)
    driver.next(5)
    driver.commit()
    driver.next(3)

    driver = start(spout, driver.stored)

    assert sorted(read(driver)) == words("b", "b'", count=7)


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 4)
@pytest.mark.parametrize(
    ("first", "then", "text", "repeats"),
    [
        (Numbered, Numbered, "sequence spout", True),
        (Numbered, memory, "partitioned sequence spout", True),
        (memory, Numbered, "partitioned sequence spout", True),
        (Numbered, opaque, "opaque sequence spout", False),
        (opaque, memory, "opaque sequence spout", False),
    ],
)
def test_the_weaker_part_decides_what_it_is(
    first: Any, then: Any, text: str, *, repeats: bool
) -> None:
    spout = SequenceSpout(first("a", 1), then("b", 1))
    kind = spout_kind("spout", spout)

    assert (kind.text, kind.repeats) == (text, repeats)
    assert spout.traits.repeatable is repeats
    assert pickle.loads(pickle.dumps(kind)) == kind


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 4)
def test_an_opaque_part_refuses_transactional_states_before_it_is_read() -> None:
    spout = SequenceSpout(Numbered("a", 1), opaque("b"))
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    count = PersistentAggregate(open_state("memory:", kind="transactional"), "word", Count())
    builder.set_bolt("count", count).fields_grouping("spout", "word")

    with pytest.raises(TopologyError, match="opaque"):
        builder.build_topology()


@pytest.mark.rule("txtopo.spouts.sequence", "Rules", 5)
def test_the_first_part_is_open_only_while_it_is_read(start: Starts) -> None:
    spout = SequenceSpout(Numbered("a", 1), Numbered("b", 5), Asked(2))
    driver = start(spout)
    assert told("open") == [("open", "b", 0)]
    driver.next()
    driver.commit()
    driver.next()
    driver.commit()
    driver.next()
    assert sorted(told("close")) == [("close", "a", 0), ("close", "b", 0)]
    TOLD.clear()

    driver = start(spout, driver.stored)
    driver.next()
    driver.next()

    assert ("open", "a", 0) not in TOLD


# ---------------------------------------------------------------- what others are told


WAITS = "then (Numbered) waits for the end of first (Numbered)"


def test_lag_and_what_is_held_back_are_those_of_the_part(start: Starts) -> None:
    driver = start(SequenceSpout(Numbered("a", 2), Numbered("b", 3)))
    planner = driver._planner
    seen = []
    for _ in range(4):
        driver.next()
        seen.append((driver.lag(), planner.held_back["spout"]))
        driver.commit()

    assert seen == [
        ({"first/numbers": 1}, f"{WAITS}; what a holds back"),
        ({"first/numbers": 0}, f"{WAITS}; what a holds back"),
        ({}, f"{WAITS}; what a holds back"),
        ({"then/numbers": 2}, "what b holds back"),
    ]


def graph_of(spout: SequenceSpout) -> Graph:
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    count = PersistentAggregate(open_state("memory:", kind="opaque"), "word", Count())
    builder.set_bolt("count", count).fields_grouping("spout", "word")
    return builder.build_topology().graph


def test_an_explanation_names_both_parts() -> None:
    topology = Topology(graph_of(SequenceSpout(Numbered("a", 1), opaque("b"))))

    text = str(topology.explain(CONFIG))

    assert "opaque sequence spout SequenceSpout" in text
    assert "ƒ first Numbered → then OpaqueMemoryTransactionalSpout" in text


def test_arguments_of_parts_may_change_and_their_role_may_not() -> None:
    one, other = Numbered("a", 1), Numbered("b", 9)
    known = fingerprint(graph_of(SequenceSpout(one, one)))

    assert fingerprint(graph_of(SequenceSpout(other, one, 7))) == known
    assert fingerprint(graph_of(SequenceSpout(other, memory("a")))) != known
    assert fingerprint(graph_of(SequenceSpout(memory("a"), opaque("b")))) != known


def test_the_switch_is_logged(start: Starts, caplog: pytest.LogCaptureFixture) -> None:
    driver = start(SequenceSpout(Numbered("a", 1), Numbered("b", 1), 0))

    with caplog.at_level(logging.INFO, "txtopo.spouts"):
        read(driver)

    (text,) = [each.getMessage() for each in caplog.records if each.name == "txtopo.spouts"]
    assert "spout 'spout' has read its first part; txid 2 is its switch" in text


def test_another_spout_under_the_id_is_noticed() -> None:
    others: list[Json] = [{"end": 7}, {"planned": {"end": 7}, "cut": None}, 7]
    for metadata in others:
        with pytest.raises(TopologyChanged, match="not planned by a SequenceSpout"):
            SequencePosition.of(metadata)


def test_each_part_says_whether_it_takes_a_limit() -> None:
    paced = Config(carrier="local", zookeeper="memory", pace=Pace(max_rows_per_second=1))
    planner = SequenceSpout(Numbered("a", 1), memory("b")).coordinator(paced, CONTEXT)

    assert planner.is_ready(1, LastBatch())
    assert not planner.divides()
    assert planner.initialize_transaction(1, None, rows_max=1)
    planner.close()
    planner = SequenceSpout(memory("b"), Numbered("a", 1)).coordinator(paced, CONTEXT)
    assert planner.is_ready(1, LastBatch())
    assert planner.divides()
    planner.close()


@pytest.mark.parametrize(("first", "then"), [(memory, opaque), (opaque, memory)])
def test_a_batch_of_either_part_keeps_its_limit(first: Any, then: Any) -> None:
    driver = SpoutDriver(SequenceSpout(first("a", take=4), then("b", take=4)), limit=1)

    sizes = []
    while done := driver.next():
        driver.commit()
        sizes += [len(batch.rows) for batch in done]
    driver.close()

    assert sum(sizes) == 20
    assert max(sizes) == 1


class _Writes(Emitter):
    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        """Write somewhere."""


class _Quiet(Emitter):
    writes_nowhere_else = True


@pytest.mark.parametrize(("second", "may"), [(_Writes, True), (_Quiet, False)])
def test_its_emitter_may_write_elsewhere_if_one_of_a_part_may(
    second: type[Emitter], *, may: bool
) -> None:
    class Own(Numbered):
        def emitter(self, config: Config, context: TaskContext) -> Any:
            return second()

    spout = SequenceSpout(memory("a"), Own("b", 1))

    assert emitter_may_write_elsewhere(spout.emitter(CONFIG, CONTEXT)) is may
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    with pytest.warns(TopologyWarning):
        assert emitters_to_ask(builder.build_topology().graph) == ("spout",)


def test_a_first_part_that_cannot_be_opened_any_longer_stops_no_start() -> None:
    class Deleted(Numbered):
        def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
            raise FileNotFoundError(self.name)

    spout = SequenceSpout(Deleted("a", 1), Numbered("b", 1))

    planner = SpoutPlanner("words", graph_of(spout).components["spout"], CONFIG)

    assert planner.may_write_elsewhere
    assert planner.may_write_elsewhere, "and if it is asked again, with the emitter open"
    planner.close()


# ---------------------------------------------------------------- what does not fit


class Named(Numbered):
    output_streams: Mapping[str, Stream | Fields] = {"more": Fields("n long")}


class Other(Numbered):
    output_fields = Fields("word string, n long")


@pytest.mark.parametrize("other", [Named("b", 1), Other("b", 1)], ids=["stream", "fields"])
def test_parts_with_other_streams_are_refused(other: PartSpout) -> None:
    with pytest.raises(TopologyError, match=r"differ in the stream '(more|default)'; got .* first"):
        SequenceSpout(Numbered("a", 1), other)


def test_a_first_part_without_an_end_is_refused() -> None:
    class Endless(Numbered):
        ends = False

    with pytest.raises(
        TopologyError, match="first part of a sequence must have an end; got Endless"
    ):
        SequenceSpout(Endless("a", 1), Numbered("b", 1))
    clock = ClockTransactionalSpout("1 hour")
    with pytest.raises(TopologyError, match="must have an end; got ClockTransactionalSpout"):
        SequenceSpout(clock, clock)


@pytest.mark.parametrize("part", [None, 7, SequenceSpout(memory("a"), memory("b"))])
def test_what_cannot_be_a_part_is_refused(part: Any) -> None:
    with pytest.raises(
        TopologyError, match="then of a sequence is not a spout that can be part of one"
    ):
        SequenceSpout(memory("a"), part)


def test_a_second_part_that_cannot_begin_at_a_place_is_refused() -> None:
    class Fixed(TransactionalSpout):
        output_fields = WORDS

        def coordinator(self, config: Config, context: TaskContext) -> Any:
            """Not called."""

        def emitter(self, config: Config, context: TaskContext) -> Any:
            """Not called."""

    assert SequenceSpout(memory("a"), Fixed()).then
    with pytest.raises(TopologyError, match="Fixed, which has no beginning_at"):
        SequenceSpout(memory("a"), Fixed(), Asked())


def test_a_constant_place_is_checked_when_the_sequence_is_made() -> None:
    with pytest.raises(ConfigError, match="'x' is not a number"):
        SequenceSpout(Numbered("a", 1), Numbered("b", 1), "x")
    with pytest.raises(ConfigError, match="memory spout cannot begin at this place; got 7"):
        SequenceSpout(memory("a"), memory("b"), 7)


@pytest.mark.parametrize("place", [{0: 7}, {"0": {7}}, WORDS])
def test_a_constant_place_that_cannot_be_stored_is_refused(place: Any) -> None:
    with pytest.raises(ConfigError, match="begins of a sequence is not JSON"):
        SequenceSpout(memory("a"), memory("b"), place)


def test_a_first_part_whose_coordinator_lacks_ended_is_refused_before_it_is_read() -> None:
    class Endless(_Coordinator):
        ended = TransactionalCoordinator.ended

    class Own(Numbered):
        def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
            return Endless(self)

    planner = SequenceSpout(Own("a", 1), Numbered("b", 1)).coordinator(CONFIG, CONTEXT)

    with pytest.raises(TopologyError, match="without a method ended"):
        planner.is_ready(1, LastBatch(0, None))


@pytest.mark.parametrize(
    ("place", "error", "text"),
    [("x", ConfigError, "not a number"), ({1, 2}, EmitError, "did not return JSON")],
)
def test_a_bad_answer_of_begins_stores_nothing(
    place: Any, error: type[Exception], text: str, start: Starts
) -> None:
    driver = start(SequenceSpout(Numbered("a", 1), Numbered("b", 1), Asked(place)))
    driver.next()
    driver.commit()

    with pytest.raises(error, match=text):
        driver.next()

    assert list(driver.stored.metadata) == [1]


def test_traits_are_those_of_both_parts() -> None:
    class Needs(Numbered):
        needs_planned_time = True
        client_modules: Sequence[str] = ("json",)

    traits = SequenceSpout(Numbered("a", 1), Needs("b", 1)).traits

    assert traits.needs_planned_time
    assert traits.client_modules == ("json",)


def test_a_coordinator_is_closed_with_its_parts() -> None:
    TOLD.clear()
    planner = SequenceSpout(Numbered("a", 1), Numbered("b", 1)).coordinator(CONFIG, CONTEXT)
    assert isinstance(planner, SequenceCoordinator)
    assert planner.is_ready(1, LastBatch())

    planner.close()

    assert sorted(told("close")) == [("close", "a", 0), ("close", "b", 0)]
