"""The faults that the ensemble in memory offers to tests and to the simulator."""

from __future__ import annotations

import pytest

from txtopo.ensemble import Delete, MemoryEnsemble, MemoryTransactionalState, Node, Put
from txtopo.errors import CoordinatorUnavailable, CorruptNodeError, StateUsageError


def test_during_an_outage_every_call_says_so() -> None:
    ensemble = MemoryEnsemble()
    state = MemoryTransactionalState("t", ensemble)
    ensemble.reachable = False

    for call in (
        lambda: state.get("/a"),
        lambda: state.children("/a"),
        lambda: state.apply([Put("/a", 1)]),
        state.synchronize,
        state.leader,
    ):
        with pytest.raises(CoordinatorUnavailable):
            call()
    assert ensemble.nodes == {}


@pytest.mark.parametrize("landed", [True, False])
def test_an_answer_can_be_lost_after_its_write_or_instead_of_it(landed: bool) -> None:
    ensemble = MemoryEnsemble()
    state = MemoryTransactionalState("t", ensemble)
    ensemble.lose_next_answer(landed=landed)

    with pytest.raises(CoordinatorUnavailable):
        state.apply([Put("/a", 1)])

    assert state.get("/a") == (Node(1, 0) if landed else None)


def test_an_expired_session_tells_its_leader_once_and_lets_the_next_lead() -> None:
    ensemble = MemoryEnsemble()
    one, other = MemoryTransactionalState("t", ensemble), MemoryTransactionalState("t", ensemble)
    told: list[str] = []
    lost = one.lead("one", timeout_s=0, on_lost=lambda: told.append("lost"))
    one.expire()
    one.expire()

    assert told == ["lost"]
    assert other.lead("other", timeout_s=0, on_lost=lambda: None)
    assert lost is not None
    lost.release()
    assert one.leader() == "other"


def test_topologies_of_one_ensemble_do_not_see_each_other() -> None:
    ensemble = MemoryEnsemble()
    one, other = MemoryTransactionalState("t", ensemble), MemoryTransactionalState("u", ensemble)
    one.apply([Put("/a", 1)])

    assert other.get("/a") is None
    assert one.lead("one", timeout_s=0, on_lost=lambda: None)
    assert other.lead("other", timeout_s=0, on_lost=lambda: None)


@pytest.mark.row(3)
def test_damaged_bytes_are_an_error() -> None:
    ensemble = MemoryEnsemble()
    ensemble.nodes["/t/a"] = (b"", 0)

    with pytest.raises(CorruptNodeError, match="/t/a"):
        MemoryTransactionalState("t", ensemble).get("/a")


def test_a_node_with_children_cannot_be_deleted() -> None:
    state = MemoryTransactionalState("t")
    state.apply([Put("/a/b", 1)])

    with pytest.raises(StateUsageError, match="/a has children"):
        state.apply([Delete("/a")])
