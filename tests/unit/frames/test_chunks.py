"""Rows of a frame become tuples in their order, whatever order the chunks come in."""

from __future__ import annotations

import random

import pyarrow as pa

from tests.unit.stages.running import (
    bolt,
    compile_components,
    gathered,
    record,
    recording,
    run_of,
    stage_of,
)
from tests.unit.topology.frame_parts import spout
from txtopo.bolts.bolt import BatchBolt
from txtopo.frames.chunks import seal_chunk
from txtopo.stages.outcome import judge
from txtopo.stages.stage import run_stage
from txtopo.topology.component import Component, declared_streams
from txtopo.topology.spout_kinds import DataFrameKind
from txtopo.tuples import Tuple


class Recorder(BatchBolt):
    def prepare(self, config: object, context: object, collector: object, attempt: object) -> None:
        pass

    def execute(self, tuple: Tuple) -> None:
        record(tuple["word"], tuple["amount"])

    def finish_batch(self) -> None:
        record("end")


def chunk(partition: int, number: int, *words: str) -> bytes:
    rows = pa.record_batch({"amount": [number] * len(words), "word": list(words)})
    return seal_chunk(0, partition, number, rows)


def test_chunks_are_emitted_by_partition_and_number() -> None:
    prototype = spout()
    source = Component("spout", DataFrameKind(), prototype, 1, declared_streams(prototype))
    compiled = compile_components(source, bolt("all", Recorder(), gathered()), slots=1)
    run = run_of(1)
    chunks = [chunk(0, 0, "a"), chunk(0, 1, "b", "c"), chunk(1, 0, "d"), chunk(10, 0, "e")]
    random.Random(1).shuffle(chunks)

    with recording() as seen:
        first = run_stage(stage_of(compiled, run, 0, task_id=1), chunks)
        last = run_stage(stage_of(compiled, run, 1, task_id=2), [each for _, each in first])
        outcome = judge(compiled, run, [each for _, each in last])
        emitted = list(seen)

    assert emitted == [("a", 0), ("b", 1), ("c", 1), ("d", 0), ("e", 0), ("end",)]
    assert outcome.processed[0].tuples == {"spout": {"default": 5}}
