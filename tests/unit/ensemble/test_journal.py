"""What the coordinator stores, and that a deposed one stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from tests.unit.ensemble.conftest import Connect
from txtopo.attempt import TransactionAttempt
from txtopo.ensemble import (
    Delete,
    Journal,
    JournalContents,
    Json,
    Put,
    StoredBatch,
    TransactionalState,
)
from txtopo.ensemble.nodes import CURRENT, batch_path
from txtopo.ensemble.store import Node, Step
from txtopo.errors import (
    BatchMetadataTooLarge,
    CorruptNodeError,
    FencedError,
    OperationUnfinished,
)
from txtopo.fingerprint import ComponentForm, Fingerprint, InputForm, StateForm, StateName


def batch(txid: int, metadata: Json = None, attempt: int = 0, epoch: int = 1) -> StoredBatch:
    return StoredBatch(TransactionAttempt(txid, attempt, epoch), metadata)


def claimed(state: TransactionalState, name: str = "one") -> Journal:
    journal = Journal(state)
    journal.claim_epoch(name, token="ensemble")
    return journal


def test_the_first_coordinator_starts_at_txid_1(state: TransactionalState) -> None:
    journal = Journal(state)

    assert journal.claim_epoch("one", token="ensemble") == 1
    assert journal.load() == JournalContents(1, {})


def test_r7_epochs_only_grow_over_restarts(connect: Connect) -> None:
    epochs = [Journal(connect()).claim_epoch("one", token="ensemble") for _ in range(4)]

    assert epochs == [1, 2, 3, 4]


def test_an_ensemble_keeps_the_token_that_it_was_given_first(connect: Connect) -> None:
    """The ledgers name it, and refuse a coordinator that comes with another one."""
    for drawn in ("first", "second", "third"):
        journal = Journal(connect())
        journal.claim_epoch("one", token=drawn)
        assert journal.ensemble == "first"


def test_a_successor_finds_what_was_stored_with_its_attempt(connect: Connect) -> None:
    stored = [batch(1, {"to": 3}), batch(2, [1, 2], attempt=4)]
    claimed(connect()).store_batches(stored)

    assert claimed(connect()).load() == JournalContents(1, {1: stored[0], 2: stored[1]})


def test_a_later_attempt_replaces_the_metadata_of_its_txid(state: TransactionalState) -> None:
    journal = claimed(state)
    journal.store_batches([batch(1, "first cut")])
    journal.store_batches([batch(1, "second cut", attempt=1)])

    assert journal.load().batches == {1: batch(1, "second cut", attempt=1)}


@pytest.mark.parametrize(
    ("history", "kept"), [(0, [3, 4, 5, 6]), (1, [2, 3, 4, 5, 6]), (2, [1, 2, 3, 4, 5, 6])]
)
def test_history_goes_back_from_the_first_txid_of_the_last_group(
    state: TransactionalState, history: int, kept: list[int]
) -> None:
    """Each member of a group stays: it can be replayed over what was there before the group."""
    journal = Journal(state, history)
    journal.claim_epoch("one", token="ensemble")
    journal.store_batches([batch(txid) for txid in range(1, 7)])
    journal.advance(2)
    journal.advance(3)

    journal.advance(6)

    assert sorted(journal.read().batches) == kept


def test_a_start_reads_no_history(state: TransactionalState) -> None:
    journal = Journal(state, history_txids=4)
    journal.claim_epoch("one", token="ensemble")
    journal.store_batches([batch(txid) for txid in range(1, 7)])
    journal.advance(5)

    assert sorted(journal.load().batches) == [4, 5, 6]


def test_a_shorter_history_is_deleted_in_portions(
    state: TransactionalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request could not delete them all."""
    monkeypatch.setattr("txtopo.ensemble.journal.DELETES_MAX", 2)
    claimed(state).store_batches([batch(txid) for txid in range(1, 7)])
    journal = claimed(state)
    journal.load()

    journal.advance(6)
    assert sorted(journal.read().batches) == [1, 2, 3, 4, 5, 6]
    journal.advance(7)
    assert sorted(journal.read().batches) == [3, 4, 5, 6]
    journal.advance(8)
    assert sorted(journal.read().batches) == [5, 6]


class Killed(BaseException):
    """The process dies here."""


def kill_after(state: TransactionalState, writes: int) -> None:
    """Let a client do this many writes more, and then die."""
    apply, left = state.apply, [None] * writes

    def apply_or_die(steps: Sequence[Step]) -> None:
        if not left:
            raise Killed
        left.pop()
        apply(steps)

    state.apply = apply_or_die  # type: ignore[method-assign]


@pytest.mark.parametrize("writes", [0, 1, 2])
@pytest.mark.rule("txtopo.ensemble.journal", "Order of durability", 3)
@pytest.mark.rule("txtopo.coordinator.machine", "Order of durability", 3)
def test_a_death_during_an_advance_leaves_all_of_it_or_nothing(
    connect: Connect, writes: int
) -> None:
    """Between two writes batches would be gone that nobody has committed, or be kept for ever."""
    state = connect()
    journal = claimed(state)
    journal.store_batches([batch(txid) for txid in range(1, 5)])
    journal.advance(2)
    kill_after(state, writes)
    with suppress(Killed):
        journal.advance(4)

    contents = claimed(connect(), "successor").read()
    wanted = (4, [2, 3, 4]) if writes else (2, [1, 2, 3, 4])
    assert (contents.current, sorted(contents.batches)) == wanted


@pytest.mark.parametrize("writes", [0, 1, 2])
@pytest.mark.rule("txtopo.ensemble.journal", "Order of durability", 2)
def test_a_death_during_the_first_claim_leaves_all_of_it_or_nothing(
    connect: Connect, writes: int
) -> None:
    """An epoch without the node that says what is committed would be taken for damage."""
    state = connect()
    kill_after(state, writes)
    with suppress(Killed):
        Journal(state).claim_epoch("one", token="ensemble")

    successor = Journal(connect())
    assert successor.claim_epoch("other", token="ensemble") == (2 if writes else 1)
    assert successor.load() == JournalContents(1, {})


@pytest.mark.row(48)
def test_a_successor_prunes_what_its_predecessor_left(connect: Connect) -> None:
    claimed(connect()).store_batches([batch(txid) for txid in range(1, 5)])
    journal = claimed(connect())
    journal.load()

    journal.advance(4)
    journal.advance(5)

    assert sorted(journal.read().batches) == [4]


@pytest.mark.row(47)
@pytest.mark.rule("txtopo.ensemble.journal", "Order of durability", 1)
@pytest.mark.rule("txtopo.runtime.takeover", "Order", 2)
def test_a_deposed_coordinator_writes_nothing_and_names_its_successor(
    connect: Connect,
) -> None:
    deposed = claimed(connect(), "one")
    deposed.store_batches([batch(1, "kept")])
    successor = claimed(connect(), "other")
    before = successor.load()

    writes: list[Callable[[], None]] = [
        lambda: deposed.store_batches([batch(1, "late"), batch(2)]),
        lambda: deposed.advance(2),
        deposed.confirm,
    ]
    for write in writes:
        with pytest.raises(FencedError, match=r"epoch 1.*epoch 2") as error:
            write()
        assert (error.value.epoch, error.value.successor) == (1, 2)
        assert error.value.leader == "other"
    assert successor.load() == before
    successor.confirm()


def test_a_large_write_of_an_earlier_term_does_not_go_on_under_the_new_epoch(
    connect: Connect,
) -> None:
    state = connect()
    journal, apply = claimed(state), state.apply

    def apply_and_lead_again(steps: Sequence[Step]) -> None:
        apply(steps)
        state.apply = apply  # type: ignore[method-assign]
        Journal(connect()).claim_epoch("other", token="ensemble")
        journal.claim_epoch("one again", token="ensemble")
        journal.load()

    state.apply = apply_and_lead_again  # type: ignore[method-assign]
    with pytest.raises(FencedError, match=r"epoch 1.*epoch 3"):
        journal.store_batches([batch(txid, "x" * 400_000) for txid in (1, 2, 3)])

    assert sorted(journal.load().batches) == [1, 2]
    journal.store_batches([batch(3, epoch=3)])


@pytest.mark.row(5)
def test_of_two_coordinators_that_claim_at_once_one_is_refused(connect: Connect) -> None:
    one, other = connect(), connect()
    rival = Journal(other)
    read = one.get

    def read_and_be_overtaken(path: str) -> object:
        node = read(path)
        if path == "/epoch":
            one.get = read  # type: ignore[method-assign]
            rival.claim_epoch("other", token="ensemble")
        return node

    claimed(connect(), "before")
    one.get = read_and_be_overtaken  # type: ignore[assignment,method-assign]
    with pytest.raises(FencedError, match=r"another process took over \(epoch 2\)"):
        Journal(one).claim_epoch("one", token="ensemble")
    rival.advance(1)


@pytest.mark.row(6)
def test_a_new_leader_synchronizes_before_it_reads(state: TransactionalState) -> None:
    """A follower that lags would show an old epoch, and old batches after it."""
    calls: list[str] = []
    synchronize, get = state.synchronize, state.get
    state.synchronize = lambda: (calls.append("synchronize"), synchronize())[1]  # type: ignore
    state.get = lambda path: (calls.append("get"), get(path))[1]  # type: ignore

    Journal(state).claim_epoch("one", token="ensemble")

    assert calls[:2] == ["synchronize", "get"]


@pytest.mark.row(17)
def test_a_run_whose_metadata_is_large_is_stored_in_several_writes(
    state: TransactionalState,
) -> None:
    journal = claimed(state)
    large = [batch(txid, "x" * 200_000) for txid in range(1, 8)]

    journal.store_batches(large)

    assert sorted(journal.load().batches) == list(range(1, 8))
    with pytest.raises(BatchMetadataTooLarge):
        journal.store_batches([batch(9, "x" * 900_000)])


@pytest.mark.parametrize("lost", ["/current", "/epoch"])
@pytest.mark.row(3)
def test_a_lost_node_is_never_taken_as_a_new_topology(state: TransactionalState, lost: str) -> None:
    claimed(state).store_batches([batch(1)])
    state.apply([Delete(lost)])

    with pytest.raises(CorruptNodeError, match=f"{lost} .* .*repair_node"):
        claimed(state).load()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/epoch", {"epoch": "2"}),
        ("/current", {"current": True}),
        ("/current", 3),
        (batch_path(1), {"attempt": [1], "metadata": 1}),
        (batch_path(1), {"attempt": [1, 1]}),
        ("/batches/1", {"attempt": [1, 1], "metadata": 1}),
    ],
)
@pytest.mark.row(3)
def test_a_node_of_another_shape_is_refused(
    state: TransactionalState, path: str, value: Json
) -> None:
    claimed(state)
    state.apply([Put(path, value)])

    with pytest.raises(CorruptNodeError, match=f"{path} .* .*repair_node"):
        claimed(state).load()


@pytest.mark.parametrize("path", ["/current", "/epoch"])
def test_who_is_overtaken_in_the_very_first_claim_takes_it_for_no_damage(
    connect: Connect, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes are written at once, so the order in which they are read matters."""
    state, other = connect(), connect()
    get = state.get

    def overtaken(asked: str) -> Node | None:
        node = get(asked)
        if asked == path:
            monkeypatch.undo()
            claimed(other, "other")
        return node

    monkeypatch.setattr(state, "get", overtaken)
    with suppress(FencedError):
        assert Journal(state).claim_epoch("one", token="ensemble") == 2

    assert Journal(connect()).claim_epoch("third", token="ensemble") > 1


# ------------------------------------------------------------ states that are added


def bolt_with(state: str, table: str) -> ComponentForm:
    form = StateForm(table, "opaque", "table", (("k", "long"),), (("n", "long"),))
    inputs = (InputForm("spout", "default", "GlobalGrouping"),)
    return ComponentForm("batch bolt", inputs, states={state: form})


OLD = Fingerprint({"a": bolt_with("kept", "a")})
NEW = Fingerprint({**OLD.components, "b": bolt_with("new", "b")})


def at_txid_5(state: TransactionalState) -> Journal:
    """Return the journal of a coordinator of the old topology, which has committed 4 txids."""
    journal = Journal(state)
    journal.claim_epoch("old", token="ensemble", fingerprint=OLD)
    journal.load()
    journal.advance(5)
    return journal


def adding(known: object) -> list[StateName]:
    assert known == OLD
    return [("b", "new")]


@pytest.mark.parametrize("writes", [0, 1, 2])
@pytest.mark.rule("txtopo.ensemble.journal", "Order of durability", 4)
@pytest.mark.rule("txtopo.runtime.takeover", "Order", 2)
def test_a_death_while_a_state_is_added_leaves_all_of_the_change_or_nothing(
    connect: Connect, writes: int
) -> None:
    """A fingerprint without the note would make the empty ledger of the new state a lost table."""
    at_txid_5(connect())
    state = connect()
    kill_after(state, writes)
    with suppress(Killed):
        Journal(state).claim_epoch("new", token="ensemble", fingerprint=NEW, change=adding)

    successor = Journal(connect())
    if writes:
        successor.claim_epoch("again", token="ensemble", fingerprint=NEW)
        assert (successor.current, successor.added) == (5, (("b", "new"),))
    else:
        successor.claim_epoch("old", token="ensemble", fingerprint=OLD)
        assert successor.added == ()


def test_a_predecessor_that_advances_while_the_change_is_claimed_moves_its_beginning(
    connect: Connect,
) -> None:
    """It is not deposed yet, so it may; the state would begin a txid too early."""
    old = at_txid_5(connect())
    asked: list[object] = []

    def overtaken(known: object) -> list[StateName]:
        if not asked:
            old.advance(7)
        asked.append(known)
        return adding(known)

    journal = Journal(connect())
    journal.claim_epoch("new", token="ensemble", fingerprint=NEW, change=overtaken)

    assert (journal.current, journal.added) == (7, (("b", "new"),))
    assert len(asked) == 2
    with pytest.raises(FencedError):
        old.advance(8)


def test_who_claims_at_the_same_time_with_a_change_is_fenced(connect: Connect) -> None:
    at_txid_5(connect())
    other = connect()

    def overtaken(known: object) -> list[StateName]:
        Journal(other).claim_epoch("old", token="ensemble", fingerprint=OLD)
        return adding(known)

    with pytest.raises(FencedError):
        Journal(connect()).claim_epoch("new", token="e", fingerprint=NEW, change=overtaken)
    assert Journal(other).read().current == 5


def test_the_note_of_added_states_goes_with_the_next_advance(connect: Connect) -> None:
    at_txid_5(connect())
    journal = Journal(connect())
    journal.claim_epoch("new", token="ensemble", fingerprint=NEW, change=adding)
    journal.load()
    journal.advance(6)

    successor = Journal(connect())
    successor.claim_epoch("again", token="ensemble", fingerprint=NEW)
    assert successor.added == ()


def test_a_state_that_is_taken_out_again_leaves_the_note(connect: Connect) -> None:
    at_txid_5(connect())
    for fingerprint, change in ((NEW, adding), (OLD, lambda known: [])):
        journal = Journal(connect())
        journal.claim_epoch("x", token="ensemble", fingerprint=fingerprint, change=change)

    assert journal.added == ()
    assert journal.read().current == 5


def test_nothing_is_noted_before_the_first_txid_is_committed(connect: Connect) -> None:
    Journal(connect()).claim_epoch("old", token="ensemble", fingerprint=OLD)

    journal = Journal(connect())
    journal.claim_epoch("new", token="ensemble", fingerprint=NEW, change=adding)
    assert journal.added == ()


def test_no_state_is_added_while_a_verb_has_not_ended(connect: Connect) -> None:
    """The verb continues with the states that it knows, and would overwrite the note."""
    old = at_txid_5(connect())
    old.write([Put(CURRENT, {"current": 5, "operation": {"verb": "rewind", "arguments": {}}})])
    state = connect()

    with pytest.raises(OperationUnfinished, match="rewind"):
        Journal(state).claim_epoch("new", token="ensemble", fingerprint=NEW, change=adding)
    old.confirm()


@pytest.mark.parametrize("added", ["all", [1], {"new": 1}])
def test_a_note_that_cannot_be_read_is_not_taken_for_none(
    state: TransactionalState, added: Json
) -> None:
    at_txid_5(state).write([Put(CURRENT, {"current": 5, "added": added})])

    with pytest.raises(CorruptNodeError, match="/current"):
        Journal(state).claim_epoch("new", token="ensemble", fingerprint=OLD)
