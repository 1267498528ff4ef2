"""The fence: a deposed coordinator, or an abandoned attempt, changes nothing."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from txtopo.errors import FencedError, PromiseError
from txtopo.state import State
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import StateDriver, patiently, whole_ledger
from txtopo.testing.conformance.subject import Drive, Subject


class FenceSuite(Subject):
    """Zombies; those of another process are skipped for a store that says ``fenced = False``."""

    @pytest.fixture
    def fence(self) -> None:
        """Skip a test that needs the fence."""
        if not self.fenced:
            pytest.skip("the store keeps no zombie out: fenced = False")

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
        """Between the claim and the reading of the ledger nothing may come in."""
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
                # From here on a commit of the zombie's ends it, one way or the other.
                deposed.set()
            claimed = new.ledger.txid
            assert last.result(60.0) == claimed
        assert new.contents() == {"a": claimed}
        assert new.merge(claimed + 1, [("a", 1)]).txid == claimed + 1

    @proves(Rule.FENCE)
    def test_of_two_attempts_at_once_the_newer_one_stays(
        self, counts: State, drive: Drive, fence: None
    ) -> None:
        """A commit that took too long is given up, and tried again while it is under way."""
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
