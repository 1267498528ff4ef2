"""TopN in columns: byte for byte what it stores when it combines key by key."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from txtopo import Fields, PersistentAggregate, TopN
from txtopo.errors import SchemaDrift, ValueRefusedError
from txtopo.plugins.stores import Key, Merges, Row, StateTable, final_values
from txtopo.stages.aggregation import Aggregation
from txtopo.state import largest_entries, open_state
from txtopo.streams.tables import Aggregating

LABELS = Fields("flag boolean, at double, id long, word string, cost decimal(9,2), seen timestamp")
NUMBERS = [0, 1, 2, 12, -1, 2**53 + 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, 2.0, 12.0, 0.1, -1.5, 1e16, 5e-324, float(2**53)]
WORDS = ["", "a", "ab", "Ä", "\uffff", "😀", '"', "\\", "],[", "1,2", "\n"]
# 9 is before 12 as a number, and behind it as a text.
DECIMALS = ["0", "0.0000001", "-0.5", "9", "12", "12.0000001", "-12", "90071992547.4099301"]
TIMES = [datetime.datetime(1, 1, 1), datetime.datetime(2026, 1, 31, 12, 0, 0, 5)]
CHOICES: dict[str, list[Any]] = {
    "decimal(20,7)": list(map(Decimal, DECIMALS)),
    "decimal(9,2)": [Decimal("0.00"), Decimal("9.50"), Decimal("-12.34")],
    "date": [datetime.date(1, 1, 1), datetime.date(2026, 1, 31), datetime.date(2026, 2, 1)],
    "timestamp": [each.replace(tzinfo=datetime.UTC) for each in TIMES],
    "timestamp_ntz": [*TIMES, datetime.datetime(2026, 1, 31, 12)],
    "long": NUMBERS,
    "int": NUMBERS[:5],
    "double": FLOATS,
    "float": FLOATS[:7],
    "string": WORDS,
    "boolean": [False, True],
}


class Best:
    """A TopN over a column of one type."""

    def __init__(self, kind: str, n: int = 2, labels: tuple[str, ...] = ()) -> None:
        self.fields = Fields.of([*Fields("key string, x " + kind), *LABELS])
        bolt = PersistentAggregate(open_state("memory:"), "key", TopN("x", n, labels=labels))
        self.aggregation = Aggregation.of(bolt, self.fields)
        self.aggregating = Aggregating(bolt, self.fields)
        keys, values = bolt.key_fields(self.fields), bolt.value_fields(self.fields)
        kinds = bolt.stored_aggregates(self.fields)
        self.table = StateTable("t", "opaque", keys, values, kinds)

    def rows(self, random: Random) -> pa.RecordBatch:
        """Return some random rows of few keys."""
        rows = [
            {
                field.name: random.choice([None, *CHOICES[field.type]])
                for field in self.fields
                if field.name != "key"
            }
            | {"key": random.choice("abcd")}
            for _ in range(random.randrange(12))
        ]
        return pa.RecordBatch.from_pylist(rows, self.fields.arrow_schema())

    def partials(self, batches: list[pa.RecordBatch]) -> pa.Table:
        """Return the partial results of a batch, merged from those of its tasks."""
        parts = [self.aggregation.inputs_of(batch) for batch in batches]
        return pa.table(self.aggregation.combine(parts))

    def final(self, stored: Mapping[Key, Row], partials: pa.Table) -> dict[Key, Any]:
        """Return what a store writes."""
        return dict(final_values(self.table, 2, Merges(partials), lambda _: stored).rows)


@pytest.fixture(autouse=True, scope="module")
def few_rows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(largest_entries, "ROWS_MIN", 0)
        yield


KINDS = [(kind, kind) for kind in CHOICES if kind != "boolean"]


@examples(40)
@given(
    kinds=st.sampled_from([*KINDS, ("long", "double")]),
    seed=st.integers(0, 2**32),
    n=st.integers(1, 4),
    labels=st.lists(st.sampled_from(LABELS.names), max_size=3, unique=True),
    tasks=st.integers(1, 3),
)
def test_largest_entries_are_those_that_are_found_key_by_key(
    kinds: tuple[str, str], seed: int, n: int, labels: list[str], tasks: int
) -> None:
    random = Random(seed)
    old, new = (Best(kind, n, tuple(labels)) for kind in kinds)
    earlier = [old.rows(random) for _ in range(2)]
    batches = [new.rows(random) for _ in range(tasks)]

    def results() -> list[Any]:
        stored = old.partials(earlier)
        rows = {key: Row(1, values) for key, values in old.final({}, stored).items()}
        partials = new.partials(batches)
        united = new.aggregating.united(pa.concat_tables([stored, partials]))
        return [partials.to_pydict(), new.final(rows, partials), united.to_pydict()]

    with pytest.MonkeyPatch.context() as patch:
        if kinds in KINDS:
            patch.delattr(TopN, "_largest")
        found = results()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopN, "at_once", False)
        assert found == results()


def test_a_subclass_of_topn_combines_key_by_key() -> None:
    class Smallest(TopN):
        def folded(self, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
            return (sorted(value for (value,) in rows)[: self.n],)

    bolt = PersistentAggregate(open_state("memory:"), "key", {"v": Smallest("x", 2)})
    fields = Fields("key string, x long")
    rows = pa.RecordBatch.from_pydict(
        {"key": ["a"] * 200, "x": list(range(200))}, schema=fields.arrow_schema()
    )

    found = Aggregation.of(bolt, fields).inputs_of(rows)

    assert found.column("v").to_pylist() == ["[0,1]"]


def test_among_equal_values_the_larger_text_of_the_labels_counts() -> None:
    best = Best("long", 3, ("id",))
    rows = [{"key": "a", "x": 7, "id": label} for label in (1, 2, 12)]

    found = best.partials([pa.RecordBatch.from_pylist(rows, best.fields.arrow_schema())])

    assert found.column("topn_x").to_pylist() == ["[[7,2],[7,1],[7,12]]"]


@pytest.mark.parametrize("rows_min", [0, 100], ids=["columns", "python"])
def test_decimals_are_ordered_as_numbers_and_kept_as_text_with_all_digits(
    monkeypatch: pytest.MonkeyPatch, rows_min: int
) -> None:
    monkeypatch.setattr(largest_entries, "ROWS_MIN", rows_min)
    best = Best("decimal(20,7)", 3, ("seen",))
    at = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    rows = [{"key": "a", "x": Decimal(x), "seen": at} for x in ("9", "-10", "10.0000001")]
    tasks = [pa.RecordBatch.from_pylist([row], best.fields.arrow_schema()) for row in rows]

    found = best.partials(tasks)

    assert json.loads(found.column("topn_x")[0].as_py()) == [
        [x, "2026-01-31T12:00:00.000000+00:00"] for x in ("10.0000001", "9.0000000", "-10.0000000")
    ]


@pytest.mark.parametrize(
    ("value", "label"), [(math.inf, 0.5), (0.5, -math.inf), (None, math.nan)], ids=str
)
def test_a_number_that_is_not_finite_is_refused_wherever_it_is(value: Any, label: float) -> None:
    best = Best("double", labels=("at",))
    rows = [{"key": "a", "x": 1.0, "at": 1.0}, {"key": "b", "x": value, "at": label}]
    refused = label if value != math.inf else value

    with pytest.raises(ValueRefusedError, match=rf"TopN\('x'\) keeps no {refused}; expected"):
        best.partials([pa.RecordBatch.from_pylist(rows, best.fields.arrow_schema())])


STORED = {
    "spaces": ("[ 3, 1 ]", "[3,2]"),
    "mixed": ("[3.0,1]", "[3.0,2]"),
    "null": (None, "[2]"),
}


@pytest.mark.parametrize("stored", STORED)
def test_a_list_that_was_written_otherwise_is_united_as_python_has_it(stored: str) -> None:
    best = Best("long")
    text, wanted = STORED[stored]
    rows = [{"key": "a", "x": 2}]
    batch = pa.RecordBatch.from_pylist(rows, best.fields.arrow_schema())

    found = best.final({("a",): Row(1, (text,))}, best.partials([batch]))

    assert found == {("a",): (wanted,)}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("3]", SchemaDrift),
        ("[3],[1]", SchemaDrift),
        ("[NaN]", ValueRefusedError),
        (json.dumps([2**63]), ValueRefusedError),
    ],
)
def test_a_list_that_topn_cannot_have_written_is_refused(text: str, error: type[Exception]) -> None:
    best = Best("long")
    batch = pa.RecordBatch.from_pylist([{"key": "a", "x": 2}], best.fields.arrow_schema())

    with pytest.raises(error):
        best.final({("a",): Row(1, (text,))}, best.partials([batch]))
