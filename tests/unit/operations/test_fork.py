"""A topology is forked: the copies and the original continue, each exactly once."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from state_backends.memory import MemoryBackend
from tests.harness.dying import Died, dies_at, raise_died
from tests.harness.polling import LIMIT_S
from tests.harness.runs import started
from tests.unit.operations.conftest import Make, maker
from tests.unit.operations.deployment import (
    ALL,
    BATCHES,
    Deployment,
    apply_with_deaths,
    both,
    die_on,
)
from tests.unit.runtime.loop_world import Total
from tests.unit.state.backing_maps import open_map
from txtopo import (
    BasicBolt,
    Config,
    Fields,
    StreamBuilder,
    Topology,
    TransactionalTopologyBuilder,
)
from txtopo.attempt import TransactionAttempt
from txtopo.bolts import PersistentAggregate
from txtopo.collector import BatchOutputCollector
from txtopo.ensemble import MemoryEnsemble, MemoryTransactionalState
from txtopo.ensemble.journal import put_batch
from txtopo.ensemble.nodes import CURRENT, StoredBatch, batch_path
from txtopo.errors import (
    CoordinatorActive,
    ForeignStateError,
    OperationUnfinished,
    SchemaDrift,
    StateUsageError,
    StoreUnavailable,
    TopologyChanged,
)
from txtopo.kafka.sink import KafkaSink
from txtopo.operations import Access, Plan, forget, fork, replay, rewind, verify
from txtopo.plugins.stores import backing_map_factory
from txtopo.spouts import KafkaTransactionalSpout, MemoryTransactionalSpout
from txtopo.state import Count, State, open_state, register_backend
from txtopo.state.backend import StateKind, held_ledger
from txtopo.streams import tumbling
from txtopo.tuples import Tuple

HALF = 3
"""The txid that is forked, with a total of this."""
HALF_TOTAL = sum(range(2 * HALF))


def pair() -> tuple[State, State]:
    return open_state("memory:"), open_state("memory:")


def copy_of(deployment: Deployment, states: tuple[State, State] | None = None) -> Deployment:
    """Return the deployment that a fork makes."""
    return replace(deployment, states=states or pair(), id=f"{deployment.id}-2")


def places_of(deployment: Deployment) -> dict[str, str]:
    first, second = deployment.states
    return {"a.totals": first.url, "b.totals": second.url}


def forked(
    deployment: Deployment,
    two: Deployment,
    access: Access | None = None,
    *,
    at: int | None = None,
    to: str | Mapping[str, str] | None = None,
    wait_s: float = 0.0,
) -> Plan:
    return fork(
        deployment.topology(),
        two.id,
        places_of(two) if to is None else to,
        deployment.config,
        at=at,
        wait_s=wait_s,
        access=access or deployment.access(),
    )


def refused(deployment: Deployment, match: str, error: type[Exception], **asked: Any) -> None:
    """Check that a fork is refused, and that nothing was written."""
    nodes = dict(deployment.ensemble.nodes)
    two = copy_of(deployment)
    with pytest.raises(error, match=match):
        forked(deployment, two, **asked)
    assert deployment.ensemble.nodes == nodes
    assert not any(state._anchor.tables for state in two.states)  # type: ignore[attr-defined]


def copies_in(two: Deployment) -> set[int]:
    """Return the txids that the tables of a fork hold; 0 for those that nobody has filled."""
    found = set()
    for state, table in zip(two.states, ("totals_a", "totals_b"), strict=True):
        backend = state.named(table).open()
        backend.create()
        ledger = held_ledger(backend)
        found.add(0 if ledger is None else ledger.txid)
        backend.close()
    return found


def check_both_continue(deployment: Deployment, two: Deployment) -> None:
    assert two.held() == both(HALF, HALF_TOTAL)
    assert verify(two.topology(), two.config, access=two.access()) == []
    two.run()
    assert two.held() == both(BATCHES, ALL)
    assert deployment.held() == both(HALF, HALF_TOTAL)
    deployment.run()
    assert deployment.held() == both(BATCHES, ALL)


@pytest.mark.parametrize("opaque", [False, True])
def test_both_continue_from_the_txid_though_the_verb_is_killed_at_each_step(
    memory: Make, opaque: bool
) -> None:
    deployment = memory(opaque)
    deployment.run(batches=HALF)
    two = copy_of(deployment)

    deaths = apply_with_deaths(lambda access: forked(deployment, two, access), deployment)

    assert deaths >= 10
    check_both_continue(deployment, two)


@pytest.mark.slow
@pytest.mark.service("zookeeper")
@pytest.mark.service("postgresql")
def test_sqlite_is_forked_to_postgresql_though_the_verb_is_killed_at_each_step(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    deployment = maker(request, tmp_path, "zookeeper")()
    deployment.run(batches=HALF)
    url = request.getfixturevalue("postgresql").create_schema(f"fork_{deployment.id}")
    two = copy_of(deployment, (open_state(url), open_state(url)))

    deaths = apply_with_deaths(lambda access: forked(deployment, two, access, to=url), deployment)

    assert deaths >= 10
    check_both_continue(deployment, two)


@pytest.mark.service("zookeeper")
@pytest.mark.service("postgresql")
def test_postgresql_is_forked_to_sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    deployment = maker(request, tmp_path, "postgresql")()
    deployment.run(batches=HALF)
    url = f"sqlite:///{tmp_path}/two.db"
    two = copy_of(deployment, (open_state(url), open_state(url)))

    forked(deployment, two, to=url).apply()

    check_both_continue(deployment, two)


@pytest.mark.integration
@pytest.mark.rule("txtopo.operations.original", "Rules", 2)
def test_delta_is_forked_as_of_an_earlier_txid_but_not_within_a_group(tmp_path: Path) -> None:
    states = (open_state(f"delta:///{tmp_path}/a"), open_state(f"delta:///{tmp_path}/b"))
    deployment = Deployment(states, id="history", history=10)
    deployment.run(batches=HALF)
    deployment.group = 2
    deployment.run()
    url = f"sqlite:///{tmp_path}/two.db"
    two = copy_of(deployment, (open_state(url), open_state(url)))

    with pytest.raises(StateUsageError, match=r"txids 4 to 5 were written together, as a group"):
        forked(deployment, two, to=url, at=4)
    forked(deployment, two, to=url, at=HALF).apply()

    assert two.held() == both(HALF, HALF_TOTAL)
    two.run()
    assert two.held() == deployment.held() == both(BATCHES, ALL)


@pytest.mark.integration
def test_metadata_that_is_gone_is_told_with_the_setting_that_keeps_it(tmp_path: Path) -> None:
    states = (open_state(f"delta:///{tmp_path}/a"), open_state(f"delta:///{tmp_path}/b"))
    deployment = Deployment(states, id="gone", history=0)
    deployment.run(batches=HALF)

    with pytest.raises(StateUsageError, match=r"no longer has its metadata.*history_txids"):
        forked(deployment, copy_of(deployment), at=1)


@pytest.mark.rule("txtopo.operations.fork", "Rules", 1)
@pytest.mark.rule("txtopo.operations.fork", "Rules", 3)
def test_nothing_half_made_starts(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    store = open_state("memory:")
    two = copy_of(deployment, (store, store))
    client = MemoryTransactionalState(two.id, deployment.ensemble)

    for deaths in range(100):
        access = deployment.access(dies_at("", deaths + 1, raise_died))
        try:
            forked(deployment, two, access).apply()
        except Died:
            node = client.get(CURRENT)
            held = copies_in(two)
            assert len(held) == 1, "the states of one store are written together"
            if node is not None and "operation" in str(node.value):
                with pytest.raises(OperationUnfinished, match="fork"):
                    two.run()
            else:
                assert node is None or held == {HALF}
        else:
            break
    assert deaths >= 10
    check_both_continue(deployment, two)


def test_the_original_may_run_and_is_not_written(memory: Make) -> None:
    deployment = memory()
    two = copy_of(deployment)
    with deployment.running(deployment.topology()) as run:
        run.process_all_available(LIMIT_S)
        nodes = {
            path: node
            for path, node in deployment.ensemble.nodes.items()
            if f"/{deployment.id}/" in path and "/leader" not in path
        }
        ledgers = deployment.ledgers()

        forked(deployment, two, wait_s=LIMIT_S).apply()

        assert nodes.items() <= deployment.ensemble.nodes.items()
        assert deployment.ledgers() == ledgers
    assert two.held() == both(BATCHES, ALL)


def test_the_plan_says_what_is_copied_and_a_finished_fork_has_nothing_to_do(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    two = copy_of(deployment)
    nodes = dict(deployment.ensemble.nodes)

    plan = forked(deployment, two)

    assert "state 'a.totals', table 'totals_a', from memory: to memory" in str(plan)
    assert "the newest txid" in str(plan)
    assert deployment.ensemble.nodes == nodes
    plan.apply()
    assert str(forked(deployment, two)).endswith("nothing to do")
    two.run()
    with pytest.raises(StateUsageError, match="with txid 5 as its last committed one"):
        forked(deployment, two)


def test_a_fork_of_a_fork_works(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    two = copy_of(deployment)
    three = replace(two, states=pair(), id="third")

    forked(deployment, two).apply()
    forked(two, three).apply()

    check_both_continue(two, three)


def test_the_txid_of_a_copy_has_no_batch_and_the_next_ones_are_replayed(memory: Make) -> None:
    deployment = memory(opaque=True)
    deployment.run(batches=HALF)
    two = copy_of(deployment)
    forked(deployment, two).apply()

    with pytest.raises(StateUsageError, match="it has no batch, because fork wrote it"):
        replay(two.topology(), HALF, two.config, access=two.access())
    two.run(batches=HALF + 1)
    found = replay(two.topology(), HALF + 1, two.config, access=two.access())
    assert {each.compared for each in found.states.values()} == {"equal"}


def test_a_fork_does_not_go_back_before_its_beginning(memory: Make) -> None:
    """Its rows are at rest, and an undo would leave them, with earlier positions."""
    deployment = memory()
    deployment.run(batches=1)
    two = copy_of(deployment)
    forked(deployment, two).apply()

    with pytest.raises(StateUsageError, match="it begins with txid 1, without anything"):
        rewind(two.topology(), 0, two.config, access=two.access())
    two.run(batches=2)
    rewind(two.topology(), 1, two.config, access=two.access()).apply()
    two.run()
    assert two.held() == both(BATCHES + 1, ALL)


@pytest.mark.rule("txtopo.operations.original", "Rules", 3)
def test_a_txid_that_is_not_committed_is_not_forked(memory: Make) -> None:
    deployment = memory()
    with pytest.raises(RuntimeError, match="Died"):
        deployment.die("advance.before", HALF)
    assert deployment.held() == both(HALF, HALF_TOTAL)
    two = copy_of(deployment)

    with pytest.raises(
        StoreUnavailable, match=r"txid 2 is the last committed one.* txtopo deactiv"
    ):
        forked(deployment, two).apply()
    deployment.run()
    forked(deployment, two).apply()
    assert two.held() == deployment.held() == both(BATCHES, ALL)


def test_states_at_different_txids_are_not_forked(memory: Make) -> None:
    deployment = memory()
    deployment.die("write.after:a.totals", HALF)
    two = copy_of(deployment)

    with pytest.raises(StoreUnavailable, match=r"the states hold {'a.totals': 3, 'b.totals': 2}"):
        forked(deployment, two).apply()


@pytest.mark.rule("txtopo.operations.original", "Rules", 4)
def test_a_state_of_another_attempt_than_that_of_the_positions_is_not_forked(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    client = MemoryTransactionalState(deployment.id, deployment.ensemble)
    node = client.get(batch_path(HALF))
    assert node is not None
    assert isinstance(node.value, dict)
    other = StoredBatch(TransactionAttempt(HALF, 7, 1, term="other"), node.value["metadata"])
    client.apply([put_batch(other)])

    with pytest.raises(StoreUnavailable, match=r"'a.totals' holds txid 3 from attempt 3:0@1, and"):
        forked(deployment, copy_of(deployment)).apply()


@pytest.mark.rule("txtopo.operations.original", "Rules", 1)
def test_the_states_of_one_database_are_read_in_one_snapshot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = open_state("memory:")
    deployment = Deployment((store, store))
    deployment.run(batches=HALF)
    url = f"sqlite:///{tmp_path}/two.db"
    plan = forked(deployment, copy_of(deployment), to=url)
    together: list[int] = []
    whole = MemoryBackend.snapshots

    def snapshots(self: MemoryBackend, backends: Any) -> Any:
        together.append(len(backends))
        return whole(self, backends)

    monkeypatch.setattr(MemoryBackend, "snapshots", snapshots)
    monkeypatch.setattr(MemoryBackend, "snapshot", None, raising=False)

    plan.apply()

    assert together == [2]


@pytest.mark.rule("txtopo.operations.original", "Rules", 5)
def test_a_store_without_snapshots_is_read_while_nobody_leads(tmp_path: Path) -> None:
    register_backend("plainmap", backing_map_factory(open_map, shared_by_processes=False))
    states = (open_state(f"plainmap:{tmp_path}/a"), open_state(f"plainmap:{tmp_path}/b"))
    deployment = Deployment(states)
    two = copy_of(deployment)
    with deployment.running(deployment.topology(batches=HALF)) as run:
        run.process_all_available(LIMIT_S)
        with pytest.raises(StoreUnavailable, match="has no snapshots, and a coordinator leads"):
            forked(deployment, two).apply()

    forked(deployment, two).apply()

    check_both_continue(deployment, two)


@pytest.mark.rule("txtopo.operations.fork", "Rules", 2)
def test_the_noted_positions_are_used_whatever_becomes_of_the_original(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    two = copy_of(deployment)
    with pytest.raises(Died):
        forked(deployment, two, deployment.access(die_on("before:1"))).apply()

    forget(deployment.topology(), deployment.config, access=deployment.access()).apply()
    forked(deployment, two).apply()

    two.run()
    assert two.held() == both(BATCHES, ALL)


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_if_the_original_has_moved_on_all_is_copied_again(memory: Make, kind: StateKind) -> None:
    """One state was copied before the verb was killed, and the other was not."""
    deployment = memory(kind=kind)
    deployment.run(batches=HALF)
    two = replace(
        deployment, states=(open_state("memory:", kind), open_state("memory:", kind)), id="moved"
    )
    with pytest.raises(Died):
        forked(deployment, two, deployment.access(die_on("write.after:a.totals"))).apply()
    assert two.ledgers()[0].txid == HALF

    deployment.run(batches=BATCHES - 1)
    forked(deployment, two).apply()

    assert two.held() == both(BATCHES - 1, sum(range(2 * (BATCHES - 1))))
    two.run()
    assert two.held() == both(BATCHES, ALL)


def test_a_copy_of_a_txid_that_the_original_wrote_again_is_not_kept(memory: Make) -> None:
    """One state was copied; then a rewind wrote the same txid, and the other has that."""
    deployment = memory()
    deployment.run(batches=HALF)
    two = copy_of(deployment)
    with pytest.raises(Died):
        forked(deployment, two, deployment.access(die_on("write.after:a.totals"))).apply()
    access = deployment.access()
    rewind(deployment.topology(), HALF - 1, deployment.config, access=access).apply()
    assert [each.txid for each in deployment.ledgers()] == [HALF, HALF]

    with pytest.raises(StateUsageError, match=r"'a\.totals' holds a copy of txid 3 from before"):
        forked(deployment, two).apply()

    deployment.run()
    forked(deployment, two).apply()
    assert two.held() == deployment.held() == both(BATCHES + 1, ALL)


def test_the_watermarks_are_in_the_table_that_the_program_of_the_fork_names(tmp_path: Path) -> None:
    """By default its name begins with the id of the topology."""
    ensemble, config = MemoryEnsemble(), Deployment(pair()).config
    access = Access(ensemble=ensemble)
    one, two = f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/two.db"
    for id, url, rows in (("one", one, 6), ("two", two, 12), ("one", one, 12)):
        if id == "two":
            fork(windows("one", one, 6), "two", two, config, access=access).apply()
        with started(windows(id, url, rows), config, ensemble) as run:
            run.process_all_available(LIMIT_S)

    tables = ("counts", "counts_late")
    held = [{table: contents(url, table) for table in tables} for url in (one, two)]
    assert held[0] == held[1]
    assert len(held[1]["counts_late"]) == 1
    assert contents(one, "one_marks") == contents(two, "two_marks")


def windows(id: str, url: str, rows: int) -> Topology:
    """Count rows of one a minute in windows; the row at 6 is late."""
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    minutes = [0 if at == 6 else at for at in range(rows)]
    sent = [["a", noon + datetime.timedelta(minutes=each)] for each in minutes]
    spout = MemoryTransactionalSpout({0: sent}, Fields("name string, ts timestamp"), 2)
    builder = StreamBuilder(id)
    source = builder.source("rows", spout, event_time="ts", delay="1 minute")
    counts = open_state(url, table="counts")
    windowed = source.group_by("name").window(tumbling("2 minutes"))
    windowed.persistent_aggregate(counts, count=Count())
    return builder.build_topology()


def contents(url: str, table: str) -> dict[Any, Any]:
    with open_state(url, table=table).reader() as reader:
        return dict(reader.items())


@pytest.mark.integration
def test_a_log_is_copied_once_and_never_onto_another_copy(tmp_path: Path) -> None:
    deployment = Logs(delta_log(tmp_path / "one"))
    deployment.run(batches=HALF)
    two = Logs(delta_log(tmp_path / "two"), ensemble=deployment.ensemble, id="logs-2")
    access = deployment.access(die_on("write.after:a.a"))
    with pytest.raises(Died):
        forked(deployment, two, access, to=two.places).apply()

    deployment.run()
    with pytest.raises(
        StateUsageError, match=r"'a\.a' is in mode 'log' and holds a copy of txid 3"
    ):
        forked(deployment, two, to=two.places).apply()
    forget(two.topology(), two.config, access=two.access()).apply()
    two.states = delta_log(tmp_path / "three")
    forked(deployment, two, to=two.places).apply()

    with two.states[0].reader() as reader:
        assert dict(reader.items()) == {0: BATCHES, 1: BATCHES}
    two.run(batches=BATCHES + 1)
    with two.states[1].reader() as reader:
        assert dict(reader.items()) == {0: BATCHES + 1, 1: BATCHES + 1}


def delta_log(folder: Path) -> tuple[State, State]:
    first, second = (
        open_state(f"delta:///{folder}/{name}?history_txids=0", table=name, mode="log")
        for name in "ab"
    )
    return first, second


class Logs(Deployment):
    """Counts in two logs of Delta, by a key of each row of a batch."""

    @property
    def places(self) -> dict[str, str]:
        return {f"{name}.{name}": state.url for name, state in zip("ab", self.states, strict=True)}

    def topology(self, poison: int | None = None, batches: int = BATCHES) -> Topology:
        rows = [[at % 2] for at in range(2 * batches)]
        spout = MemoryTransactionalSpout({0: rows}, Fields("key long"), 2)
        builder = TransactionalTopologyBuilder(self.id, "spout", spout)
        for name, state in zip("ab", self.states, strict=True):
            counts = PersistentAggregate(state, "key", Count())
            builder.set_bolt(name, counts).fields_grouping("spout", "key")
        return builder.build_topology()


@pytest.mark.rule("txtopo.operations.fork", "Rules", 4)
def test_a_fork_is_finished_only_with_a_copy_of_its_txid_in_each_state(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    two = copy_of(deployment)

    def tamper(step: str) -> None:
        if step == "operator.before:1":
            two.states[1]._anchor.tables.clear()  # type: ignore[attr-defined]

    with pytest.raises(StateUsageError, match=r"'b.totals' holds no copy of txid 3"):
        forked(deployment, two, deployment.access(tamper)).apply()


def test_other_arguments_are_refused_while_a_fork_is_unfinished_and_it_can_be_given_up(
    memory: Make,
) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    two = copy_of(deployment)
    with pytest.raises(Died):
        forked(deployment, two, deployment.access(die_on("after:0"))).apply()
    other = replace(two, states=pair())

    with pytest.raises(OperationUnfinished, match="fork"):
        forked(deployment, other, at=HALF)
    forget(two.topology(), two.config, access=two.access()).apply()
    forked(deployment, other).apply()

    check_both_continue(deployment, other)


@pytest.mark.parametrize(
    ("to", "match"),
    [
        ({"a.totals": "postgresql://nowhere/x"}, "'b.totals' has no store in the fork"),
        ({"a.total": "memory:"}, "has no state 'a.total'; did you mean 'a.totals'"),
    ],
)
@pytest.mark.rule("txtopo.operations.fork", "Rules", 5)
def test_each_state_needs_a_store(memory: Make, to: dict[str, str], match: str) -> None:
    deployment = memory()
    refused(deployment, match, StateUsageError, to=to)


@pytest.mark.rule("txtopo.operations.fork", "Rules", 5)
def test_what_cannot_be_copied_is_refused_before_anything_is_opened() -> None:
    """Neither of the databases exists."""
    away = "postgresql://nobody@nowhere.invalid/x"
    spout = Queue({0: [["a"]]}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("q", "queue", spout, dead_letters=open_state(away))
    counts = PersistentAggregate(open_state(away, table="c", create=False), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("queue", "word")
    topology = builder.build_topology()

    with pytest.raises(StateUsageError) as told:
        fork(topology, "q-2", "postgresql://nobody@elsewhere.invalid/x", Config())

    text = str(told.value)
    assert "'queue': it takes its records out of a queue" in text
    assert "state 'counts.counts' is in your own" in text
    assert "holds dead letters, which someone processes" in text


@pytest.mark.rule("txtopo.operations.fork", "Rules", 5)
def test_a_kafka_sink_is_refused_without_a_broker() -> None:
    """A second sink of its topic would depose the original."""
    spout = KafkaTransactionalSpout("nowhere.invalid:9092", "words", value="string")
    builder = TransactionalTopologyBuilder("k", "words", spout)
    builder.set_bolt("sink", KafkaSink("nowhere.invalid:9092", "out")).global_grouping("words")

    with pytest.raises(StateUsageError, match="'sink': its records cannot be copied"):
        fork(builder.build_topology(), "k-2", "memory:", Config())


def test_a_consumer_group_has_another_name_in_the_program_of_the_fork() -> None:
    spout = KafkaTransactionalSpout("nowhere.invalid:9092", "words", commit_group="lag")

    assert spout.traits.renamed_in_forks is not None
    assert "a commit_group other than 'lag'" in spout.traits.renamed_in_forks


class Queue(MemoryTransactionalSpout):
    cannot_fork = "it takes its records out of a queue; give up the fork a queue of its own"


def test_dead_letters_are_copied_if_their_store_is_named() -> None:
    deployment = Letters(pair())
    deployment.run(batches=HALF)
    two = copy_of(deployment)
    to = {**places_of(two), "dead_letters.dead_letters": two.states[0].url}

    forked(deployment, two, to=to).apply()

    two.run()
    assert two.held() == both(BATCHES, ALL)


class Same(BasicBolt):
    output_fields = Fields("amount long")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit([tuple["amount"]])


class Letters(Deployment):
    """A deployment with dead letters, beside its first state."""

    def topology(self, poison: int | None = None, batches: int = BATCHES) -> Topology:
        rows = [[amount] for amount in range(2 * batches)]
        spout = MemoryTransactionalSpout({0: rows}, Fields("amount long"), 2)
        builder = TransactionalTopologyBuilder(self.id, "spout", spout, dead_letters=self.states[0])
        builder.set_bolt("same", Same()).shuffle_grouping("spout")
        for name, state in zip(("a", "b"), self.states, strict=True):
            declarer = builder.set_bolt(name, Total()).global_grouping("same")
            declarer.with_state("totals", state.named(f"totals_{name}"))
        return builder.build_topology()


@pytest.mark.parametrize(
    ("at", "match"),
    [
        (0, "expected one from 1 to 3"),
        (4, "expected one from 1 to 3"),
        (1, "can no longer be read as of txid 1: MemoryBackend keeps no history"),
    ],
)
def test_a_txid_that_cannot_be_read_is_refused(memory: Make, at: int, match: str) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    refused(deployment, match, StateUsageError, at=at)


def test_the_txid_that_all_states_hold_may_be_named(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    two = copy_of(deployment)

    forked(deployment, two, at=HALF).apply()

    check_both_continue(deployment, two)


def test_only_a_topology_that_has_committed_a_txid_is_forked(memory: Make) -> None:
    deployment = memory()
    refused(deployment, "never ran with this ZooKeeper", StateUsageError)
    deployment.run(batches=0)
    refused(deployment, "has committed no txid", StateUsageError)


def test_another_program_than_the_one_that_ran_is_refused(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    other = Letters(deployment.states, ensemble=deployment.ensemble, id=deployment.id)
    two = copy_of(deployment)
    to = {**places_of(two), "dead_letters.dead_letters": "memory:"}
    refused(other, "fork was called with a different topology", TopologyChanged, to=to)


def test_an_unfinished_verb_of_the_original_is_finished_first(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    with pytest.raises(Died):
        rewind(
            deployment.topology(), 2, deployment.config, access=deployment.access(die_on("after:0"))
        ).apply()
    refused(deployment, "an operator began rewind", OperationUnfinished)


@pytest.mark.parametrize("taken", ["id", "place"])
def test_a_fork_takes_neither_its_own_id_nor_its_own_table(memory: Make, taken: str) -> None:
    deployment = memory()
    two = copy_of(deployment)
    if taken == "id":
        two.id = deployment.id
    else:
        two.states = deployment.states
    with pytest.raises(StateUsageError, match=r"needs its own id|copied onto itself"):
        forked(deployment, two)


def test_a_table_that_is_in_use_is_refused(memory: Make, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/two.db"
    other = replace(memory(), states=(open_state(url), open_state(url)), id="other")
    other.run(batches=1)
    deployment = memory()
    deployment.run(batches=HALF)
    refused(deployment, "'totals_a' of state 'a.totals' in .* is in use", ForeignStateError, to=url)


def test_a_table_without_a_ledger_is_in_the_way_before_anything_is_claimed(
    memory: Make, tmp_path: Path
) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "two.db") as database:
        database.execute("CREATE TABLE totals_a (x INTEGER)")
    database.close()
    deployment = memory()
    deployment.run(batches=HALF)
    nodes = dict(deployment.ensemble.nodes)

    with pytest.raises(SchemaDrift, match="totals_a"):
        forked(deployment, copy_of(deployment), to=f"sqlite:///{tmp_path}/two.db").apply()
    assert deployment.ensemble.nodes == nodes


def test_a_running_fork_is_left_alone(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=HALF)
    two = copy_of(deployment)
    forked(deployment, two).apply()
    with two.running(two.topology()) as run:
        run.process_all_available(LIMIT_S)
        with pytest.raises(CoordinatorActive):
            forked(deployment, two)
