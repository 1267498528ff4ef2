"""Deletions beside the commits change no result, whatever fails, and obey the fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.faults.simulated.crash_run import CONFIG
from tests.faults.simulated.one_core import handoff_on_one_core
from txtopo import BatchBolt, Committer, Config, Fields, Topology, TransactionalTopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.runtime import expiry
from txtopo.spouts import OpaqueMemoryTransactionalSpout
from txtopo.state import open_state
from txtopo.testing.checkers import Evidence
from txtopo.testing.checkers.evidence import is_expiry
from txtopo.testing.own_topology import PlainFold, _run, _stepwise
from txtopo.testing.simulation.campaign import quiet, verdict
from txtopo.testing.simulation.faults import Faults
from txtopo.testing.simulation.history import StoreWrite
from txtopo.testing.simulation.world import World
from txtopo.tuples import Tuple

pytestmark = pytest.mark.integration
WIDTH, SEEDS = 4, 60
RECORDS = [[at] for at in range(1, 49)]


class Windows(BatchBolt, Committer):
    """Counts records in windows of four, and closes each in the txid that ends it."""

    writes_nowhere_else = True

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.open, self.closed = context.state("open"), context.state("closed")
        self.attempt = attempt
        self.records: list[int] = []

    def execute(self, tuple: Tuple) -> None:
        self.records.append(tuple["at"])

    def finish_batch(self) -> None:
        with (
            self.open.transaction(self.attempt) as windows,
            self.closed.transaction(self.attempt) as closed,
        ):
            before = closed.get("watermark") or 0
            for at in self.records:
                end = end_of(at)
                count = windows.get(end, {"count": 0})["count"]
                windows.put(end, (end, count + 1))
            after = max([before, *self.records])
            for end, row in windows.between("ends", before, after):
                closed.put(f"window {end}", row["count"])
            if self.records:
                closed.put("watermark", after)
            windows.expire(after)


def end_of(at: int) -> int:
    """Return the end of the window of a record, which the record is before."""
    return at - at % WIDTH + WIDTH


def topology() -> Topology:
    spout = OpaqueMemoryTransactionalSpout({0: RECORDS}, Fields("at long"), 3)
    builder = TransactionalTopologyBuilder("windows", "spout", spout)
    state = open_state("memory:")
    windows = state.with_columns(Fields("window long"), Fields("ends long, count long"))
    closed = state.with_columns(Fields("name string"), Fields("value long"))
    declarer = builder.set_bolt("windows", Windows()).global_grouping("spout")
    declarer.with_state("open", windows.ranged("ends")).with_state("closed", closed)
    return builder.build_topology()


def all_windows(records: Sequence[Any]) -> dict[int, tuple[int, int]]:
    """Return every window, as if none ever expired."""
    counts: dict[int, int] = {}
    for (at,) in records:
        counts[end_of(at)] = counts.get(end_of(at), 0) + 1
    return {end: (end, count) for end, count in counts.items()}


def closed_windows(records: Sequence[Any]) -> dict[str, int]:
    if not records:
        return {}
    watermark = max(at for (at,) in records)
    windows = all_windows(records)
    closed = {f"window {end}": count for end, (_, count) in windows.items() if end <= watermark}
    return {"watermark": watermark, **closed}


ORACLE: Mapping[str, PlainFold] = {"open": all_windows, "closed": closed_windows}


def test_no_result_depends_on_what_is_deleted_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkers see what has expired as if it were there, and who deleted it."""
    monkeypatch.setattr(expiry, "EXPIRY_PAUSE_S", 0.0)
    deletions = fenced = 0
    with handoff_on_one_core() as handoff:
        for seed in range(SEEDS):
            found = _run(topology(), ORACLE, seed, None, None, {}, handoff)
            assert found.violations == (), f"seed {seed}"
            writes = (each for each in found.history.writes if isinstance(each, StoreWrite))
            deletions += sum(map(is_expiry, writes))
            fenced += found.fenced
    assert deletions > SEEDS
    assert fenced


@pytest.mark.parametrize("point", ["expire.before", "expire.after", "store write", "store written"])
def test_a_process_that_dies_while_it_deletes_loses_nothing(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "EXPIRY_PAUSE_S", 0.0)
    with handoff_on_one_core() as handoff:
        for time in range(1, 8):
            world = World(7, Faults(), CONFIG, 1, handoff)
            world.chaos.crash_at = [(point, time), (point, time + 1)]
            world.take(topology())
            with quiet():
                history = world.run(60.0)
            evidence = Evidence(
                topology_id="windows",
                history=history,
                oracles={name: _stepwise(fold) for name, fold in ORACLE.items()},
                source=None,
                leftovers=world.leftovers.found,
                expected=(),
            )
            assert verdict(7, world, evidence).violations == (), (point, time)
            if world.chaos._passed[point] < time:
                break
    assert time > 3
