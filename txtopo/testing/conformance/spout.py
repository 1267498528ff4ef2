"""SpoutSuite: what every spout must do; subclass it to test one.

All batches go through the framework's own planning, tasks and envelopes, without Spark. Metadata is
kept from one start to the next as text, as in ZooKeeper. The rules:

* *transactional*: each attempt of a txid has the same tuples, in this process and after a restart;
* *chain*: in each partition a batch starts where the previous one ended, also within a run;
* *union*: the batches together are the input, each record once;
* *restart*: it continues from the stored metadata and from nothing else;
* *down*: a partition that is down keeps its position;
* *JSON*: metadata comes back from JSON as it was, and fits into a znode;
* *added*, *gone*: partitions may be added and removed; a replay never has a partition that was
  added later;
* *lost*: lost unread data raises ``SourceDataLost``, or is recorded where that was chosen;
* *tasks*: the tasks of the spout share a batch, each record in one of them;
* *limit*: if it takes ``rows_max``, a batch has no more rows, and the next one continues behind it;
* *lag*: if it is known, it is the number of unread records.

No rule requires a certain size of a batch, an order of records of different partitions, or a
different batch in an opaque replay.
"""

from __future__ import annotations

import json

import pytest

from txtopo.ensemble.nodes import metadata_from_json, metadata_to_json
from txtopo.errors import FailedException, InfrastructureError, SourceDataLost
from txtopo.metadata import BatchMetadata
from txtopo.testing.conformance.rules import proves
from txtopo.testing.conformance.spout_driver import (
    Batch,
    Intake,
    SpoutDriver,
    SpoutFixtures,
    Start,
    drained,
    next_batches,
    same_batch,
)
from txtopo.testing.conformance.spout_source import SpoutRule, SpoutSource


class SpoutBatchesSuite(SpoutFixtures):
    """Batches of a source that does not fail."""

    @proves(SpoutRule.UNION)
    def test_the_batches_are_the_input_each_record_once(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(3 * source.batch_rows_max + 1)

        batches = drained(source, intake, start())
        intake.check_all_read()
        assert [batch.txid for batch in batches] == list(range(1, len(batches) + 1))
        _check_amounts(source, intake, batches)

    @proves(SpoutRule.CHAIN)
    def test_batches_of_one_run_are_chained(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        """The framework processes several txids in a job before it knows where each one ends."""
        intake.append(5 * source.batch_rows_max)

        _check_amounts(source, intake, drained(source, intake, start(), batches=3))
        intake.check_all_read()

    @proves(SpoutRule.CHAIN)
    def test_what_comes_later_goes_on_behind(
        self, source: SpoutSource, intake: Intake, start: Start, changed: Start
    ) -> None:
        intake.append(source.batch_rows_max)
        driver = start()
        drained(source, intake, driver)
        intake.append(2 * source.batch_rows_max, 0)

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
        """An opaque replay may differ, but it starts where the previous batch ended.

        One that can repeat a batch for an operator repeats all of it.
        """
        intake.append(3 * source.batch_rows_max)
        driver = start()
        batches = next_batches(source, driver, 3)
        for batch in batches:
            if (seen := driver.look_back(batch.txid)) is not None:
                same_batch(intake, batch, seen, ordered=source.ordered)

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
        intake.append(4 * source.batch_rows_max)
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
        """There are more tasks than slots and partitions, so some have nothing to do."""
        intake.append(2 * source.batch_rows_max)
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
        intake.append(3 * source.batch_rows_max)

        batches = drained(source, intake, start())
        assert batches
        for batch in batches:
            assert _through_json(batch.metadata) == batch.metadata

    @proves(SpoutRule.LAG)
    def test_the_lag_is_nothing_when_all_is_read(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(3 * source.batch_rows_max)
        driver = start()
        lags = []
        while next_batches(source, driver):
            lags.append(driver.lag())
            driver.commit()

        assert all(type(left) is int and left >= 0 for lag in lags for left in lag.values())
        if any(lags):
            assert not any(lags[-1].values())
            assert sum(lags[0].values()) > 0


class SpoutChangeSuite(SpoutFixtures):
    """Sources that change or fail; a test is skipped if the source has no method for it."""

    @proves(SpoutRule.DOWN)
    def test_a_partition_that_is_down_keeps_its_position(
        self, source: SpoutSource, intake: Intake, start: Start, changed: Start
    ) -> None:
        """Meanwhile a batch leaves the partition out, or fails and is tried again."""
        intake.append(5 * source.batch_rows_max)
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
        intake.append(2 * source.batch_rows_max)
        driver = start()
        intake.take(next_batches(source, driver))
        driver.commit()
        intake.append(source.batch_rows_max + 1, intake.add_partition())

        drained(source, intake, changed(driver))
        intake.check_all_read()

    @proves(SpoutRule.ADDED)
    def test_a_replay_has_nothing_of_an_added_partition(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        """A transactional replay must not have a partition that was added after it was planned."""
        intake.append(2 * source.batch_rows_max)
        driver = start()
        (once,) = next_batches(source, driver)
        intake.append(source.batch_rows_max, intake.add_partition())

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
        intake.append(source.batch_rows_max)
        driver = start()
        drained(source, intake, driver)
        intake.remove_partition()
        driver = changed(driver)
        intake.append(2 * source.batch_rows_max)

        drained(source, intake, changed(driver))
        intake.check_all_read()

    @proves(SpoutRule.LOST)
    def test_unread_data_that_has_gone_is_not_passed_over(
        self, source: SpoutSource, intake: Intake, start: Start, changed: Start
    ) -> None:
        intake.append(3 * source.batch_rows_max)
        driver = start()
        intake.take(next_batches(source, driver))
        driver.commit()
        intake.lose(0)
        if source.on_data_loss == "record":
            intake.append(source.batch_rows_max, 0)
            drained(source, intake, changed(driver))
            intake.check_all_read()
            return

        with pytest.raises(SourceDataLost):
            drained(source, intake, changed(driver))

    @proves(SpoutRule.LOST)
    def test_a_replay_whose_data_has_gone_is_no_other_batch(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(3 * source.batch_rows_max)
        driver = start()
        next_batches(source, driver)
        if not driver.repeatable:
            pytest.skip("an opaque spout may deliver another batch")
        intake.lose(0)

        with pytest.raises(SourceDataLost):
            next_batches(source, start(driver))


class SpoutRestartSuite(SpoutFixtures):
    """Several starts of one topology, one after the other."""

    @proves(SpoutRule.RESTART)
    def test_after_a_restart_it_goes_on_behind_the_last_commit(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(4 * source.batch_rows_max)
        driver = start()
        intake.take(next_batches(source, driver, 2))
        driver.commit()

        drained(source, intake, start(driver))
        intake.check_all_read()

    @proves(SpoutRule.RESTART)
    def test_a_batch_that_was_not_committed_comes_again(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(4 * source.batch_rows_max)
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
        """Records that were added since are read too, after the earlier ones."""
        intake.append(2 * source.batch_rows_max)
        driver = start()
        next_batches(source, driver, 2)
        intake.append(source.batch_rows_max)

        drained(source, intake, start(driver))
        intake.check_all_read()

    @proves(SpoutRule.RESTART)
    def test_it_finds_what_came_while_it_was_stopped(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(source.batch_rows_max + 1)
        driver = start()
        drained(source, intake, driver)
        driver.close()
        intake.append(source.batch_rows_max + 1)

        drained(source, intake, start(driver))
        intake.check_all_read()

    @proves(SpoutRule.SAME)
    def test_a_replay_has_nothing_that_came_later(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        """The batch had room for more, but its end was stored."""
        intake.append(1)
        driver = start()
        (once,) = next_batches(source, driver)
        intake.append(source.batch_rows_max)

        driver = start(driver)
        (again,) = next_batches(source, driver)
        if driver.repeatable:
            same_batch(intake, once, again, ordered=source.ordered)
        intake.take([again])
        driver.commit()
        drained(source, intake, driver)
        intake.check_all_read()


class SpoutLimitSuite(SpoutFixtures):
    """Batches with a limit; skipped if the spout takes none."""

    @proves(SpoutRule.LIMIT)
    @pytest.mark.parametrize("limit", [1, 3])
    def test_limited_batches_are_the_input_too(
        self, source: SpoutSource, intake: Intake, start: Start, limit: int
    ) -> None:
        """The limit may even be below the number of partitions."""
        intake.append(3 * source.batch_rows_max + 1)

        batches = drained(source, intake, _limited(start, limit=limit))
        intake.check_all_read()
        _check_limit(batches, limit)

    @proves(SpoutRule.LIMIT)
    def test_limited_batches_of_one_run_are_chained(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        intake.append(3 * source.batch_rows_max)

        batches = drained(source, intake, _limited(start, limit=3), batches=3)
        intake.check_all_read()
        _check_limit(batches, 3)

    @proves(SpoutRule.LIMIT)
    def test_a_replay_has_the_limit_of_the_first_attempt(
        self, source: SpoutSource, intake: Intake, start: Start
    ) -> None:
        """More records were added since, and the setting is gone."""
        intake.append(2 * source.batch_rows_max)
        driver = _limited(start, limit=1)
        (once,) = next_batches(source, driver)
        intake.append(source.batch_rows_max)

        driver = start(driver)
        (again,) = next_batches(source, driver)
        if driver.repeatable:
            same_batch(intake, once, again, ordered=source.ordered)
        _check_limit([again], 1)
        intake.take([again])
        driver.commit()
        drained(source, intake, driver)
        intake.check_all_read()


class SpoutSuite(SpoutBatchesSuite, SpoutLimitSuite, SpoutRestartSuite, SpoutChangeSuite):
    """Proves that a spout keeps the rules of its kind.

    It works for ``TransactionalSpout``, ``PartitionedTransactionalSpout`` and
    ``OpaquePartitionedTransactionalSpout``. Subclass it in your tests and give it a fixture
    ``source``, which returns your own :class:`~txtopo.testing.conformance.SpoutSource` over an
    empty source. It needs no Spark. It prints at its start how long it takes: a second for a source
    in memory; otherwise the time of its starts and batches, about a hundred of each. The attributes
    of the source declare what it can do, and how large a batch is.

    Example:
        >>> import pytest
        >>> from txtopo import Fields
        >>> from txtopo.spouts import MemoryTransactionalSpout
        >>> from txtopo.testing.conformance import SpoutSource, SpoutSuite
        >>> class Lists(SpoutSource):
        ...     live = False  # a running spout does not see what is appended
        ...     def __init__(self):
        ...         self.rows = {0: [], 1: []}
        ...     def spout(self):
        ...         return MemoryTransactionalSpout(self.rows, Fields("partition int, n int"), 2)
        ...     def append(self, partition, count):
        ...         rows, start = self.rows[partition], len(self.rows[partition])
        ...         rows += [(partition, n) for n in range(start, start + count)]
        ...         return rows[start:]
        >>> class TestLists(SpoutSuite):
        ...     @pytest.fixture
        ...     def source(self):
        ...         return Lists()
    """


def _check_amounts(source: SpoutSource, intake: Intake, batches: list[Batch]) -> None:
    for batch in batches:
        for partition, places in intake.places(batch).items():
            assert len(places) <= source.batch_rows_max, (
                f"txid {batch.txid} has {len(places)} records of partition {partition}; the source "
                f"says at most {source.batch_rows_max}"
            )


def _limited(start: Start, limit: int) -> SpoutDriver:
    driver = start(limit=limit)
    if not driver.divides:
        pytest.skip("rows_max: this spout takes no limit")
    return driver


def _check_limit(batches: list[Batch], limit: int) -> None:
    for batch in batches:
        assert len(batch.rows) <= limit, (
            f"txid {batch.txid} has {len(batch.rows)} rows; its limit is {limit}"
        )


def _through_json(metadata: BatchMetadata) -> BatchMetadata:
    text = json.dumps(metadata_to_json(metadata), allow_nan=False)
    return metadata_from_json(1, json.loads(text))


_TRIES = 3


def _ends(driver: SpoutDriver) -> dict[str, object]:
    if not driver.processed:
        return {}
    return dict(driver.stored.of(driver.processed).of("spout").cut or {})


def _tried(source: SpoutSource, driver: SpoutDriver) -> list[Batch]:
    """Return the next batch; nothing if it failed with an error after which it is tried again."""
    try:
        return next_batches(source, driver)
    except (InfrastructureError, FailedException):
        return []
