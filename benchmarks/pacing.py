"""``python -m benchmarks.pacing``: how settings of pacing change batches, latency and lag.

Records come into being at a steady rate, by the clock; some are there before the run starts. They
are counted by key into a file of SQLite's, on the carrier ``local``. Printed are, of the batches
that were committed while records came: how many rows they had, the time from plan to commit, the
time from a record to its commit, and how many records were unread in the end.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.report import machine
from txtopo import (
    BatchCommitted,
    Config,
    Count,
    Fields,
    Pace,
    PersistentAggregate,
    TopologyEvent,
    TopologyListener,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.plugins.spouts import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)

KEYS = 1_000
BATCH_ROWS_MAX = 1_000_000
EMIT_ROWS = 100_000

# Records that are there at the start, records a second, settings.
CASES: list[tuple[int, int, dict[str, Any]]] = [
    (0, 1_000, {}),
    (0, 1_000, {"min_batch_rows": 500, "max_batch_delay_s": 1.0}),
    (0, 1_000, {"min_batch_rows": 5_000, "max_batch_delay_s": 1.0}),
    (0, 10_000, {}),
    (0, 10_000, {"max_rows_per_second": 2_000}),
    (1_000_000, 10_000, {}),
    (1_000_000, 10_000, {"target_commit_s": 1.0}),
    (1_000_000, 10_000, {"target_commit_s": 0.2}),
    (1_000_000, 10_000, {"target_commit_s": 0.2, "max_rows_per_second": 50_000}),
]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pacing", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long each runs; default 20"
    )
    seconds = parser.parse_args().seconds
    print(machine(), flush=True)
    measured(100_000, 1_000, {}, 10.0)  # what is imported, compiled and cached
    print(
        "| there at the start, then a second | settings | batches | rows of a batch, p50 max | "
        "plan to commit, ms, p50 p99 max | record to commit, s, p50 p99 | unread |\n"
        "|---|---|---|---|---|---|---|"
    )
    for case in CASES:
        print(measured(*case, seconds), flush=True)


def measured(there: int, rate: int, settings: Mapping[str, Any], seconds: float) -> str:
    """Run one case and return its row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        state = open_state(f"sqlite:///{Path(folder) / 'counts.db'}")
        PLANNED.clear()
        builder = TransactionalTopologyBuilder("paced", "records", Records(there, rate))
        counts = PersistentAggregate(state, "key", Count())
        builder.set_bolt("counts", counts).fields_grouping("records", "key")
        commits = Commits()
        config = Config(carrier="local", zookeeper="memory", pace=Pace(**settings))
        with builder.build_topology().start(config=config, listeners=[commits]):
            time.sleep(seconds)
        ended_s = PLANNED[0] + seconds
    read, rows, plans, waits = 0, [], [], []
    for txid, count, at_s in commits.found:
        for each in range(max(read, there), read + count, 1 + count // 1_000):
            waits.append(at_s - (PLANNED[0] + (each - there) / rate))
        read += count
        rows.append(count)
        plans.append(1_000 * (at_s - PLANNED[txid]))
    unread = max(0, there + int(rate * (ended_s - PLANNED[0])) - read)
    given = ", ".join(f"`{name}={value}`" for name, value in settings.items()) or "none"
    return (
        f"| {there:,}, {rate:,} | {given} | {len(rows)} | {p(50, rows):,.0f} {p(100, rows):,.0f} | "
        f"{p(50, plans):.0f} {p(99, plans):.0f} {p(100, plans):,.0f} | "
        f"{p(50, waits):.2f} {p(99, waits):.2f} | {unread:,} |"
    )


def p(percent: int, values: Sequence[float]) -> float:
    """Return a percentile; 0 of no values."""
    return sorted(values)[percent * (len(values) - 1) // 100] if values else 0.0


# When each txid was planned; under 0, when the source began. The spout is copied, and finds it
# here.
PLANNED: dict[int, float] = {}


class Commits(TopologyListener):
    """Notes when each batch was committed."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int, float]] = []

    def on_change(self, change: TopologyEvent) -> None:
        """Note a commit; empty batches are left out."""
        if isinstance(change, BatchCommitted) and change.progress.rows:
            progress = change.progress
            self.found.append((progress.txid, progress.rows, time.monotonic()))


class Records(TransactionalSpout):
    """Records that come into being at a steady rate."""

    output_fields = Fields("key long")

    def __init__(self, there: int, rate: int) -> None:
        self._there, self._rate = there, rate

    def coordinator(self, config: Config, context: Any) -> TransactionalCoordinator:
        """Make the planning part; time begins here."""
        PLANNED[0] = time.monotonic()
        return RecordsCoordinator(self._there, self._rate)

    def emitter(self, config: Config, context: Any) -> TransactionalEmitter:
        """Make an emitting part."""
        return RecordsEmitter()


class RecordsCoordinator(TransactionalCoordinator):
    """Plans all records that are there, up to the limits."""

    def __init__(self, there: int, rate: int) -> None:
        self._there, self._rate = there, rate

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether there are records, and they are worth a batch."""
        return last.worth_a_batch(self.unread(last)["records"], BATCH_ROWS_MAX)

    def unread(self, last: LastBatch) -> dict[str, int]:
        """Return how many records are unread."""
        metadata: Any = last.metadata
        end = self._there + int(self._rate * (time.monotonic() - PLANNED[0]))
        return {"records": end - (metadata[1] if metadata else 0)}

    def initialize_transaction(
        self, txid: int, previous_metadata: Any, *, rows_max: int | None = None
    ) -> Any:
        """Return a range of records."""
        PLANNED[txid] = time.monotonic()
        start = previous_metadata[1] if previous_metadata else 0
        most = self.unread(LastBatch(txid - 1, previous_metadata))["records"]
        most = min(most, BATCH_ROWS_MAX, most if rows_max is None else rows_max)
        return [start, start + most]


class RecordsEmitter(TransactionalEmitter):
    """Makes the records of a range."""

    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None:
        """Emit the range."""
        start, end = metadata
        for at in range(start, end, EMIT_ROWS):
            numbers = pa.array(range(at, min(at + EMIT_ROWS, end)), pa.int64())
            keys = pc.subtract(numbers, pc.multiply(pc.divide(numbers, KEYS), KEYS))
            collector.emit_batch(pa.RecordBatch.from_arrays([keys], names=["key"]))


if __name__ == "__main__":
    # What is pickled by its name is the module of that name, which has the times.
    import benchmarks.pacing

    benchmarks.pacing.main()
