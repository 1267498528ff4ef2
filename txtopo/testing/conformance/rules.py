"""Rule: what a store promises, and what it may refuse.

A test of a suite is decorated with the rule that it proves (:func:`proves`), and names it when it
fails. A store declares in ``StateBackendSuite.refused`` which values of :data:`REFUSABLE` it
refuses. It must return everything else exactly (:func:`exactly`).

This module is imported before all others of the package, so that pytest rewrites their assertions
and shows the compared values.
"""

from __future__ import annotations

import datetime
import decimal
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from txtopo.extras import require

require("pytest", "txtopo.testing.conformance")

# isort: split
import pytest  # noqa: E402 - after the line that explains how to get it

if TYPE_CHECKING:
    from txtopo.testing.conformance.ensemble_fixtures import EnsembleRule
    from txtopo.testing.conformance.spout_source import SpoutRule

for _module in sorted(Path(__file__).parent.glob("*.py")):
    if _module.stem not in ("__init__", "rules"):
        pytest.register_assert_rewrite(f"txtopo.testing.conformance.{_module.stem}")

P = ParamSpec("P")

R = TypeVar("R")


class Rule(Enum):
    """A promise of every store; the numbers are those of :mod:`txtopo.state.backend`."""

    ONE_WRITE = "rule 1: ledger and rows are written together or not at all"
    ORDER = "rule 1: a commit obeys txtopo.state.ledger.standing: no gap, no step back"
    FENCE = "rule 1: only the epoch that claimed the ledger last may write, only a newer attempt"
    CLAIM = "StateBackend.claim: the epoch is written as txtopo.state.ledger.claimed computes it"
    UNDO = "rule 2: before a redo every row of the txid is restored to its earlier values"
    KEPT = "rule 3: a transactional state that holds the txid keeps its rows, and notes the writer"
    PREVIOUS = "rule 4: the first write of a key in a txid moves its value to previous"
    TOMBSTONE = (
        "rule 5: a delete can be undone, is hidden from readers, and gone with the next txid"
    )
    GROUP = (
        "rule 7: a group of txids is written like its last txid, with the same bounds or not at all"
    )
    TOGETHER = (
        "rule 9: states of one database are written in one transaction, each by its own ledger"
    )
    WITNESS = "rule 8: the ledger notes a row of the last change, and a start checks it"
    COPY = "rule 11: a copy is written at rest, and its ledger names its txid without a writer"
    EVOLVES = "StateBackend.evolves: a claim that may do so adds new columns, with their defaults"
    RANGE = (
        "Snapshot.between, starting: they yield at least the requested rows, and what txid wrote"
    )
    EXPIRY = "StateBackend.expire: it deletes what txtopo.state.ledger.expiring allows, and no more"
    DURABLE = "StateBackend: what claim and commit wrote is there when the URL is opened next"
    SNAPSHOT = "Snapshot: rows and ledger are from one moment"
    EXACT = "ValueRefusedError: a value is stored exactly, or refused before any write"
    KEYS = "Key: different keys are different rows, and equal keys are one row"
    COMBINE = "Merges: partials are combined with stored values as by Aggregate.combine_values"
    OUTCOME = "UnknownOutcomeError: after a lost answer the ledger shows what was written"

    @property
    def broken(self) -> str:
        """The note on a test that found the rule broken."""
        return f"the store violated {self.value}; see txtopo/state/backend.py"


class MapRule(Enum):
    """A promise of a backing map; see :mod:`txtopo.state.backing_map`."""

    TEXTS = "keys and values are texts, and are returned unchanged, however odd or long"
    ANSWERS = "multi_get returns one value for each key, in their order, and None for a missing key"
    PUT = "multi_put replaces the values of its keys and leaves all others"
    ATOMIC = "the write of one key is done whole or not at all, and is seen whole"
    DURABLE = "what multi_put wrote is there when the store is opened next"
    REDO = "a put that ends halfway is undone, or written again, by the next attempt"
    COMPARES = "compare_and_put compares and writes in one step"

    @property
    def broken(self) -> str:
        """The note on a test that found the rule broken."""
        return f"the map violated a rule: {self.value}; see txtopo/state/backing_map.py"


PROVED: dict[Enum, list[str]] = {}
"""The tests that prove each rule, in the order in which their modules were imported."""


def proves(
    rule: Rule | MapRule | SpoutRule | EnsembleRule,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator by which a failing test names the rule that is broken."""

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

        PROVED.setdefault(rule, []).append(test.__name__)
        return proof

    return decorate


def exactly(value: Any) -> Any:
    """Return a value that compares equal only for values that are the same to the last bit.

    NaN equals itself here, -0.0 differs from 0.0, and 1 from 1.0 and True. A point in time is the
    same in every time zone.
    """
    if isinstance(value, Mapping):
        return {exactly(key): exactly(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(exactly(part) for part in value)
    if isinstance(value, float):
        # All NaNs are equal here: databases do not keep their other bits.
        return float, "nan" if value != value else struct.pack(">d", value)
    if isinstance(value, decimal.Decimal):
        return decimal.Decimal, str(value)
    if isinstance(value, datetime.datetime):
        zone = None if value.tzinfo is None else "UTC"
        return datetime.datetime, (value.astimezone(datetime.UTC) if zone else value).isoformat()
    return type(value), value


Part = Literal["key", "value"]


@dataclass(frozen=True, slots=True)
class Refusable:
    """A kind of value that a store may refuse.

    Attributes:
        why: Which stores refuse it, and why.
        type: The type of the field that holds it.
        part: ``"key"`` or ``"value"``.
        value: An example.
        harmless: A value of the same field that every store accepts.
        in_arrow: Whether Arrow can hold it, so that it may be in a partial aggregate.
    """

    why: str
    type: str
    part: Part
    value: Any
    harmless: Any
    in_arrow: bool = True


# Random characters, which no store can compress.
_WIDE = "".join(random.Random(700).choices([chr(0x10000 + at) for at in range(40_000)], k=700))

REFUSABLE: Mapping[str, Refusable] = MappingProxyType(
    {
        "nan": Refusable("SQLite and MySQL have no NaN", "double", "value", float("nan"), 1.0),
        "infinity": Refusable("MySQL has none", "double", "value", float("-inf"), 1.0),
        "negative zero": Refusable("SQLite writes -0.0 as 0", "double", "value", -0.0, 1.0),
        "nul in keys": Refusable("PostgreSQL's text has no NUL", "string", "key", "a\0b", "a"),
        "nul in strings": Refusable("PostgreSQL's text has no NUL", "string", "value", "\0", "a"),
        "surrogates in keys": Refusable(
            "a lone surrogate is no UTF-8", "string", "key", "a\ud800", "a", in_arrow=False
        ),
        "surrogates in strings": Refusable(
            "a lone surrogate is no UTF-8", "string", "value", "\udfff", "a", in_arrow=False
        ),
        "keys beyond 2,700 bytes": Refusable(
            "an index entry has to fit a page", "string", "key", _WIDE, "a"
        ),
        "dates before 1000": Refusable(
            "MySQL promises none",
            "date",
            "value",
            datetime.date(1, 1, 1),
            datetime.date(2013, 7, 4),
        ),
        "timestamps before 1000": Refusable(
            *("MySQL promises none", "timestamp_ntz", "value"),
            *(datetime.datetime(1, 1, 1), datetime.datetime(2013, 7, 4)),
        ),
    }
)
"""The refusable kinds, by the name for ``StateBackendSuite.refused``."""
