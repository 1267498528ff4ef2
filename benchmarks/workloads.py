"""The four pieces of work, and what each must leave in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WORDS = 2_000_000
KEYS = 100_000
SENTENCE_WORDS = 10
FILES_PER_BATCH = 4

Kind = Literal["global", "keyed", "sentences"]


@dataclass(frozen=True, slots=True)
class Workload:
    """One piece of work.

    Attributes:
        name: Its name in the tables.
        title: What it is.
        kind: What is computed: a count of all, a count by word, or that of split sentences.
        words: How many words there are.
        batches: Into how many batches they are cut.
        goal: Wall time to reach, as a multiple of the floor's.
        max_spout_pending: As in ``Config``.
    """

    name: str
    title: str
    kind: Kind
    words: int
    batches: int
    goal: float
    max_spout_pending: int = 30

    @property
    def column(self) -> str:
        """Name of the only column of its files."""
        return "sentence" if self.kind == "sentences" else "word"

    @property
    def data(self) -> str:
        """Name of its files; workloads of one name share them."""
        return f"{self.column}s-{self.words}-{self.batches}"

    def shortened(self, batches: int) -> Workload:
        """Return the same with its first few batches' worth of words, for warming up."""
        words = self.words * batches // self.batches
        return Workload(self.name, self.title, self.kind, words, batches, self.goal)


WORKLOADS = (
    Workload("W1", "global count, 20 batches of 100,000 words", "global", WORDS, 20, 0.40),
    Workload("W2", "keyed count, 20 batches of 100,000 words", "keyed", WORDS, 20, 0.80),
    Workload("W3", "keyed count, 100 batches of 1,000 words", "keyed", 100_000, 100, 0.18),
    Workload("W3-1", "as W3, one txid a job", "keyed", 100_000, 100, 0.60, max_spout_pending=3),
    Workload("W4", "200,000 sentences split in Python, 20 batches", "sentences", WORDS, 20, 0.75),
)
