"""Random opaque histories against plain Python: changed replays, removals, new epochs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.chance import times
from tests.state_backends.driver import StateDriver, adding
from txtopo.state import Count, Fields, StateTransaction, open_state

KEYS = "abcdef"
TXIDS = times(50)


class HistorySuite:
    """Subclasses have a fixture ``url``; four histories of fifty replayed batches each."""

    @pytest.mark.parametrize("seed", range(4))
    def test_random_replays_end_as_the_oracle_says(self, url: str, seed: int) -> None:
        history = _History(url, random.Random(seed), merging=bool(seed % 2))

        wrong = [txid for txid in range(1, TXIDS + 1) if not history.goes_right(txid)]

        assert wrong == []


class _History:
    def __init__(self, url: str, chance: random.Random, *, merging: bool) -> None:
        state = open_state(url, table="history")
        if merging:
            state = state.with_columns(Fields("key string"), Fields("value long"), (Count(),))
        self.store = StateDriver(state)
        self.chance = chance
        self.merging = merging
        self.folded: dict[str, int] = {}

    def goes_right(self, txid: int) -> bool:
        """Commit one to three attempts of *txid*, each with another batch."""
        after = self.folded
        right = True
        for attempt in range(self.chance.randint(1, 3)):
            if self.chance.random() < 0.2:
                self.store.epoch += 1
                self.store.backend.claim("topology", self.store.epoch)
            after = self._step(txid, attempt)
            right = right and self._seen() == after
        self.folded = after
        return right

    def _step(self, txid: int, attempt: int) -> dict[str, int]:
        chance = self.chance
        batch = [(chance.choice(KEYS), chance.randint(1, 9)) for _ in range(chance.randint(0, 5))]
        after = dict(self.folded)
        sums: dict[str, int] = {}
        for key, amount in batch:
            after[key] = after.get(key, 0) + amount
            sums[key] = sums.get(key, 0) + amount
        if self.merging:
            self.store.merge(txid, list(sums.items()), attempt)
            return after
        removed = [key for key in KEYS if chance.random() < 0.2]

        def body(state: StateTransaction) -> Any:
            adding(*batch)(state)
            for key in removed:
                state.delete(key)
            return dict(state.items())

        after = {key: value for key, value in after.items() if key not in removed}
        assert self.store.run(txid, body, attempt) == after
        return after

    def _seen(self) -> dict[str, int]:
        with self.store.backend.snapshot() as snapshot:
            rows = {key[0]: row.visible() for key, row in snapshot.items()}
        return {key: values[0] for key, values in rows.items() if values is not None}
