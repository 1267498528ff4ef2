"""The words of the workloads as Parquet files, made once and kept in a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workloads import FILES_PER_BATCH, KEYS, SENTENCE_WORDS, Workload

SEED = 2013


def default_folder() -> Path:
    """Return where the files are kept."""
    return Path(tempfile.gettempdir()) / "txtopo-benchmark-data"


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a workload, and what they hold.

    Attributes:
        folder: Where the files are; their names and times are in the order of the batches.
        batches: The files of each batch.
        expected: How often each word stands in all of them.
    """

    folder: Path
    batches: list[list[str]]
    expected: dict[str, int]

    @property
    def letters(self) -> int:
        """Length of all words together."""
        return sum(len(word) * count for word, count in self.expected.items())


def prepare(workload: Workload, folder: Path) -> Source:
    """Make the files of a workload unless they are there."""
    words = zipf_words(workload.words)
    path = folder / workload.data
    if not path.exists():
        made = folder / f".{workload.data}-{os.getpid()}"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        _write(workload, words, made)
        made.rename(path)
    files = sorted(str(file) for file in path.glob("*.parquet"))
    batches = [files[at : at + FILES_PER_BATCH] for at in range(0, len(files), FILES_PER_BATCH)]
    assert len(batches) == workload.batches
    return Source(path, batches, dict(Counter(words)))


def zipf_words(words: int) -> list[str]:
    """Return words drawn by Zipf's law with s = 1; each key once at least, if there is room."""
    chance = np.random.default_rng(SEED)
    weights = 1.0 / np.arange(1, KEYS + 1)
    everyone = KEYS if words > KEYS else 0
    drawn = chance.choice(KEYS, size=words - everyone, p=weights / weights.sum())
    keys = np.concatenate([drawn, np.arange(everyone)])
    chance.shuffle(keys)
    return [f"word{key}" for key in keys.tolist()]


def _write(workload: Workload, words: list[str], folder: Path) -> None:
    rows = words
    if workload.kind == "sentences":
        starts = range(0, len(words), SENTENCE_WORDS)
        rows = [" ".join(words[start : start + SENTENCE_WORDS]) for start in starts]
    files = workload.batches * FILES_PER_BATCH
    size = len(rows) // files
    assert size * files == len(rows), "the rows must be divisible by the files"
    for number in range(files):
        table = pa.table({workload.column: rows[number * size : (number + 1) * size]})
        path = folder / f"part-{number:05}.parquet"
        pq.write_table(table, path)
        # Structured Streaming takes files in the order of their times, in whole seconds at worst.
        os.utime(path, (1_700_000_000 + 10 * number,) * 2)
