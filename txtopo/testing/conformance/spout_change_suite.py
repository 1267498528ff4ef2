"""What happens to a source: partitions that are down, come and go; data that is lost."""

from __future__ import annotations

import pytest

from txtopo.errors import FailedException, InfrastructureError, SourceDataLost
from txtopo.testing.conformance.assertions import proves
from txtopo.testing.conformance.spout_driver import Batch, SpoutDriver
from txtopo.testing.conformance.spout_intake import Intake, same_batch
from txtopo.testing.conformance.spout_rules import SpoutRule
from txtopo.testing.conformance.spout_source import SpoutSource
from txtopo.testing.conformance.spout_subject import SpoutSubject, Start, drained, next_batches

_TRIES = 3


class SpoutChangeSuite(SpoutSubject):
    """Each test is skipped for a source that cannot suffer it."""

    @proves(SpoutRule.DOWN)
    def test_a_partition_that_is_down_keeps_its_position(
        self, source: SpoutSource, intake: Intake, start: Start, changed: Start
    ) -> None:
        """Meanwhile it is left out, or the batch fails and is tried again."""
        intake.append(5 * source.batch_records_max)
        driver = start()
        intake.take(next_batches(source, driver))
        driver.commit()
        down = source.partitions - 1
        source.take_down(down)
        driver = changed(driver)
        before = _ends(driver).get(str(down))

        for _ in range(_TRIES):
            batches = _tried(source, driver)
            intake.take(batches)
            driver.commit()
            if not any(down in intake.places(batch) for batch in batches):
                assert _ends(driver).get(str(down)) == before, "it was down, but it moved"
        source.bring_up(down)
        drained(source, intake, changed(driver))
        intake.check_all_read()

    @proves(SpoutRule.ADDED)
    def test_an_added_partition_is_read_from_its_beginning(
        self, source: SpoutSource, intake: Intake, start: Start, changed: Start
    ) -> None:
        intake.append(2 * source.batch_records_max)
        driver = start()
        intake.take(next_batches(source, driver))
        driver.commit()
        intake.append(source.batch_records_max + 1, intake.add_partition())

        drained(source, intake, changed(driver))
        intake.check_all_read()

    @proves(SpoutRule.ADDED)
    def test_a_replay_has_nothing_of_an_added_partition(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        """Not of one that was added after the batch was planned, if the spout is transactional."""
        intake.append(2 * source.batch_records_max)
        driver = start()
        (once,) = next_batches(source, driver)
        intake.append(source.batch_records_max, intake.add_partition())

        driver = start(driver)
        (again,) = next_batches(source, driver)
        if driver.repeatable:
            same_batch(intake, once, again, ordered=source.ordered)
        intake.take([again])
        driver.commit()
        drained(source, intake, driver)
        intake.check_all_read()

    @proves(SpoutRule.GONE)
    def test_when_a_partition_has_gone_the_others_are_read_on(
        self, source: SpoutSource, intake: Intake, start: Start, changed: Start
    ) -> None:
        intake.append(source.batch_records_max)
        driver = start()
        drained(source, intake, driver)
        intake.remove_partition()
        driver = changed(driver)
        intake.append(2 * source.batch_records_max)

        drained(source, intake, changed(driver))
        intake.check_all_read()

    @proves(SpoutRule.LOST)
    def test_unread_data_that_has_gone_is_not_passed_over(
        self, source: SpoutSource, intake: Intake, start: Start, changed: Start
    ) -> None:
        intake.append(3 * source.batch_records_max)
        driver = start()
        intake.take(next_batches(source, driver))
        driver.commit()
        intake.lose(0)
        if source.on_data_loss == "record":
            intake.append(source.batch_records_max, 0)
            drained(source, intake, changed(driver))
            intake.check_all_read()
            return

        with pytest.raises(SourceDataLost):
            drained(source, intake, changed(driver))

    @proves(SpoutRule.LOST)
    def test_a_replay_whose_data_has_gone_is_no_other_batch(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(3 * source.batch_records_max)
        driver = start()
        next_batches(source, driver)
        if not driver.repeatable:
            pytest.skip("an opaque spout may bring another batch")
        intake.lose(0)

        with pytest.raises(SourceDataLost):
            next_batches(source, start(driver))


def _ends(driver: SpoutDriver) -> dict[str, object]:
    if not driver.processed:
        return {}
    return dict(driver.stored.of(driver.processed).cut or {})


def _tried(source: SpoutSource, driver: SpoutDriver) -> list[Batch]:
    """Return the next batch, or nothing if it failed so that it is tried again."""
    try:
        return next_batches(source, driver)
    except (InfrastructureError, FailedException):
        return []
