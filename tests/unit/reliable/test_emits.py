"""What is emitted wrongly ends the run; ticks; what a tracked topology waits for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.runs import Changes
from tests.unit.reliable.bolts import WORD, ByHand, Forward, Seen
from tests.unit.reliable.lines import CONFIG, Hold, started
from txtopo import (
    BasicBolt,
    Bolt,
    OutputCollector,
    TopologyBuilder,
    Tuple,
    is_tick,
)
from txtopo.collector import BatchOutputCollector
from txtopo.errors import BoltError, EmitError
from txtopo.runtime.progress import ErrorReported
from txtopo.testing import FeederSpout, TrackedTopology


def wrong_anchor(collector: OutputCollector, tuple: Tuple) -> None:
    collector.emit(["x"], "errors")  # type: ignore[arg-type]


def wrong_stream(collector: OutputCollector, tuple: Tuple) -> None:
    collector.emit(["x"], stream="errors")


def wrong_type(collector: OutputCollector, tuple: Tuple) -> None:
    collector.emit([1])


def wrong_number(collector: OutputCollector, tuple: Tuple) -> None:
    collector.emit(["x", "y"])


def falsy_anchor(collector: OutputCollector, tuple: Tuple) -> None:
    collector.emit(["x"], 0)  # type: ignore[arg-type]


def wrong_ack(collector: OutputCollector, tuple: Tuple) -> None:
    collector.ack([tuple])  # type: ignore[arg-type]


def wrong_fail(collector: OutputCollector, tuple: Tuple) -> None:
    collector.fail(tuple.values)  # type: ignore[arg-type]


def wrong_renewal(collector: OutputCollector, tuple: Tuple) -> None:
    collector.reset_timeout([tuple])  # type: ignore[arg-type]


def wrong_kind(collector: OutputCollector, tuple: Tuple) -> None:
    collector.emit({"word": "x"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("execute", "message"),
    [
        (wrong_kind, "emitted a dict"),
        (falsy_anchor, "an anchor that is not a tuple; got 0"),
        (wrong_ack, "acked what is not an input; got \\["),
        (wrong_fail, "failed what is not an input; got \\('a',\\)"),
        (wrong_renewal, "renewed what is not an input; got \\["),
        (wrong_anchor, "an anchor that is not a tuple"),
        (wrong_stream, "undeclared stream 'errors'"),
        (wrong_type, "does not fit column 'word'"),
        (wrong_number, "emitted 2 values"),
    ],
)
def test_a_wrong_emit_ends_the_run(
    execute: Callable[[OutputCollector, Tuple], None], message: str
) -> None:
    feeder, cluster = started(ByHand(execute))
    feeder.feed(["a"], 1)

    with pytest.raises(EmitError, match=message):
        cluster.advance(1)


def test_tuples_have_no_attempt() -> None:
    def execute(collector: OutputCollector, tuple: Tuple) -> None:
        _ = tuple.attempt

    feeder, cluster = started(ByHand(execute))
    feeder.feed(["a"], 1)

    with pytest.raises(ValueError, match="no batches"):
        cluster.advance(1)


class Ticking(BasicBolt):
    """Writes down its ticks."""

    tick_interval_s = 2.0

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self._seen.notes.append((is_tick(tuple), tuple.source_component, *tuple.values))


def test_a_bolt_gets_ticks_at_its_interval() -> None:
    seen = Seen()
    feeder, cluster = started(Ticking(seen))
    feeder.feed(["a"], 1)

    cluster.advance(9)

    assert seen.notes == [(False, "words", "a")] + [(True, "__system", 2.0)] * 4
    assert feeder.acked == [1]


def test_a_tick_that_a_bolt_acks_or_fails_is_no_input() -> None:
    class Answering(Bolt):
        tick_interval_s = 2.0

        def prepare(self, config: object, context: object, collector: OutputCollector) -> None:
            self._collector, self._ticks = collector, 0

        def execute(self, tuple: Tuple) -> None:
            self._ticks += is_tick(tuple)
            answer = self._collector.fail if self._ticks % 2 else self._collector.ack
            answer(tuple)

    feeder, cluster = started(Answering())
    feeder.feed(["a"], 1)

    cluster.advance(9)

    assert feeder.acked == [1]
    assert sum(cluster.progress.acked_by.values()) == 1
    assert sum(cluster.progress.failed_by.values()) == 0


def test_a_text_may_be_reported_as_an_error() -> None:
    def execute(collector: OutputCollector, tuple: Tuple) -> None:
        collector.report_error("as a text")  # type: ignore[arg-type]
        collector.ack(tuple)

    changes = Changes()
    feeder, cluster = started(ByHand(execute), listeners=[changes])
    feeder.feed(["a"], 1)

    cluster.advance(1)

    assert feeder.acked == [1]
    reported = [each.error for each in changes.of(ErrorReported)]
    assert [(type(each), str(each)) for each in reported] == [(BoltError, "as a text")]


def test_a_tracked_topology_waits_until_all_is_processed() -> None:
    feeder = FeederSpout(WORD)
    builder = TopologyBuilder()
    builder.set_spout("words", feeder)
    builder.set_bolt("a", Forward(), 2).shuffle_grouping("words")
    builder.set_bolt("b", Hold(), 2).shuffle_grouping("a")
    tracked = TrackedTopology(builder.build_topology(), CONFIG)

    for _ in range(2):
        feeder.feed(["a"])
        feeder.feed(["b"])
        tracked.wait(2)

    assert (tracked.emitted, tracked.in_flight) == (4, 0)
    assert tracked.cluster.progress.executed == {"a": 4, "b": 4}
