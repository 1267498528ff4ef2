"""A slot that is dead is not heard, whatever it still does."""

from __future__ import annotations

from tests.unit.runtime.reliable.bolts import Seen
from tests.unit.runtime.reliable.lines import started
from txtopo import BasicBolt, Tuple
from txtopo.collector import BatchOutputCollector


class Noting(BasicBolt):
    """Writes down what it gets."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self._seen.notes.append(tuple["word"])


def test_what_a_dead_slot_has_acked_is_not_heard() -> None:
    """Its bolts' memory is gone, and with it perhaps what the tuple did there."""
    seen = Seen()
    feeder, cluster = started(Noting(seen))
    feeder.feed(["a"], 1)
    cluster.run_until(lambda: seen.notes == ["a"])
    assert cluster.progress.executed == {}

    for slot in range(cluster.slots):
        cluster.kill_slot(slot)
    cluster.advance(25)

    assert (feeder.acked, feeder.failed) == ([], [1])
    assert cluster.progress.executed == {}
