"""Topologies for the tests of carriers; in a module, so that Spark's workers can import them."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.harness.dying import kill_this_process
from tests.unit.stages.running import (
    RowsSpout,
    bolt,
    compile_components,
    gathered,
    grouped,
    shuffled,
    spout,
)
from txtopo.bolts.bolt import BasicBolt, BatchBolt, Committer
from txtopo.carriers.carrier import Carrier
from txtopo.errors import FailedException
from txtopo.groupings import FieldsGrouping
from txtopo.stages.compiled_topology import CompiledTopology, Run
from txtopo.stages.outcome import commit_in_driver, judge, judge_commit
from txtopo.topology.bolt_kinds import BASIC_BOLT
from txtopo.tuples import Fields, Tuple

BATCHES = [[(f"word {n * n % 17}", txid) for n in range(200)] for txid in range(1, 4)]


class CountWords(BatchBolt):
    """Emits how often each word came to its task; a committer does the same in its phase."""

    def __init__(self, fields: str) -> None:
        self.output_fields = Fields(fields)

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.counts = collector, Counter[str]()

    def execute(self, tuple: Tuple) -> None:
        self.counts[tuple["word"]] += tuple[1]

    def finish_batch(self) -> None:
        for word, count in sorted(self.counts.items()):
            self.collector.emit([word, count])


class CommitWords(CountWords, Committer):
    """Counts in the commit phase."""

    writes_nowhere_else = True


class Writes(BatchBolt):
    """Writes what it gets into a file of its task, and fails a txid on demand."""

    def __init__(self, folder: Path, fail_txid: int = 0) -> None:
        self.folder, self.fail_txid = folder, fail_txid

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        if attempt.txid == self.fail_txid:
            raise FailedException("as asked")
        self.path = self.folder / f"{attempt.txid}-{context.task_index}"
        self.lines: list[str] = []

    def execute(self, tuple: Tuple) -> None:
        self.lines.append(f"{tuple[0]} {tuple[1]}\n")

    def finish_batch(self) -> None:
        with self.path.open("a") as file:
            file.writelines(self.lines or ["nothing\n"])


class Sleeper(BasicBolt):
    """Sleeps for a minute and shows in a file that it is still alive."""

    def __init__(self, alive: Path) -> None:
        self.alive = alive

    def execute(self, tuple: Tuple, collector: Any) -> None:
        for _ in range(600):
            self.alive.write_text(str(time.time()))
            time.sleep(0.1)


class Witness(BasicBolt):
    """Notes in a file which process each of its tuples came to."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def execute(self, tuple: Tuple, collector: Any) -> None:
        with self.notes.open("a") as file:
            file.write(f"{os.getpid()}\n")


class Crasher(BasicBolt):
    """Kills the process that it runs in, as a crash of a native library does."""

    def execute(self, tuple: Tuple, collector: Any) -> None:
        kill_this_process()


def counting(
    folder: Path, *, tasks: int, slots: int, fail_txid: int = 0, notes: Path | None = None
) -> CompiledTopology:
    """Words, counted twice in the processing phase, again in the commit phase, then written."""
    words = "word string, amount long"
    by_word = FieldsGrouping(("word",))
    committer = CommitWords(words)
    return compile_components(
        spout(RowsSpout(BATCHES, words), parallelism=2),
        bolt("partial", CountWords(words), shuffled(), parallelism=3),
        bolt("full", CountWords(words), grouped(by_word, "partial"), parallelism=2),
        bolt("commit", committer, grouped(by_word, "full"), parallelism=tasks, committer=True),
        bolt("write", Writes(folder, fail_txid), gathered("commit"), parallelism=1),
        *([bolt("witness", Witness(notes), gathered("full"), kind=BASIC_BOLT)] if notes else []),
        slots=slots,
    )


def single_bolt(prototype: BasicBolt) -> CompiledTopology:
    rows = spout(RowsSpout(BATCHES, "word string, amount long"))
    return compile_components(rows, bolt("bolt", prototype, gathered(), kind=BASIC_BOLT), slots=2)


def carry(carrier: Carrier, compiled: CompiledTopology, run: Run) -> list[int]:
    """Process a run and commit its batches; return the txids that were committed."""
    carrier.start(compiled)
    processed = carrier.process(run)
    outcome = judge(compiled, run, processed.records)
    for batch in outcome.processed:
        only = run.only(batch.attempt)
        if compiled.commit_in_driver:
            commit = commit_in_driver(compiled, batch, only, lambda component, name: None)  # type: ignore[arg-type,return-value]
        else:
            records = carrier.commit(processed, batch.attempt)
            commit = judge_commit(compiled, batch, only, records)
        if commit.failure is not None:
            break
    carrier.release(processed)
    carrier.close()
    return [batch.attempt.txid for batch in outcome.processed]


def contents(folder: Path) -> dict[str, str]:
    """Return what was written, by txid and task."""
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}
