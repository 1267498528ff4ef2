"""A slot that dies again and again comes back, later each time, and says so."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.harness.polling import wait_until
from tests.unit.reliable.bolts import Forward
from tests.unit.resident.threads import Resident
from txtopo import AtLeastOnceConfig, ReliableTopology, TopologyBuilder
from txtopo.errors import RunLostError
from txtopo.testing import FeederSpout
from txtopo.tuples import Fields

pytestmark = pytest.mark.integration
DIED = RunLostError("a Python worker of the job died", counted=True, cancelled=False)
CONFIG = AtLeastOnceConfig(backoff_s=0.01, max_spout_pending=4)


def topology(feeder: FeederSpout) -> ReliableTopology:
    builder = TopologyBuilder("lives")
    builder.set_spout("feeder", feeder)
    builder.set_bolt("bolt", Forward()).shuffle_grouping("feeder")
    return builder.build_topology()


def is_ready(resident: Resident, submission: int) -> bool:
    slots = resident.slots.slots
    return bool(slots) and slots[0].ready and slots[0].submission == submission


def said(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(each) for each in caplog.records if each.name == "txtopo.runtime"]


def test_a_slot_that_dies_before_it_has_done_anything_comes_back_later_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also one that gets ready each time: it may die of what it is given."""
    feeder = FeederSpout(Fields("word string"))
    with Resident(topology(feeder), CONFIG) as resident:
        for submission in range(1, 5):
            wait_until(partial(is_ready, resident, submission), "the slot is ready")
            resident.jobs.kill(0, submission, DIED)
        wait_until(lambda: len(said(caplog)) == 4, "four lines are logged")

    warned = said(caplog)
    assert [each["failures"] for each in warned] == [1, 2, 3, 4]
    assert [each["pause_s"] for each in warned] == [0.0, 0.01, 0.02, 0.04]
    assert {each["topology"] for each in warned} == {"lives"}
    assert "tried again at once" in warned[0]["message"]
    assert warned[0]["cause"] == "RunLostError: a Python worker of the job died"
