"""Storm's own coordinator test, check by check; the numbers are those of the specification.

``Cancel`` is ours: Storm leaves what it abandons to its timeouts. So is the processed
result of txid 4 that check 12 keeps: Storm throws it away.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.coordinator.script import COUNTED, STORM, Script
from txtopo.coordinator.protocol import Failed


@pytest.mark.row(27)
def test_checks_1_to_13_in_one_script() -> None:
    script = Script(STORM)

    script.s = 10
    assert script.tick() == ["B1 10", "B2 10", "B3 10", "B4 10"], "1"
    assert script.tick() == [], "2"
    before = script.attempt(1), script.attempt(2)
    assert script.fail(2) == ["Cancel", "B2 10", "B3 10", "B4 10"], "3"
    assert script.attempt(1) == before[0]
    assert script.attempt(2) != before[1]
    assert script.ack(2) == [], "4"
    assert script.ack(1) == ["C1"], "5"
    script.s = 12
    assert script.ack(1) == ["C2", "B5 12"], "6"
    script.s = None
    assert script.ack(2) == [], "7"
    assert script.fail(3) == ["Cancel", "B3 10", "B4 10", "B5 12"], "8"
    script.s = 12
    assert script.tick() == ["B6 12"], "9"
    assert script.ack(3) == ["C3"], "10"
    assert script.ack(4) == [], "11"
    assert script.fail(3) == ["Cancel", "B3 10", "B5 12", "B6 12"], "12"
    assert script.ack(3) == ["C3"], "13"
    assert script.tick() == [], "13"
    assert script.ack(3) == ["C4", "B7 12"], "13"


def test_check_14_a_restart_reuses_what_was_planned() -> None:
    script = Script(STORM, s=10)
    script.commit(1)
    assert sorted(script.stored) == [1, 2, 3, 4, 5]
    assert script.durable_current == 2

    script.s = 99

    assert script.restart() == ["B2 10", "B3 10", "B4 10", "B5 10"]
    assert script.coordinator.current == 2


@pytest.mark.rule("txtopo.coordinator.machine", "Order of durability", 3)
def test_check_15_a_hundred_transactions_need_two_writes_each_and_leave_one_behind() -> None:
    script = Script(replace(STORM, window_txids=1), s=10)
    for txid in range(1, 101):
        script.commit(txid)

    assert script.writes == 201
    assert sorted(script.stored) == [100, 101]


@pytest.mark.rule("txtopo.coordinator.machine", "Order of durability", 3)
def test_check_16_metadata_of_the_predecessor_is_kept_and_no_more() -> None:
    script = Script(STORM, s=10)
    for txid in (1, 2, 3):
        script.commit(txid)

    assert min(script.stored) == 3


def test_check_17_a_batch_is_never_planned_out_of_order() -> None:
    script = Script(STORM, s=None)
    script.s = 20

    assert script.tick() == ["B1 20", "B2 20", "B3 20", "B4 20"]
    assert [start.attempts[0].txid for start in script.starts] == [1, 2, 3, 4]


def test_r2_a_flapping_spout_gets_its_batches_in_order() -> None:
    script = Script(replace(STORM, window_txids=3))
    script.answers = [10, None, 10]

    assert script.tick() == ["B1 10"]
    script.s = 10
    script.answers = []
    assert script.tick() == ["B2 10", "B3 10"]


def test_r3_a_late_failure_of_an_old_attempt_changes_nothing() -> None:
    script = Script(STORM, s=10)
    old = script.attempt(2)
    script.fail(2)

    assert script.tell(Failed(old, COUNTED)) == []
    script.ack(2)
    script.ack(1)
    assert script.ack(1) == ["C2", "B5 10"]
