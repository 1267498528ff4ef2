"""A topology that writes one large value a batch, so that a small disk fills up."""

from __future__ import annotations

import hashlib
import threading

from tests.harness.runs import Changes
from tests.harness.servers.small_disk import SmallDisk
from tests.unit.runtime.loop_world import BATCHES, ROWS, Total
from txtopo.runtime.progress import BatchCommitted, BatchFailed, TopologyEvent
from txtopo.state import State


class Large(Total):
    """Writes a value of this many bytes under the number of each batch."""

    def __init__(self, value_bytes: int) -> None:
        self.value_bytes = value_bytes

    def finish_batch(self) -> None:
        with self.state.transaction(self.attempt) as state:
            value = value_of(self.sum, self.value_bytes)
            state.put(f"batch {self.attempt.txid}", value)


def value_of(total: int, value_bytes: int) -> str:
    """Return a text that says what was summed up, and that nobody can make smaller."""
    digests = (hashlib.sha512(f"{total} {at}".encode()).hexdigest() for at in range(10**6))
    parts: list[str] = []
    while len(parts) * 128 < value_bytes:
        parts.append(next(digests))
    return "".join(parts)


def expected(value_bytes: int, txids: int = BATCHES) -> dict[object, object]:
    """Return what a reader sees after this many batches."""
    rows = range(BATCHES * ROWS)
    sums = (sum(rows[at * ROWS : (at + 1) * ROWS]) for at in range(txids))
    return {
        f"batch {txid}": value_of(total, value_bytes) for txid, total in enumerate(sums, start=1)
    }


def filling(disk: SmallDisk, after: int, left_bytes: int) -> tuple[Changes, threading.Event]:
    """Return a listener that fills a disk after a txid, and what it sets when a batch failed."""
    failed = threading.Event()

    def hook(change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == after:
            disk.fill(left_bytes)
        if isinstance(change, BatchFailed):
            failed.set()

    return Changes(hook), failed


def read(state: State) -> tuple[int, dict[object, object]]:
    """Return (txid, rows) of one snapshot."""
    with state.named("totals").reader() as reader:
        assert reader.ledger is not None
        return reader.ledger.txid, dict(reader.items())
