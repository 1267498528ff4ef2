"""An ArrowBolt is told which input its record batches are from."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.stages.bolts import ArrowPass, Pass
from tests.unit.stages.running import (
    RowsSpout,
    Topology,
    bolt,
    gathered,
    record,
    recording,
    run_of,
    shuffled,
    spout,
)
from txtopo.bolts.bolt import ArrowBolt
from txtopo.emitted_values import BATCH_TUPLES_MAX
from txtopo.topology.bolt_kinds import ARROW_BOLT, BASIC_BOLT
from txtopo.tuples import Fields


class TwoStreams(ArrowPass):
    """Emits each batch to two streams, with another sign to the second one."""

    def __init__(self) -> None:
        self.output_streams = {"plus": Fields("n long"), "minus": Fields("n long")}

    def execute(self, batch: pa.RecordBatch) -> None:
        self.collector.emit(batch, "plus")
        negative = [-n for n in batch.column(0).to_pylist()]
        self.collector.emit(pa.record_batch({"n": pa.array(negative, pa.int64())}), "minus")


class Told(ArrowBolt):
    """Records what it is told of each record batch."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        pass

    def execute(self, batch: pa.RecordBatch) -> None:
        raise AssertionError("execute_from is called instead")

    def execute_from(self, component: str, stream: str, batch: pa.RecordBatch) -> None:
        record(component, stream, batch.column(0).to_pylist())

    def finish_batch(self) -> None:
        record("finished")


class Executed(Told):
    """Does not override ``execute_from``."""

    execute_from = ArrowBolt.execute_from

    def execute(self, batch: pa.RecordBatch) -> None:
        record(batch.column(0).to_pylist())


# As many as make several record batches of each input: one is cut, others are joined.
ROWS = [[n] for n in range(1, BATCH_TUPLES_MAX + 7)]


@pytest.mark.parametrize("slots", [1, 2])
def test_a_bolt_is_told_of_which_input_each_record_batch_is(slots: int) -> None:
    topology = Topology(
        spout(RowsSpout([ROWS], "n long"), 2),
        bolt("rows", Pass("n long"), shuffled(), parallelism=2, kind=BASIC_BOLT),
        bolt("two", TwoStreams(), shuffled(), parallelism=2, kind=ARROW_BOLT),
        bolt(
            "told",
            Told(),
            gathered("two", "minus"),
            gathered("rows"),
            gathered("two", "plus"),
            kind=ARROW_BOLT,
        ),
        slots=slots,
    )
    with recording() as recorded:
        topology.run(run_of(1))
        *batches, last = list(recorded)

    assert last == ("finished",)
    rows: dict[tuple[str, str], list[int]] = {}
    for component, stream, numbers in batches:
        assert 0 < len(numbers) <= BATCH_TUPLES_MAX
        rows.setdefault((component, stream), []).extend(numbers)
    numbers = [n for (n,) in ROWS]
    assert {source: sorted(found, key=abs) for source, found in rows.items()} == {
        ("two", "minus"): [-n for n in numbers],
        ("two", "plus"): numbers,
        ("rows", "default"): numbers,
    }


def test_a_bolt_that_does_not_ask_gets_the_rows_of_all_inputs() -> None:
    topology = Topology(
        spout(RowsSpout([[[1], [2]]], "n long")),
        bolt("two", TwoStreams(), shuffled(), kind=ARROW_BOLT),
        bolt(
            "told", Executed(), gathered("two", "plus"), gathered("two", "minus"), kind=ARROW_BOLT
        ),
    )
    with recording() as recorded:
        topology.run(run_of(1))
        found = Counter(n for each in recorded if each != ("finished",) for n in each[0])

    assert found == Counter([1, 2, -1, -2])
