"""A slot that is dead is not heard, whatever it still does."""

from __future__ import annotations

import pytest

from tests.unit.reliable.bolts import Forward, Seen
from tests.unit.reliable.lines import Hold, started
from txtopo import BasicBolt, Tuple
from txtopo.collector import BatchOutputCollector


class Noting(BasicBolt):
    """Writes down what it gets."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self._seen.notes.append(tuple["word"])


@pytest.mark.rule("txtopo.reliable.carrier", "Rules", 1)
def test_what_a_dead_slot_has_acked_is_not_heard() -> None:
    """Its bolts' memory is gone, and with it perhaps what the tuple did there."""
    seen = Seen()
    feeder, cluster = started(Noting(seen), apart=True)
    feeder.feed(["a"], 1)
    cluster.run_until(lambda: seen.notes == ["a"])
    assert cluster.progress.executed == {}

    cluster.kill_slot(0)
    cluster.advance(25)

    assert (feeder.acked, feeder.failed) == ([], [1])
    assert cluster.progress.executed == {}


@pytest.mark.rule("txtopo.reliable.carrier", "Rules", 3)
def test_what_is_sent_to_a_dead_slot_arrives_in_its_next_life() -> None:
    feeder, cluster = started(Forward(), apart=True)
    cluster.process_all_available()

    cluster.kill_slot(0)
    feeder.feed(["a"], 1)
    cluster.run_until(lambda: cluster.progress.emitted == 1)
    assert cluster.progress.executed == {}
    cluster.process_all_available()

    assert (feeder.acked, feeder.failed) == ([1], [])


def test_a_dead_slot_takes_its_spouts_and_their_trees_along() -> None:
    """Only a source that keeps its messages brings them again; nobody else is told of them."""
    feeder, cluster = started(Hold(), apart=True)
    feeder.feed(["a"], 1)
    cluster.advance(1)
    assert (cluster.progress.pending, feeder.opened) == (1, 1)

    cluster.kill_slot(1)
    assert cluster.progress.pending == 0
    cluster.advance(25)
    feeder.feed(["b"], 2)
    cluster.advance(1)

    assert (feeder.acked, feeder.failed, feeder.opened) == ([], [], 2)
    progress = cluster.progress
    assert (progress.pending, progress.trees_lost, progress.timed_out) == (1, 1, 0)


def test_the_trees_that_are_lost_are_those_of_the_spouts_of_the_slot() -> None:
    feeder, cluster = started(Hold(), apart=True)
    feeder.feed(["a"], 1)
    cluster.advance(1)

    cluster.kill_slot(0)
    cluster.kill_slot(1)
    cluster.kill_slot(1)

    assert (cluster.progress.slots_lost, cluster.progress.trees_lost) == (2, 1)


def test_there_is_no_rest_before_the_next_life_of_a_slot_has_spoken() -> None:
    feeder, cluster = started(Forward(), apart=True)
    cluster.process_all_available()

    cluster.kill_slot(1)
    assert not cluster._live().driver.at_rest
    feeder.feed(["a"], 1)
    cluster.process_all_available()

    assert feeder.acked == [1]
