"""Stores that break what is asked of ranges, of prefixes, and of rows that expire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from tests.unit.testing.conformance.broken_store import BrokenStore
from txtopo.plugins.stores import Key, Row, Snapshot, StateTable, expired_keys, expiring
from txtopo.state import Ledger
from txtopo.state.row_backend import Contents


class _View(Snapshot):
    """Reads as the default does, over the rows that it is given."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    @property
    def ledger(self) -> Ledger | None:
        return self._contents.ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        rows = self._contents.rows
        return {key: rows[key] for key in keys if key in rows}

    def items(self) -> Iterator[tuple[Key, Row]]:
        return iter(self._contents.rows.items())


class _BrokenView(BrokenStore):
    view: ClassVar[type[_View]]

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        return nullcontext(self.view(self.load()))


class RangeLacksItsUpperEnd(_BrokenView):
    fails, rule = "test_a_range_is_above_one_end_and_up_to_the_other", "RANGE"

    class view(_View):
        def between(
            self, table: StateTable, above: Any, up_to: Any, txid: int
        ) -> Iterator[tuple[Key, Row]]:
            assert table.range_by is not None
            for key, row in super().between(table, above, up_to, txid):
                if table.column_of(key, row.current, table.range_by) != up_to:
                    yield key, row


class RangeForgetsWhatTheTxidMoved(_BrokenView):
    fails, rule = "test_a_redo_finds_what_was_in_the_range_before", "RANGE"

    class view(_View):
        def between(
            self, table: StateTable, above: Any, up_to: Any, txid: int
        ) -> Iterator[tuple[Key, Row]]:
            return super().between(table, above, up_to, txid + 1)


class FindsTheFirstPrefixOnly(_BrokenView):
    fails, rule = "test_prefixes_have_the_first_columns_of_a_key", "RANGE"

    class view(_View):
        def starting(self, prefixes: Sequence[Key]) -> Iterator[tuple[Key, Row]]:
            return super().starting(prefixes[:1])


class _Expires(BrokenStore):
    """Deletes as a ``RowBackend`` does, by a txid that a subclass may get wrong."""

    def expire(self, up_to: Any, before_txid: int) -> int:
        held = self.load()
        txid = self.before(held.ledger, before_txid)
        gone = expired_keys(self.table, held.rows, up_to, txid)
        assert held.ledger is not None
        return len(gone) if self.replace(held.ledger, held.ledger, dict.fromkeys(gone)) else 0

    def before(self, ledger: Ledger | None, before_txid: int) -> int:
        return expiring(ledger, self.claimant, before_txid)


class ExpiresThoughDeposed(_Expires):
    fails, rule = "test_a_deposed_coordinator_deletes_nothing", "EXPIRY"

    def before(self, ledger: Ledger | None, before_txid: int) -> int:
        return before_txid


class ExpiresWhatTheLastTxidWrote(_Expires):
    fails, rule = "test_what_the_last_txid_wrote_stays", "EXPIRY"

    def before(self, ledger: Ledger | None, before_txid: int) -> int:
        super().before(ledger, before_txid)
        return before_txid


class ExpiresWhatALaterTxidWrote(_Expires):
    fails, rule = "test_rows_expire_that_an_earlier_txid_wrote", "EXPIRY"

    def before(self, ledger: Ledger | None, before_txid: int) -> int:
        super().before(ledger, before_txid)
        assert ledger is not None
        return ledger.txid
