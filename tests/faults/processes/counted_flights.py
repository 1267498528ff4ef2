"""Count flights in children that are killed again and again, while a watcher reads the store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.faults.processes.flights_folds import folds
from tests.harness.processes import Child

TABLES = ("by_carrier_hour", "total")
# A watcher that saw nothing shows nothing, so the children wait for it this often.
SEEN_MIN = 5
# A held child may make this many commits more than the test waits for. The test may be too slow to
# kill it at once, and must not find it at its end.
SPARE = 3


@dataclass(slots=True)
class CountedFlights:
    """A topology that counts flights and is started, killed and started again.

    Attributes:
        input: Folder of the files.
        state: URL of the store.
        arguments: More arguments of the child.
        name: Id of the topology.
        batch_bytes: Size of a batch.
        children: The children that were started.
        samples: How many samples were judged.
        watcher: The process that takes the samples.
    """

    input: Path
    state: str
    arguments: Sequence[str]
    name: str = "flights"
    batch_bytes: int = 320_000
    children: list[Child] = field(default_factory=list)
    samples: int = 0
    watcher: Watcher | None = None

    def start(self, *more: str, held: bool = False) -> Child:
        """Start a child; *held* as in :class:`~tests.harness.processes.Child`."""
        child = Child(
            "tests.faults.processes.flights_process",
            *("--input", str(self.input), "--state", self.state, "--name", self.name),
            *("--batch-bytes", str(self.batch_bytes), *self.arguments, *more),
            held=held,
        )
        self.children.append(child)
        return child

    def kill_and_finish(self, kills: int, seed: int, commits_max: int = 8) -> None:
        """Start it and kill it at a random moment, *kills* times; then start it to its end."""
        chance = Random(seed)
        for _ in range(kills):
            child = self.start(held=True)
            commits, pause_s = chance.randrange(commits_max), chance.uniform(0.0, 0.05)
            child.allow(commits + SPARE - 1)  # the first commit needs no permission
            child.wait_for("running")
            if commits:
                child.wait_for("committed", commits)
            else:  # somewhere between the election and the first commit
                pause_s *= 5
            time.sleep(pause_s)
            child.kill()
        self.finish_seen()

    def finish_seen(self) -> Child:
        """Start a child and let it end; the watcher sees enough of it."""
        child = self.start(held=True)
        self.show(child)
        child.finish()
        return child

    def show(self, child: Child) -> None:
        """Let a held child commit one by one until the watcher has seen enough of it.

        The child must not have committed anything yet.
        """
        assert self.watcher is not None
        for at in range(SEEN_MIN):
            if at:
                child.allow(1)
            child.wait_for("committed")
            self.watcher.look()

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of its states, in the order in which a commit writes them."""
        return tuple(f"{self.name}_{table}" for table in TABLES)

    @contextmanager
    def watched(self, seen_min: int = SEEN_MIN) -> Iterator[None]:
        """Sample the store from another process during the block; then judge every sample."""
        watcher = self.watcher = Watcher(self.state, self.tables)
        try:
            yield
            watcher.look()  # at the end
        except AssertionError as error:
            for child in self.children:
                if child.runs:
                    error.add_note(f"beside it {child.pid} ran: {child.story()}")
            raise
        finally:
            for child in self.children:
                child.clean_up()
            samples = watcher.end()
        self.judge(samples, seen_min)

    def judge(self, samples: list[Sample], seen_min: int) -> None:
        """Check that each sample is the fold of the first k txids, and that k never goes back."""
        self.samples += len(samples)
        expected = folds(self.input, {rows for _, _, rows, _ in samples})
        rows_by_txid: dict[int, int] = {0: 0}
        last = dict.fromkeys(self.tables, 0)
        for table, txid, rows, digest in samples:
            assert rows_by_txid.setdefault(txid, rows) == rows, f"txid {txid} changed in {table}"
            assert digest == expected[rows][table.removeprefix(f"{self.name}_")], (table, txid)
            assert txid >= last[table], f"{table} went back from {last[table]} to {txid}"
            last[table] = txid
            # The tables are read in the order in which they are written.
            first, second = self.tables
            assert table == first or last[second] >= last[first] - 1
        for txid, rows in self._told():
            if txid in rows_by_txid and txid - 1 in rows_by_txid:
                assert rows_by_txid[txid] - rows_by_txid[txid - 1] == rows
        assert len(rows_by_txid) > seen_min, f"samples of only {len(rows_by_txid)} txids"
        assert rows_by_txid[max(rows_by_txid)] == max(expected)
        assert set(last.values()) == {max(rows_by_txid)}

    def _told(self) -> Iterator[tuple[int, int]]:
        """Yield how many flights each txid has, as the children said."""
        for child in self.children:
            for said in child.events("committed"):
                yield said["txid"], said["rows"]


class Sample(NamedTuple):
    """One reading of a table by the watcher.

    Attributes:
        table: The table.
        txid: The txid in its ledger.
        rows: How many flights it has counted.
        digest: A digest of its contents.
    """

    table: str
    txid: int
    rows: int
    digest: str


class Watcher:
    """A process that reads tables until it is ended."""

    def __init__(self, url: str, tables: Sequence[str]) -> None:
        module = "tests.faults.processes.sampling_process"
        self._child = Child(module, url, *tables, held=True)
        self._child.wait_for("ready")

    def look(self) -> None:
        """Wait until it has read what the tables hold now."""
        self._child.read_available()
        # The pass that is under way may have begun earlier.
        self._child.wait_for("pass", 2)

    def end(self) -> list[Sample]:
        """End it, and return all samples."""
        try:
            self._child.finish()
        finally:
            self._child.clean_up()
        samples = self._child.events("sample")
        return [Sample(*(said[name] for name in Sample._fields)) for said in samples]
