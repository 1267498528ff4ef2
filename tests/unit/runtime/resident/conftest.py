"""A carrier of one slot, which is a thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.runtime.resident.held import Slots


@pytest.fixture
def one() -> Iterator[Slots]:
    slots = Slots(1)
    yield slots
    slots.close()
