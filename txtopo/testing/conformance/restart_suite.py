"""A restart in the middle: what was written is there for whoever opens the URL next."""

from __future__ import annotations

from txtopo.state import State
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import whole_ledger
from txtopo.testing.conformance.subject import Drive, Subject


class RestartSuite(Subject):
    """Backends that are closed, or left behind, and opened anew."""

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
