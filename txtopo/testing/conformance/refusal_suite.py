"""What a store says it refuses is refused before any write; all else comes back exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from txtopo.errors import ValueRefusedError
from txtopo.state import Fields, Max
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import StateDriver, putting
from txtopo.testing.conformance.exactly import exactly
from txtopo.testing.conformance.refusable import REFUSABLE, Refusable
from txtopo.testing.conformance.subject import Drive, Subject

Rows = Mapping[Any, Any]
Write = Callable[[int, Rows, int], None]
# Few rows and many take different ways into some stores.


class _Refusals(Subject):
    def _try(self, name: str, store: StateDriver, write: Write) -> None:
        """Write an odd value alone, then among many others; then undo a change of it."""
        sort = REFUSABLE[name]
        in_key = sort.part == "key"
        fine = 1 if in_key else sort.harmless
        key = sort.value if in_key else "odd"
        odd = {key: fine if in_key else sort.value}
        many = {str(n): fine for n in range(self.many)} | odd
        write(1, {"before": fine}, 0)
        if name in self.refused:
            for rows in (odd, many):
                with pytest.raises(ValueRefusedError):
                    write(2, rows, 0)
                assert store.contents() == {"before": fine}, "it was refused, but not as a whole"
                assert store.held() == store.ledger.written_by(store.attempt(1))
            write(2, {"after": fine}, 0)
            return
        write(2, odd, 0)
        assert exactly(store.contents()) == exactly({"before": fine} | odd)
        write(3, many, 0)
        expected = exactly({"before": fine} | many)
        assert exactly(store.contents()) == expected
        write(4, {key: fine}, 0)
        write(4, {}, 1)
        assert exactly(store.contents()) == expected, "an undo has changed it"


class RefusalSuite(_Refusals):
    """Values that some stores cannot keep, as partial aggregates."""

    @pytest.mark.parametrize("name", [name for name in REFUSABLE if REFUSABLE[name].in_arrow])
    @proves(Rule.EXACT)
    def test_a_partial_is_kept_exactly_or_refused(self, url: str, drive: Drive, name: str) -> None:
        store = drive(self.aggregated(url, "odd", *_fields(REFUSABLE[name]), (Max("x"),)))

        def merge(txid: int, rows: Rows, attempt: int) -> None:
            store.merge(txid, list(rows.items()), attempt)

        self._try(name, store, merge)


class PutRefusalSuite(_Refusals):
    """The same values, written one by one."""

    @pytest.mark.parametrize("name", REFUSABLE)
    @proves(Rule.EXACT)
    def test_a_value_is_kept_exactly_or_refused(self, url: str, drive: Drive, name: str) -> None:
        store = drive(self.declared(url, "odd", *_fields(REFUSABLE[name])))

        def put(txid: int, rows: Rows, attempt: int) -> None:
            store.run(txid, putting(rows), attempt)

        self._try(name, store, put)


def _fields(sort: Refusable) -> tuple[Fields, Fields]:
    if sort.part == "key":
        return Fields(f"key {sort.type}"), Fields("value long")
    return Fields("key string"), Fields(f"value {sort.type}")
