"""Operators' verbs on a topology whose batches keep when they were planned."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.dying import RaisingScheduler
from tests.harness.polling import LIMIT_S
from tests.harness.runs import started
from tests.harness.sources import Source
from tests.unit.runtime.stamping import ONE_BY_ONE, stamped, stamps_in, stored_stamps
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import StateUsageError, TxtopoError
from txtopo.metadata import Json
from txtopo.operations import Access, quarantine, rebuild, repair_node, rewind, show
from txtopo.runtime.start import start_topology
from txtopo.state import open_state


class Stamped:
    """Two rows a txid, of eight."""

    def __init__(self, kind: str, *, second: bool = False) -> None:
        self.state, self.ensemble = open_state("memory:"), MemoryEnsemble()
        self.second = open_state("memory:") if second else None
        self.topology = stamped(self.state, Source("numbers", 8), kind=kind, second=self.second)
        self.access = Access(ensemble=self.ensemble)

    def run(self) -> None:
        with started(self.topology, ONE_BY_ONE, self.ensemble) as run:
            run.process_all_available(LIMIT_S)

    def die(self, step: str, times: int) -> None:
        scheduler = RaisingScheduler(step, times)
        run = start_topology(
            self.topology.graph, None, ONE_BY_ONE, scheduler=scheduler, ensemble=self.ensemble
        )
        with pytest.raises((TxtopoError, RuntimeError), match="Died"):
            run.await_termination(LIMIT_S)

    def metadata(self, txid: int) -> Any:
        batch: Any = show(self.topology, ONE_BY_ONE, access=self.access).batches[txid]
        return batch["metadata"]

    def told_ms(self) -> dict[int, float]:
        return {txid: stamp.timestamp() * 1000 for txid, stamp in stamps_in(self.state).items()}


def without_stamp(metadata: Any) -> Any:
    return {name: each for name, each in metadata.items() if name != "stamp"}


def test_a_rewind_to_a_given_position_keeps_the_stamp_that_is_stored() -> None:
    topology = Stamped("opaque")
    topology.run()
    before = stored_stamps(topology.ensemble)
    given = without_stamp(topology.metadata(3))

    rewind(topology.topology, 3, ONE_BY_ONE, metadata=given, access=topology.access).apply()

    assert stored_stamps(topology.ensemble)[4] == before[3]
    topology.run()
    assert topology.told_ms()[5] >= before[3]["time"]


def test_a_batch_that_is_taken_out_keeps_its_stamp_though_its_end_is_given_without() -> None:
    topology = Stamped("opaque")
    topology.die("begin.before:stamps.stamps", 2)
    known = stored_stamps(topology.ensemble)[2]
    end: Json = {"spouts": {"numbers": {"planned": 1, "cut": {"0": [2, 4]}}}}

    quarantine(
        topology.topology, 2, ONE_BY_ONE, reason="bad", end=end, access=topology.access
    ).apply()

    assert stored_stamps(topology.ensemble)[2] == known
    topology.run()
    assert [*topology.told_ms()] == [1, 3, 4]


@pytest.mark.parametrize("kind", ["ranges", "opaque"])
def test_a_rebuild_takes_the_stamp_that_it_is_given(kind: str) -> None:
    topology = Stamped(kind)
    topology.die("advance.before", 3)
    known = topology.metadata(3)
    topology.ensemble.nodes.clear()

    rebuild(topology.topology, ONE_BY_ONE, metadata={3: known}, access=topology.access).apply()

    assert stored_stamps(topology.ensemble)[3] == known["stamp"]
    topology.run()
    assert [*topology.told_ms()] == [1, 2, 3, 4]


def test_a_batch_that_is_done_again_as_it_was_is_not_rebuilt_without_a_stamp() -> None:
    """One state has written txid 3, and the other has not; both must be told the same."""
    topology = Stamped("ranges", second=True)
    topology.die("begin.before:more.stamps", 3)
    known = {txid: topology.metadata(txid) for txid in (2, 3)}
    topology.ensemble.nodes.clear()
    given: dict[int, Any] = {2: known[2], 3: without_stamp(known[3])}

    with pytest.raises(StateUsageError, match=r"done again as it was, .* has no 'stamp'"):
        rebuild(topology.topology, ONE_BY_ONE, metadata=given, access=topology.access)

    rebuild(topology.topology, ONE_BY_ONE, metadata=known, access=topology.access).apply()
    topology.run()
    assert topology.told_ms()[3] == known[3]["stamp"]["time"]


def test_a_node_is_put_back_with_its_stamp() -> None:
    topology = Stamped("opaque")
    topology.run()
    (path,) = [each for each in topology.ensemble.nodes if each.endswith("4".zfill(20))]
    batch: Any = show(topology.topology, ONE_BY_ONE, access=topology.access).batches[4]
    del topology.ensemble.nodes[path]

    path = path[path.index("/batches/") :]
    repair_node(
        topology.topology, path, config=ONE_BY_ONE, value=batch, access=topology.access
    ).apply()

    assert stored_stamps(topology.ensemble)[4] == batch["metadata"]["stamp"]


def test_metadata_that_cannot_be_used_is_told_the_form_with_a_stamp() -> None:
    topology = Stamped("opaque")
    topology.run()

    with pytest.raises(StateUsageError, match=r"'cut': …\}\}, 'stamp': \{'time': …\}\}"):
        rewind(topology.topology, 3, ONE_BY_ONE, metadata={"no": 1}, access=topology.access)
