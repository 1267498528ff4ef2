"""Operators' verbs on a topology of several spouts: metadata names the spout of each position."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.dying import RaisingScheduler
from tests.harness.polling import LIMIT_S
from tests.harness.runs import started
from tests.harness.sources import Opaque, Partitioned, Ranges, Source
from tests.unit.runtime.loop_world import memory_state
from txtopo import Config, PersistentAggregate, Topology, TransactionalTopologyBuilder
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import StateUsageError, TxtopoError
from txtopo.metadata import Json
from txtopo.operations import Access, quarantine, rebuild, rewind, show, verify
from txtopo.runtime.start import start_topology
from txtopo.state import State, Sum

CONFIG = Config(
    carrier="local",
    zookeeper="memory",
    max_spout_pending=3,
    group_txids_max=1,
    history_txids=5,
    poll_interval_s=0.01,
)


NAMES = ("ranges", "partitioned", "opaque")


class Three:
    """Two rows a txid of each of three sources, of which the opaque one has the fewest."""

    def __init__(self) -> None:
        self.sources = Source("ranges", 10), Source("partitioned", 8), Source("opaque", 6)
        self.state, self.ensemble = memory_state(), MemoryEnsemble()
        self.access = Access(ensemble=self.ensemble)

    @property
    def topology(self) -> Topology:
        ranges, partitioned, opaque = self.sources
        builder = TransactionalTopologyBuilder("three", "ranges", Ranges(ranges))
        builder.set_spout("partitioned", Partitioned(partitioned))
        builder.set_spout("opaque", Opaque(opaque))
        declarer = builder.set_bolt("sum", PersistentAggregate(self.state, "source", Sum("number")))
        for source in self.sources:
            declarer.fields_grouping(source.name, "source")
        return builder.build_topology()

    def run(self) -> None:
        with started(self.topology, CONFIG, self.ensemble) as run:
            run.process_all_available(LIMIT_S)

    def die(self, step: str, times: int) -> None:
        scheduler = RaisingScheduler(step, times)
        run = start_topology(
            self.topology.graph, None, CONFIG, scheduler=scheduler, ensemble=self.ensemble
        )
        with pytest.raises((TxtopoError, RuntimeError), match="Died"):
            run.await_termination(20)

    def sums(self) -> dict[str, int]:
        with _named(self.state).reader() as reader:
            return dict(reader.items())

    def all(self) -> dict[str, int]:
        return {each.name: sum(range(each.rows)) for each in self.sources}


def _named(state: State) -> State:
    return state.named("sum")


@pytest.fixture
def three() -> Three:
    return Three()


def test_show_tells_the_lag_of_each_spout_and_verify_finds_nothing(three: Three) -> None:
    three.run()
    three.sources[2].rows += 3

    seen = show(three.topology, CONFIG, access=three.access)

    assert seen.lag == {"ranges/all": 0, "partitioned/0": 0, "opaque/0": 3}
    assert '"spouts": {"ranges": {"planned": [8, 10]}' in str(seen)
    assert verify(three.topology, CONFIG, access=three.access) == []


def test_a_rewind_takes_all_spouts_back(three: Three) -> None:
    three.run()

    rewind(three.topology, 4, CONFIG, access=three.access).apply()
    three.run()

    assert three.sums() == three.all()


def test_a_rebuild_keeps_what_the_transactional_spouts_have_cut(three: Three) -> None:
    """A state holds txid 3, so its batch is done again, and ZooKeeper is set from there."""
    three.die("advance.before", 3)
    batches = show(three.topology, CONFIG, access=three.access).batches
    known: dict[int, Json] = {txid: batches[txid] for txid in (2, 3)}
    three.ensemble.nodes.clear()

    rebuild(three.topology, CONFIG, metadata={3: known[3]}, access=three.access).apply()
    three.run()

    assert three.sums() == three.all()


def test_a_batch_of_several_spouts_is_taken_out(three: Three) -> None:
    three.die("begin.before:sum.sum", 2)

    quarantine(three.topology, 2, CONFIG, reason="bad", access=three.access).apply()
    three.run()

    assert three.sums() == {name: total - 2 - 3 for name, total in three.all().items()}


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (
            {"planned": 1, "cut": {"0": [2, 4]}},
            "expected {'spouts': {'ranges': {'planned': …, 'cut': …}",
        ),
        ({"spouts": {"range": {"planned": 1}}}, "'range' is not a spout of the topology"),
        ({"spouts": {name: {"planned": 1} for name in NAMES}}, "cut of 'partitioned' is None"),
        ({"spouts": {"ranges": 3}}, "cannot be used"),
        (
            {"spouts": {name: {"planned": [0, 9], "cut": {}} for name in NAMES}},
            "where it was planned to end",
        ),
    ],
)
def test_metadata_that_does_not_fit_the_spouts_is_refused(
    three: Three, end: Json, error: str
) -> None:
    three.die("begin.before:sum.sum", 2)

    with pytest.raises(StateUsageError) as caught:
        quarantine(three.topology, 2, CONFIG, reason="bad", end=end, access=three.access)
    assert error in str(caught.value)


@pytest.mark.parametrize("given", [{"ranges", "opaque"}, set()])
def test_a_position_that_an_operator_gives_names_each_spout(three: Three, given: set[str]) -> None:
    """One that is not named would begin again with its first record."""
    three.run()
    shares: dict[str, Json] = {name: {"planned": 1, "cut": {}} for name in given}
    position: Json = {"spouts": shares}

    def refused(verb: Callable[..., object], *arguments: object, **more: object) -> None:
        with pytest.raises(StateUsageError, match=r"expected \{'spouts': "):
            verb(three.topology, *arguments, CONFIG, access=three.access, **more)

    refused(rewind, 4, metadata=position)
    refused(quarantine, 6, end=position)
    three.ensemble.nodes.clear()
    refused(rebuild, metadata={5: position})


def test_a_spout_that_has_not_begun_is_named_as_absent(three: Three) -> None:
    three.run()
    three.ensemble.nodes.clear()
    position: Json = {
        "spouts": {
            "ranges": {"planned": [8, 10]},
            "partitioned": {"planned": 1, "cut": {"0": [6, 8]}},
            "opaque": {"absent": None, "cut": {}},
        }
    }

    rebuild(three.topology, CONFIG, metadata={5: position}, access=three.access).apply()
    three.run()

    assert three.sums() == {**three.all(), "opaque": 2 * sum(range(6))}
