"""At most once, at least once and exactly once on the same input, with the same kills.

Run it with ``python -m examples.guarantees``. It needs Java, no service, and a few minutes.
Each guarantee counts the same 10,000 messages of a database in another one, in a process of its
own. That process is killed with SIGKILL as soon as a certain number of messages is counted, and
started again until the input is done. Then the counts are compared with the input. How many
messages a kill costs is a matter of chance, so the numbers differ from run to run.
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    BatchOutputCollector,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    SpoutOutputCollector,
    TaskContext,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    Tuple,
    ZooKeeper,
    open_session,
    open_state,
)
from txtopo.plugins.spouts import Spout
from txtopo.spouts import QueryTransactionalSpout

MESSAGES = 10_000
# The shares of the messages that are counted when the kills come, in the middle of a burst.
KILLED_AT = (0.2025, 0.5025, 0.8025)
FIELDS = Fields("number long")
# Messages come a few at a time and take a little work each, about as fast as they come. So some are
# under way at each moment, which a kill loses or doubles.
BURST, BURST_S, WORK_S = 50, 0.05, 0.000_5
BATCH = 500
LOOK_S = 0.001
INPUT, STORE = "messages.db", "store.db"


class Inbox(Spout):
    """Emits the messages of a table, and deletes a message when it is acked.

    Delivery: at least once. With ``AtLeastOnceConfig(ackers=0)`` a message is acked while it is
    emitted, and so at most once.
    """

    output_fields = FIELDS

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        self._collector, self._burst, self._next_s = collector, BURST, 0.0
        self._database = connect(self._path)
        rows = self._database.execute("SELECT number FROM messages ORDER BY number")
        self._numbers = deque(number for (number,) in rows)

    def next_tuple(self) -> None:
        if not self._burst:
            self._burst, self._next_s = BURST, time.monotonic() + BURST_S
        if not self._numbers or time.monotonic() < self._next_s:
            return
        self._burst -= 1
        number = self._numbers.popleft()
        self._collector.emit([number], number)

    def ack(self, message_id: Any) -> None:
        self._database.execute("DELETE FROM messages WHERE number = ?", [message_id])

    def fail(self, message_id: Any) -> None:
        self._numbers.append(message_id)

    def close(self) -> None:
        self._database.close()


class CountOutside(BasicBolt):
    """Counts in a store that has no idea of transactions, one write a message."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def prepare(self, config: Config | AtLeastOnceConfig, context: TaskContext) -> None:
        self._database = connect(self._path)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS counts (number INTEGER PRIMARY KEY, count INTEGER)"
        )

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        time.sleep(WORK_S)
        self._database.execute(
            "INSERT INTO counts VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
            [tuple["number"]],
        )

    def cleanup(self) -> None:
        self._database.close()


def connect(path: Path) -> sqlite3.Connection:
    """Open a database in which each statement is a transaction; it survives a kill at once."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = OFF")
    return database


def by_tuple(folder: Path, config: AtLeastOnceConfig) -> None:
    """Count tuple by tuple."""
    builder = TopologyBuilder("by-tuple")
    builder.set_spout("messages", Inbox(folder / INPUT))
    builder.set_bolt("count", CountOutside(folder / STORE)).shuffle_grouping("messages")
    with builder.build_topology().start(config=config) as run:
        while first_of(folder / INPUT, "SELECT count(*) FROM messages"):
            run.process_all_available()
        run.process_all_available()


def at_most_once(folder: Path) -> None:
    """Count tuple by tuple; a message is acked when it is emitted."""
    by_tuple(folder, AtLeastOnceConfig(carrier="local", slots=1, ackers=0))


def at_least_once(folder: Path) -> None:
    """Count tuple by tuple; a message is acked when it is counted."""
    by_tuple(folder, AtLeastOnceConfig(carrier="local", slots=1))


def exactly_once(folder: Path) -> None:
    """Count in a transactional topology, on Spark, with ZooKeeper in the same process."""
    url = f"sqlite:///{folder / INPUT}"
    spout = QueryTransactionalSpout(
        url, "messages", "number", FIELDS, settle_s=0, batch_rows_max=BATCH
    )
    counts = PersistentAggregate(open_state(f"sqlite:///{folder / STORE}"), "number", Count())
    builder = TransactionalTopologyBuilder("by-batch", "messages", spout)
    builder.set_bolt("counts", counts).fields_grouping("messages", "number")
    spark, _ = open_session(conf={"spark.ui.enabled": "false"})
    # After a kill the next process waits for the end of the session of the one before it.
    config = Config(zookeeper=ZooKeeper(dir=str(folder / "zookeeper"), session_timeout_s=2.0))
    with builder.build_topology().start(spark, config) as run:
        run.process_all_available()


GUARANTEES: dict[str, Callable[[Path], None]] = {
    "at most once": at_most_once,
    "at least once": at_least_once,
    "exactly once": exactly_once,
}


@dataclass(frozen=True)
class Outcome:
    """What became of the messages.

    Attributes:
        kills: How often the process was killed.
        lost: Messages that are not in the store.
        doubled: How often a message was counted again.
    """

    kills: int
    lost: int
    doubled: int


def first_of(path: Path, query: str) -> int:
    """Return the number that a query of a database has; 0 before there is its table."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            (found,) = database.execute(query).fetchone()
            return int(found)
    except sqlite3.OperationalError:
        return 0


def judge(name: str, folder: Path, messages: int) -> Outcome:
    """Run a guarantee under the kills until its input is done, and compare store and input."""
    with closing(connect(folder / INPUT)) as database:
        database.execute("CREATE TABLE messages (number INTEGER PRIMARY KEY)")
        rows = ([number] for number in range(messages))
        with database:
            database.execute("BEGIN")
            database.executemany("INSERT INTO messages VALUES (?)", rows)
    kills = [int(messages * share) for share in KILLED_AT]
    killed = 0
    while one_life(name, folder, kills[killed] if killed < len(kills) else None):
        killed += 1
    counted = first_of(folder / STORE, "SELECT count(*) FROM counts")
    total = first_of(folder / STORE, "SELECT sum(count) FROM counts")
    return Outcome(killed, messages - counted, total - counted)


def one_life(name: str, folder: Path, kill_at: int | None) -> bool:
    """Run a guarantee in a process of its own; return whether it was killed."""
    command = [sys.executable, __file__, "--run", name, "--folder", str(folder)]
    with (
        (folder / "log").open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as child,
    ):
        while kill_at is not None:
            if first_of(folder / STORE, "SELECT count(*) FROM counts") >= kill_at:
                child.kill()
                break
            try:
                child.wait(LOOK_S)
                break
            except subprocess.TimeoutExpired:
                continue
    if child.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{name} failed: {(folder / 'log').read_text()[-4000:]}")
    return child.returncode != 0


def compare(messages: int = MESSAGES) -> dict[str, Outcome]:
    """Run all three guarantees and print a table for the documentation."""
    outcomes = {}
    print("| | kills | lost | doubled |\n|---|---|---|---|")
    for name in GUARANTEES:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            found = outcomes[name] = judge(name, Path(folder), messages)
        print(f"| {name} | {found.kills} | {found.lost:,} | {found.doubled:,} |", flush=True)
    return outcomes


def main() -> None:
    """Compare the three guarantees, or be the process of one of them."""
    parser = argparse.ArgumentParser(description="count under kills, with each guarantee")
    parser.add_argument("--run", choices=list(GUARANTEES), help="be the process of this one")
    parser.add_argument("--folder", type=Path, help="the folder of that process")
    args = parser.parse_args()
    if args.run:
        GUARANTEES[args.run](args.folder)
    else:
        compare()


if __name__ == "__main__":
    main()
