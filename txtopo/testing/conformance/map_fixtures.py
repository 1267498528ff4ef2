"""MapFixtures: what the suites of backing maps have in common, and states over a map."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import ClassVar

import pytest

from txtopo.attempt import TransactionAttempt
from txtopo.errors import InfrastructureError
from txtopo.plugins.stores import BackingMap, OpaqueMap, Puts, StateTable, TransactionalMap
from txtopo.state import StateKind
from txtopo.testing.conformance.driver import claim_of
from txtopo.testing.conformance.pace import SWITCH, announce, fitting, is_long
from txtopo.tuples import Fields

OpenMap = Callable[[], BackingMap]


class MapFixtures:
    """What the suites of maps have in common; a subclass says how much they do.

    Attributes:
        keys_max: Number of keys in the largest call. The framework uses up to 10,000. None, the
            default, is as many as fit into 20 s, from 200 to 10,000.
        value_bytes_max: Length of the longest value; three such values are written.
        key_bytes_max: Length of the longest key.
        long: Whether ``keys_max`` is 10,000 by default, however long it takes. The environment
            variable ``TXTOPO_LONG=1`` does that for all suites.
    """

    keys_max: ClassVar[int | None] = None
    value_bytes_max: ClassVar[int] = 1_000_000
    key_bytes_max: ClassVar[int] = 5_000
    long: ClassVar[bool] = False
    _keys: ClassVar[int]

    def test_a_put_is_timed_and_the_suite_says_how_long_it_takes(self, keys: int) -> None:
        """This runs first; the largest call has as many keys as the map allows."""
        assert keys > 0

    @pytest.fixture
    def keys(self, request: pytest.FixtureRequest, open_map: OpenMap) -> int:
        """The number of keys in the largest call. The first use times the map and prints it."""
        cls = type(self)
        if "_keys" not in vars(cls):
            long, put_s, key_s = self.long or is_long(), *_pace_of(open_map)
            fitted = fitting(_KEYS_MIN, _KEYS_MAX, _KEYS_S, key_s, long=long)
            cls._keys = fitted if self.keys_max is None else self.keys_max
            whole_s = _PUTS * put_s + (_KEYS + cls._keys) * key_s
            announce(
                request,
                f"{cls.__name__}: about {whole_s:.0f} s, at {1000 * put_s:.1f} ms a put and "
                f"{1000 * key_s:.3f} ms a key; {cls._keys:,} keys in a call"
                + ("" if long else f"; set {SWITCH}=1 for more"),
            )
        return cls._keys


# The least and the most keys of the largest call, and its share of a minute.
_KEYS_MIN, _KEYS_MAX, _KEYS_S = 200, 10_000, 20.0

# What the other tests do.
_PUTS, _KEYS = 380, 1_500

# What is timed: the keys of a put that is not small, and when to time one that is large.
_SOME, _FAST_S = 100, 0.1


def _pace_of(open_map: OpenMap) -> tuple[float, float]:
    """Return how long a put takes, and each further key; 0 for a map that raises."""
    with contextlib.suppress(Exception):  # the test of what it does wrong says why
        texts = open_map()
        put_s = sorted(_put_s(texts, 1) for _ in range(3))[1]
        keys, bulk_s = _SOME, _put_s(texts, _SOME)
        if bulk_s < _FAST_S:
            keys, bulk_s = _KEYS_MAX, _put_s(texts, _KEYS_MAX)
        return put_s, max(0.0, bulk_s - put_s) / keys
    return 0.0, 0.0


def _put_s(texts: BackingMap, keys: int) -> float:
    begun = time.perf_counter()
    texts.multi_put([f'["pace","row","[{n}]"]' for n in range(keys)], ["[0]"] * keys)
    return time.perf_counter() - begun


def table_of(name: str, kind: StateKind) -> StateTable:
    """Return a state of a number by text."""
    return StateTable(name, kind, Fields("key string"), Fields("value long"))


def commit_to(
    state: OpaqueMap | TransactionalMap, txid: int, values: dict[str, int | None]
) -> None:
    """Claim with the next epoch and commit; ignore a crash, which the next attempt repairs."""
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


def seen_in(state: OpaqueMap | TransactionalMap) -> dict[str, int]:
    """Return the contents of a state over a map, and close it."""
    with state.snapshot() as snapshot:
        found = {key[0]: row.visible() for key, row in snapshot.items()}
    state.close()
    return {key: values[0] for key, values in found.items() if values is not None}
