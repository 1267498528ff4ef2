"""What a group of txids adds to a state is what its txids add one after the other."""

from __future__ import annotations

import math
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from txtopo import Count, CountDistinct, First, Last, Max, Mean, Min, PersistentAggregate, Sum, TopN
from txtopo.plugins.stores import Key, Merges, Row, StateTable, changed_rows
from txtopo.stages.aggregation import Aggregation
from txtopo.state import Aggregate, open_state
from txtopo.state.ledger import Standing
from txtopo.tuples import Fields

FIELDS = Fields("key string, n long, d double, f float, s string, m decimal(10,2), gone boolean")
CHOICES: dict[str, list[Any]] = {
    "key": ["a", "b"],
    "n": [None, 0, 1, -3, 2**40],
    "d": [None, 0.5, -1.5, math.nan, math.inf, -math.inf],
    "f": [None, 0.5, -1.5, math.nan, math.inf, -math.inf],
    "s": [None, "", "a", "b", "Ä"],
    "m": [None, Decimal("-1.25"), Decimal("3.50")],
    "gone": [False, False, True],
}
TAKE_BACK: list[Aggregate] = [Count(), Count("s"), Sum("n"), Sum("m"), Mean("n"), Mean("m")]
OTHERS: list[Aggregate] = [
    *(kind(name) for kind in (Min, Max) for name in "ndfsm"),
    *(TopN("n", 3), TopN("n", 2, labels=("s",)), TopN("s", 3)),
    *(CountDistinct("n", precision=4), CountDistinct("s", precision=4)),
]
BATCHES = 6


class Folded:
    """One aggregate over random batches, in memory."""

    def __init__(self, aggregate: Aggregate, retracted: str | None, random: Random) -> None:
        bolt = PersistentAggregate(open_state("memory:"), "key", aggregate, retracted=retracted)
        self.aggregation = Aggregation.of(bolt, FIELDS)
        keys, values = bolt.key_fields(FIELDS), bolt.value_fields(FIELDS)
        self.table = StateTable("t", "opaque", keys, values, tuple(bolt.aggregates.values()))
        self.batches = [
            [
                {name: random.choice(choices) for name, choices in CHOICES.items()}
                for _ in range(random.randrange(5))
            ]
            for _ in range(BATCHES)
        ]

    def in_groups(self, ends: list[int]) -> dict[Key, list[str]]:
        """Return what readers see when groups with these ends were written."""
        rows: dict[Key, Row] = {}
        for begin, end in zip([0, *ends], ends, strict=False):
            writes = self._writes(begin, end)
            for key, row in changed_rows(self.table, rows, end, writes, Standing.APPLY).items():
                assert row is not None
                rows[key] = row
        aggregates = self.table.aggregates
        return {
            # As text: NaN does not equal NaN.
            key: [repr(a.shown(v)) for a, v in zip(aggregates, row.visible() or (), strict=True)]
            for key, row in rows.items()
        }

    def _writes(self, begin: int, end: int) -> Merges:
        partials = [
            self.aggregation.combine([self.aggregation.inputs_of(batch)])
            for rows in self.batches[begin:end]
            if (batch := pa.RecordBatch.from_pylist(rows, FIELDS.arrow_schema())).num_rows
        ]
        combined = [self.aggregation.combine(partials)] if partials else []
        table = pa.Table.from_batches(combined, self.aggregation.schema)
        return Merges(table.select(self.aggregation.stored))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("aggregate", "retracted"),
    [*((each, None) for each in (*TAKE_BACK, *OTHERS)), *((each, "gone") for each in TAKE_BACK)],
    ids=repr,
)
@examples(20)
@given(seed=st.integers(0, 2**32))
def test_a_group_adds_what_its_txids_add_one_after_the_other(
    aggregate: Aggregate, retracted: str | None, seed: int
) -> None:
    random = Random(seed)
    folded = Folded(aggregate, retracted, random)
    ends = sorted({BATCHES, *(random.randrange(1, BATCHES) for _ in range(2))})

    assert folded.in_groups(ends) == folded.in_groups([*range(1, BATCHES + 1)])


@pytest.mark.parametrize("kind", [First, Last])
def test_what_a_group_would_decide_otherwise_is_committed_one_by_one(
    kind: type[First | Last],
) -> None:
    assert Folded(kind("n", order="d"), None, Random(0)).aggregation.by_txid
    assert Folded(Sum("d"), None, Random(0)).aggregation.ordered
    assert Folded(Mean("f"), None, Random(0)).aggregation.ordered
