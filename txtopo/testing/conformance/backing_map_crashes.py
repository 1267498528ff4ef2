"""Puts that die half-way: the states over a backing map take them back."""

from __future__ import annotations

from collections.abc import Sequence

from txtopo.errors import InfrastructureError
from txtopo.state import (
    BackingMap,
    Fields,
    OpaqueMap,
    Puts,
    StateKind,
    StateTable,
    TransactionalMap,
    TransactionAttempt,
)
from txtopo.testing.conformance.backing_map_texts import OpenMap
from txtopo.testing.conformance.driver import claim_of

# More than any commit here puts.
_PUTS_MAX = 12


class DyingMap(BackingMap):
    """Passes on so many keys, and fails from then on, as if the process had died."""

    def __init__(self, behind: BackingMap, keys_left: int) -> None:
        self._behind = behind
        self._keys_left = keys_left

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        """Read the values of the keys."""
        return self._behind.multi_get(keys)

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        """Write as many as are left."""
        passed = min(len(keys), self._keys_left)
        if passed:
            self._behind.multi_put(keys[:passed], values[:passed])
        self._keys_left -= passed
        if passed < len(keys):
            raise ConnectionError("the process died here, as the test wanted")

    def close(self) -> None:
        """Close the map behind."""
        self._behind.close()


class CrashSuite:
    """The store is real, the crash is in front of it; each attempt opens the store anew."""

    def test_an_opaque_batch_that_died_half_way_is_taken_back(self, open_map: OpenMap) -> None:
        """The next attempt has another batch."""
        for keys_left in range(_PUTS_MAX):
            table = _table(f"opaque {keys_left}", "opaque")
            _commit(OpaqueMap(open_map(), table), 1, {"a": 1, "b": 1})
            _commit(_dying(open_map, keys_left, table), 2, {"a": 2, "b": None, "new": 2})

            _commit(OpaqueMap(open_map(), table), 2, {"a": 3})
            assert _seen(OpaqueMap(open_map(), table)) == {"a": 3, "b": 1}, (
                f"a put that died after {keys_left} keys left something behind"
            )

    def test_a_transactional_batch_that_died_half_way_is_written_again(
        self, open_map: OpenMap
    ) -> None:
        """The next attempt has the same batch."""
        for keys_left in range(_PUTS_MAX):
            table = _table(f"transactional {keys_left}", "transactional")
            _commit(TransactionalMap(open_map(), table), 1, {"a": 1, "b": 1})
            _commit(_dying(open_map, keys_left, table), 2, {"a": 2, "b": None, "new": 2})

            _commit(TransactionalMap(open_map(), table), 2, {"a": 2, "b": None, "new": 2})
            assert _seen(TransactionalMap(open_map(), table)) == {"a": 2, "new": 2}, (
                f"a put that died after {keys_left} keys left something behind"
            )


def _dying(open_map: OpenMap, keys_left: int, table: StateTable) -> OpaqueMap | TransactionalMap:
    kind = OpaqueMap if table.kind == "opaque" else TransactionalMap
    return kind(DyingMap(open_map(), keys_left), table)


def _table(name: str, kind: StateKind) -> StateTable:
    return StateTable(name, kind, Fields("key string"), Fields("value long"))


def _commit(state: OpaqueMap | TransactionalMap, txid: int, values: dict[str, int | None]) -> None:
    """Claim with the next epoch and commit; a crash is left to the next attempt."""
    rows = {(key,): None if value is None else (value,) for key, value in values.items()}
    try:
        with state.snapshot() as snapshot:
            epoch = 1 if snapshot.ledger is None else snapshot.ledger.epoch + 1
        state.claim(claim_of(epoch=epoch))
        state.commit(TransactionAttempt(txid, 0, epoch), Puts(rows))
    except InfrastructureError:
        pass
    finally:
        state.close()


def _seen(state: OpaqueMap | TransactionalMap) -> dict[str, int]:
    with state.snapshot() as snapshot:
        found = {key[0]: row.visible() for key, row in snapshot.items()}
    state.close()
    return {key: values[0] for key, values in found.items() if values is not None}
