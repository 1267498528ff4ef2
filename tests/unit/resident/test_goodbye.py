"""The end of a resident slot: what its bolts raise when they clean up is told, whatever it is."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.unit.reliable.bolts import WORD, Forward
from tests.unit.reliable.test_handle import Kept
from tests.unit.resident.threads import Resident
from txtopo import Config, TopologyBuilder
from txtopo.resident.slot_runner import SlotLimits
from txtopo.runtime import ErrorReported
from txtopo.testing import FeederSpout

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class FrozenError(Exception):
    """Takes no note."""

    __hash__ = Exception.__hash__


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Unclean(Forward):
    """Cannot clean up."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def cleanup(self) -> None:
        raise self._error()


@pytest.mark.parametrize("error", [ZeroDivisionError, FrozenError, Unprintable])
def test_what_cleanup_raises_is_told(error: type[Exception]) -> None:
    limits = SlotLimits(stop_s=LIMIT_S / 3)  # however slow the machine is
    kept = Kept()
    builder = TopologyBuilder()
    builder.set_spout("words", FeederSpout(WORD))
    builder.set_bolt("unclean", Unclean(error), 3).shuffle_grouping("words")

    topology = builder.build_topology()
    with Resident(topology, Config(), slots=2, listeners=[kept], limits=limits) as resident:
        wait_until(lambda: resident.run.status == "running", "the run has started")

    told = [change for change in kept.changes if isinstance(change, ErrorReported)]
    assert sorted((each.component, each.task) for each in told) == [
        *(("unclean", task) for task in range(3)),
    ]
    assert resident.jobs.cancelled == []
    assert resident.run.status == "stopped"
