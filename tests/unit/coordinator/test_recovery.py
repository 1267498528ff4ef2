"""What a coordinator starts from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness.metadata import CUTTING, of_one
from tests.unit.coordinator.script import OPAQUE, STORM
from txtopo.coordinator import Coordinator
from txtopo.errors import CorruptNodeError

ONE = of_one(1, {"0": 1})


def test_metadata_before_the_current_batch_is_never_taken_as_empty() -> None:
    with pytest.raises(CorruptNodeError, match="metadata of txid 4 is missing") as caught:
        Coordinator(STORM, epoch=2, current=5, stored={})

    assert caught.value.current == 5


def test_a_gap_in_what_was_planned_is_refused() -> None:
    with pytest.raises(CorruptNodeError, match="metadata of txid 3 is missing"):
        Coordinator(STORM, epoch=2, current=2, stored={1: ONE, 2: ONE, 4: ONE})


def test_a_predecessor_without_an_end_is_refused_where_batches_are_chained() -> None:
    with pytest.raises(CorruptNodeError, match="txid 1 has no end"):
        Coordinator(OPAQUE, epoch=2, current=2, stored={1: of_one(1)})


@pytest.mark.row(48)
def test_older_metadata_that_was_not_pruned_does_no_harm() -> None:
    stored = {1: ONE, 2: ONE, 3: ONE, 4: ONE}

    coordinator = Coordinator(
        replace(STORM, cutting_spouts=CUTTING), epoch=2, current=4, stored=stored
    )

    coordinator.start()
    assert [t.attempt.txid for t in coordinator.transactions] == [4]
    assert coordinator.epoch == 2
