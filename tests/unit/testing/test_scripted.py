"""Scripted spouts do what their script says, and each record counts once all the same."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import Changes, Storage, run_to_end, running
from tests.unit.runtime.loop_world import Total
from txtopo import FailedException, Fields, Topology, TransactionalTopologyBuilder
from txtopo.errors import PoisonBatchError, TopologyError
from txtopo.spouts import Outage, Recut
from txtopo.testing import Late, Poison, ScriptedSpout, ScriptedTransactionalSpout
from txtopo.testing.conformance.spout_driver import SpoutDriver

NUMBER = Fields("amount long")
BATCHES = [{0: [[1], [2]], 1: [[10]]}, {0: [[3]]}, {1: [[20], [30]]}]
TOTAL = 66
# More than any script here is late: a spout that is not ready has nothing, as far as one can see.
ASKS = 8


def opaque(*script: Any) -> ScriptedSpout:
    return ScriptedSpout(NUMBER, BATCHES, script)


def amounts(batches: Sequence[Any]) -> list[list[int]]:
    return [[int(str(amount)) for (amount,) in batch.rows] for batch in batches]


def cut(spout: Any) -> list[list[int]]:
    """Return the batches until the spout is not ready."""
    driver, found = SpoutDriver(spout), []
    while done := driver.next():
        found += done
    return amounts(found)


def topology_of(spout: Any, storage: Storage) -> Topology:
    builder = TransactionalTopologyBuilder("scripted", "spout", spout)
    total = builder.set_bolt("total", Total()).global_grouping("spout")
    total.with_state("totals", storage.state("totals"))
    return builder.build_topology()


def ran(spout: Any) -> Changes:
    """Run it to the end; what the state holds is the sum of all records."""
    storage, changes = Storage.in_memory(), Changes()
    with running(topology_of(spout, storage), storage, listeners=[changes]) as run:
        for _ in range(ASKS):
            run.process_all_available(LIMIT_S)
    assert storage.read("totals") == {"total": TOTAL}
    return changes


@pytest.mark.parametrize("kind", [ScriptedSpout, ScriptedTransactionalSpout])
def test_the_batches_are_those_of_the_script(kind: Any) -> None:
    spout = kind(NUMBER, [*BATCHES, [], [[4]]])

    assert cut(pickle.loads(pickle.dumps(spout))) == [[1, 2, 10], [3], [20, 30], [], [4]]


def test_what_an_outage_leaves_comes_later() -> None:
    assert cut(opaque(Outage(1, 1))) == [[1, 2], [3], [10, 20], [30]]


def test_what_a_changed_replay_leaves_comes_later() -> None:
    driver = SpoutDriver(opaque(Recut(1, attempt=1, take=1, partition=0)))

    first = driver.next(2)
    again = [driver.again(1), *driver.next(3)]
    assert amounts(first) == [[1, 2, 10], [3]]
    assert amounts(again) == [[1, 10], [2], [20, 30]]
    assert amounts(driver.next()) == [[3]]


def test_a_late_batch_is_ready_when_it_was_asked_for_often_enough() -> None:
    driver = SpoutDriver(opaque(Late(2, asks=2)))

    assert [len(driver.next()) for _ in range(5)] == [1, 0, 0, 1, 1]


def test_a_poison_record_fails_the_first_attempts_of_its_batch() -> None:
    changes = ran(opaque(Poison(record=2, attempts=2)))

    assert [(f.attempt.txid, f.attempt.attempt) for f in changes.failures] == [(2, 0), (2, 1)]
    assert isinstance(changes.failures[0].error, FailedException)
    assert changes.committed == [1, 2, 3]


def test_a_record_that_stays_poison_ends_the_run_behind_the_batches_before() -> None:
    storage = Storage.in_memory()

    with pytest.raises(PoisonBatchError):
        run_to_end(topology_of(opaque(Poison(record=2)), storage), storage)
    assert storage.read("totals") == {"total": 13}


def test_a_record_may_raise_an_error_of_ones_own() -> None:
    storage = Storage.in_memory()
    spout = opaque(Poison(record=0, partition=1, error=KeyError("customer")))

    with pytest.raises(KeyError, match="customer"):
        run_to_end(topology_of(spout, storage), storage)


def test_a_transactional_one_fails_while_a_partition_is_down() -> None:
    changes = ran(ScriptedTransactionalSpout(NUMBER, BATCHES, [Outage(0, 2, attempt=0)]))

    assert [each.attempt.txid for each in changes.failures] == [2]


def test_everything_at_once_counts_each_record_once() -> None:
    ran(opaque(Outage(0, 1), Late(1), Recut(2, 0, 0), Late(3, 3), Poison(1, 1, attempts=1)))


def test_a_script_that_is_wrong_is_refused() -> None:
    with pytest.raises(TopologyError, match="cannot change a replay"):
        ScriptedTransactionalSpout(NUMBER, BATCHES, [Recut(1, 1, 1)])  # type: ignore[list-item]
    with pytest.raises(TopologyError, match="expected 1 values: amount"):
        ScriptedSpout(NUMBER, [[[1, 2]]])
    with pytest.raises(TopologyError, match="expected whole numbers from 0"):
        ScriptedSpout(NUMBER, [{-1: []}])
    with pytest.raises(TopologyError, match="expected Outage, Recut, Late or Poison"):
        ScriptedSpout(NUMBER, BATCHES, ["down"])  # type: ignore[list-item]
    with pytest.raises(TopologyError, match="fields of a scripted spout are wrong; got 'n long'"):
        ScriptedSpout("n long", BATCHES)  # type: ignore[arg-type]
    for row in ({"amount": 1}, b"1", 1):
        with pytest.raises(TopologyError, match="does not fit the fields"):
            ScriptedSpout(NUMBER, [[row]])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("event", "match"),
    [
        (Recut(1, 0, -1), "number of rows to take, from 0"),
        (Recut(1, 0, 1, partition=2), "a partition below 2"),
        (Outage(2, 1), "a partition below 2"),
        (Outage(0, 0), "a txid, from 1"),
        (Outage(0, 1, attempt=-1), "number of an attempt"),
        (Late(1, asks=0), "asks of at least 1"),
        (Poison(99), "one of the [0-9]+ records of the partition"),
        (Poison(0, attempts=0), "at least 1 attempt that fails"),
        (Poison(0, error=ValueError), "expected an exception, such as"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_happen_is_refused(event: Any, match: str) -> None:
    """A take of less than nothing would have had rows counted twice; the rest shows nothing."""
    with pytest.raises(TopologyError, match=match):
        opaque(event)
