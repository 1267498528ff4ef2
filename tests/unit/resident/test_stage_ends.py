"""The end of resident slots of transactional topologies: what every run is told then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness.polling import LIMIT_S
from tests.unit.resident.held import AWAY, Gate, Slots, held
from tests.unit.stages.running import run_of
from txtopo.errors import ConfigError, RunLostError, TxtopoError
from txtopo.stages.compiled_topology import CompiledTopology

pytestmark = pytest.mark.integration


def test_a_session_that_was_stopped_fails_every_run_with_the_reason(one: Slots) -> None:
    gate = Gate()
    one.start(held(gate))
    lost = one.process(run_of(1))
    assert gate.reached.wait(LIMIT_S)

    one.jobs.stopped = True
    one.jobs.kill(0, 1, AWAY)
    for each in (lost, one.process(replace(run_of(1), tag="again"))):
        with pytest.raises(ConfigError, match="session was stopped while the topology was running"):
            each.result(LIMIT_S)
    gate.opened.set()


def test_a_session_that_was_stopped_is_told_while_a_run_waits_though_no_job_ends(
    one: Slots,
) -> None:
    """Spark drops a job that is submitted while it stops, and tells nobody."""
    gate = Gate()
    one.start(held(gate))
    one.carrier.check_session()
    waiting = one.process(run_of(1))
    assert gate.reached.wait(LIMIT_S)
    one.carrier.check_session()

    one.jobs.stopped = True
    with pytest.raises(ConfigError, match="session was stopped while the topology was running"):
        one.carrier.check_session()
    gate.opened.set()
    waiting.result(LIMIT_S)
    one.carrier.check_session()


def test_what_no_other_job_could_do_better_fails_every_run(one: Slots) -> None:
    gate = Gate()
    one.start(held(gate))
    lost = one.process(run_of(1))
    assert gate.reached.wait(LIMIT_S)

    one.jobs.kill(0, 1, TxtopoError("no module there"))
    for each in (lost, one.process(replace(run_of(1), tag="again"))):
        with pytest.raises(TxtopoError, match="no module there"):
            each.result(LIMIT_S)
    gate.opened.set()


def test_a_start_that_fails_is_told_to_the_caller() -> None:
    slots = Slots(1)

    def refuse(compiled: CompiledTopology) -> None:
        raise TxtopoError("it does not pickle")

    slots.jobs.start = refuse  # type: ignore[method-assign]
    with pytest.raises(TxtopoError, match="it does not pickle"):
        slots.start(held(Gate()))
    slots.close()


def test_a_run_after_the_end_is_refused() -> None:
    slots = Slots(1)
    slots.start(held(Gate()))
    slots.close()
    slots.close()

    with pytest.raises(RunLostError, match="the topology has ended"):
        slots.carrier.process(run_of(1))


def test_the_end_does_not_hang_when_spark_is_gone() -> None:
    slots, gate = Slots(1), Gate()

    def gone(*arguments: object) -> None:
        raise ConnectionRefusedError("the JVM has died")

    slots.start(held(gate))
    lost = slots.process(run_of(1))
    assert gate.reached.wait(LIMIT_S)
    for name in ("cancel", "close"):
        setattr(slots.jobs, name, gone)

    slots.jobs.kill(0, 1, AWAY)
    slots.close()

    with pytest.raises(RunLostError):
        lost.result(LIMIT_S)
    gate.opened.set()
