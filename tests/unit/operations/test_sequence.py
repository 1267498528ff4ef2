"""Operators' verbs on a topology whose spout is a sequence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, started
from txtopo import Count, Fields, PersistentAggregate, Topology, TransactionalTopologyBuilder
from txtopo.ensemble import MemoryEnsemble
from txtopo.metadata import Json
from txtopo.operations import Access, replay, rewind, show
from txtopo.operations.replay import DIFFERS, EQUAL
from txtopo.spouts import (
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    SequenceSpout,
)
from txtopo.state import State, open_state

CONFIG = replace(LOCAL, group_txids_max=1)
WORDS = Fields("word string")
ASKED: list[Json] = []
PLACES: list[Json] = []
"""What ``begins`` returns, one after the other; then the second row."""


def begins(end: Json) -> Json:
    ASKED.append(end)
    return PLACES.pop(0) if PLACES else {"0": 1}


def sequence(state: State, *, opaque: bool) -> Topology:
    """Three rows and a switch, then rows 1 to 3 of four; a row a batch."""
    first, then = (
        [[f"{name}-{at}"] for at in range(count)] for name, count in (("a", 3), ("b", 4))
    )
    live = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    spout = SequenceSpout(
        MemoryTransactionalSpout({0: first}, WORDS, 1), live({0: then}, WORDS, 1), begins
    )
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    count = PersistentAggregate(state, "word", Count())
    builder.set_bolt("count", count).fields_grouping("spout", "word")
    return builder.build_topology()


@pytest.mark.parametrize("opaque", [False, True])
def test_a_replay_of_any_txid_emits_what_it_had(*, opaque: bool) -> None:
    ensemble = MemoryEnsemble()
    topology = sequence(open_state("memory:", kind="opaque"), opaque=opaque)
    with started(topology, CONFIG, ensemble) as run:
        run.process_all_available(LIMIT_S)
    access = Access(ensemble=ensemble)
    emitted = []

    for txid in range(1, 8):
        found = replay(topology, txid, CONFIG, access=access)
        assert DIFFERS not in str(found.content)
        assert opaque or found.content == {"spout": EQUAL}, "the switch is compared, too"
        spout = found.components.get("spout")  # the switch emits nothing
        told = spout.emitted["default"] if spout else []
        emitted += [f"{txid} {word}" for each in told for word in each.column("word").to_pylist()]

    assert emitted == ["1 a-0", "2 a-1", "3 a-2", "5 b-1", "6 b-2", "7 b-3"]


def test_a_rewind_to_before_the_switch_asks_where_to_begin_again() -> None:
    ASKED.clear()
    PLACES[:] = [{"0": 4}]  # behind the last row, so the switch is the last txid
    ensemble, state = MemoryEnsemble(), open_state("memory:", kind="opaque")
    topology, access = sequence(state, opaque=False), Access(ensemble=ensemble)
    with started(topology, CONFIG, ensemble) as run:
        run.process_all_available(LIMIT_S)
    seen = show(topology, CONFIG, access=access)
    assert '"part": "then", "after": 4, "begins": {"0": 4}' in str(seen)

    rewind(topology, 3, CONFIG, access=access).apply()

    assert show(topology, CONFIG, access=access).lag == {"first/0": 0}
    with started(topology, CONFIG, ensemble) as run:
        run.process_all_available(LIMIT_S)
    seen = show(topology, CONFIG, access=access)
    assert '"part": "then", "after": 5, "begins": {"0": 1}' in str(seen)
    assert seen.lag == {"then/0": 0}
    assert ASKED == [{"0": [2, 1]}] * 2
