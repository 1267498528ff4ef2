"""Cases of Flink, Kafka Streams and differential dataflow: joins without a bound in time.

A row is (key, value). A step is what a txid puts and takes back on the left and on the right, and
what is in the result after it, of which ``None`` is NULL. In Kafka Streams a new value of a key
replaces the old one, and NULL removes it; here the old row is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Step:
    """A txid.

    Attributes:
        left: The left rows that are put.
        right: The right rows that are put.
        left_back: The left rows that are taken back.
        right_back: The right rows that are taken back.
        result: The rows of the result after it: key, left value, right value.
        emitted: What it emits, as (taken back, row), if the source says so; else None.
    """

    left: Sequence[Row] = ()
    right: Sequence[Row] = ()
    left_back: Sequence[Row] = ()
    right_back: Sequence[Row] = ()
    result: Sequence[Row] = ()
    emitted: Sequence[tuple[bool, Row]] | None = None


@dataclass(frozen=True)
class RegularCase:
    """A join, and its txids.

    Attributes:
        source: The test that it is taken from.
        how: Which rows without a match are in the result.
        steps: The txids.
        differs: What is otherwise in the source, and why; empty for nothing.
    """

    source: str
    how: str
    steps: Sequence[Step] = field(default_factory=list)
    differs: str = ""


BELLEVUE, MANOR = "Bellevue Drive", "Manor Station Street"

UPDATED = "there a new row may come without the old one being taken back, if the planner says so"


def orders(how: str, source: str, *padded: bool) -> RegularCase:
    """Return the orders and their lines of Flink's harness: a line comes, changes, and goes."""
    left, right = padded
    alone = [("1", BELLEVUE, None)] if left else []
    ship_alone = [("1", None, "SHIP")] if right else []
    return RegularCase(
        f"Flink, StreamingJoinOperatorTest, {source}",
        how,
        [
            Step(left=[("1", BELLEVUE)], result=alone, emitted=[(False, row) for row in alone]),
            Step(
                right=[("1", "AIR")],
                result=[("1", BELLEVUE, "AIR")],
                emitted=[*((True, row) for row in alone), (False, ("1", BELLEVUE, "AIR"))],
            ),
            Step(
                right=[("1", "SHIP")],
                right_back=[("1", "AIR")],
                result=[("1", BELLEVUE, "SHIP")],
                emitted=[(True, ("1", BELLEVUE, "AIR")), (False, ("1", BELLEVUE, "SHIP"))],
            ),
            Step(
                left=[("1", MANOR)],
                left_back=[("1", BELLEVUE)],
                result=[("1", MANOR, "SHIP")],
                emitted=[(True, ("1", BELLEVUE, "SHIP")), (False, ("1", MANOR, "SHIP"))],
            ),
            Step(
                left_back=[("1", MANOR)],
                result=ship_alone,
                emitted=[(True, ("1", MANOR, "SHIP")), *((False, row) for row in ship_alone)],
            ),
            Step(
                right_back=[("1", "SHIP")],
                result=[],
                emitted=[(True, row) for row in ship_alone],
            ),
        ],
        UPDATED,
    )


KEYED = "KTableKTable"


def ktable(how: str, test: str) -> RegularCase:
    """Return the four keys of the joins of tables of Kafka Streams."""
    left, right = how in ("left", "full"), how in ("right", "full")

    def of(lefts: dict[int, str], rights: dict[int, str]) -> list[Row]:
        both = [(key, lefts[key], rights[key]) for key in lefts if key in rights]
        one = [(key, lefts[key], None) for key in lefts if left and key not in rights]
        return both + one + [(k, None, rights[k]) for k in rights if right and k not in lefts]

    steps: list[Step] = []
    sides: tuple[dict[int, str], dict[int, str]] = {}, {}
    changes: list[tuple[int, dict[int, str | None]]] = [
        (0, {0: "X0", 1: "X1"}),
        (1, {0: "Y0", 1: "Y1"}),
        (0, {key: f"XX{key}" for key in range(4)}),
        (1, {key: f"YY{key}" for key in range(4)}),
        (0, {key: f"XXX{key}" for key in range(4)}),
        (1, {0: None, 1: None}),
        (0, {key: f"XXXX{key}" for key in range(4)}),
        (0, dict.fromkeys(range(4))),
    ]
    for at, new in changes:
        old = [(key, sides[at][key]) for key in new if key in sides[at]]
        put = [(key, value) for key, value in new.items() if value is not None]
        for key, value in new.items():
            sides[at].pop(key, None)
            if value is not None:
                sides[at][key] = value
        changed = {"left": put, "left_back": old} if at == 0 else {"right": put, "right_back": old}
        steps.append(Step(**changed, result=of(*sides)))  # type: ignore[arg-type]
    return RegularCase(f"Kafka Streams, {KEYED}{test}, join", how, steps)


def foreign(how: str, test: str, *steps: Step) -> RegularCase:
    source = f"Kafka Streams, {KEYED}ForeignKeyJoinIntegrationTest, {test}, {how}"
    return RegularCase(source, how, steps)


def or_alone(how: str, *rows: Row) -> list[Row]:
    """Return left rows without a match, if they are in the result."""
    return [(key, value, None) for key, value in rows] if how == "left" else []


def foreign_key_cases(how: str) -> list[RegularCase]:
    """Return cases with many left rows for a right row: lhs1, lhs2 … and the rhs they refer to."""
    one, two, three = ("rhs1", "lhs1"), ("rhs2", "lhs2"), ("rhs1", "lhs3")
    return [
        foreign(
            how,
            "doJoinFromLeftThenDeleteLeftEntity",
            Step(right=[("rhs1", "v1"), ("rhs2", "v2"), ("rhs3", "v3")]),
            Step(left=[one, two], result=[(*one, "v1"), (*two, "v2")]),
            Step(left=[three], result=[(*one, "v1"), (*two, "v2"), (*three, "v1")]),
            Step(left_back=[one], result=[(*two, "v2"), (*three, "v1")]),
        ),
        foreign(
            how,
            "doJoinFromRightThenDeleteRightEntity",
            Step(left=[one, two, three], result=or_alone(how, one, two, three)),
            Step(
                right=[("rhs1", "v1")],
                result=[(*one, "v1"), (*three, "v1"), *or_alone(how, two)],
            ),
            Step(right=[("rhs2", "v2")], result=[(*one, "v1"), (*three, "v1"), (*two, "v2")]),
            Step(
                right=[("rhs3", "v3")],
                result=[(*one, "v1"), (*three, "v1"), (*two, "v2")],
                emitted=[],
            ),
            Step(
                right_back=[("rhs1", "v1")],
                result=[(*two, "v2"), *or_alone(how, one, three)],
            ),
        ),
        foreign(
            how,
            "joinShouldProduceNullsWhenValueHasNonMatchingForeignKey",
            Step(left=[one], result=or_alone(how, one)),
            Step(left=[("rhs2", "lhs1")], left_back=[one], result=or_alone(how, ("rhs2", "lhs1"))),
            Step(
                left=[("rhs3", "lhs1")],
                left_back=[("rhs2", "lhs1")],
                result=or_alone(how, ("rhs3", "lhs1")),
            ),
            Step(right=[("rhs1", "v1")], result=or_alone(how, ("rhs3", "lhs1")), emitted=[]),
            Step(left=[one], left_back=[("rhs3", "lhs1")], result=[(*one, "v1")]),
            Step(left=[("rhs2", "lhs1")], left_back=[one], result=or_alone(how, ("rhs2", "lhs1"))),
        ),
        foreign(
            how,
            "shouldUnsubscribeOldForeignKeyIfLeftSideIsUpdated",
            Step(right=[("rhs1", "v1"), ("rhs2", "v2")]),
            Step(left=[one], result=[(*one, "v1")]),
            Step(left=[("rhs2", "lhs1")], left_back=[one], result=[("rhs2", "lhs1", "v2")]),
            Step(
                right=[("rhs1", "delta")],
                right_back=[("rhs1", "v1")],
                result=[("rhs2", "lhs1", "v2")],
                emitted=[],
            ),
        ),
    ]


CASES: list[RegularCase] = [
    orders("inner", "InnerJoin", False, False),
    orders("left", "LeftOuterJoin, the right side changes, then goes", True, False),
    orders("right", "RightOuterJoin, the left side changes, then goes", False, True),
    orders("full", "FullOuterJoin, either side changes, then goes", True, True),
    ktable("inner", "InnerJoinTest"),
    ktable("left", "LeftJoinTest"),
    ktable("right", "RightJoinTest"),
    ktable("full", "OuterJoinTest"),
    *foreign_key_cases("inner"),
    *foreign_key_cases("left"),
    RegularCase(
        "differential dataflow, tests/join.rs, join_map",
        "inner",
        [
            Step(
                left=[(0, 0), (1, 2)],
                right=[(0, "a"), (1, "B")],
                result=[(0, 0, "a"), (1, 2, "B")],
                emitted=[(False, (0, 0, "a")), (False, (1, 2, "B"))],
            )
        ],
    ),
]
