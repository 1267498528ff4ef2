"""Carriers of one slot, which is a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.unit.resident.held import Limited, Slots
from txtopo.resident.slot_runner import SlotLimits


@pytest.fixture
def limited() -> Iterator[Limited]:
    """Make one that waits for its slot as long as is said."""
    with ExitStack() as stack:

        def make(limits: SlotLimits) -> Slots:
            slots = Slots(1, limits=limits)
            stack.callback(slots.close)
            return slots

        yield make


@pytest.fixture
def one(limited: Limited) -> Slots:
    """One that waits as in a run."""
    return limited(SlotLimits())
