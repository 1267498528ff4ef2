"""A state plug-in of one's own: a JSON file, replaced as a whole.

``RowBackend`` knows the protocol; a plug-in reads everything, and replaces it if nobody else did.
A package would name the class in the entry point group ``txtopo.state_backends`` instead of calling
``register_backend``. Run it with ``python examples/custom_state.py``.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from txtopo import Config, Fields, PersistentAggregate, TransactionalTopologyBuilder
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import (
    Contents,
    Count,
    Key,
    Ledger,
    Row,
    RowBackend,
    StateTable,
    open_state,
    register_backend,
)

WORDS = [
    "cat dog chicken cat dog apple",
    "cat dog apple banana",
    "cat cat cat cat cat dog dog dog dog",
]
DATA = {number: [[word] for word in words.split()] for number, words in enumerate(WORDS)}


class JsonFile(RowBackend):
    """A state in a JSON file on a local disk; exactly once, for up to some thousand rows."""

    def __init__(self, url: str, table: StateTable) -> None:
        super().__init__(table)
        self.path = Path(url.partition(":")[2])

    def load(self) -> Contents:
        if not self.path.exists():
            return Contents()
        stored = json.loads(self.path.read_text())
        rows = {tuple(key): Row(**self._with_tuples(row)) for key, row in stored["rows"]}
        return Contents(Ledger(**stored["ledger"]), rows)

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = self.load()
            if held.ledger != expected:
                return False
            rows = [(k, asdict(r)) for k, r in {**held.rows, **changes}.items() if r is not None]
            unfinished = self.path.with_suffix(".unfinished")
            with unfinished.open("w") as file:
                json.dump({"ledger": asdict(ledger), "rows": rows}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.path)
        return True

    def _with_tuples(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}


def main(
    spark: SparkSession | None = None,
    config: Config = Config(),
    url: str = "json:word_count.json",
) -> None:
    """Count the words and print the counts that the file holds in the end."""
    register_backend("json", JsonFile)
    spout = MemoryTransactionalSpout(DATA, Fields("word string"), 3)
    builder = TransactionalTopologyBuilder("json-words", "spout", spout, 3)
    words = PersistentAggregate(open_state(url), "word", Count())
    builder.set_bolt("words", words).fields_grouping("spout", "word")

    with builder.build_topology().start(spark, config) as run:
        run.process_all_available()

    with open_state(url, table="words").reader() as reader:
        for word, count in sorted(reader.items()):
            print(f"{word}: {count}")


if __name__ == "__main__":
    main()
