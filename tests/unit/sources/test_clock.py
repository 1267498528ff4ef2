"""A clock brings a txid when no other spout has brought one for some time."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, Changes, started
from tests.unit.runtime.test_stamps import Clocks
from txtopo import PersistentAggregate, Topology, TransactionalTopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.coordinator.protocol import NotReady, PlanBatch, Planned
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import TopologyError
from txtopo.metadata import BatchMetadata
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.spouts import ClockTransactionalSpout, MemoryTransactionalSpout
from txtopo.state import Count, Max, open_state
from txtopo.testing import simulate
from txtopo.testing.conformance.spout_driver import SpoutDriver
from txtopo.tuples import Fields

KEYED = Fields("key string")


def ticking(clock: ClockTransactionalSpout, rows: int = 0) -> Topology:
    """Count the rows of a list, and keep the newest time of a clock."""
    builder = TransactionalTopologyBuilder(
        "ticks", "rows", MemoryTransactionalSpout({0: [["a"]] * rows}, KEYED, 1)
    )
    builder.set_spout("clock", clock, 2)
    counts = PersistentAggregate(open_state("memory:", table="counts"), "key", {"rows": Count()})
    builder.set_bolt("counts", counts).fields_grouping("rows", "key")
    times = open_state("memory:", table="times")
    newest = PersistentAggregate(times, (), {"ticks": Count(), "newest": Max("planned_time")})
    builder.set_bolt("times", newest).global_grouping("clock")
    return builder.build_topology()


def taking(planned: object) -> list[str]:
    assert isinstance(planned, Planned)
    return [spout for spout, share in planned.metadata.spouts.items() if not share.absent]


def test_a_txid_comes_with_the_clock_alone_when_nothing_else_came_for_long_enough() -> None:
    clocks = Clocks()
    planner = BatchPlanner(ticking(ClockTransactionalSpout("1 minute"), 1).graph, LOCAL, clocks)

    def plan(txid: int, last: BatchMetadata | None, *flying: BatchMetadata) -> Planned | NotReady:
        answer = planner.plan(PlanBatch(TransactionAttempt(txid, 0, 1), txid - 1, last), flying)
        assert isinstance(answer, Planned | NotReady)
        return answer

    first = plan(1, None)
    assert taking(first) == ["rows", "clock"]
    assert isinstance(first, Planned)
    assert not first.idle
    rows = replace(first.metadata.of("rows"), cut={"0": [0, 1]})
    cut = replace(first.metadata, spouts={**first.metadata.spouts, "rows": rows})

    clocks.wall_s += 59.9
    assert isinstance(plan(2, cut), NotReady)
    clocks.wall_s += 0.1
    assert isinstance(plan(2, cut, cut), NotReady)
    second = plan(2, cut)
    assert taking(second) == ["clock"]
    assert isinstance(second, Planned)
    assert second.idle
    assert second.metadata.stamp == {"time": 1_060_000}


def test_a_wait_for_all_that_there_is_does_not_wait_for_the_clock() -> None:
    """It would have a txid whenever it is asked, if it had no pause."""
    clock, changes = ClockTransactionalSpout("1 second"), Changes()
    clock.every = datetime.timedelta(0)

    with started(ticking(clock, 3), LOCAL, MemoryEnsemble(), [changes]) as run:
        run.process_all_available(LIMIT_S)

    assert len(changes.committed) >= 3


def test_clocks_come_through_every_fault_with_the_rows_beside_them() -> None:
    def counts(records: Sequence[Sequence[Any]]) -> dict[Any, Any]:
        rows = [record for record in records if record == ("a",)]
        return {"a": len(rows)} if rows else {}

    def times(records: Sequence[Sequence[Any]]) -> dict[Any, Any]:
        told = [record[0] for record in records if record != ("a",)]
        return {"global": (len(told), max(told))} if told else {}

    topology = ticking(ClockTransactionalSpout("2 seconds"), 6)
    report = simulate(topology, {"counts": counts, "times": times}, seeds=15)

    assert report.txids > 15 * 6


def test_a_driver_of_a_spout_gives_its_emitter_the_planned_time_in_every_attempt() -> None:
    driver = SpoutDriver(ClockTransactionalSpout("1 minute"), tasks=2)

    (first,) = driver.next()
    again = driver.again(1)
    driver.close()

    assert again.rows == first.rows
    assert len(first.rows) == 1


@pytest.mark.parametrize(
    ("every", "told"),
    [
        ("soon", "not a duration; got 'soon'"),
        ("10 milliseconds", "too short; got '10 milliseconds'; expected at least 1 second"),
        (60, "not a duration; got 60"),
        ("0 seconds", "out of range"),
    ],
)
def test_a_pause_that_makes_no_sense_is_refused(every: Any, told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        ClockTransactionalSpout(every)
