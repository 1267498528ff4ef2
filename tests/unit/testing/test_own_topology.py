"""Users' own topologies in the simulator."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from examples import simulated_faults
from examples.simulated_faults import PAYMENTS, Payments, fold, topology_of
from txtopo import Count, Fields, StreamBuilder, open_state
from txtopo.errors import TopologyError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import tumbling
from txtopo.testing import SimulationFailed, simulate

pytestmark = pytest.mark.integration
RECORDS = [(customer, amount) for customer, amount in PAYMENTS]


def test_a_topology_that_keeps_to_its_state_is_right() -> None:
    report = simulate(topology_of(Payments()), {"totals": fold}, seeds=10, records=RECORDS)

    assert report.seeds == 10
    assert report.txids == 40


def test_a_wrong_oracle_or_a_wrong_committer_is_found() -> None:
    def half(payments: Any) -> dict[str, int]:
        return {key: total // 2 for key, total in fold(payments).items()}

    with pytest.raises(
        SimulationFailed, match="seed 4 broke a promise:\n  C1: table totals"
    ) as caught:
        simulate(topology_of(Payments()), {"totals": half}, seeds=1, first=4)

    assert caught.value.seed == 4


def test_records_may_be_lists_as_a_spout_takes_them() -> None:
    rows = [list(each) for each in RECORDS]

    assert simulate(topology_of(Payments()), {"totals": fold}, seeds=1, records=rows).txids


def test_records_that_the_spout_never_brought_are_missed() -> None:
    more = [*RECORDS, ("customer-9", 9)]

    with pytest.raises(SimulationFailed, match=r"the committed batches lack .*customer-9"):
        simulate(topology_of(Payments()), {"totals": fold}, seeds=1, records=more)


def test_what_a_committer_writes_outside_its_state_is_found(tmp_path: Path) -> None:
    bank = tmp_path / "bank.txt"
    trace: list[str] = []

    with pytest.raises(SimulationFailed, match="only states are written exactly once"):
        simulate(
            topology_of(Payments(bank)),
            {"totals": fold, "bank": fold},
            seeds=30,
            outside={"bank": lambda: fold(map(str.split, bank.read_text().splitlines()))},
            before_each=lambda: bank.write_text(""),
            trace=trace.append,
        )

    assert any("Leading" in line for line in trace)


def test_each_state_needs_an_oracle() -> None:
    with pytest.raises(TopologyError, match=r"got \['total'\]; expected one for each of"):
        simulate(topology_of(Payments()), {"total": fold})


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    simulated_faults.main()

    printed = capsys.readouterr().out
    assert "state only: 30 seeds, 120 txids, all totals right" in printed
    assert "only states are written exactly once" in printed


def test_the_watermarks_of_a_program_need_no_oracle() -> None:
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    rows = [[f"k{n % 3}", noon + datetime.timedelta(minutes=n)] for n in range(9)]
    builder = StreamBuilder("timed")
    spout = MemoryTransactionalSpout({0: rows}, Fields("key string, ts timestamp"), 2)
    timed = builder.source("rows", spout, event_time="ts", max_ahead=None)
    timed.group_by("key").window(tumbling("1 hour")).persistent_aggregate(
        open_state("memory:", table="counts"), late=False, n=Count()
    )
    topology = builder.build_topology()

    def counts(records: Sequence[Any]) -> dict[Any, Any]:
        end = noon + datetime.timedelta(hours=1)
        found = Counter(key for key, _ in records)
        return {(noon, key): (end, count) for key, count in found.items()}

    assert simulate(topology, {"counts": counts}, seeds=5, records=rows).txids
    with pytest.raises(
        TopologyError, match=r"got \['other'\]; expected one for each of \['counts'"
    ):
        simulate(topology, {"other": counts}, seeds=1)
