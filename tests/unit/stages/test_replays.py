"""What a batch brought, in a few bytes: what counts and what does not."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from txtopo.metadata import Json
from txtopo.stages.columns import to_batches
from txtopo.stages.replays import Digest
from txtopo.tuples import Fields

TWO = Fields("word string, n long")
ROWS: list[Any] = [["ab", 1], ["c", None], [None, 3], ["", 4]]


def content(rows: Sequence[Any], *cuts: int, fields: Fields = TWO, stream: str = "default") -> Json:
    """Return the content of rows that come in record batches which end at *cuts*."""
    digest = Digest()
    add(digest, rows, *cuts, fields=fields, stream=stream)
    return digest.take()


def add(
    digest: Digest,
    rows: Sequence[Any],
    *cuts: int,
    fields: Fields = TWO,
    stream: str = "default",
    sliced: bool = False,
) -> None:
    schema = fields.arrow_schema()
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        if sliced:
            batch = next(to_batches("spout", stream, fields, schema, rows))[start:end]
        else:
            (batch,) = to_batches("spout", stream, fields, schema, rows[start:end])
        digest.add(stream, batch, None)


def test_the_number_of_tuples_is_told() -> None:
    match content(ROWS):
        case [4, str(digest)]:
            assert len(digest) == 16
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("cuts", [(1,), (2,), (1, 2, 3), (3,)])
@pytest.mark.rule("txtopo.stages.replays", "Rules", 2)
def test_how_tuples_are_shared_among_record_batches_does_not_count(
    cuts: tuple[int, ...], sliced: bool
) -> None:
    """A client of Kafka hands on what has just arrived."""
    digest = Digest()
    add(digest, ROWS, *cuts, sliced=sliced)

    assert digest.take() == content(ROWS)


@pytest.mark.parametrize(
    "other",
    [
        ROWS[:-1],
        [*ROWS, ["", 4]],
        [ROWS[1], ROWS[0], *ROWS[2:]],
        [["a", 1], ["bc", None], *ROWS[2:]],
        [["ab", 2], *ROWS[1:]],
        [["ab", None], ["c", 1], *ROWS[2:]],
        [*ROWS[:2], ["", 3], [None, 4]],
        [*ROWS[:1], ["c", 0], *ROWS[2:]],
        [],
    ],
)
def test_other_tuples_or_another_order_have_another_content(other: list[Any]) -> None:
    assert content(other) != content(ROWS)
    assert len(other) == 0 or content(other) == content(other, 1)


def test_columns_and_streams_are_told_apart() -> None:
    pair = Fields("a long, b long")

    assert content([[1, 2]], fields=pair) != content([[2, 1]], fields=pair)
    assert content(ROWS, stream="other") != content(ROWS)


@pytest.mark.rule("txtopo.stages.replays", "Rules", 2)
def test_the_order_of_the_streams_does_not_count() -> None:
    one, other = Digest(), Digest()
    add(one, ROWS, stream="a")
    add(one, ROWS[:1], stream="b")

    add(other, ROWS[:1], stream="b")
    add(other, ROWS[:2], stream="a")
    add(other, ROWS[2:], stream="a")
    assert one.take() == other.take()


def test_the_tasks_of_a_direct_stream_count() -> None:
    (batch,) = to_batches("spout", "default", TWO, TWO.arrow_schema(), ROWS[:2])
    contents = []
    for targets in ([0, 1], [1, 0]):
        digest = Digest()
        digest.add("default", batch, targets)
        contents.append(digest.take())

    assert contents[0] != contents[1]


def test_the_next_part_begins_again() -> None:
    digest = Digest()
    add(digest, ROWS[:1])
    digest.take()
    add(digest, ROWS)

    assert digest.take() == content(ROWS)
    assert digest.take() == content([])


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("string", "é", "e"),
        ("binary", b"\x00", b""),
        ("boolean", True, False),
        ("byte", 1, -1),
        ("short", 1, 2),
        ("int", 1, 2),
        ("long", 1, 2**40),
        ("float", 1.0, 1.5),
        ("double", 1.0, float("nan")),
        ("decimal(10,2)", decimal.Decimal("1.00"), decimal.Decimal("1.01")),
        ("date", datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)),
        ("timestamp", *(datetime.datetime(2026, 1, d, tzinfo=datetime.UTC) for d in (1, 2))),
        ("timestamp_ntz", *(datetime.datetime(2026, 1, d) for d in (1, 2))),
    ],
)
def test_every_type_counts(kind: str, one: Any, other: Any) -> None:
    fields = Fields(f"value {kind}")
    rows = [[one], [None], [other], [one]]

    whole = content(rows, fields=fields)
    assert whole == content(rows, 1, 3, fields=fields)
    assert whole == content(rows, 2, fields=fields)
    assert whole != content([[one], [None], [one], [one]], fields=fields)
    assert whole != content([[None], [one], [other], [one]], fields=fields)


def test_tuples_without_fields_are_counted() -> None:
    digest = Digest()
    digest.add("default", pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([]))), None)

    assert digest.take() == content([[]] * 3, fields=Fields())
