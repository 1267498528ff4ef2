"""What operators do with a topology that has timers: replay, rewind, fork, and a trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, started
from tests.unit.streams.test_timers import ORDERS, alarms
from tests.unit.streams.times import EVENT, at
from txtopo import StreamBuilder, Topology, open_state
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.operations import Access, fork, replay, rewind, trial
from txtopo.operations.replay import EQUAL
from txtopo.spouts import MemoryTransactionalSpout

pytestmark = pytest.mark.integration
CONFIG = replace(LOCAL, group_txids_max=1, history_txids=100)
TABLES = ("alarms", "orders", "orders_timers")


def topology(url: str, rows: int, id: str = "timed") -> Topology:
    builder = StreamBuilder(id)
    spout = MemoryTransactionalSpout({0: ORDERS[:rows]}, EVENT, 1)
    stream = builder.source("s", spout, event_time="ts", max_ahead=None, delay="11 minutes")
    alarms(url)(builder, stream)
    return builder.build_topology()


def ran(of: Topology, ensemble: MemoryEnsemble) -> None:
    with started(of, CONFIG, ensemble) as run:
        run.process_all_available(LIMIT_S)


def held(url: str) -> list[Any]:
    found = []
    for table in TABLES:
        with open_state(url, table=table).reader() as reader:
            found.append(dict(reader.items()))
    return found


def test_txids_with_timers_are_replayed_undone_and_copied(tmp_path: Path) -> None:
    """A timer that fired in a txid that is taken back fires again, in the original and a copy."""
    url, copy = (f"sqlite:///{tmp_path / name}.db" for name in ("timers", "copy"))
    ensemble, count = MemoryEnsemble(), len(ORDERS)
    access = Access(ensemble=ensemble)
    ran(topology(url, count), ensemble)
    expected = held(url)
    assert expected[0] == {("p2", "b", at(65)): 1, ("p6", "d", at(140)): 1}

    last = replay(topology(url, count), count, CONFIG, access=access)
    assert {*last.content.values(), *(each.compared for each in last.states.values())} == {EQUAL}
    assert trial(topology(url, count), count, None, CONFIG, access=access).equal

    rewind(topology(url, count), count - 1, CONFIG, access=access).apply()
    assert held(url)[0] == {("p2", "b", at(65)): 1}
    assert ("d", "") in held(url)[2]
    fork(topology(url, count), "copied", copy, CONFIG, access=access).apply()
    ran(topology(copy, count, "copied"), ensemble)
    ran(topology(url, count), ensemble)

    assert held(url) == held(copy) == expected
