"""RowBackend, of which a plug-in reads everything and replaces it if nobody else did.

Memory is one, and the JSON files of ``examples/json_store``; both pass the conformance suite.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from txtopo import Fields
from txtopo.attempt import TransactionAttempt
from txtopo.errors import StoreUnavailable
from txtopo.plugins.stores import Contents, Key, Puts, Row, RowBackend, StateTable
from txtopo.state import Ledger


class LosesEachRace(RowBackend):
    def load(self) -> Contents:
        return Contents(Ledger("topology", 1))

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        return False


def test_a_race_that_is_lost_again_and_again_writes_nothing() -> None:
    table = StateTable("counts", "opaque", Fields("key string"), Fields("value long"))

    with pytest.raises(StoreUnavailable, match="3 times in a row"):
        LosesEachRace(table).commit(TransactionAttempt(1, 0, 1), Puts({}))
