"""The ledger: txids in order, one attempt of each, written with the rows or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from txtopo.errors import (
    FencedError,
    ForeignEnsembleError,
    ForeignStateError,
    LedgerGapError,
    PromiseError,
    StaleBatchError,
)
from txtopo.state import RELEASED, Owner, State, TransactionAttempt
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import StateDriver, claim_of, partials, release, whole_ledger
from txtopo.testing.conformance.subject import Drive, Subject


class LedgerSuite(Subject):
    """What a commit may do, by what the ledger holds."""

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
        """It came by another URL; else it would find its own attempt, and write nothing."""
        store = drive(counts)
        store.merge(1, [("a", 1)])

        with pytest.raises(ForeignStateError) as caught:
            drive(counts, epoch=2, component="second")
        assert all(name in str(caught.value) for name in ("'component'", "'second'"))
        assert store.held() == whole_ledger("topology", 1, 1, 1, 0)

    @proves(Rule.CLAIM)
    def test_a_claim_of_another_ensemble_is_refused(self, counts: State, drive: Drive) -> None:
        """Its coordinator counts epochs for itself, so it may come with any number."""
        store = drive(counts)
        store.merge(1, [("a", 1)])

        for epoch in (1, 2):
            with pytest.raises(ForeignEnsembleError) as caught:
                drive(counts, epoch=epoch, ensemble="second")
            assert all(name in str(caught.value) for name in ("'ensemble'", "'second'"))
        assert store.held() == whole_ledger("topology", 1, 1, 1, 0)

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
        """Through claim, commit, redo and reopening."""
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
