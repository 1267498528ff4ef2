"""Kinds of bolts have names that last, and are the same after they have travelled to a task."""

from __future__ import annotations

import pickle
import re

import pytest

from tests.unit.test_layout import PACKAGES, ROOT
from txtopo.reliable.kinds import BOLT
from txtopo.topology.bolt_kinds import BOLTS, BoltKind

KINDS = (*BOLTS.values(), BOLT)


def test_the_texts_that_fingerprints_have_do_not_change() -> None:
    assert [kind.text for kind in KINDS] == [
        "basic bolt",
        "batch bolt",
        "arrow bolt",
        "DataFrame bolt",
        "persistent aggregate",
        "bolt",
    ]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.text)
def test_a_kind_that_has_travelled_to_a_task_is_the_same_one(kind: BoltKind) -> None:
    travelled = pickle.loads(pickle.dumps(kind))

    assert [each for each in KINDS if each == travelled] == [kind]
    assert hash(travelled) == hash(kind)


def test_nobody_asks_whether_a_kind_is_identical_to_another() -> None:
    identical = re.compile(r"\bis (?:not )?(?:\w+_BOLT|BOLT|PERSISTENT_AGGREGATE)\b")

    for path in (each for folder in PACKAGES for each in (ROOT / folder).rglob("*.py")):
        assert identical.search(path.read_text()) is None, path
