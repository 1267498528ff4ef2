"""The carrier that needs no Spark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.stages.bolts import Recorder
from tests.unit.stages.running import (
    RowsSpout,
    Topology,
    bolt,
    gathered,
    record,
    recording,
    run_of,
    spout,
)
from txtopo.carriers.carrier import LocalCarrier
from txtopo.errors import RunLostError
from txtopo.stages.outcome import judge
from txtopo.stages.pickling import dumps

CANCEL: dict[str, Any] = {}


class Cancelling(Recorder):
    """Cancels its own job, as the runtime does from another thread."""

    def finish_batch(self) -> None:
        record("finished")
        CANCEL["carrier"].cancel(CANCEL["tag"])


def test_a_cancelled_job_stops_before_its_next_stage() -> None:
    topology = Topology(
        spout(RowsSpout([[[1]]], "n long")),
        bolt("cancel", Cancelling("n long"), gathered()),
        bolt("next", Recorder(), gathered("cancel")),
    )
    run = run_of(1)
    CANCEL.update(carrier=topology.carrier, tag=run.tag)

    with recording() as recorded:
        with pytest.raises(RunLostError, match="was cancelled") as caught:
            topology.carrier.process(run)
        assert recorded == [("cancel", 0, 1, "spout", 0, 1), ("finished",)]
    assert (caught.value.counted, caught.value.cancelled) == (False, True)


def test_a_job_that_is_over_or_unknown_can_be_cancelled() -> None:
    topology = Topology(spout(RowsSpout([[[1]]], "n long")), bolt("record", Recorder(), gathered()))
    run = run_of(1)

    topology.carrier.cancel(run.tag)
    processed = topology.carrier.process(run)
    topology.carrier.cancel(run.tag)
    again = topology.carrier.process(run)

    for each in (processed, again):
        assert len(judge(topology.compiled, run, each.records).processed) == 1
        topology.carrier.release(each)
        topology.carrier.release(each)
    topology.carrier.close()


def test_programs_and_runs_are_picklable() -> None:
    """Other carriers send them to workers."""
    topology = Topology(spout(RowsSpout([[[1]]], "n long")), bolt("record", Recorder(), gathered()))

    assert dumps((topology.compiled, run_of(1)))


def test_the_number_of_slots_is_the_one_given() -> None:
    assert LocalCarrier(3).default_slots() == 3
    assert LocalCarrier().default_slots() == 1
