"""What the batches of a spout are: chained, complete, and the same again."""

from __future__ import annotations

import json

from txtopo.metadata import BatchMetadata
from txtopo.runtime.journaling import to_json
from txtopo.testing.conformance.assertions import proves
from txtopo.testing.conformance.spout_driver import Batch
from txtopo.testing.conformance.spout_intake import Intake, same_batch
from txtopo.testing.conformance.spout_rules import SpoutRule
from txtopo.testing.conformance.spout_source import SpoutSource
from txtopo.testing.conformance.spout_subject import SpoutSubject, Start, drained, next_batches


class SpoutBatchesSuite(SpoutSubject):
    """Batches of a source that nothing happens to."""

    @proves(SpoutRule.UNION)
    def test_the_batches_are_the_input_each_record_once(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(3 * source.batch_records_max + 1)

        batches = drained(source, intake, start())
        intake.check_all_read()
        assert [batch.txid for batch in batches] == list(range(1, len(batches) + 1))
        _check_amounts(source, intake, batches)

    @proves(SpoutRule.CHAIN)
    def test_batches_of_one_run_are_chained(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        """The framework processes several txids a job, whose ends nobody knows before."""
        intake.append(5 * source.batch_records_max)

        _check_amounts(source, intake, drained(source, intake, start(), batches=3))
        intake.check_all_read()

    @proves(SpoutRule.CHAIN)
    def test_what_comes_later_goes_on_behind(
        self, source: SpoutSource, intake: Intake, start: Start, changed: Start
    ) -> None:
        intake.append(source.batch_records_max)
        driver = start()
        drained(source, intake, driver)
        intake.append(2 * source.batch_records_max, 0)

        drained(source, intake, changed(driver))
        intake.check_all_read()

    @proves(SpoutRule.UNION)
    def test_a_source_without_records_has_nothing(
        self, source: SpoutSource, intake: Intake, start: Start, changed: Start
    ) -> None:
        driver = start()
        assert not any(batch.rows for batch in drained(source, intake, driver))
        intake.append(1, 0)

        drained(source, intake, changed(driver))
        intake.check_all_read()

    @proves(SpoutRule.SAME)
    def test_the_same_batch_twice_is_equal(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        """An opaque one may be another, but it starts where the one before ended."""
        intake.append(3 * source.batch_records_max)
        driver = start()
        batches = next_batches(source, driver, 3)

        for batch in reversed(batches) if driver.repeatable else batches[-1:]:
            again = driver.again(batch.txid)
            if driver.repeatable:
                same_batch(intake, batch, again, ordered=source.ordered)
                assert again.metadata == batch.metadata
            else:
                batches[-1] = again
        intake.take(batches)

    @proves(SpoutRule.CHAIN)
    def test_after_a_failed_batch_the_later_ones_are_chained(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(4 * source.batch_records_max)
        driver = start()
        batches = next_batches(source, driver, 3)
        batches = [*batches[:1], driver.again(batches[1].txid)]

        batches += next_batches(source, driver, 2) if not driver.repeatable else []
        intake.take(batches)
        if not driver.repeatable:
            driver.commit()
            drained(source, intake, driver)
            intake.check_all_read()

    @proves(SpoutRule.TASKS)
    def test_its_tasks_share_a_batch(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        """More tasks than slots, and than partitions, so some have nothing to do."""
        intake.append(2 * source.batch_records_max)
        driver = start(tasks=3)
        (batch,) = next_batches(source, driver)

        again = driver.again(batch.txid)
        if driver.repeatable:
            same_batch(intake, batch, again, ordered=source.ordered)
        intake.take([again])
        driver.commit()
        drained(source, intake, start(driver, tasks=1), batches=2)
        intake.check_all_read()

    @proves(SpoutRule.JSON)
    def test_metadata_comes_back_from_json_as_it_was(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(3 * source.batch_records_max)

        batches = drained(source, intake, start())
        assert batches
        for batch in batches:
            assert _through_json(batch.metadata) == batch.metadata

    @proves(SpoutRule.LAG)
    def test_the_lag_is_nothing_when_all_is_read(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(3 * source.batch_records_max)
        driver = start()
        lags = []
        while next_batches(source, driver):
            lags.append(driver.lag())
            driver.commit()

        assert all(type(left) is int and left >= 0 for lag in lags for left in lag.values())
        if any(lags):
            assert not any(lags[-1].values())
            assert sum(lags[0].values()) > 0


def _check_amounts(source: SpoutSource, intake: Intake, batches: list[Batch]) -> None:
    for batch in batches:
        for partition, places in intake.places(batch).items():
            assert len(places) <= source.batch_records_max, (
                f"txid {batch.txid} has {len(places)} records of partition {partition}; the source "
                f"says at most {source.batch_records_max}"
            )


def _through_json(metadata: BatchMetadata) -> BatchMetadata:
    text = json.dumps(to_json(metadata), allow_nan=False)
    read = json.loads(text)
    return BatchMetadata(read["planned"], read["cut"])
