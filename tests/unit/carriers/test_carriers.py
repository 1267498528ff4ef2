"""The carriers: the same program gives the same on all, and jobs end as they should."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.polling import wait_until
from tests.unit.runtime.carrying import (
    Crasher,
    Sleeper,
    Witness,
    carry,
    contents,
    counting,
    single_bolt,
)
from tests.unit.stages.running import run_of
from txtopo.carriers.carrier import Carrier, LocalCarrier
from txtopo.config import Config
from txtopo.errors import ConfigError, RunLostError
from txtopo.resident.carrier import ResidentCarrier
from txtopo.runtime import start
from txtopo.stages.outcome import judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Open = Callable[[], Carrier]


SLOTS = 2


@pytest.fixture(params=["rdd", "dataframe", "resident"])
def open_carrier(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Open]:
    opened: list[Carrier] = []

    def open_one() -> Carrier:
        slots = SLOTS if request.param == "resident" else None
        carrier = start.open_carrier(Config(carrier=request.param, slots=slots), spark)
        opened.append(carrier)
        return carrier

    yield open_one
    for carrier in opened:
        carrier.close()


@pytest.mark.parametrize(
    ("tasks", "slots"),
    [
        pytest.param(1, 2, marks=pytest.mark.slow),
        (3, 2),
        pytest.param(2, 3, marks=pytest.mark.slow),
    ],
)
def test_every_carrier_gives_what_the_local_one_gives(
    open_carrier: Open, tmp_path: Path, tasks: int, slots: int
) -> None:
    (here := tmp_path / "here").mkdir()
    (there := tmp_path / "there").mkdir()

    carrier = open_carrier()
    fitting = min(slots, SLOTS) if isinstance(carrier, ResidentCarrier) else slots
    carry(LocalCarrier(slots), counting(here, tasks=tasks, slots=slots), run_of(3))
    committed = carry(carrier, counting(there, tasks=tasks, slots=fitting), run_of(3))

    assert committed == [1, 2, 3]
    assert contents(there) == contents(here)
    assert sorted(contents(here)) == ["1-0", "2-0", "3-0"]


def test_what_a_batch_brought_is_the_same_on_every_carrier(
    open_carrier: Open, tmp_path: Path
) -> None:
    """So a replay may be on another one, and in other slots."""
    found = []
    for carrier, slots in ((LocalCarrier(1), 1), (open_carrier(), 2)):
        program, run = counting(tmp_path, tasks=1, slots=slots), run_of(3)
        carrier.start(program)
        processed = carrier.process(run)
        outcome = judge(program, run, processed.records)
        found.append([batch.metadata.content for batch in outcome.processed])
        carrier.release(processed)
        carrier.close()

    assert found[0] == found[1]
    assert [list((content or {})["spout"]) for content in found[0]] == [["0", "1"]] * 3


def test_a_failure_in_the_commit_phase_comes_back_as_data(
    open_carrier: Open, tmp_path: Path
) -> None:
    carry(open_carrier(), counting(tmp_path, tasks=2, slots=2, fail_txid=2), run_of(3))

    assert sorted(contents(tmp_path)) == ["1-0"]


def test_a_commit_in_tasks_computes_nothing_again(open_carrier: Open, tmp_path: Path) -> None:
    (once := tmp_path / "once").mkdir()
    notes, words = tmp_path / "notes", 17 - 8
    program = counting(once, tasks=2, slots=2, notes=notes)

    carry(open_carrier(), program, run_of(3))

    assert len(notes.read_text().split()) == 3 * words


def test_workers_serve_many_jobs(open_carrier: Open, tmp_path: Path) -> None:
    """A task that does not read its input to the end costs its worker's life, which is 300 ms."""
    carrier, notes = open_carrier(), tmp_path / "notes"
    carrier.start(single_bolt(Witness(notes)))

    for number in range(8):
        run = run_of(1)
        carrier.process(replace(run, tag=f"{run.tag}-{number}"))

    assert len(set(notes.read_text().split())) <= 4


@pytest.mark.row(21)
def test_a_cancelled_job_is_really_stopped(open_carrier: Open, tmp_path: Path) -> None:
    carrier, run, alive = open_carrier(), run_of(1), tmp_path / "alive"
    carrier.start(single_bolt(Sleeper(alive)))

    def cancel() -> None:
        wait_until(alive.exists, "the job has started")
        carrier.cancel(run.tag)

    threading.Thread(target=cancel).start()
    with pytest.raises(RunLostError) as caught:
        carrier.process(run)

    assert caught.value.facts == {"tag": run.tag, "counted": False, "cancelled": True}
    # Spark gives a worker some seconds to end by itself.
    wait_until(lambda: time.time() - alive.stat().st_mtime > 1.0, "the worker has ended")


def test_a_job_that_was_cancelled_before_it_started_never_runs(
    open_carrier: Open, tmp_path: Path
) -> None:
    carrier, run, alive = open_carrier(), run_of(1), tmp_path / "alive"
    carrier.start(single_bolt(Sleeper(alive)))

    carrier.cancel(run.tag)
    with pytest.raises(RunLostError, match="was cancelled"):
        carrier.process(run)

    assert not alive.exists()


def test_a_tag_can_come_again_in_the_next_start(open_carrier: Open, tmp_path: Path) -> None:
    """Without a ZooKeeper epochs start from 1 again, and Spark remembers cancelled groups."""
    before = open_carrier()
    before.start(counting(tmp_path, tasks=1, slots=2))
    before.cancel(run_of(3).tag)
    before.close()

    committed = carry(open_carrier(), counting(tmp_path, tasks=1, slots=2), run_of(3))

    assert committed == [1, 2, 3]


@pytest.mark.row(21, 35)
def test_a_crashed_worker_counts_as_a_failure_of_the_run(open_carrier: Open) -> None:
    carrier = open_carrier()
    carrier.start(single_bolt(Crasher()))

    with pytest.raises(RunLostError, match="Python worker") as caught:
        carrier.process(run_of(1))

    assert caught.value.facts["counted"] is True


def test_more_resident_slots_than_free_cores_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"got slots=3 with \d free of 2 cores"):
        start.open_carrier(Config(carrier="resident", slots=3), spark)


def test_jobs_are_named_tagged_and_pooled(spark: SparkSession, tmp_path: Path) -> None:
    from txtopo.carriers.spark import RddCarrier

    context, seen = spark.sparkContext, []
    carrier = RddCarrier(spark)
    carrier.start(counting(tmp_path, tasks=1, slots=2))
    run = run_of(3)
    with carrier._jobs.labelled(run.only(run.attempts[1]), "commit"):
        for name in ("spark.job.description", "spark.job.tags", "spark.scheduler.pool"):
            seen.append(context.getLocalProperty(name))

    assert seen == ["test: commit of txid 2", "txtopo:test:1:1:commit-2", "txtopo-commit"]
    assert context.getLocalProperty("spark.job.description") is None
    assert not context.getLocalProperty("spark.job.tags")
