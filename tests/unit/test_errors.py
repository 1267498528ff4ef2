"""Each error pickles with its facts."""

from __future__ import annotations

import pickle
from inspect import isclass

import pytest

from txtopo import errors
from txtopo.errors import TEXT_CHARACTERS_MAX, TxtopoError, ValueRefusedError
from txtopo.stages.user_errors import pickled_error

KINDS = [
    thing for thing in vars(errors).values() if isclass(thing) and issubclass(thing, TxtopoError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_pickles_with_its_facts(kind: type[TxtopoError]) -> None:
    error = kind("n is wrong; got 3", setting="n", got=3, expected=("1", "2"))

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is kind
    assert str(copy) == str(error)
    assert copy.facts == {"setting": "n", "got": 3, "expected": ("1", "2")}
    assert (copy.setting, copy.got, copy.component) == ("n", 3, None)


def test_a_long_fact_is_shortened_as_the_message_is() -> None:
    """An error that is too large for the driver is replaced by one of another kind."""
    long = "é" * 1_000_000
    error = ValueRefusedError(f"cannot store {long}", got=long)

    assert len(str(error.got)) == len(str(error)) < TEXT_CHARACTERS_MAX + 10
    assert type(pickle.loads(pickled_error(error, "counts"))) is ValueRefusedError
