"""What a start has to know of the one before it: the stored metadata, and nothing else."""

from __future__ import annotations

from txtopo.testing.conformance.assertions import proves
from txtopo.testing.conformance.spout_intake import Intake, same_batch
from txtopo.testing.conformance.spout_rules import SpoutRule
from txtopo.testing.conformance.spout_source import SpoutSource
from txtopo.testing.conformance.spout_subject import SpoutSubject, Start, drained, next_batches


class SpoutRestartSuite(SpoutSubject):
    """Starts of the same topology, one after the other."""

    @proves(SpoutRule.RESTART)
    def test_after_a_restart_it_goes_on_behind_the_last_commit(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(4 * source.batch_records_max)
        driver = start()
        intake.take(next_batches(source, driver, 2))
        driver.commit()

        drained(source, intake, start(driver))
        intake.check_all_read()

    @proves(SpoutRule.RESTART)
    def test_a_batch_that_was_not_committed_comes_again(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(4 * source.batch_records_max)
        driver = start()
        intake.take(next_batches(source, driver))
        driver.commit()
        lost = next_batches(source, driver, 2)

        driver = start(driver)
        again = next_batches(source, driver, 2)
        if driver.repeatable:
            for once, batch in zip(lost, again, strict=True):
                same_batch(intake, once, batch, ordered=source.ordered)
        intake.take(again)
        driver.commit()
        drained(source, intake, driver)
        intake.check_all_read()

    @proves(SpoutRule.RESTART)
    def test_a_restart_before_the_first_commit_begins_at_the_beginning(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        """What has come since is read as well, but not before what was there."""
        intake.append(2 * source.batch_records_max)
        driver = start()
        next_batches(source, driver, 2)
        intake.append(source.batch_records_max)

        drained(source, intake, start(driver))
        intake.check_all_read()

    @proves(SpoutRule.RESTART)
    def test_it_finds_what_came_while_it_was_stopped(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(source.batch_records_max + 1)
        driver = start()
        drained(source, intake, driver)
        driver.close()
        intake.append(source.batch_records_max + 1)

        drained(source, intake, start(driver))
        intake.check_all_read()

    @proves(SpoutRule.SAME)
    def test_a_replay_has_nothing_that_came_later(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        """There was room in the batch, but its end was stored."""
        intake.append(1)
        driver = start()
        (once,) = next_batches(source, driver)
        intake.append(source.batch_records_max)

        driver = start(driver)
        (again,) = next_batches(source, driver)
        if driver.repeatable:
            same_batch(intake, once, again, ordered=source.ordered)
        intake.take([again])
        driver.commit()
        drained(source, intake, driver)
        intake.check_all_read()
