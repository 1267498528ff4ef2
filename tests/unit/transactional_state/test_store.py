"""What every transactional state promises, over the one in memory and ZooKeeper."""

from __future__ import annotations

import threading

import pytest

from tests.unit.transactional_state.conftest import Connect
from txtopo.errors import BatchMetadataTooLarge, EmitError
from txtopo.transactional_state import (
    Check,
    CompareAndSet,
    Delete,
    Json,
    Node,
    Put,
    TransactionalState,
    VersionConflict,
)
from txtopo.transactional_state.store import Step

LARGE = "x" * 500_000


def nothing() -> None:
    """Lose a leadership that nobody minds."""


def test_a_node_that_was_never_written_is_none(state: TransactionalState) -> None:
    assert state.get("/epoch") is None
    assert state.children("/batches") == []


def test_each_write_of_a_node_adds_one_to_its_version(state: TransactionalState) -> None:
    for value in range(3):
        state.apply([Put("/current", value)])

    assert state.get("/current") == Node(2, 2)


@pytest.mark.parametrize(
    "value", [None, True, 0, -1.5, "ü\x00\ud800", [], {"a": [1, {"b": None}]}, 2**70]
)
def test_json_comes_back_as_it_was(state: TransactionalState, value: Json) -> None:
    state.apply([Put("/current", value)])

    assert state.get("/current") == Node(value, 0)


@pytest.mark.parametrize("value", [{1: "a"}, float("nan"), b"bytes", {"a": object()}])
def test_what_json_would_change_is_refused(state: TransactionalState, value: Json) -> None:
    with pytest.raises(EmitError, match="/current is not JSON"):
        state.apply([Put("/current", value)])


def test_children_are_sorted_and_their_parent_has_no_value(state: TransactionalState) -> None:
    state.apply([Put("/batches/2", 2), Put("/batches/1", 1)])

    assert state.children("/batches") == ["1", "2"]
    assert state.get("/batches") is None


@pytest.mark.parametrize("at", [0, 2])
def test_a_failed_check_undoes_the_whole_step(state: TransactionalState, at: int) -> None:
    state.apply([Put("/epoch", 1), Put("/old", 1)])
    steps: list[Step] = [Put("/current", 2), Delete("/old")]
    steps.insert(at, Check("/epoch", 7))

    with pytest.raises(VersionConflict) as conflict:
        state.apply(steps)

    assert conflict.value.path == "/epoch"
    assert state.get("/current") is None
    assert state.get("/old") == Node(1, 0)


def test_compare_and_set_wants_the_version_that_it_names(state: TransactionalState) -> None:
    state.apply([CompareAndSet("/epoch", "a", None)])
    state.apply([CompareAndSet("/epoch", "b", 0)])

    for version in (None, 0, 2):
        with pytest.raises(VersionConflict):
            state.apply([CompareAndSet("/epoch", "c", version)])
    with pytest.raises(VersionConflict):
        state.apply([CompareAndSet("/none", "c", 0)])
    assert state.get("/epoch") == Node("b", 1)


def test_a_step_that_was_done_may_be_done_again(state: TransactionalState) -> None:
    state.apply([Put("/epoch", 1), Put("/batches/1", 1)])
    steps: list[Step] = [Check("/epoch", 0), Put("/batches/2", 2)]
    steps += [Delete("/batches/1"), Delete("/batches/9")]

    state.apply(steps)
    state.apply(steps)

    assert state.children("/batches") == ["2"]


def test_clients_need_not_know_what_others_created_or_deleted(connect: Connect) -> None:
    one, other = connect(), connect()
    one.apply([Put("/batches/1", 1), Put("/batches/2", 1)])
    other.apply([Put("/batches/1", 2), Delete("/batches/2")])

    one.apply([Put("/batches/2", 3), Delete("/batches/1")])

    assert other.get("/batches/1") is None
    assert other.get("/batches/2") == Node(3, 0)


@pytest.mark.row(17)
def test_a_step_that_does_not_fit_names_path_size_and_limit(
    state: TransactionalState,
) -> None:
    """ZooKeeper would close the connection, and kazoo would try again for ever."""
    with pytest.raises(BatchMetadataTooLarge, match=r"/batches/2 .* 900000 fit") as error:
        state.apply([Put("/batches/1", "x"), Put("/batches/2", LARGE * 2)])

    assert error.value.path == "/batches/2"
    with pytest.raises(BatchMetadataTooLarge):
        state.apply([Put("/batches/1", LARGE), Put("/batches/2", LARGE)])
    state.apply([Put("/batches/1", LARGE)])
    assert state.children("/batches") == ["1"]


def test_one_candidate_leads_and_the_next_follows_its_release(connect: Connect) -> None:
    one, other = connect(), connect()
    first = one.lead("one", timeout_s=1, on_lost=nothing)

    assert first is not None
    assert other.lead("other", timeout_s=0.1, on_lost=nothing) is None
    assert other.leader() == "one"
    first.release()
    second = other.lead("other", timeout_s=1, on_lost=nothing)
    assert second is not None
    assert one.leader() == "other"
    first.release()
    assert one.leader() == "other"


def test_nobody_leads_at_first(state: TransactionalState) -> None:
    assert state.leader() is None


def test_a_waiting_candidate_wakes_up_when_the_leader_closes(connect: Connect) -> None:
    one, other = connect(), connect()
    assert one.lead("one", timeout_s=1, on_lost=nothing)
    threading.Timer(0.2, one.close).start()

    assert other.lead("other", timeout_s=120, on_lost=nothing)


def test_a_client_that_released_may_lead_again(state: TransactionalState) -> None:
    for _ in range(2):
        leadership = state.lead("one", timeout_s=1, on_lost=nothing)

        assert leadership is not None
        leadership.release()


def test_closing_twice_is_harmless(state: TransactionalState) -> None:
    state.close()
    state.close()
