"""A verb that is given another program than the one that ran refuses it, and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.harness.dying import Died
from tests.harness.polling import LIMIT_S
from tests.harness.runs import started
from tests.unit.operations.deployment import die_on
from txtopo import (
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Sum,
    Topology,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.ensemble.journal import rewritten
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.ensemble.nodes import CURRENT, EPOCH, STEP_BYTES_MAX, encode_steps
from txtopo.errors import StateUsageError, TopologyChanged
from txtopo.metadata import Json
from txtopo.operations import (
    Access,
    Plan,
    forget,
    quarantine,
    rebuild,
    repair_node,
    rewind,
    verify,
)
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.state import State

ID = "words"
CONFIG = Config(
    carrier="local",
    zookeeper="memory",
    max_spout_pending=3,
    group_txids_max=1,
    history_txids=5,
    poll_interval_s=0.01,
)
ANYWAY = replace(CONFIG, allow_change=True)


@dataclass(frozen=True)
class Program:
    """Spouts of two rows a txid, and tables that count them all."""

    spouts: tuple[str, ...] = ("x", "y")
    tables: tuple[str, ...] = ("a", "b")
    opaque: bool = False
    columns: bool = False
    words: tuple[str, ...] = ("cat", "dog", "cat", "eel", "dog", "cat", "cat", "eel")


RAN = Program()
OTHERS = {
    "state-less": (Program(tables=("a",)), "state 'b' of 'b' is gone"),
    "no-state": (Program(tables=()), "state 'a' of 'a' is gone"),
    "state-more": (Program(tables=("a", "b", "c")), "state 'c' of 'c' is new"),
    "spout-less": (Program(spouts=("x",)), "component 'y' is gone"),
    "spout-more": (Program(spouts=("x", "y", "z")), "component 'z' is new"),
    "another-id": (Program(spouts=("x", "z")), "component 'y' is gone; component 'z' is new"),
    "another-kind-of-source": (
        Program(opaque=True),
        "component 'x' was a partitioned transactional spout and is an opaque "
        "partitioned transactional spout",
    ),
    "other-columns": (
        Program(columns=True),
        "-> (count long) Count and is opaque table 'a' (word string) -> (n long, letters long) ",
    ),
}


@dataclass
class World:
    """An ensemble and a store in which programs of one id run."""

    state: State
    ensemble: MemoryEnsemble = field(default_factory=MemoryEnsemble)

    def topology(self, program: Program = RAN) -> Topology:
        rows: list[list[Any]] = [[word, len(word)] for word in program.words]
        kind = OpaqueMemoryTransactionalSpout if program.opaque else MemoryTransactionalSpout
        spouts = {
            name: kind({0: rows}, Fields("word string, size long"), 2) for name in program.spouts
        }
        first, *more = program.spouts
        builder = TransactionalTopologyBuilder(ID, first, spouts[first])
        for name in more:
            builder.set_spout(name, spouts[name])
        what = {"n": Count(), "letters": Sum("size")} if program.columns else Count()
        for table in program.tables:
            bolt = PersistentAggregate(self.state.named(table), "word", what)
            declarer = builder.set_bolt(table, bolt)
            for name in program.spouts:
                declarer.fields_grouping(name, "word")
        return builder.build_topology()

    def run(self, program: Program = RAN, config: Config = CONFIG) -> World:
        with started(self.topology(program), config, self.ensemble) as run:
            run.process_all_available(LIMIT_S)
        return self

    def access(self, point: Callable[[str], None] = lambda name: None) -> Access:
        return Access(ensemble=self.ensemble, point=point)

    def counts(self, table: str) -> dict[str, int]:
        with self.state.named(table).reader() as reader:
            return dict(reader.items())

    def stored(self) -> dict[str, object]:
        """Return all that a verb might write to: nodes, tables and ledgers."""
        found: dict[str, object] = {
            path: node for path, node in self.ensemble.nodes.items() if "/leader" not in path
        }
        backend = self.state.open("a")
        for table in backend.stored() or ():
            with self.state.named(table.name).reader() as reader:
                found[table.name] = (reader.ledger, dict(reader.items()))
        backend.close()
        return found

    def epoch(self) -> dict[str, Any]:
        """Return the value of ``/epoch``."""
        value = json.loads(self.ensemble.nodes[f"/{ID}{EPOCH}"][0])["value"]
        assert isinstance(value, dict)
        return value

    def set_epoch(self, **changes: Json) -> None:
        """Change the value of ``/epoch``, as a fault would; None takes a part out."""
        path = f"/{ID}{EPOCH}"
        data, version = self.ensemble.nodes[path]
        record = json.loads(data)
        value = {**record["value"], **changes}
        record["value"] = {name: each for name, each in value.items() if each is not None}
        self.ensemble.nodes[path] = (json.dumps(record).encode(), version)

    def lose(self, path: str) -> None:
        del self.ensemble.nodes[f"/{ID}{path}"]


Verb = Callable[[World, Program], Plan]
VERBS: dict[str, Verb] = {
    "rewind": lambda world, program: rewind(
        world.topology(program), 3, CONFIG, access=world.access()
    ),
    "quarantine": lambda world, program: quarantine(
        world.topology(program), 5, CONFIG, access=world.access()
    ),
    "repair_node": lambda world, program: repair_node(
        world.topology(program), CURRENT, CONFIG, access=world.access()
    ),
    "rebuild": lambda world, program: rebuild(
        world.topology(program), CONFIG, access=world.access()
    ),
    "forget": lambda world, program: forget(world.topology(program), CONFIG, access=world.access()),
}
by_verb = pytest.mark.parametrize("verb", VERBS)
by_other = pytest.mark.parametrize("other", OTHERS)


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/words.db"
    return World(open_state(url))


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A topology that has run, which no test of this fixture may change."""
    folder = tmp_path_factory.mktemp("ran")
    url = "memory:" if request.param == "memory" else f"sqlite:///{folder}/words.db"
    return World(open_state(url)).run()


# ------------------------------------------------------------ the fingerprint


@by_other
@by_verb
@pytest.mark.rule("txtopo.operations.program", "What is compared", 1)
@pytest.mark.filterwarnings("ignore::txtopo.errors.TopologyWarning")
def test_a_verb_names_what_differs_and_writes_nothing(ran: World, verb: str, other: str) -> None:
    program, change = OTHERS[other]
    before = ran.stored()

    with pytest.raises(TopologyChanged) as caught:
        VERBS[verb](ran, program)

    assert str(caught.value).startswith(
        f"{verb} was called with a different topology than the one that ran"
    )
    assert change in str(caught.value)
    assert ran.stored() == before


@by_other
@pytest.mark.filterwarnings("ignore::txtopo.errors.TopologyWarning")
def test_verify_names_what_differs(ran: World, other: str) -> None:
    program, change = OTHERS[other]

    findings = verify(ran.topology(program), CONFIG, access=ran.access())

    assert [change in each.problem for each in findings if each.where == EPOCH] == [True]


def test_another_source_of_the_same_kind_under_the_same_id_leaves_the_positions_alone(
    world: World,
) -> None:
    """Nothing that is stored says which source it was; a verb takes nothing from the source."""
    world.run()

    VERBS["rewind"](world, Program(words=("elk",))).apply()
    world.run()

    assert world.counts("a") == world.counts("b") == {"cat": 8, "dog": 4, "eel": 4}


@by_verb
@pytest.mark.rule("txtopo.operations.program", "What is compared", 1)
def test_a_program_that_was_replaced_since_the_plan_was_made_is_refused(
    world: World, verb: str
) -> None:
    less = Program(tables=("a",))
    world.run(less)
    if verb == "repair_node":
        lost = world.ensemble.nodes[f"/{ID}{CURRENT}"]
        world.lose(CURRENT)
    if verb == "quarantine":  # of a txid that is not planned yet it has to be told the end
        end: Json = {"spouts": {name: {"planned": 1, "cut": {"0": 8}} for name in "xy"}}
        plan = quarantine(world.topology(less), 5, CONFIG, end=end, access=world.access())
    else:
        plan = VERBS[verb](world, less)
    if verb == "repair_node":
        world.ensemble.nodes[f"/{ID}{CURRENT}"] = lost
    world.run(config=ANYWAY)
    before = world.stored()

    with pytest.raises(TopologyChanged, match="component 'b' is gone"):
        plan.apply()
    assert world.stored() == before


def test_a_program_that_is_replaced_while_a_verb_begins_is_refused_by_its_claim(
    world: World,
) -> None:
    def replaced(point: str) -> None:
        if point == "operator.before-epoch":
            known = world.epoch()["topology"]
            components = {**known["components"], "c": A_BOLT}
            world.set_epoch(topology={**known, "components": components})
            before.update(world.stored())

    before: dict[str, object] = {}
    world.run()
    plan = rewind(world.topology(), 3, CONFIG, access=world.access(replaced))

    with pytest.raises(TopologyChanged, match="component 'c' is gone"):
        plan.apply()
    assert world.stored() == before


@pytest.mark.parametrize("verb", ["rewind", "forget"])
def test_a_verb_that_died_is_finished_by_the_program_that_began_it_alone(
    world: World, verb: str
) -> None:
    world.run()
    arguments = {"rewind": (3,), "forget": ()}[verb]
    call = {"rewind": rewind, "forget": forget}[verb]
    access = world.access(die_on("after:1"))
    with pytest.raises(Died):
        call(world.topology(), *arguments, CONFIG, access=access).apply()  # type: ignore[operator]

    for program, change in OTHERS.values():
        if program.tables:
            with pytest.raises(TopologyChanged, match=change.partition("(")[0]):
                VERBS[verb](world, program)
    VERBS[verb](world, RAN).apply()

    if verb == "rewind":
        world.run()
        assert world.counts("b") == {"cat": 8, "dog": 4, "eel": 4}


# ------------------------------------------------------------ nothing is known of the program


A_BOLT = {"role": "bolt", "inputs": [["x", "default", "ShuffleGrouping", []]], "states": {}}
"""A bolt as a fingerprint has it."""

LEFT_OUT = {
    "state-less": "state 'b' of 'b' is gone, but its table 'b' holds txid 4",
    "spout-less": "component 'y', a spout of txid 4, is gone",
}


@pytest.mark.parametrize("other", LEFT_OUT)
@by_verb
@pytest.mark.rule("txtopo.operations.program", "What is compared", 2)
def test_without_a_fingerprint_ledgers_and_batches_say_what_is_left_out(
    world: World, verb: str, other: str
) -> None:
    program, change = OTHERS[other][0], LEFT_OUT[other]
    world.run().set_epoch(topology=None)
    before = world.stored()

    with pytest.raises(TopologyChanged, match=change):
        VERBS[verb](world, program)
    findings = verify(world.topology(program), CONFIG, access=world.access())

    assert any(change in each.problem for each in findings)
    assert world.stored() == before


def test_without_a_fingerprint_a_state_that_was_taken_out_earlier_is_not_missed(
    world: World,
) -> None:
    less = Program(tables=("a",))
    world.run(Program(words=RAN.words[:4])).run(less, ANYWAY).set_epoch(topology=None)

    VERBS["rewind"](world, less).apply()
    world.run(less)

    assert world.counts("a") == {"cat": 8, "dog": 4, "eel": 4}
    assert world.counts("b") == {"cat": 4, "dog": 2, "eel": 2}


@pytest.mark.rule("txtopo.operations.program", "What is compared", 3)
def test_a_rebuild_stores_the_fingerprint_where_none_is(world: World) -> None:
    world.run()
    known = world.epoch()["topology"]
    batch = json.loads(world.ensemble.nodes[f"/{ID}/batches/{4:020d}"][0])["value"]
    world.ensemble.nodes.clear()

    rebuild(world.topology(), CONFIG, metadata={4: batch}, access=world.access()).apply()

    assert world.epoch()["topology"] == known
    with pytest.raises(TopologyChanged):
        VERBS["forget"](world, Program(tables=("a",)))
    with pytest.raises(TopologyChanged):
        world.run(Program(tables=("a",)))


def test_a_lost_epoch_comes_back_with_the_fingerprint(world: World) -> None:
    world.run()
    known = world.epoch()["topology"]
    world.lose(EPOCH)
    with pytest.raises(TopologyChanged, match="state 'b' of 'b' is gone"):
        repair_node(world.topology(Program(tables=("a",))), EPOCH, CONFIG, access=world.access())

    repair_node(world.topology(), EPOCH, CONFIG, access=world.access()).apply()

    assert world.epoch()["topology"] == known
    assert world.run().counts("a") == {"cat": 8, "dog": 4, "eel": 4}


def test_a_damaged_fingerprint_is_put_back(world: World) -> None:
    """The error that a start ends with names this verb."""
    world.run()
    known = world.epoch()["topology"]
    world.set_epoch(topology={"guarantee": "exactly once", "components": []})

    repair_node(world.topology(), EPOCH, CONFIG, access=world.access()).apply()

    assert world.epoch()["topology"] == known
    assert world.run().counts("a") == {"cat": 8, "dog": 4, "eel": 4}


def test_a_given_epoch_keeps_its_fingerprint(world: World) -> None:
    world.run()
    value = world.epoch()
    world.lose(EPOCH)
    other = {**value, "topology": {"guarantee": "exactly once", "components": {"c": A_BOLT}}}

    with pytest.raises(TopologyChanged, match="component 'c' is gone; component 'x' is new"):
        repair_node(world.topology(), EPOCH, CONFIG, value=other, access=world.access())
    repair_node(world.topology(), EPOCH, CONFIG, value=value, access=world.access()).apply()

    assert world.epoch()["topology"] == value["topology"]


def test_a_large_fingerprint_is_written_past_a_thousand_lost_epochs_in_one_request() -> None:
    value: dict[str, Json] = {
        "epoch": 1_000,
        "topology": {str(n): "a bolt" * 20 for n in range(200)},
    }

    steps = rewritten(value, 1_000)

    sizes = [len(each) for each in encode_steps(steps, "write")]  # refuses more than a packet
    assert len(sizes) == 1_000
    assert sizes[-1] > STEP_BYTES_MAX / 1_000
    assert rewritten(value, 0) == []


# ------------------------------------------------------------ where another program is taken


def test_forget_takes_another_program_on_purpose_and_names_what_it_leaves(world: World) -> None:
    world.run()
    less = world.topology(Program(tables=("a",)))
    with pytest.raises(TopologyChanged, match=r"forget it with Config\(allow_change=True\)"):
        forget(less, CONFIG, access=world.access())

    plan = forget(less, ANYWAY, access=world.access())
    assert "not released, because the program has a different state or none: state 'b'" in str(plan)
    plan.apply()

    with world.state.named("b").reader() as reader:
        assert reader.ledger is not None
        assert reader.ledger.topology == ID
    assert not [path for path in world.ensemble.nodes if path.startswith(f"/{ID}/")]
    rest = world.topology(Program(tables=("b",)))
    forget(rest, CONFIG, access=world.access()).apply()
    with world.state.named("b").reader() as reader:
        assert reader.ledger is not None
        assert reader.ledger.topology == ""


def test_one_state_is_released_by_any_program_that_has_it_as_it_ran(world: World) -> None:
    world.run()

    def release(program: Program, state: str) -> Plan:
        return forget(world.topology(program), CONFIG, state=state, access=world.access())

    with pytest.raises(TopologyChanged, match="the topology uses table 'a', for state 'a' of 'a'"):
        release(Program(columns=True), "a.a")
    with pytest.raises(StateUsageError, match=r"no state 'b\.b'"):
        release(Program(tables=("a",)), "b.b")
    release(Program(tables=("b",), spouts=("x",)), "b.b").apply()

    with world.state.named("b").reader() as reader:
        assert reader.ledger is not None
        assert (reader.ledger.topology, reader.ledger.txid) == ("", 4)
    assert "a" in world.epoch()["topology"]["components"]["a"]["states"]


def test_a_table_that_the_topology_has_given_up_is_released_by_the_program_of_before(
    world: World,
) -> None:
    world.run().run(Program(tables=("a",)), ANYWAY)

    forget(world.topology(), CONFIG, state="b.b", access=world.access()).apply()

    with world.state.named("b").reader() as reader:
        assert reader.ledger is not None
        assert reader.ledger.topology == ""


def test_a_rebuild_takes_another_program_that_begins_again_with_new_tables(world: World) -> None:
    world.run()
    again = Program(tables=("c",))
    with pytest.raises(TopologyChanged, match=r"in a new table; its states hold \{'a\.a': 4\}"):
        VERBS["rebuild"](world, Program(tables=("a", "c")))
    with pytest.raises(TopologyChanged, match="other spouts, give the topology another id"):
        VERBS["rebuild"](world, Program(spouts=("z",), tables=("c",)))

    VERBS["rebuild"](world, again).apply()
    world.run(again, ANYWAY)

    assert world.counts("c") == {"cat": 8, "dog": 4, "eel": 4}
