"""What is larger than Arrow's columns and Spark's messages is cut before, or refused by name."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.stages.bolts import ArrowPass, Recorder
from tests.unit.stages.running import (
    RowsSpout,
    Topology,
    aggregate,
    bolt,
    compile_components,
    grouped,
    record,
    recording,
    run_of,
    shuffled,
    spout,
)
from tests.unit.stages.test_commit_states import committed
from txtopo.bolts.bolt import BatchBolt
from txtopo.carriers.spark import to_table
from txtopo.errors import EmitError, StateUsageError, ValueRefusedError
from txtopo.groupings import AllGrouping, CustomGrouping, CustomStreamGrouping, FieldsGrouping
from txtopo.reliable.anchoring.envelope import Links, open_envelope
from txtopo.reliable.anchoring.ids import Ids
from txtopo.reliable.anchoring.sending import Sending
from txtopo.stages import aggregation, columns, partials, stage
from txtopo.stages.columns import parts_of, to_batches
from txtopo.state import Count, Max, open_state
from txtopo.topology.bolt_kinds import ARROW_BOLT
from txtopo.tuples import Fields, Tuple

FIELDS = Fields("n long, text string")
ROWS = [(n, str(n % 10) * 10_000) for n in range(100)]


def batches(rows: list[tuple[Any, ...]]) -> list[pa.RecordBatch]:
    return list(to_batches("bolt", "default", FIELDS, FIELDS.arrow_schema(), rows))


def test_rows_are_cut_before_they_outgrow_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = batches(ROWS)
    monkeypatch.setattr(columns, "BATCH_BYTES_MAX", 100_000)

    cut = batches(ROWS)

    assert len(whole) == 1
    assert len(cut) > 8
    assert all(batch.nbytes <= 100_000 for batch in cut)
    assert pa.Table.from_batches(cut).equals(pa.Table.from_batches(whole))


def test_record_batches_are_cut_before_they_are_cast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of ``large_string`` may hold more than the declared type does."""
    monkeypatch.setattr(columns, "BATCH_BYTES_MAX", 100_000)
    (whole,) = batches(ROWS[:5])
    large = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.large_string())])

    cut = list(
        parts_of("bolt", "default", pa.RecordBatch.from_pylist(whole.to_pylist() * 20, large))
    )

    assert sum(part.num_rows for part in cut) == 100
    assert all(part.nbytes <= 100_000 for part in cut)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_tuple_that_cannot_be_moved_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(columns, "BATCH_BYTES_MAX", 100_000)
    monkeypatch.setattr(columns, "TUPLE_BYTES_MAX", 200_000)
    long = [*ROWS[: rows - 1], (1, "x" * 300_000)]
    expected = r"'bolt' .* stream 'default'; got 3000\d\d bytes, of which column 'text' has 3"

    with pytest.raises(EmitError, match=expected) as caught:
        batches(long)
    with pytest.raises(EmitError, match=expected):
        list(
            parts_of(
                "bolt",
                "default",
                pa.table(list(zip(*long, strict=True)), FIELDS.names)
                .combine_chunks()
                .to_batches()[0],
            )
        )

    assert (caught.value.component, caught.value.column) == ("bolt", "text")


def test_long_tuples_arrive_in_order_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However they were cut: emitted as rows and as record batches, to one task each and to all."""
    topology = Topology(
        spout(RowsSpout([ROWS], "n long, text string")),
        bolt("pass", ArrowPass("n long, text string"), shuffled(), kind=ARROW_BOLT),
        bolt("shuffled", Recorder(), shuffled("pass"), parallelism=3),
        bolt("all", Recorder(), grouped(AllGrouping(), "pass"), parallelism=2),
        slots=2,
    )

    def seen() -> list[Any]:
        with recording() as recorded:
            topology.run(run_of(1))
            return list(recorded)

    whole = seen()
    monkeypatch.setattr(columns, "BATCH_BYTES_MAX", 100_000)
    monkeypatch.setattr("txtopo.stages.bolt_tasks.BATCH_BYTES_MAX", 100_000)

    assert seen() == whole
    assert Counter(row[0] for row in whole) == {"shuffled": 100, "all": 200}


class Joined(ArrowPass):
    """Notes how large the record batches are that it gets."""

    sizes: list[int] = []  # noqa: RUF012 - shared by the copies of this process

    def execute(self, batch: pa.RecordBatch) -> None:
        self.sizes.append(batch.nbytes)


def test_long_tuples_are_joined_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand tuples of 300 kB are more than a column holds."""
    monkeypatch.setattr("txtopo.stages.envelopes.CHUNK_BYTES_MAX", 20_000)
    monkeypatch.setattr("txtopo.stages.mailboxes.CHUNK_BYTES_MAX", 20_000)
    monkeypatch.setattr("txtopo.stages.bolt_tasks.BATCH_BYTES_MAX", 100_000)
    Joined.sizes.clear()

    Topology(
        spout(RowsSpout([ROWS], "n long, text string")),
        bolt("join", Joined("n long, text string"), shuffled(), kind=ARROW_BOLT),
    ).run(run_of(1))

    assert sum(Joined.sizes) > 900_000
    assert 50_000 < max(Joined.sizes) <= 100_000


@pytest.mark.parametrize(
    ("module", "limit", "largest_max"),
    [(aggregation, "COLUMN_BYTES_MAX", 220_000), (partials, "WAITING_BYTES_MAX", 410_000)],
)
def test_aggregates_combine_long_keys_in_turns(
    monkeypatch: pytest.MonkeyPatch, module: Any, limit: str, largest_max: int
) -> None:
    """``group_by`` wraps the offsets of keys beyond 2 GiB and does not say so."""
    topology = Topology(
        spout(RowsSpout([ROWS * 4], "n long, text string"), 4),
        aggregate("counts", "text", {"n": Count(), "most": Max("n")}, shuffled()),
        slots=4,
    )

    def found() -> list[Any]:
        ran = topology.run(run_of(1))
        return sorted(topology.merged("counts", ran.outcome.processed[0], ran.commits[0]))

    whole = found()
    monkeypatch.setattr(columns, "BATCH_BYTES_MAX", 50_000)
    monkeypatch.setattr(module, limit, min(largest_max, 220_000))
    largest: list[int] = []
    merged = _noting(aggregation.Aggregation._merged, largest)
    monkeypatch.setattr(aggregation.Aggregation, "_merged", merged)

    assert found() == whole
    assert len(whole) == 10
    assert 100_000 < max(largest) <= largest_max


def _noting(merged: Any, largest: list[int]) -> Any:
    def noting(self: Any, parts: list[pa.RecordBatch]) -> Any:
        largest.append(sum(part.column("text").nbytes for part in parts))
        return merged(self, parts)

    return noting


def test_keys_that_fit_no_column_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "COLUMN_BYTES_MAX", 50_000)
    topology = Topology(
        spout(RowsSpout([ROWS], "n long, text string")),
        aggregate("counts", "text", Count(), shuffled()),
    )

    ran = topology.run(run_of(1))

    failure = ran.outcome.failure
    assert failure is not None
    assert failure.component == "counts"
    with pytest.raises(ValueRefusedError, match=r"'counts'.*bytes in column 'text'.*50000"):
        raise failure.error


class ToMany(CustomStreamGrouping):
    def choose_tasks(self, task: int, values: Any) -> list[int]:
        return [0, 1, 2]


def test_copies_that_outgrow_a_column_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's own limit cannot be lowered: what takes rows is made to refuse as it does."""
    whole = _copies()
    taken: list[int] = []

    class Narrow:
        """A record batch of whose rows few can be taken at once."""

        def __init__(self, batch: pa.RecordBatch) -> None:
            self.batch = batch

        def __getattr__(self, name: str) -> Any:
            return getattr(self.batch, name)

        def take(self, rows: pa.Array) -> pa.RecordBatch:
            if len(rows) > 50:
                raise pa.ArrowInvalid("Take operation overflowed binary array capacity")
            taken.append(len(rows))
            return self.batch.take(rows)

    monkeypatch.setattr(
        "txtopo.stages.emission.to_batches",
        lambda *rest: map(Narrow, to_batches(*rest)),
    )
    cut = _copies()

    assert cut == whole
    assert sum(taken) >= 600


def _copies() -> Any:
    topology = Topology(
        spout(RowsSpout([ROWS], "n long, text string")),
        bolt("many", Recorder(), grouped(CustomGrouping(ToMany())), parallelism=3),
        aggregate("counts", "text", Count(), grouped(CustomGrouping(ToMany())), parallelism=3),
        slots=2,
    )
    with recording() as recorded:
        ran = topology.run(run_of(1))
        counts = topology.merged("counts", ran.outcome.processed[0], ran.commits[0])
        return list(recorded), sorted(counts)


def test_write_sets_that_cannot_be_moved_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stage, "MANIFEST_BYTES_MAX", 200)

    ran, _ = committed(open_state("memory:", table="counts"), 3, FieldsGrouping(("word",)))

    failure = ran.commits[0].failure
    assert failure is not None
    assert (failure.component, failure.attempt.txid) == ("count", 1)
    with pytest.raises(StateUsageError, match=r"'count' to state 'counts'; expected at most 200;"):
        raise failure.error


def test_envelopes_at_least_once_are_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_components(
        spout(RowsSpout([], "n long, text string")),
        bolt("record", Recorder(), grouped(AllGrouping()), parallelism=2),
        slots=2,
    )
    links = Links(np.arange(100, dtype=np.uint64), np.zeros(100, dtype=np.uint64))

    def sealed() -> tuple[list[Any], list[int]]:
        sending = Sending(compiled, compiled.components["spout"], 0, 0, Ids(7))
        envelopes, made = sending.seal("default", ROWS, None, links)
        opened = [open_envelope(each.record) for each in envelopes]
        rows = [
            (each.to_slot, int(root), *row.values())
            for each in opened
            for root, row in zip(
                each.links.roots, each.batch(FIELDS.arrow_schema()).to_pylist(), strict=True
            )
        ]
        by_root: Counter[int] = Counter()
        for each in opened:
            for root, id in zip(each.links.roots, each.links.ids, strict=True):
                by_root[int(root)] ^= int(id)
        assert made.tolist() == [by_root[root] for root in range(100)]
        return sorted(rows), [len(each.record) for each in envelopes]

    whole, _ = sealed()
    monkeypatch.setattr(columns, "BATCH_BYTES_MAX", 100_000)
    cut, sizes = sealed()

    assert cut == whole
    assert max(sizes) < 110_000


class Lengths(BatchBolt):
    """Notes number and length of each tuple's text."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        pass

    def execute(self, tuple: Tuple) -> None:
        record(tuple["n"], len(tuple["text"]))

    def finish_batch(self) -> None:
        pass


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_more_than_two_gigabytes_in_one_column_arrive_whole() -> None:
    """It was a TypeError about ChunkedArray; takes 7 GiB of memory."""
    text, count = "x" * (1 << 20), 2_200
    topology = Topology(
        spout(RowsSpout([[(n, text) for n in range(count)]], "n long, text string")),
        bolt("pass", ArrowPass("n long, text string"), shuffled(), kind=ARROW_BOLT),
        bolt("lengths", Lengths(), shuffled("pass")),
        aggregate("total", [], Count(), shuffled("pass")),
    )

    with recording() as recorded:
        ran = topology.run(run_of(1))
        seen = sorted(recorded)

    assert ran.outcome.failure is None
    assert seen == [(n, len(text)) for n in range(count)]


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_more_than_two_gigabytes_of_keys_are_refused_and_not_wrapped() -> None:
    """Arrow wrapped their offsets without a word; takes 7 GiB of memory."""
    compiled = compile_components(
        spout(RowsSpout([], "n long, text string")),
        aggregate("counts", "text", Count(), shuffled()),
    )
    combining = compiled.aggregations["counts"]
    kinds = combining.schema.types

    def part(number: int) -> pa.RecordBatch:
        keys = [f"{number} {n}".ljust(1 << 20) for n in range(100)]
        columns = [pa.array(keys, kinds[0]), pa.array([1] * 100, kinds[1])]
        return pa.RecordBatch.from_arrays(columns, schema=combining.schema)

    with pytest.raises(ValueRefusedError, match=r"too large for a column; got 2\d{9} bytes"):
        combining.combine([part(number) for number in range(21)])
    same = combining.combine([part(0)] * 30)

    assert same.num_rows == 100
    assert set(same.column(1).to_pylist()) == {30}


def test_the_cut_goes_to_spark_in_several_record_batches() -> None:
    """One of all payloads was a TypeError from 2 GiB on."""
    cut = {slot: [bytes([slot]) * 1_500_000] * 5 for slot in range(2)}

    table = to_table(cut)

    assert table["address"].to_pylist() == [0] * 5 + [1] * 5
    assert [payload[:1] for payload in table["payload"].to_pylist()] == [b"\0"] * 5 + [b"\1"] * 5
    assert max(batch.nbytes for batch in table.to_batches()) < 6_000_000
    assert to_table({}).num_rows == 0
