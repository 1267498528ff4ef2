"""The face of stores: what it exports is enough to write one, and to drive it."""

from __future__ import annotations

from collections.abc import Mapping

from txtopo.plugins.stores import (
    Claim,
    Contents,
    Fields,
    Key,
    Ledger,
    Owner,
    Puts,
    Row,
    RowBackend,
    StateTable,
    TransactionAttempt,
)

TABLE = StateTable("counts", "opaque", Fields("key string"), Fields("value long"))


class OneDict(RowBackend):
    """A store of a few lines, from names of the face."""

    held = Contents()

    def load(self) -> Contents:
        return self.held

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        if self.held.ledger != expected:
            return False
        rows = {**self.held.rows, **changes}
        self.held = Contents(ledger, {k: row for k, row in rows.items() if row is not None})
        return True


def test_a_store_is_written_and_driven_with_names_of_the_face() -> None:
    store = OneDict(TABLE)
    store.claim(Claim(Owner("words", "counter", "counts"), epoch=1))

    store.commit(TransactionAttempt(1, 0, 1), Puts({("a",): (1,)}))
    store.commit(TransactionAttempt(1, 1, 1), Puts({("b",): (2,)}))

    with store.snapshot() as snapshot:
        assert snapshot.ledger is not None
        assert snapshot.ledger.txid == 1
        assert {key: row.visible() for key, row in snapshot.items()} == {("b",): (2,)}
