"""Resident slots on a cluster of two workers of one core each, one of which is lost for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes.lost_worker_process import BATCHES, LIMIT_S, LOST_AFTER
from tests.harness.processes import run_child
from txtopo.state import open_state

pytestmark = [pytest.mark.kills, pytest.mark.spark, pytest.mark.timeout(600)]
Said = list[dict[str, Any]]
# Spark needs some seconds to see that a worker is gone; a busy machine needs more.
NOTICED_S = 20.0


@pytest.mark.slow
@pytest.mark.row(18)
def test_a_run_whose_core_does_not_come_back_says_so_and_ends(tmp_path: Path) -> None:
    said = story("resident", tmp_path)

    lost, ended = only(said, "lost"), only(said, "ended")
    warned = [each for each in only(said, "warned", slots=2, cores=1) if each["slot"] in (0, 1)]
    assert "waits for a core; got 1 cores, 0 of them free; expected 2" in warned[-1]["text"]
    assert warned[0]["at_s"] < lost[0]["at_s"] + LIMIT_S / 2 + NOTICED_S
    assert (ended[0]["status"], ended[0]["error"]) == ("failed", "SlotUnavailable")
    assert (ended[0]["slots"], ended[0]["cores"], ended[0]["limit_s"]) == (2, 1, LIMIT_S)
    assert ended[0]["missing_s"] < LIMIT_S + NOTICED_S
    assert ended[0]["at_s"] < lost[0]["at_s"] + LIMIT_S + 2 * NOTICED_S
    assert counted(tmp_path) == dict.fromkeys(range(len(only(said, "committed"))), 1)
    assert LOST_AFTER <= len(only(said, "committed")) < BATCHES


@pytest.mark.slow
@pytest.mark.row(18)
def test_a_run_goes_on_with_the_carrier_rdd_on_the_core_that_is_left(tmp_path: Path) -> None:
    said = story("auto", tmp_path)

    assert only(said, "ended")[0]["status"] == "stopped", said[-1]
    changed = [
        each for each in only(said, "warned") if "continues with the carrier" in each["text"]
    ]
    assert changed
    assert counted(tmp_path) == dict.fromkeys(range(BATCHES), 1)
    assert [each["txid"] for each in only(said, "committed")] == list(range(1, BATCHES + 1))


def story(carrier: str, folder: Path) -> Said:
    return run_child("tests.faults.processes.lost_worker_process", carrier, str(folder)).said


def only(said: Said, event: str, **details: object) -> Said:
    """Return what was said of an event, with these details."""
    found = [each for each in said if each["event"] == event]
    return [each for each in found if details.items() <= each.items()]


def counted(folder: Path) -> dict[Any, Any]:
    with open_state(f"sqlite:///{folder / 'counts.db'}", table="counts").reader() as reader:
        return dict(reader.items())
