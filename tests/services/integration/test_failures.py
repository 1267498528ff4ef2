"""User code fails: the batch is replayed or the run ends, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.runs import LOCAL, Storage, on, run_to_end
from tests.services.integration.trouble import METHODS, Trouble, fold, held, troubled
from txtopo.config import Carrier
from txtopo.errors import PoisonBatchError
from txtopo.state.backend import StateKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = len(METHODS) + 2
EVERYWHERE = [Trouble(where, txid) for txid, where in enumerate(METHODS, start=2)]
# One batch at a time: else the failure of one takes its first attempt from the next.
ONE = replace(LOCAL, max_spout_pending=1)
on_spark = pytest.mark.parametrize(
    "carrier", ["rdd", pytest.param("dataframe", marks=pytest.mark.slow)]
)


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_a_failed_exception_replays_the_batch_wherever_it_is_raised(kind: StateKind) -> None:
    storage = Storage.in_memory(kind)

    changes = run_to_end(troubled(storage, EVERYWHERE, BATCHES, tasks=2), storage, ONE)

    assert {each.component for each in changes.failures} == {each.component for each in EVERYWHERE}
    assert {each.kind for each in changes.failures} == {"counted"}
    assert len(changes.failures) == len(EVERYWHERE)
    assert changes.committed == list(range(1, BATCHES + 1))
    assert held(storage) == fold(BATCHES)


@on_spark
def test_a_failed_exception_replays_the_batch_on_spark(
    spark: SparkSession, carrier: Carrier, tmp_path: Path
) -> None:
    storage = Storage.in_sqlite(tmp_path)

    topology = troubled(storage, EVERYWHERE, BATCHES, tasks=2)
    changes = run_to_end(topology, storage, on(carrier, ONE), spark)

    assert {each.component for each in changes.failures} == {each.component for each in EVERYWHERE}
    assert changes.committed == list(range(1, BATCHES + 1))
    assert held(storage) == fold(BATCHES)


@pytest.mark.row(23)
def test_a_failed_batch_takes_the_later_ones_of_its_run_with_it_and_all_are_replayed() -> None:
    storage = Storage.in_memory()
    troubles = [Trouble("batch.execute", 2), Trouble("committer.execute", 4, attempts=3)]

    changes = run_to_end(troubled(storage, troubles, batches=8, tasks=2), storage, LOCAL)

    assert changes.failures
    assert changes.committed == [1, 2, 3, 4, 5, 6, 7, 8]
    assert held(storage) == fold(8)


@pytest.mark.parametrize("where", [at for at in METHODS if at != "spout.initialize_transaction"])
def test_any_other_exception_ends_the_run_after_the_txids_before_it(where: str) -> None:
    storage = Storage.in_memory()
    topology = troubled(storage, [Trouble(where, 3, ZeroDivisionError)], batches=4)

    with pytest.raises(ZeroDivisionError, match=f"trouble in {where} at txid 3"):
        run_to_end(topology, storage)

    assert held(storage) == fold(2)
    assert run_to_end(topology, storage).committed == [3, 4]
    assert held(storage) == fold(4)


def test_an_exception_while_planning_ends_the_run_after_the_txids_before_it() -> None:
    storage = Storage.in_memory()
    trouble = Trouble("spout.initialize_transaction", 3, ZeroDivisionError)

    with pytest.raises(ZeroDivisionError):
        run_to_end(troubled(storage, [trouble], batches=4), storage)

    assert held(storage) == fold(2)
    assert run_to_end(troubled(storage, [], batches=4), storage).committed == [3, 4]


def check_a_run_of_ten(carrier: Carrier, spark: SparkSession | None) -> None:
    storage = Storage.in_memory()
    config = replace(on(carrier), max_spout_pending=30)
    topology = troubled(storage, [Trouble("batch.execute", 5, ZeroDivisionError)], 10, tasks=2)

    with pytest.raises(ZeroDivisionError):
        run_to_end(topology, storage, config, spark)

    assert held(storage) == fold(4)
    assert storage.ledger("totals").txid == 4
    run_to_end(topology, storage, config, spark)
    assert held(storage) == fold(10)


def test_a_bolt_that_raises_at_txid_5_in_a_run_of_ten_leaves_1_to_4_committed() -> None:
    check_a_run_of_ten("local", None)


@on_spark
def test_a_bolt_that_raises_at_txid_5_leaves_1_to_4_committed_on_spark(
    spark: SparkSession, carrier: Carrier
) -> None:
    check_a_run_of_ten(carrier, spark)


@pytest.mark.parametrize("where", ["batch.finish_batch", "committer.execute", "spout.commit"])
@pytest.mark.row(19)
def test_a_poison_batch_ends_the_run_with_txid_bolt_and_cause(where: str) -> None:
    storage = Storage.in_memory()
    trouble = Trouble(where, txid=4, attempts=99)
    topology = troubled(storage, [trouble], batches=6)

    with pytest.raises(PoisonBatchError, match=f"trouble in {where}") as caught:
        run_to_end(topology, storage, replace(LOCAL, attempts_max=3))

    facts = caught.value.facts
    assert (facts["txid"], facts["failures"]) == (4, 3)
    assert facts["component"] == trouble.component
    assert "trouble" in str(caught.value.__cause__)
    assert held(storage) == fold(3)
    assert run_to_end(topology, storage).committed == [4, 5, 6]
    assert held(storage) == fold(6)


def test_an_exception_of_user_code_keeps_where_it_happened() -> None:
    storage = Storage.in_memory()
    topology = troubled(storage, [Trouble("basic.execute", 2, ZeroDivisionError)], batches=3)

    with pytest.raises(ZeroDivisionError) as caught:
        run_to_end(topology, storage)

    (note,) = caught.value.__notes__
    assert "task 0 of 'basic' of topology 'troubled', txid 2" in note
    assert "self.script.reach" in note
