"""How a test of a suite says which rule of a contract was broken.

This module is imported before the suites, so that their assertions show what was compared.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import pytest

if TYPE_CHECKING:
    from txtopo.testing.conformance.spout_rules import SpoutRule

for _module in sorted(Path(__file__).parent.glob("*_*.py")):
    if not _module.stem.startswith("_"):
        pytest.register_assert_rewrite(f"txtopo.testing.conformance.{_module.stem}")

P = ParamSpec("P")
R = TypeVar("R")


class Rule(Enum):
    """What a store promises; the numbered ones are those of :mod:`txtopo.state.backend`."""

    ONE_WRITE = "rule 1: ledger and rows are written together or not at all"
    ORDER = "rule 1: a commit asks txtopo.state.ledger.standing: no gap, no step back"
    FENCE = "rule 1: only the epoch that claimed the ledger last may write, only a newer attempt"
    CLAIM = "StateBackend.claim: the epoch is written as txtopo.state.ledger.claimed says"
    UNDO = "rule 2: before a redo every row of the txid goes back to what it was before"
    KEPT = "rule 3: a transactional state that holds the txid keeps its rows, and takes the writer"
    PREVIOUS = "rule 4: the first write of a key in a txid moves its value to previous"
    TOMBSTONE = (
        "rule 5: a delete can be undone, is hidden from readers, and gone with the next txid"
    )
    DURABLE = "StateBackend: what claim and commit wrote is there for whoever opens the URL next"
    SNAPSHOT = "Snapshot: rows and ledger are of one instant"
    EXACT = "ValueRefusedError: a value is stored exactly, or refused before any write"
    KEYS = "Key: keys that differ are different rows, and those that are equal are one"
    COMBINE = "Merges: partials meet what is stored as Aggregate.combine_values says"
    OUTCOME = "UnknownOutcomeError: after a lost answer the ledger tells what was written"

    @property
    def broken(self) -> str:
        """What to say when a test finds it broken."""
        return f"the store broke {self.value}; read txtopo/state/backend.py"


def proves(rule: Rule | SpoutRule) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a test name the rule that was broken when it fails."""

    def decorate(test: Callable[P, R]) -> Callable[P, R]:
        @wraps(test)
        def proof(*args: P.args, **kwargs: P.kwargs) -> R:
            __tracebackhide__ = True
            try:
                return test(*args, **kwargs)
            except pytest.skip.Exception:
                raise
            except BaseException as error:
                error.add_note(rule.broken)
                raise

        return proof

    return decorate
