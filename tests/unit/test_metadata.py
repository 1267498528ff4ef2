"""Metadata: what JSON gives back unchanged, and copies that share nothing."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

import pytest

from txtopo.metadata import json_copy, json_flaw, json_text


class Side(IntEnum):
    LEFT = 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        7,
        2**70,
        "ü",
        1.5,
        [],
        [3, "a", None],
        (1, 2),
        Side.LEFT,
        [Side.LEFT],
        {"0": [0, 10], "1": {"deep": [1.5, [True]]}},
        {"0": 5, "1": None, "2": "a"},
        {"0": Side.LEFT},
    ],
)
def test_a_copy_is_what_json_gives_back(value: Any) -> None:
    copy = json_copy(value)

    assert copy == json.loads(json.dumps(value))
    assert type(copy) is type(json.loads(json.dumps(value)))
    assert json.loads(json_text(value)) == copy


@pytest.mark.parametrize("value", [[1, 2], [[1], 2], {"a": 1}, {"a": [1]}])
def test_a_copy_shares_nothing_with_the_value(value: Any) -> None:
    before, copy = json.dumps(value), json_copy(value)

    value.clear()

    assert json.dumps(copy) == before


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        ({1: "a"}, "the key 1 is of type int, not a string"),
        ([{"a": {None: 1}}], "the key None is of type NoneType, not a string"),
        ((1, {True: 1}), "the key True is of type bool, not a string"),
        ({"1": "a", 1: "b"}, "the key 1 is of type int, not a string"),
        ({"a": float("nan")}, "Out of range float values are not JSON compliant"),
        (float("nan"), "Out of range float values are not JSON compliant"),
        ([float("inf")], "Out of range float values are not JSON compliant"),
        ({1, 2}, "Object of type set is not JSON serializable"),
        ([b"x"], "Object of type bytes is not JSON serializable"),
    ],
)
def test_a_flaw_is_named(value: object, flaw: str) -> None:
    assert flaw in str(json_flaw(value))
    with pytest.raises(ValueError, match=r"is not|are not|not a string"):
        json_copy(value)
