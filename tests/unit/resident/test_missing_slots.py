"""Slots whose jobs wait for a core that does not come: what is said, and how the run continues."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.unit.reliable.bolts import WORD, Forward
from tests.unit.resident.held import Gate, Slots, held, txids
from tests.unit.resident.threads import Resident, ThreadJobs
from tests.unit.stages.running import run_of
from txtopo import AtLeastOnceConfig, Config, TopologyBuilder
from txtopo.carriers.carrier import LocalCarrier
from txtopo.errors import ConfigError, RunLostError, SlotUnavailable
from txtopo.resident.slot_jobs import Cores
from txtopo.testing import FeederSpout

pytestmark = pytest.mark.integration
MISSING_S = 0.6
SETTINGS: dict[str, Any] = {"batch_timeout_s": MISSING_S, "backoff_s": 0.01}


@contextmanager
def without_cores(jobs: ThreadJobs) -> Iterator[None]:
    """Have the jobs of slots wait for a core as long as it lasts; cancelled ones end."""
    cancelled = RunLostError("cancelled", counted=False, cancelled=True)
    ends: dict[tuple[int, int], Future[None]] = {}

    def run(slot: int, submission: int, *_: object) -> None:
        ends.setdefault((slot, submission), Future()).result()

    def cancel(slot: int, submission: int) -> None:
        end = ends.setdefault((slot, submission), Future())
        if not end.done():
            end.set_exception(cancelled)

    jobs.run, jobs.cancel = run, cancel  # type: ignore[method-assign, assignment]
    jobs.cores = lambda: Cores(0, 0)  # type: ignore[method-assign]
    yield


def warned(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(each) for each in caplog.records if "missing_s" in vars(each)]


def test_a_run_that_waits_for_a_missing_slot_ends_with_what_it_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slots = Slots(1, config=Config(**SETTINGS))
    with without_cores(slots.jobs), caplog.at_level(logging.WARNING):
        slots.start(held(Gate(txid=0)))
        waiting = slots.process(run_of(1))

        with pytest.raises(SlotUnavailable, match="its Spark job 1 waits for a core") as caught:
            waiting.result(LIMIT_S)
        with pytest.raises(SlotUnavailable):
            slots.process(run_of(1)).result(LIMIT_S)
        slots.close()

    error = caught.value
    assert (error.slot, error.slots, error.submission, error.cores) == (0, 1, 1, 0)
    assert MISSING_S <= error.missing_s < LIMIT_S
    assert error.limit_s == MISSING_S
    first, second = warned(caplog)[:2]
    assert MISSING_S / 2 <= first["missing_s"] < second["missing_s"]
    assert (first["slot"], first["cores"], first["topology"]) == (0, 0, slots.compiled.topology_id)


def test_a_slot_that_is_missing_while_nobody_needs_it_ends_nothing() -> None:
    slots = Slots(1, config=Config(**SETTINGS))
    gate = Gate(txid=0)
    with without_cores(slots.jobs):
        slots.start(held(gate))
        wait_until(
            lambda: slots.carrier._slots.queues[0].overdue is not None, "the slot is overdue"
        )
        assert slots.carrier._slots._orders._broken is None

        with pytest.raises(SlotUnavailable):
            slots.process(run_of(1)).result(LIMIT_S)
        slots.close()


def test_a_run_goes_on_with_another_carrier(caplog: pytest.LogCaptureFixture) -> None:
    replacement = partial(LocalCarrier, 1)
    slots, gate = Slots(1, config=Config(**SETTINGS), replacement=replacement), Gate(txid=0)
    with without_cores(slots.jobs), caplog.at_level(logging.WARNING):
        slots.start(held(gate))
        assert slots.carrier.keeps_handover_in_driver

        with pytest.raises(RunLostError, match="continues with the carrier 'rdd'") as caught:
            slots.process(run_of(1)).result(LIMIT_S)
        again = slots.process(run_of(1)).result(LIMIT_S)
        slots.close()

    assert caught.value.facts == {"counted": False, "cancelled": False}
    assert txids(again) == [1]
    assert not slots.carrier.keeps_handover_in_driver
    assert "the run continues with the carrier 'rdd'" in warned(caplog)[-1]["message"]


def test_a_carrier_that_cannot_take_over_ends_the_runs_with_its_error() -> None:
    def refuse() -> LocalCarrier:
        raise ConfigError("Spark is gone")

    slots = Slots(1, config=Config(**SETTINGS), replacement=refuse)
    with without_cores(slots.jobs):
        slots.start(held(Gate(txid=0)))
        with pytest.raises(RunLostError):
            slots.process(run_of(1)).result(LIMIT_S)
        with pytest.raises(ConfigError, match="Spark is gone"):
            slots.process(run_of(1)).result(LIMIT_S)
        slots.close()


def test_bolts_whose_slot_is_missing_are_waited_for_with_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What their spouts have emitted comes again by itself."""
    builder = TopologyBuilder("bolts")
    builder.set_spout("words", FeederSpout(WORD))
    builder.set_bolt("forward", Forward()).shuffle_grouping("words")
    jobs = ThreadJobs()
    bolts = AtLeastOnceConfig(slot_timeout_s=MISSING_S, backoff_s=0.01)

    with (
        caplog.at_level(logging.WARNING),
        without_cores(jobs),
        Resident(builder.build_topology(), bolts, jobs=jobs) as resident,
    ):
        wait_until(lambda: len(warned(caplog)) >= 3, "three warnings are logged")
        assert resident.run.status == "starting"

    assert {each["slot"] for each in warned(caplog)} == {0}


def test_bolts_whose_slot_is_missing_end_when_the_session_was_stopped() -> None:
    """Spark drops a job that is submitted while it stops, and tells nobody."""
    builder = TopologyBuilder("bolts")
    builder.set_spout("words", FeederSpout(WORD))
    builder.set_bolt("forward", Forward()).shuffle_grouping("words")
    jobs = ThreadJobs()
    bolts = AtLeastOnceConfig(slot_timeout_s=MISSING_S, backoff_s=0.01)

    with without_cores(jobs), Resident(builder.build_topology(), bolts, jobs=jobs) as resident:
        jobs.stopped = True
        with pytest.raises(ConfigError, match="stopped while the topology was running"):
            resident.run.await_termination(LIMIT_S)
