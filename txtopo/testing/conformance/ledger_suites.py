"""Suites of the ledger: order of txids, fence, lost answers, restarts, and undo.

* :class:`LedgerSuite`: txids in order, one attempt of each, written with the rows or not at all.
* :class:`FenceSuite`: a deposed coordinator or an abandoned attempt changes nothing.
* :class:`OutcomeSuite`: if the answer to a commit was lost, the ledger decides.
* :class:`RestartSuite`: what was written is there when the URL is opened next.
* :class:`UndoSuite`: nothing of an earlier attempt stays, with partial aggregates.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import pytest

from txtopo.attempt import TransactionAttempt
from txtopo.errors import (
    FencedError,
    ForeignEnsembleError,
    ForeignStateError,
    LedgerGapError,
    PromiseError,
    StaleBatchError,
    StoreUnavailable,
    TwoHistoriesError,
    UnknownOutcomeError,
)
from txtopo.plugins.stores import Claim, Owner, Snapshot, StateBackend, Writes
from txtopo.state import Ledger, State
from txtopo.state.ledger import RELEASED
from txtopo.testing.conformance.driver import (
    Drive,
    StateDriver,
    StoreFixtures,
    claim_of,
    partials,
    patiently,
    release,
    whole_ledger,
)
from txtopo.testing.conformance.rules import Rule, proves


class LedgerSuite(StoreFixtures):
    """What claims and commits may do, depending on the ledger."""

    @proves(Rule.CLAIM)
    def test_nobody_owns_a_new_state(self, counts: State) -> None:
        backend = counts.open()
        backend.create()
        backend.create()

        with backend.snapshot() as snapshot:
            assert snapshot.ledger is None
            assert dict(snapshot.items()) == {}
        backend.close()
        backend.close()

    @proves(Rule.ORDER)
    def test_an_unclaimed_state_takes_no_writes(self, counts: State) -> None:
        backend = counts.open()
        backend.create()

        with pytest.raises(PromiseError):
            backend.commit(TransactionAttempt(1, 0, 1), partials(counts, [("a", 1)]))
        backend.close()

    @proves(Rule.CLAIM)
    def test_a_claim_by_another_topology_is_refused(self, counts: State, drive: Drive) -> None:
        store = drive(counts)

        with pytest.raises(ForeignStateError) as caught:
            drive(counts, epoch=2, topology="other")
        assert caught.value.owner == "topology"
        assert store.held() == whole_ledger("topology", 1)

    @proves(Rule.CLAIM)
    def test_a_second_state_of_the_topology_is_refused(self, counts: State, drive: Drive) -> None:
        """The second state found the table through another URL, and would mistake the attempt for
        its own."""
        store = drive(counts)
        store.merge(1, [("a", 1)])

        with pytest.raises(ForeignStateError) as caught:
            drive(counts, epoch=2, component="second")
        assert all(name in str(caught.value) for name in ("'component'", "'second'"))
        assert store.held() == whole_ledger("topology", 1, 1, 1, 0)

    @proves(Rule.CLAIM)
    def test_a_claim_of_another_ensemble_is_refused(self, counts: State, drive: Drive) -> None:
        """The coordinators of another ensemble count their own epochs, so any number may occur."""
        store = drive(counts)
        store.merge(1, [("a", 1)])

        for epoch in (1, 2):
            with pytest.raises(ForeignEnsembleError) as caught:
                drive(counts, epoch=epoch, ensemble="second")
            assert all(name in str(caught.value) for name in ("'ensemble'", "'second'"))
        assert store.held() == whole_ledger("topology", 1, 1, 1, 0)

    @proves(Rule.CLAIM)
    def test_another_term_of_the_same_epoch_is_refused(self, counts: State, drive: Drive) -> None:
        """A reverted ZooKeeper counts its epochs again, so all numbers are the same."""
        store = drive(counts)
        claim = replace(claim_of(epoch=2), term="one")
        store.backend.claim(claim)
        store.backend.commit(TransactionAttempt(1, 0, 2, term="one"), partials(counts, [("a", 1)]))
        held = store.held()
        other = counts.open()

        with pytest.raises(TwoHistoriesError):
            other.claim(replace(claim, term="other"))
        with pytest.raises(TwoHistoriesError):
            store.backend.commit(
                TransactionAttempt(1, 0, 2, term="other"), partials(counts, [("a", 5)])
            )

        other.close()
        assert held is not None
        assert (held.term, held.writer_term) == ("one", "one")
        assert store.held() == held
        assert store.contents() == {"a": 1}

    @proves(Rule.CLAIM)
    def test_of_two_ensembles_the_last_to_claim_an_empty_state_has_it(
        self, counts: State, drive: Drive
    ) -> None:
        first = drive(counts)
        second = drive(counts, ensemble="second")

        with pytest.raises(ForeignEnsembleError):
            first.merge(1, [("a", 5)])
        second.merge(1, [("a", 1)])
        with pytest.raises(ForeignEnsembleError):
            first.merge(1, [("a", 5)])
        assert second.contents() == {"a": 1}
        assert second.held() == replace(whole_ledger("topology", 1, 1, 1, 0), ensemble="second")

    @proves(Rule.CLAIM)
    def test_a_claim_takes_a_state_over_from_whom_it_names(
        self, counts: State, drive: Drive
    ) -> None:
        old = drive(counts)
        old.merge(1, [("a", 1)])
        claim = replace(claim_of(epoch=2, component="new", ensemble="second"), replaces=old.held())
        backend = counts.open()

        taken = backend.claim(claim)
        assert taken == replace(
            whole_ledger("topology", 2, 1, 1, 0), component="new", ensemble="second"
        )
        backend.close()
        with pytest.raises(PromiseError):
            old.merge(2, [("a", 1)])
        again = counts.open()
        with pytest.raises(ForeignStateError):
            again.claim(replace(claim, owner=Owner("topology", "third", "state")))
        again.close()
        assert old.held() == taken

    @proves(Rule.CLAIM)
    def test_every_field_of_the_ledger_is_kept(self, counts: State, drive: Drive) -> None:
        """All fields survive claim, commit, redo and reopening."""
        for epoch in (1, 2):
            store = drive(counts, epoch=epoch)
            store.merge(epoch, [("a", 1)])
            store.merge(epoch, [("a", 1)], attempt=3)
            assert store.held() == whole_ledger("topology", epoch, epoch, epoch, 3)
            store.close()
        reopened = counts.open()
        with reopened.snapshot() as snapshot:
            assert snapshot.ledger == whole_ledger("topology", 2, 2, 2, 3)
        reopened.close()

    @proves(Rule.CLAIM)
    def test_a_released_state_goes_on_under_another_topology(
        self, counts: State, drive: Drive
    ) -> None:
        old = drive(counts)
        old.merge(1, [("a", 1)])
        assert old.backend.claim(release(2)) == whole_ledger(RELEASED, 2, 1, 1, 0)
        with pytest.raises(FencedError):
            old.merge(2, [("a", 1)])

        new = drive(counts, epoch=3, topology="other")
        assert new.ledger == new.held() == whole_ledger("other", 3, 1, 1, 0)
        new.merge(2, [("a", 1)])
        assert new.held() == whole_ledger("other", 3, 2, 3, 0)
        with pytest.raises(ForeignStateError):
            drive(counts, epoch=4)

    @proves(Rule.CLAIM)
    def test_a_claim_leaves_txid_and_rows_as_they_are(self, counts: State, drive: Drive) -> None:
        old = drive(counts)
        assert old.ledger == whole_ledger("topology", 1)
        old.merge(1, [("a", 1)])
        old.merge(2, [("a", 1)], attempt=3)

        new = drive(counts, epoch=7)
        assert new.ledger == whole_ledger("topology", 7, 2, 1, 3)
        assert new.backend.claim(claim_of(epoch=7)) == new.ledger
        assert new.held() == new.ledger
        assert new.contents() == {"a": 2}

    @proves(Rule.ORDER)
    def test_a_commit_returns_the_ledger_that_it_wrote(self, counts: State, drive: Drive) -> None:
        store = drive(counts, epoch=3)

        for txid, attempt in ((1, 0), (2, 5), (2, 6), (3, 0)):
            written = store.merge(txid, [("a", 1)], attempt)
            assert written == whole_ledger("topology", 3, txid, 3, attempt)
            assert store.held() == written

    @proves(Rule.ORDER)
    def test_a_gap_is_refused(self, counts: State, drive: Drive) -> None:
        store = drive(counts)

        for txid in (2, 3):
            with pytest.raises(LedgerGapError):
                store.merge(txid, [("a", 9)])
        store.merge(1, [("a", 1)])
        with pytest.raises(LedgerGapError):
            store.merge(3, [("a", 9)])
        _holds(store, {"a": 1}, txid=1)

    @proves(Rule.ORDER)
    def test_a_step_back_is_refused(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        for txid in (1, 2, 3):
            store.merge(txid, [("a", 1)])

        for txid in (2, 1):
            for rows in ([("a", 9), ("new", 9)], [("new", 9)]):
                with pytest.raises(StaleBatchError):
                    store.merge(txid, rows, attempt=5)
        _holds(store, {"a": 3}, txid=3)

    @proves(Rule.ORDER)
    def test_the_same_attempt_counts_once(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1)])

        assert store.merge(1, [("a", 1)]) == whole_ledger("topology", 1, 1, 1, 0)
        _holds(store, {"a": 1}, txid=1)

    @proves(Rule.ONE_WRITE)
    def test_an_empty_batch_moves_the_ledger(self, counts: State, drive: Drive) -> None:
        store = drive(counts)

        assert store.merge(1, []).txid == 1
        store.merge(2, [("a", 1)])
        assert store.merge(3, []).txid == 3
        _holds(store, {"a": 1}, txid=3)

    @proves(Rule.DURABLE)
    def test_states_of_one_store_do_not_meet(self, url: str, drive: Drive) -> None:
        first, second = (
            drive(self.counted(url, table), topology=table) for table in ("one", "two")
        )
        first.merge(1, [("a", 1)])

        second.merge(1, [("a", 5)])
        second.merge(2, [("a", 5)])
        assert (first.contents(), second.contents()) == ({"a": 1}, {"a": 10})
        assert first.held() == whole_ledger("one", 1, 1, 1, 0)


def _holds(store: StateDriver, contents: dict[str, int], *, txid: int) -> None:
    held = store.held()
    assert (store.contents(), held and held.txid) == (contents, txid)


class FenceSuite(StoreFixtures):
    """Deposed coordinators and old attempts; most tests are skipped if ``fenced = False``."""

    @pytest.fixture
    def fence(self) -> None:
        """Skip a test that needs the fence."""
        if not self.fenced:
            pytest.skip("the store does not refuse zombies: fenced = False")

    @proves(Rule.FENCE)
    def test_a_zombie_of_an_older_epoch_is_refused(
        self, counts: State, drive: Drive, fence: None
    ) -> None:
        old = drive(counts, epoch=1)
        old.merge(1, [("a", 1)])
        new = drive(counts, epoch=2)

        for txid in (1, 2):
            with pytest.raises(FencedError) as caught:
                old.merge(txid, [("a", 9)], attempt=9)
            assert caught.value.successor == 2
        assert new.contents() == {"a": 1}
        assert new.held() == whole_ledger("topology", 2, 1, 1, 0)

    @proves(Rule.FENCE)
    def test_a_zombie_is_refused_after_its_successor_wrote(
        self, counts: State, drive: Drive, fence: None
    ) -> None:
        old, new = drive(counts, epoch=1), drive(counts, epoch=2)
        new.merge(1, [("a", 1)])

        for txid in (1, 2):
            with pytest.raises(PromiseError):
                old.merge(txid, [("a", 9)], attempt=9)
        assert new.contents() == {"a": 1}
        assert new.held() == whole_ledger("topology", 2, 1, 2, 0)

    @proves(Rule.CLAIM)
    def test_a_claim_of_a_smaller_epoch_is_refused(self, counts: State, drive: Drive) -> None:
        store = drive(counts, epoch=5)

        with pytest.raises(FencedError):
            drive(counts, epoch=4)
        assert store.held() == whole_ledger("topology", 5)
        assert store.merge(1, [("a", 1)]).epoch == 5

    @proves(Rule.FENCE)
    def test_an_epoch_that_has_not_claimed_writes_nothing(
        self, counts: State, drive: Drive
    ) -> None:
        store = drive(counts, epoch=1)

        store.epoch = 2
        with pytest.raises(PromiseError):
            store.merge(1, [("a", 9)])
        assert store.contents() == {}
        assert store.held() == whole_ledger("topology", 1)

    @proves(Rule.FENCE)
    def test_an_older_attempt_is_refused(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1)], attempt=2)

        for attempt in (1, 0):
            with pytest.raises(FencedError):
                store.merge(1, [("a", 9), ("new", 9)], attempt)
        assert store.contents() == {"a": 1}
        assert store.held() == whole_ledger("topology", 1, 1, 1, 2)

    @proves(Rule.FENCE)
    def test_a_claim_stops_a_zombie_that_writes_all_the_time(
        self, counts: State, drive: Drive, fence: None
    ) -> None:
        """No commit may come between the claim and the reading of the ledger."""
        zombie = drive(counts, epoch=1)
        begun, deposed = threading.Event(), threading.Event()

        def write() -> int:
            try:
                for txid in itertools.count(1):
                    late = deposed.is_set()
                    patiently(partial(zombie.merge, txid, [("a", 1)]))
                    assert not late, "the zombie was not refused"
                    if txid == 3:
                        begun.set()
            except FencedError:
                return txid - 1
            finally:
                begun.set()
            raise AssertionError("never reached")

        with ThreadPoolExecutor(1) as thread:
            last = thread.submit(write)
            assert begun.wait(60.0)
            try:
                new = patiently(lambda: drive(counts, epoch=2))
            finally:
                # The next commit of the zombie ends it: it is refused, or the test fails.
                deposed.set()
            claimed = new.ledger.txid
            assert last.result(60.0) == claimed
        assert new.contents() == {"a": claimed}
        assert new.merge(claimed + 1, [("a", 1)]).txid == claimed + 1

    @proves(Rule.FENCE)
    def test_of_two_attempts_at_once_the_newer_one_stays(
        self, counts: State, drive: Drive, fence: None
    ) -> None:
        """A commit that takes too long is tried again while the first one may still arrive."""
        stores = drive(counts), drive(counts)

        for txid in range(1, 11):
            _commit_at_once(stores, txid)
            held = stores[0].held()
            assert held is not None
            assert held.writer == stores[0].attempt(txid, 1)
        assert stores[0].contents() == {"new": 10}


def _commit_at_once(stores: Sequence[StateDriver], txid: int) -> None:
    together = threading.Barrier(len(stores))

    def commit(attempt: int) -> None:
        together.wait(60.0)
        key = "new" if attempt else "old"
        try:
            patiently(lambda: stores[attempt].merge(txid, [(key, 1)], attempt))
        except FencedError:
            assert not attempt, "the newer attempt was refused in favour of the older one"

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(commit, range(2)))


class OutcomeSuite(StoreFixtures):
    """Commits whose write took effect, was lost, or takes effect too late."""

    @proves(Rule.OUTCOME)
    def test_a_write_that_landed_is_found_in_the_ledger(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1)])
        lose_answer(self, store, landed=True)

        assert store.merge(2, [("a", 1)], attempt=3) == whole_ledger("topology", 1, 2, 1, 3)
        assert store.contents() == {"a": 2}
        assert store.merge(3, [("a", 1)]).txid == 3

    @proves(Rule.OUTCOME)
    def test_a_write_that_was_lost_is_tried_again(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1)])
        lose_answer(self, store, landed=False)

        with pytest.raises(StoreUnavailable):
            store.merge(2, [("a", 1)])
        assert store.contents() == {"a": 1}
        assert store.merge(2, [("a", 1)]).txid == 2
        assert store.contents() == {"a": 2}

    @pytest.mark.parametrize("landed", [True, False])
    @proves(Rule.OUTCOME)
    def test_a_replay_counts_once_whatever_became_of_the_write(
        self, counts: State, drive: Drive, landed: bool
    ) -> None:
        """The ledger could not be read. The next attempt, with another batch, decides."""
        store = drive(counts)
        store.merge(1, [("a", 1), ("b", 1)])
        lose_answer(self, store, landed=landed)

        with pytest.raises(UnknownOutcomeError):
            store.backend.commit(store.attempt(2), partials(counts, [("a", 5), ("new", 5)]))
        assert store.merge(2, [("b", 1)], attempt=1).txid == 2
        assert store.contents() == {"a": 1, "b": 2}

    @proves(Rule.FENCE)
    def test_a_write_that_lands_after_its_replay_changes_nothing(
        self, counts: State, drive: Drive
    ) -> None:
        store = drive(counts)
        lose_answer(self, store, landed=False)
        with pytest.raises(StoreUnavailable):
            store.merge(1, [("late", 1)])
        store.merge(1, [("a", 1)], attempt=1)

        with pytest.raises(FencedError):
            store.merge(1, [("late", 1)])
        assert store.contents() == {"a": 1}

    @proves(Rule.OUTCOME)
    def test_a_successor_finds_the_write_whose_answer_was_lost(
        self, counts: State, drive: Drive
    ) -> None:
        old = drive(counts, epoch=1)
        lose_answer(self, old, landed=True)
        with pytest.raises(UnknownOutcomeError):
            old.backend.commit(old.attempt(1, 2), partials(counts, [("a", 1)]))

        new = drive(counts, epoch=2)
        assert new.ledger == whole_ledger("topology", 2, 1, 1, 2)
        assert new.contents() == {"a": 1}


def lose_answer(suite: StoreFixtures, store: StateDriver, *, landed: bool) -> None:
    """Make the next commit lose its answer."""
    losing = suite.losing(store.backend, landed=landed)
    store.backend = losing or _Losing(store.backend, landed=landed)


class _Losing(StateBackend):
    """Loses the answer to one commit of a backend."""

    def __init__(self, behind: StateBackend, *, landed: bool) -> None:
        self._behind = behind
        self.claimant = behind.claimant
        self._landed = landed
        self._commit: Callable[[TransactionAttempt, Writes], Ledger] = self._lost

    def create(self) -> None:
        self._behind.create()

    def claim(self, claim: Claim) -> Ledger:
        return self._behind.claim(claim)

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        return self._commit(attempt, writes)

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        return self._behind.snapshot()

    def close(self) -> None:
        self._behind.close()

    def _lost(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        self._commit = self._behind.commit
        if self._landed:
            self._behind.commit(attempt, writes)
        raise UnknownOutcomeError("the connection was lost during the write, as the test wanted")


class RestartSuite(StoreFixtures):
    """States that are opened again, after a close or without one."""

    @proves(Rule.DURABLE)
    def test_a_new_backend_goes_on_where_the_old_one_ended(
        self, counts: State, drive: Drive
    ) -> None:
        expected: dict[str, int] = {}
        for epoch in range(1, 4):
            store = drive(counts, epoch)
            held = store.ledger.txid
            assert store.contents() == expected
            for txid in range(held + 1, held + 4):
                store.merge(txid, [("a", txid), (f"of {txid}", 1)])
                expected["a"] = expected.get("a", 0) + txid
                expected[f"of {txid}"] = 1
            store.close()

        assert drive(counts, epoch=4).ledger == whole_ledger("topology", 4, 9, 3, 0)
        assert store.contents() == expected

    @proves(Rule.UNDO)
    def test_the_last_txid_is_undone_after_a_restart(self, counts: State, drive: Drive) -> None:
        old = drive(counts, epoch=1)
        old.merge(1, [("a", 1), ("b", 1)])
        old.merge(2, [("a", 10), ("new", 1)])
        old.close()

        new = drive(counts, epoch=2)
        new.merge(2, [("b", 5)])
        assert new.contents() == {"a": 1, "b": 6}
        new.merge(3, [("new", 1)])
        assert new.contents() == {"a": 1, "b": 6, "new": 1}

    @proves(Rule.DURABLE)
    def test_a_backend_that_nobody_closed_is_no_hindrance(
        self, counts: State, drive: Drive
    ) -> None:
        """A process that is killed closes nothing."""
        killed = drive(counts, epoch=1)
        killed.merge(1, [("a", 1)])

        new = drive(counts, epoch=2)
        assert new.merge(2, [("a", 1)]).txid == 2
        assert new.contents() == {"a": 2}


class UndoSuite(StoreFixtures):
    """Replays with another batch."""

    @proves(Rule.UNDO)
    def test_a_key_that_a_replay_lacks_is_taken_back(self, counts: State, drive: Drive) -> None:
        """Storm counts too much here: it does not revert b, whose tuples are replayed."""
        store = drive(counts)
        store.merge(1, [("a", 1), ("b", 1)])
        store.merge(2, [("a", 1), ("b", 1), ("new", 1)])

        store.merge(2, [("a", 1)], attempt=1)
        assert store.contents() == {"a": 2, "b": 1}
        store.merge(3, [("b", 1)])
        assert store.contents() == {"a": 2, "b": 2}

    @proves(Rule.UNDO)
    def test_an_empty_replay_takes_everything_back(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("old", 5)])
        store.merge(2, [("old", 3), ("new", 1)])

        assert store.merge(2, [], attempt=1) == whole_ledger("topology", 1, 2, 1, 1)
        assert store.contents() == {"old": 5}

    @proves(Rule.UNDO)
    def test_many_replays_count_as_one(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1), ("b", 1)])

        for attempt in range(6):
            store.merge(2, [("ab"[attempt % 2], 10 + attempt)], attempt)
        assert store.contents() == {"a": 1, "b": 16}
        store.merge(3, [("a", 1)])
        store.merge(3, [("b", 1)], attempt=1)
        assert store.contents() == {"a": 1, "b": 17}

    @proves(Rule.UNDO)
    def test_the_first_txid_is_undone_to_nothing(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 1), ("b", 1)])

        store.merge(1, [("b", 7)], attempt=1)
        assert store.contents() == {"b": 7}
        store.merge(1, [], attempt=2)
        assert store.contents() == {}

    @proves(Rule.UNDO)
    def test_a_successor_undoes_what_its_predecessor_wrote(
        self, counts: State, drive: Drive
    ) -> None:
        """Numbers of attempts start at 0 in each epoch."""
        drive(counts, epoch=1).merge(1, [("a", 7), ("b", 1)], attempt=4)
        new = drive(counts, epoch=2)

        new.merge(1, [("a", 2)])
        assert new.contents() == {"a": 2}
        assert new.held() == whole_ledger("topology", 2, 1, 2, 0)

    @proves(Rule.PREVIOUS)
    def test_an_undo_leads_back_one_txid_and_no_further(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        for txid in (1, 2, 3):
            store.merge(txid, [("a", txid)])
        store.merge(4, [("other", 1)])

        store.merge(4, [("a", 100)], attempt=1)
        assert store.contents() == {"a": 106}
        store.merge(4, [("a", 1)], attempt=2)
        assert store.contents() == {"a": 7}

    @proves(Rule.KEPT)
    def test_partials_of_a_held_txid_are_not_added_again(
        self, kept_counts: State, drive: Drive
    ) -> None:
        store = drive(kept_counts)
        store.merge(1, [("a", 1)])
        store.merge(2, [("a", 2), ("b", 1)])

        store.merge(2, [("a", 2), ("b", 1)], attempt=1)
        assert store.contents() == {"a": 3, "b": 1}
        assert store.held() == whole_ledger("topology", 1, 2, 1, 1)
        store.merge(3, [("b", 1)])
        assert store.contents() == {"a": 3, "b": 2}
