"""The model of a cluster: its formula, the same cluster in virtual time, and the costs for both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.processor import FAMILIES, KINDS
from benchmarks.scale import Case, Measured, costs_of, fitted
from benchmarks.scale_model import Costs, Load, rates, saturated, simulated

# Each part alone takes a millisecond of a txid on one executor; the others next to nothing.
IDLE = Costs(*[1e-9] * 9)
DRIVER = replace(IDLE, driver_txid=4e-4, driver_slot=5e-4, driver_keys=1e-3)
JVM = replace(IDLE, jvm_txid=5e-4, jvm_slot=5e-4)
EXECUTORS = replace(IDLE, worker_order=5e-4, worker_record=5e-6)
STORE = replace(IDLE, store_write=1e-2, store_keys=1e-3)
PARTS = {"driver": DRIVER, "driver's JVM": JVM, "executors": EXECUTORS, "store": STORE}


@pytest.mark.parametrize("executors", [1, 4, 32])
@pytest.mark.parametrize("part", PARTS)
def test_formula_and_virtual_time_agree_when_one_part_is_busy_all_the_time(
    part: str, executors: int
) -> None:
    load = Load(records=1_000, keys=100)

    rate, busy = saturated(PARTS[part], load, executors)

    assert busy == part
    # The first txids and the last ones find idle parts.
    assert simulated(PARTS[part], load, executors) == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize("part", ["driver", "driver's JVM"])
def test_more_executors_never_raise_the_rate_of_the_driver(part: str) -> None:
    costs, load = replace(DRIVER, jvm_txid=1e-3, jvm_slot=1e-5), Load(records=100, keys=10)

    found = [rates(costs, load, executors)[part] for executors in range(1, 1_000)]

    assert found == sorted(found, reverse=True)


def test_executors_share_the_records_of_a_txid_and_not_the_cost_of_an_order() -> None:
    load = Load(records=1_000, keys=10)

    few, many = (rates(EXECUTORS, load, executors)["executors"] for executors in (1, 1_000_000))

    assert few == pytest.approx(1 / (5e-4 + 1_000 * 5e-6))
    assert many == pytest.approx(1 / 5e-4, rel=0.001)


def test_a_cluster_in_virtual_time_is_never_faster_than_the_formula() -> None:
    """The formula has no waiting, so it is a bound."""
    costs = Costs(3e-4, 1e-4, 1e-3, 5e-4, 4e-5, 2e-4, 1e-6, 2e-3, 1e-3)

    for executors in (1, 2, 8, 64):
        for records in (100, 10_000):
            load = Load(records, keys=100)
            rate, _ = saturated(costs, load, executors)
            assert simulated(costs, load, executors, 300) <= rate * 1.001


def test_a_window_of_one_txid_pays_for_each_step_after_the_other() -> None:
    costs = Costs(2e-3, 0.0, 0.0, 1e-3, 0.0, 3e-3, 0.0, 4e-3, 0.0)

    alone = simulated(costs, Load(records=1, keys=1, pending=1), 1, 100)

    assert alone == pytest.approx(1 / (2e-3 + 1e-3 + 3e-3 + 4e-3))


def test_known_factors_are_found_again() -> None:
    rows = [
        ((1.0, slots, keys), 3e-4 + 2e-4 * slots + 1e-3 * keys)
        for slots in (1, 2, 4, 8)
        for keys in (0.01, 0.5, 4.0)
    ]

    assert fitted(rows, 1e-9) == pytest.approx([3e-4, 2e-4, 1e-3])


def test_a_factor_that_would_be_below_zero_is_left_out() -> None:
    rows = [((1.0, slots), 1e-3 - 1e-5 * slots) for slots in (1, 2, 4, 8)]

    constant, slope = fitted(rows, 1e-9)

    assert slope == 0.0
    assert constant == pytest.approx(1e-3, rel=0.1)


def test_a_cost_that_the_clock_cannot_tell_is_a_tick_and_not_zero() -> None:
    """Shares of zero would be infinite, and no factors explain those."""
    rows = [((1.0, 1.0), 0.0), ((1.0, 2.0), 0.0), ((1.0, 4.0), 3e-4)]

    found = fitted(rows, 1e-4)

    assert all(0 <= factor <= 3e-4 for factor in found)
    assert any(found)
    assert fitted([((1.0,), 0.0), ((2.0,), 0.0)], 1e-4) == pytest.approx([6e-5], rel=0.05)


def test_costs_come_from_runs_also_if_a_part_took_no_time() -> None:
    """A txid takes 1 ms of the driver and 2 ms of each slot; the JVM's time is less than a tick."""
    txids, runs = 100, []
    for slots in (1, 2, 4):
        case = Case("resident", 1, slots, 80, 8, txids)
        kinds = dict.fromkeys(KINDS, 0.0) | {"loop": 0.001 * txids, "store": 0.0005 * txids}
        families = dict.fromkeys(FAMILIES, 0.0) | {"workers": 0.002 * slots * txids}
        runs.append((case, Measured(1.0, kinds, families, 10.0)))

    costs = costs_of(runs)

    assert costs.driver_txid == pytest.approx(0.001, rel=0.01)
    assert costs.driver_slot == pytest.approx(0.0, abs=1e-5)
    assert costs.worker_order == pytest.approx(0.002, rel=0.05)
    assert costs.jvm_txid == pytest.approx(0.0001)
