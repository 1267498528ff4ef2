"""A state holds a batch, and ZooKeeper does not say where it ended, as if it was set back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.dying import RaisingScheduler
from tests.harness.polling import LIMIT_S
from tests.harness.runs import started
from tests.unit.runtime.loop_world import BATCHES, ROWS, Total, expected, stored
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.builders.transactional import Topology
from txtopo.config import Config
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.ensemble.nodes import batch_path, decode, encode
from txtopo.errors import StoreAheadOfCoordinator, TxtopoError
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.state import open_state

ONE_BY_ONE = Config(carrier="local", slots=2, max_spout_pending=1, zookeeper="memory")


class Second(Total):
    """Another total of the same rows."""


def url_of(folder: Path, name: str) -> str:
    """The store of a state; each has its own, so that a crash may come between their commits."""
    return f"sqlite:///{folder}/{name}.db"


def topology_of(folder: Path, spout: Any = MemoryTransactionalSpout) -> Topology:
    rows = [[amount] for amount in range(BATCHES * ROWS)]
    reading = spout({0: rows}, Fields("amount long"), ROWS)
    builder = TransactionalTopologyBuilder("totals", "spout", reading)
    for name, bolt in (("total", Total()), ("second", Second())):
        declarer = builder.set_bolt(name, bolt).global_grouping("spout")
        declarer.with_state("totals", open_state(url_of(folder, name), table=f"of_{name}"))
    return builder.build_topology()


def die(topology: Topology, ensemble: MemoryEnsemble, step: str) -> None:
    scheduler = RaisingScheduler(step, 1)
    handle = start_topology(
        topology.graph, None, ONE_BY_ONE, scheduler=scheduler, ensemble=ensemble
    )
    with pytest.raises((TxtopoError, RuntimeError), match="Died"):
        handle.await_termination(LIMIT_S)


def run(topology: Topology, ensemble: MemoryEnsemble) -> None:
    with started(topology, ONE_BY_ONE, ensemble) as handle:
        handle.process_all_available(LIMIT_S)


def lose_the_end(ensemble: MemoryEnsemble) -> None:
    """Set the node of txid 1 back to what it was before its batch had ended."""
    (path,) = (each for each in ensemble.nodes if each.endswith(batch_path(1)))
    data, version = ensemble.nodes[path]
    record = decode(path, data)
    assert record is not None
    value: Any = record.value
    for share in value["metadata"]["spouts"].values():
        del share["cut"]
    ensemble.nodes = {**ensemble.nodes, path: (encode(path, value, "test"), version)}


@pytest.mark.parametrize(
    ("step", "spout"),
    [
        # One of two states holds the batch, so it would be done again.
        ("write.after:total.totals", MemoryTransactionalSpout),
        # Both hold it, so it would be taken over as it is.
        ("advance.before", MemoryTransactionalSpout),
        ("advance.before", OpaqueMemoryTransactionalSpout),
    ],
)
def test_a_batch_that_a_state_holds_is_not_ended_elsewhere(
    tmp_path: Path, step: str, spout: Any
) -> None:
    topology, ensemble = topology_of(tmp_path, spout), MemoryEnsemble()
    die(topology, ensemble, step)
    lose_the_end(ensemble)

    with pytest.raises(
        StoreAheadOfCoordinator, match=r"hold txid 1, .* where it ended; .* restored from a backup"
    ):
        run(topology, ensemble)


def test_an_opaque_batch_that_is_done_again_may_end_elsewhere(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()
    topology = topology_of(tmp_path, OpaqueMemoryTransactionalSpout)
    die(topology, ensemble, "write.after:total.totals")
    lose_the_end(ensemble)

    run(topology, ensemble)

    for name in ("total", "second"):
        assert stored(open_state(url_of(tmp_path, name), table=f"of_{name}")) == (
            BATCHES,
            expected(),
        )
