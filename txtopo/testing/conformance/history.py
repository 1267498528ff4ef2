"""A random opaque history, and plain Python that says what the state holds after each step."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from txtopo.errors import PromiseError
from txtopo.state import StateTransaction
from txtopo.testing.conformance.driver import StateDriver, adding
from txtopo.testing.conformance.subject import Drive, stored_rows

TXIDS = 3
Contents = dict[str, int | None]
Commit = Callable[[StateDriver, int, int, "Draw", Contents], tuple[str, Contents]]
"""(store, txid, attempt, draw, contents before the txid) -> what was done, contents after."""


class Draw(random.Random):
    """The chance of one history, and the keys that are its own."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.keys = [f"{letter}{seed}" for letter in "abcde"]


class History:
    """A handful of txids, each with one to three attempts that bring other batches.

    Between attempts the coordinator may die: its successor opens the store anew and claims it, and
    the dead one may turn out to be alive and write once more.

    Args:
        store: The state in the hands of the first coordinator; it holds what *contents* says.
        drive: Opens it for the next one.
        seed: Which history.
        contents: What the state holds of earlier histories.
        fenced: Whether a zombie has to be refused.

    Attributes:
        store: The state in the hands of the last coordinator.
        contents: What it holds.
    """

    def __init__(
        self, store: StateDriver, drive: Drive, seed: int, contents: Contents, *, fenced: bool
    ) -> None:
        self.store = store
        self.contents = contents
        self._drive = drive
        self._draw = Draw(seed)
        self._fenced = fenced
        self._steps = [f"history {seed}:"]

    def run(self, txid: int, commit: Commit) -> None:
        """Play the history from *txid* on; fail when the state holds something else."""
        for at in range(txid, txid + TXIDS):
            before = self.contents
            for attempt in range(self._draw.choice([1, 1, 2, 3])):
                if self._draw.random() < 0.06:
                    self._take_over(at, commit)
                step, self.contents = commit(self.store, at, attempt, self._draw, before)
                self._check(f"txid {at} attempt {attempt}: {step}")

    def _take_over(self, txid: int, commit: Commit) -> None:
        old = self.store
        self.store = self._drive(old.state, old.epoch + 1)
        self._check(f"epoch {self.store.epoch} takes over")
        if self._fenced:
            try:
                commit(old, txid, 9, self._draw, self.contents)
                self._steps.append(f"the commit of txid {txid} by epoch {old.epoch} was let in")
            except PromiseError:
                pass
            self._check(f"epoch {old.epoch} was a zombie")
        old.close()

    def _check(self, step: str) -> None:
        self._steps.append(step)
        rows = {key: row.visible() for (key,), row in stored_rows(self.store).items()}
        seen = {key: values[0] for key, values in rows.items() if values is not None}
        assert seen == self.contents, "\n".join(
            [*self._steps, f"expected {self.contents}", f"got      {seen}"]
        )


def merging(
    store: StateDriver, txid: int, attempt: int, draw: Draw, before: Contents
) -> tuple[str, Contents]:
    """Commit partial counts."""
    batch = {key: draw.randint(1, 9) for key in draw.keys if draw.random() < 0.4}
    store.merge(txid, list(batch.items()), attempt)
    return f"merge {batch}", before | {key: (before.get(key) or 0) + n for key, n in batch.items()}


def writing(
    store: StateDriver, txid: int, attempt: int, draw: Draw, before: Contents
) -> tuple[str, Contents]:
    """Commit updates, NULLs and removals, several of a key too."""
    after = dict(before)
    script: list[tuple[str, str, int]] = [
        (draw.choice(["add", "add", "null", "delete"]), draw.choice(draw.keys), draw.randint(1, 9))
        for _ in range(draw.randint(0, 6))
    ]
    for what, key, amount in script:
        if what == "delete":
            after.pop(key, None)
        else:
            after[key] = None if what == "null" else (after.get(key) or 0) + amount

    def body(state: StateTransaction) -> Any:
        for what, key, amount in script:
            if what == "delete":
                state.delete(key)
            elif what == "null":
                state.put(key, None)
            else:
                adding((key, amount))(state)
        return dict(state.items())

    seen = store.run(txid, body, attempt)
    assert seen == after, f"a transaction sees {seen} after {script} on {before}"
    return f"write {script}", after
