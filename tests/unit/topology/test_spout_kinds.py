"""A kind of spout has all that the framework does differently for it, and one can be added."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
from collections.abc import Iterator, Mapping
from inspect import isclass
from typing import Any

import pytest

from tests.unit.test_layout import ROOT
from tests.unit.topology.frame_parts import spout as frames
from tests.unit.topology.frame_parts import words
from txtopo import (
    Config,
    Fields,
    PersistentAggregate,
    TopologyBuilder,
    TransactionalTopologyBuilder,
)
from txtopo.attempt import TransactionAttempt
from txtopo.bolts import BasicBolt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.errors import NonRepeatableBatch, TopologyError
from txtopo.metadata import Json
from txtopo.reliable.kinds import RELIABLE_SPOUTS
from txtopo.reliable.spout import Spout
from txtopo.spouts import DataFrameTransactionalSpout, MemorySpout, StreamSpout
from txtopo.spouts.spout import (
    HasReplays,
    LastBatch,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedTransactionalSpout,
    TransactionalCoordinator,
)
from txtopo.stages.compiled_topology import compile_topology
from txtopo.stages.replays import check_replay
from txtopo.state import Count, open_state
from txtopo.testing.conformance.spout_driver import SpoutDriver
from txtopo.topology import spout_kinds
from txtopo.topology.graph import fingerprint
from txtopo.topology.spout_kinds import (
    SPOUTS,
    OpaqueKind,
    OpaqueSequenceKind,
    PartitionedKind,
    PartitionedSequenceKind,
    PlannedByDriver,
    SpoutKind,
    TaskShare,
    TransactionalKind,
)
from txtopo.traits import Traits

WORDS = Fields("word string")
PAGE = ROOT / "docs/contributing/add-a-spout-kind.md"
MODULE = ROOT / "txtopo/topology/spout_kinds.py"
KINDS = (*SPOUTS.values(), *RELIABLE_SPOUTS.values())


class ListedSpout(HasReplays):
    """Its batches are lists of words, each of which one task emits."""

    output_fields = Fields("word string")
    output_streams: Mapping[str, Any] = {}

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return Lists()

    def emitter(self, config: Config, context: TaskContext) -> Words:
        return Words()


class Lists(TransactionalCoordinator):
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= 2

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        return [f"{txid}", "a", "b"]


class Words:
    def emit_item(
        self, attempt: TransactionAttempt, collector: BatchOutputCollector, item: str
    ) -> None:
        collector.emit([item])

    def close(self) -> None:
        pass


class LaterWords(Words):
    async def emit_item(self, *_: object) -> None:  # type: ignore[override]
        pass


class LaterSpout(ListedSpout):
    def emitter(self, config: Config, context: TaskContext) -> Words:
        return LaterWords()


class ListedKind(PlannedByDriver):
    base = ListedSpout
    text = short_text = "listed spout"
    emitter_calls = ("emit_item",)
    part = "item"

    def emit(self, share: TaskShare) -> Iterator[None]:
        items = share.share.planned
        assert isinstance(items, list)
        for number in range(share.task, len(items), share.tasks):
            share.emitter.emit_item(share.attempt, share.collector, items[number])
            share.end_part(number)
            yield

    def compared(self, traits: Traits) -> bool:
        return traits.repeatable


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the kind as the page says."""
    monkeypatch.setitem(SPOUTS, ListedSpout, ListedKind())


def builder(spout: Any) -> TransactionalTopologyBuilder:
    made = TransactionalTopologyBuilder("listed", "words", spout, parallelism=2)
    count = PersistentAggregate(open_state("memory:listed"), "word", Count())
    made.set_bolt("count", count).fields_grouping("words", "word")
    return made


def test_a_kind_that_is_added_from_outside_runs() -> None:
    driver = SpoutDriver(ListedSpout(), tasks=2)  # type: ignore[arg-type]

    batches = driver.next(2)

    assert [sorted(map(str, [word for (word,) in batch.rows])) for batch in batches] == [
        ["1", "a", "b"],
        ["2", "a", "b"],
    ]
    assert [batch.metadata.of("spout").planned for batch in batches] == [
        ["1", "a", "b"],
        ["2", "a", "b"],
    ]
    assert driver.again(2).rows == batches[1].rows


@pytest.mark.integration
def test_a_topology_with_it_counts_each_word_once() -> None:
    topology = builder(ListedSpout()).build_topology()

    with topology.start(config=Config(carrier="local", zookeeper="memory")) as run:
        run.process_all_available(60)

    with open_state("memory:listed", table="count").reader() as reader:
        assert dict(reader.items()) == {"1": 1, "2": 1, "a": 2, "b": 2}


def test_its_words_are_in_an_explanation_and_in_the_fingerprint() -> None:
    topology = builder(ListedSpout()).build_topology()
    explained = topology.explain()

    assert explained.components[0].role == "listed spout"
    assert "listed spout × 2" in explained.svg()
    assert fingerprint(topology.graph).components["words"].role == "listed spout"


def test_its_replays_are_compared_by_its_parts() -> None:
    compiled = compile_topology(builder(ListedSpout()).build_topology().graph, Config(), 2)
    attempt = TransactionAttempt(7, 1)
    known: dict[str, dict[str, Json]] = {"words": {"0": [1, "x"], "1": [1, "y"]}}

    assert compiled.components["words"].compared
    with pytest.raises(NonRepeatableBatch, match=r"from item 1 of spout 'words'"):
        check_replay(compiled, attempt, known, {"words": {"1": [1, "z"]}})


def test_the_calls_of_its_emitter_are_checked() -> None:
    with pytest.raises(TopologyError, match="emit_item of the emitter of spout 'spout'"):
        SpoutDriver(LaterSpout()).next()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "others", "differs"),
    [
        (TransactionalKind(), {"0": [1, "b"], "1": [1, "c"]}, None),
        (TransactionalKind(), {"0": [1, "b"]}, "0"),
        (PartitionedKind(), {"0": [1, "b"], "1": [1, "c"]}, "0"),
        (PartitionedKind(), {"0": [1, "a"], "1": [1, "c"]}, None),
    ],
    ids=["other tasks", "the same tasks", "a partition more", "the same in both"],
)
def test_tasks_are_compared_if_they_are_the_same_and_partitions_always(
    kind: SpoutKind, others: Mapping[str, Json], differs: str | None
) -> None:
    assert kind.differing({"0": [1, "a"]}, others) == differs


def test_only_what_promises_the_same_batch_is_compared() -> None:
    sure, opaque = Traits(), Traits(repeatable=False)

    assert [TransactionalKind().compared(each) for each in (sure, opaque)] == [True, False]
    assert PartitionedKind().compared(sure)
    assert not OpaqueKind().compared(opaque)


def test_the_texts_that_fingerprints_have_do_not_change() -> None:
    assert [kind.text for kind in KINDS] == [
        "transactional spout",
        "partitioned transactional spout",
        "opaque partitioned transactional spout",
        "stream spout",
        "DataFrame transactional spout",
        "sequence spout",
        "spout",
    ]
    variants = [PartitionedSequenceKind(), OpaqueSequenceKind()]
    assert [kind.text for kind in variants] == [
        "partitioned sequence spout",
        "opaque sequence spout",
    ]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
def test_a_kind_that_has_travelled_to_a_task_is_the_same_one(kind: SpoutKind) -> None:
    assert pickle.loads(pickle.dumps(kind)) == kind
    assert [each for each in KINDS if each == kind] == [kind]


def test_no_other_module_asks_which_kind_a_spout_is() -> None:
    names = [name for name, kind in vars(spout_kinds).items() if _is_kind(kind)]
    named = re.compile(rf"\b({'|'.join(names)})\b")

    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "txtopo").rglob("*.py"))
        if path != MODULE and named.search(path.read_text())
    ]

    assert len(names) >= len(KINDS)
    assert not found


def _is_kind(value: object) -> bool:
    return isclass(value) and issubclass(value, SpoutKind) and value is not SpoutKind


def test_the_page_names_each_answer_of_a_kind_and_no_other() -> None:
    answers = {name for name in SpoutKind.__annotations__ if not name.startswith("_")}
    answers |= {name for name, each in vars(SpoutKind).items() if callable(each)}
    answers = {name for name in answers if not name.startswith("_")}
    table = PAGE.read_text().partition("| question |")[2].partition("\n\n")[0]
    cells = [line.rsplit("|", 2)[1] for line in table.splitlines()[2:]]

    assert set(re.findall(r"`(\w+)`", " ".join(cells))) - {"TaskShare"} == answers


def test_the_files_of_the_page_exist_and_have_the_names_that_it_tells() -> None:
    table = PAGE.read_text().partition("| step |")[2].partition("\n\n")[0]
    rows = [line.split("|")[2:4] for line in table.splitlines()[2:]]

    for cell, what in rows:
        (file,) = re.findall(r"`([\w/.-]+)`", cell)
        assert (ROOT / file).is_file()
        if file.startswith("txtopo/"):
            module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
            names = re.findall(r"`([A-Z]\w+|__all__)`", what)
            assert names
            assert [name for name in names if not hasattr(module, name)] == []


def test_the_type_of_the_builder_has_each_class_of_a_user() -> None:
    text = (ROOT / "txtopo/builders/transactional.py").read_text()
    (union,) = (
        each.value
        for each in ast.parse(text).body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "Spout"
    )
    names = {node.id for node in ast.walk(union) if isinstance(node, ast.Name)}

    assert names == {base.__name__ for base in SPOUTS} - {"ListedSpout"}
    assert RELIABLE_SPOUTS[Spout].driven_by == "ackers"


UNPLANNED = [pytest.param(StreamSpout(WORDS), id="stream"), pytest.param(frames(), id="DataFrame")]


@pytest.mark.parametrize("spout", UNPLANNED)
def test_a_spout_that_has_no_tasks_of_its_own_takes_no_parallelism(spout: Any) -> None:
    with pytest.raises(
        TopologyError, match="spout 's' cannot have a parallelism of its own; got 2; exp"
    ):
        TransactionalTopologyBuilder("t", "s", spout, parallelism=2)


@pytest.mark.parametrize("spout", UNPLANNED)
def test_one_whose_batches_nobody_plans_makes_no_dead_letters(spout: Any) -> None:
    letters = open_state("memory:letters")
    made = TransactionalTopologyBuilder("t", "s", spout, dead_letters=letters)

    with pytest.raises(TopologyError, match="none of its components can produce a dead letter"):
        made.build_topology()


@pytest.mark.parametrize("spout", UNPLANNED)
def test_one_whose_batches_nobody_plans_knows_no_planned_time(spout: Any) -> None:
    made = TransactionalTopologyBuilder("t", "s", spout)
    made.set_bolt("timed", Timed()).shuffle_grouping("s")

    with pytest.raises(TopologyError, match=r"'timed' asks for planned time, which .* cannot give"):
        made.build_topology()


class Timed(BasicBolt):
    needs_planned_time = True
    output_fields = WORDS

    def execute(self, tuple: Any, collector: BatchOutputCollector) -> None:
        collector.emit(tuple.values)


class Untimed(Timed):
    needs_planned_time = False


def test_a_query_drives_a_stream_spout_and_ackers_a_reliable_one() -> None:
    streamed = TransactionalTopologyBuilder("t", "s", StreamSpout(WORDS))
    streamed.set_bolt("b", Untimed()).shuffle_grouping("s")
    topology, reliable = streamed.build_topology(), TopologyBuilder()
    reliable.set_spout("s", MemorySpout([["a"]], WORDS))

    with pytest.raises(TopologyError, match="so only a streaming query can drive it"):
        topology.start(config=Config(carrier="local", zookeeper="memory"))
    assert topology.explain().components[0].runs == "with a task in each slot"
    assert reliable.build_topology().explain().components[0].runs == "in the driver"
    assert reliable.build_topology().explain().delivery.startswith("at least once")


def test_a_job_has_one_plan_of_spark_and_several_batches_of_tasks() -> None:
    plans = TransactionalTopologyBuilder("t", "s", frames()).build_topology().graph

    assert plans.run_txids_max(8) == 1
    assert builder(ListedSpout()).build_topology().graph.run_txids_max(8) == 8


class One(PartitionedCoordinator):
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return True

    def number_of_partitions(self) -> int:
        return 1


class CountsLater(One):
    async def number_of_partitions(self) -> int:  # type: ignore[override]
        return 1


class Sure(PartitionedTransactionalSpout):
    output_fields = WORDS

    def __init__(self, emitter: Any, plan: PartitionedCoordinator | None = None) -> None:
        self.made, self.plan = emitter, plan or One()

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return self.plan

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return self.made


class Loose(OpaquePartitionedTransactionalSpout):
    output_fields = WORDS
    __init__ = Sure.__init__
    coordinator = Sure.coordinator
    emitter = Sure.emitter


class Emits:
    def emit_partition_batch(self, *_: object) -> Json:
        return 1

    def emit_partition_batch_new(self, *_: object) -> Json:
        return 1


class EmitsLater(Emits):
    async def emit_partition_batch(self, *_: object) -> Json:  # type: ignore[override]
        return 1


class EmitsNewLater(Emits):
    async def emit_partition_batch_new(self, *_: object) -> Json:  # type: ignore[override]
        return 1


@pytest.mark.parametrize(
    ("spout", "method"),
    [
        (Sure(EmitsLater()), "emit_partition_batch"),
        (Sure(EmitsNewLater()), "emit_partition_batch_new"),
        (Loose(EmitsLater()), "emit_partition_batch"),
    ],
    ids=["again", "new", "opaque"],
)
def test_an_emitter_has_the_methods_of_its_kind(spout: Any, method: str) -> None:
    with pytest.raises(TopologyError, match=f"{method} of the emitter of spout 'spout' does not"):
        SpoutDriver(spout).next()


def test_a_coordinator_has_the_methods_of_its_kind() -> None:
    with pytest.raises(TopologyError, match="number_of_partitions of the coordinator of spout"):
        SpoutDriver(Sure(Emits(), CountsLater()))


def test_a_method_that_its_kind_does_not_call_may_be_of_any_form() -> None:
    (batch,) = SpoutDriver(Loose(EmitsNewLater())).next()

    assert batch.metadata.of("spout").cut == {"0": 1}


class ReadsWithoutMetadata(DataFrameTransactionalSpout):
    def read(self, spark: Any, attempt: TransactionAttempt) -> Any:  # type: ignore[override]
        raise AssertionError


def test_a_dataframe_spout_has_a_read_that_takes_the_metadata() -> None:
    spout = ReadsWithoutMetadata(Lists(), words, WORDS)

    with pytest.raises(TopologyError, match="read of spout 's' does not fit its call"):
        TransactionalTopologyBuilder("t", "s", spout)
