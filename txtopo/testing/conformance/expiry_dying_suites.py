"""DyingExpirySuite: coordinators that die while they delete rows that expire.

A store may delete some rows at a time, so a death may leave any of those that expire. Everything
else has to be as before: the ledger, the rows that stay, and what a commit would undo.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import pytest

from txtopo.plugins.stores import Puts
from txtopo.state import State
from txtopo.testing.conformance.deaths import Deaths, Work
from txtopo.testing.conformance.driver import StateDriver, packed, patiently
from txtopo.testing.conformance.dying_suites import DeathFixtures
from txtopo.testing.conformance.range_suites import deletes, expire
from txtopo.testing.conformance.rules import Rule, proves
from txtopo.tuples import Fields

_UP_TO = 10
"""Rows whose column ``ends`` is at most this expire, unless the last txid has written them."""

EXPIRING: dict[str, int | None] = {"a": 1, "b": 5, "c": 10}

BEFORE: dict[str, int | None] = {"again": 1, "gone": 2, "lasting": 99, "without an end": None}
"""What the txid before the last one writes besides, and what its undo leaves."""

LAST = {"again": 3, "gone": None, "new": 4}
"""What the last txid writes: an update, a delete and a key of its own, all of which may be undone.

None is a delete here; above it is a value.
"""

STAYING: dict[str, int | None] = {"again": 3, "lasting": 99, "new": 4, "without an end": None}
"""The contents when all is deleted that expires."""


@dataclass(frozen=True)
class DeletesExpired(Work):
    """A coordinator that opens a state, claims it and dies while it deletes what expires."""

    state: State
    epoch: int
    before_txid: int

    def prepare(self) -> Callable[[], object]:
        """Open and claim the state."""
        store = patiently(partial(StateDriver, self.state, self.epoch))
        return partial(expire, store, _UP_TO, self.before_txid)


@dataclass
class SurvivingRows:
    """The rows of a state while one coordinator after the other dies in its expiry.

    Attributes:
        state: The state, of which rows expire.
        txid: The last txid.
        epoch: The epoch of the last coordinator.
    """

    state: State
    txid: int = 0
    epoch: int = 0

    def dying(self) -> DeletesExpired:
        """Commit rows, some of which expire, and return the work that deletes the expired ones."""
        with self._next() as store:
            rows = EXPIRING | BEFORE
            store.commit(self.txid + 1, Puts({(key,): (ends,) for key, ends in rows.items()}))
            store.puts(self.txid + 2, LAST)
        self.txid += 2
        self.epoch += 1
        return DeletesExpired(self.state, self.epoch, self.txid)

    def check_done(self) -> None:
        """Check the rows that are left after a process has deleted all that have expired."""
        assert self.check("a process deleted what expires"), "rows that expire are there"

    def check(self, death: str) -> bool:
        """Check the rows after a death; then finish the deletion, and undo the last txid.

        Returns:
            Whether all was deleted that expires.
        """
        with self._next() as store:
            assert store.ledger.txid == self.txid, f"{death}, and the ledger is another"
            found = store.contents()
            left = {key: ends for key, ends in found.items() if key in EXPIRING}
            assert left.items() <= EXPIRING.items(), f"{death}, in the middle of a row"
            assert found == left | STAYING, f"{death}, and what stays is not as it was"
            patiently(partial(expire, store, _UP_TO, self.txid))
            assert store.contents() == STAYING, f"after another expiry: {death}"
            store.commit(self.txid, packed({}))
            assert store.contents() == BEFORE, f"after an undo of the last txid: {death}"
        return not left

    def _next(self) -> closing[StateDriver]:
        self.epoch += 1
        return closing(patiently(partial(StateDriver, self.state, self.epoch)))


class DyingExpirySuite(DeathFixtures):
    """Coordinators that die in ``StateBackend.expire``; skipped if that deletes nothing."""

    @proves(Rule.EXPIRY)
    def test_an_expiry_whose_writer_dies_deletes_nothing_else(self, url: str, most: int) -> None:
        fields = Fields("key string"), Fields("ends long")
        state = self.declared(url, "expiring", *fields).ranged("ends")
        with closing(StateDriver(state)) as store:
            if not deletes(store):
                pytest.skip("StateBackend.expire of the store deletes nothing")
        survivor = SurvivingRows(state, epoch=1)
        Deaths(survivor.dying, survivor.check, survivor.check_done).at_each_step(most)
