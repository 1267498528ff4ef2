"""The programs of Storm's page on transactional topologies, each with a database of its own.

They are written as the page writes them: the rule that skips a txid stands in the committer, and no
state of txtopo is used. The database is a file of SQLite, so that it outlives processes, and tasks
on executors can write to it. It also keeps in which order commit work began.

The last one, ``executed_count``, leaves the rule to txtopo: its committer executes its SQL in the
transaction of the txid.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from txtopo import (
    BasicBolt,
    BatchBolt,
    BatchOutputCollector,
    Committer,
    Config,
    Fields,
    TaskContext,
    Topology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
    open_state,
)
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.state import StateReader

RECORDS = 40
ROWS = [[f"word {at}"] for at in range(RECORDS)]
Dies = Callable[[int], None]
"""Called with a txid after it was written; does not return if the process dies there."""


@dataclass(frozen=True)
class Value:
    """What the page keeps for a key."""

    count: int
    txid: int
    previous: int = 0


@dataclass(frozen=True)
class Database:
    """A database of the user's: keys with a value, written one at a time, and a log of commit work.

    Attributes:
        path: Where it is.
        dies: What happens after each write.
    """

    path: str
    dies: Dies = lambda txid: None

    @classmethod
    def new(cls, folder: Path, dies: Dies = lambda txid: None) -> Database:
        """Make an empty one."""
        made = cls(str(folder / "own.db"), dies)
        with made.opened() as database:
            database.execute("CREATE TABLE counts (key PRIMARY KEY, count, txid, previous)")
            database.execute("CREATE TABLE work (number INTEGER PRIMARY KEY, bolt, txid, attempt)")
        return made

    def opened(self) -> sqlite3.Connection:
        """Connect."""
        database = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        database.execute("PRAGMA synchronous = OFF")  # processes die here, machines do not
        return database

    def get(self, key: str) -> Value | None:
        """Return the value of a key."""
        with closing(self.opened()) as database:
            query = "SELECT count, txid, previous FROM counts WHERE key = ?"
            found = database.execute(query, [key]).fetchone()
        return None if found is None else Value(*found)

    def put(self, key: str, value: Value) -> None:
        """Write the value of a key, and perhaps die."""
        row = [key, value.count, value.txid, value.previous]
        with closing(self.opened()) as database:
            database.execute("INSERT OR REPLACE INTO counts VALUES (?, ?, ?, ?)", row)
        self.dies(value.txid)

    def begin(self, bolt: str, attempt: TransactionAttempt) -> None:
        """Note that commit work begins."""
        row = [bolt, attempt.txid, f"{attempt.epoch}.{attempt.attempt}"]
        with closing(self.opened()) as database:
            database.execute("INSERT INTO work (bolt, txid, attempt) VALUES (?, ?, ?)", row)

    def work(self) -> list[tuple[str, int]]:
        """Return (bolt, txid) of all commit work, in the order in which it began."""
        with closing(self.opened()) as database:
            return database.execute("SELECT bolt, txid FROM work ORDER BY number").fetchall()

    def counts(self) -> dict[str, int]:
        """Return all counts by key."""
        with closing(self.opened()) as database:
            return dict(database.execute("SELECT key, count FROM counts"))


def goes_back(work: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the commit work on a txid that began after that on a later one."""
    newest, found = 0, []
    for bolt, txid in work:
        if txid < newest:
            found.append((bolt, txid))
        newest = max(newest, txid)
    return found


class Batched(BatchBolt):
    """Keeps what all bolts of the page keep."""

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector, self.attempt, self.context = collector, attempt, context


class BatchCount(Batched):
    """Counts the tuples of a batch (``BatchCount`` of the page)."""

    output_fields = Fields("count long")
    count = 0

    def execute(self, tuple: Tuple) -> None:
        self.count += 1

    def finish_batch(self) -> None:
        self.collector.emit([self.count])


class UpdateGlobalCount(Batched, Committer):
    """Adds the batch to the count, unless the count has its txid (``UpdateGlobalCount``)."""

    output_fields = Fields("sum long")

    def __init__(self, database: Database) -> None:
        self.database, self.sum = database, 0

    def execute(self, tuple: Tuple) -> None:
        if not self.sum:
            self.database.begin("sum", self.attempt)
        self.sum += tuple["count"]

    def finish_batch(self) -> None:
        value = self.database.get("global")
        if value is None or value.txid != self.attempt.txid:
            before = value.count if value is not None else 0
            value = Value(before + self.sum, self.attempt.txid)
            self.database.put("global", value)
        self.collector.emit([value.count])


class UpdateOpaqueCount(UpdateGlobalCount):
    """The same for an opaque spout: of an equal txid the count before it is taken."""

    def finish_batch(self) -> None:
        value = self.database.get("global") or Value(0, 0)
        again = value.txid == self.attempt.txid
        before = value.previous if again else value.count
        value = Value(before + self.sum, self.attempt.txid, before)
        self.database.put("global", value)
        self.collector.emit([value.count])


def global_count(
    database: Database,
    committer: BatchBolt | None = None,
    counter: BatchBolt | None = None,
) -> Topology:
    """The first program of the page, with a batch for each record."""
    spout = MemoryTransactionalSpout({0: ROWS}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("global-count", "spout", spout, 3)
    builder.set_bolt("partial-count", counter or BatchCount(), 5).shuffle_grouping("spout")
    bolt = committer or UpdateGlobalCount(database)
    builder.set_bolt("sum", bolt).global_grouping("partial-count")
    return builder.build_topology()


def opaque_count(database: Database, take: int = 1) -> Topology:
    """The same program on an opaque spout, whose batches have this many records."""
    spout = OpaqueMemoryTransactionalSpout({0: ROWS}, Fields("word string"), take)
    builder = TransactionalTopologyBuilder("opaque-count", "spout", spout, 3)
    builder.set_bolt("partial-count", BatchCount(), 5).shuffle_grouping("spout")
    builder.set_bolt("sum", UpdateOpaqueCount(database)).global_grouping("partial-count")
    return builder.build_topology()


class KeyedCountUpdater(Batched, Committer):
    """Counts words, and tells what each count was (``KeyedCountUpdater``)."""

    output_fields = Fields("key string, count long, previous long")

    def __init__(self, database: Database) -> None:
        self.database, self.counts = database, Counter[str]()

    def execute(self, tuple: Tuple) -> None:
        if not self.counts:
            self.database.begin("count", self.attempt)
        self.counts[tuple["word"]] += 1

    def finish_batch(self) -> None:
        for key, more in sorted(self.counts.items()):
            value = self.database.get(key)
            if value is None or value.txid != self.attempt.txid:
                before = value.count if value is not None else 0
                value = Value(before + more, self.attempt.txid, before)
                self.database.put(key, value)
            self.collector.emit([key, value.count, value.previous])


class Bucketize(BasicBolt):
    """Says which buckets a word leaves and enters (``Bucketize``)."""

    output_fields = Fields("bucket long, delta long")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        now, before = tuple["count"] // BUCKET, tuple["previous"] // BUCKET
        if not tuple["previous"]:
            collector.emit([now, 1])
        elif now != before:
            collector.emit([now, 1])
            collector.emit([before, -1])


BUCKET = 10


class BucketCountUpdater(Batched):
    """Counts the words of each bucket; below a committer, and itself none, as on the page."""

    def __init__(self, database: Database) -> None:
        self.database, self.deltas = database, Counter[int]()

    def execute(self, tuple: Tuple) -> None:
        if not self.deltas:
            self.database.begin("buckets", self.attempt)
        self.deltas[tuple["bucket"]] += tuple["delta"]

    def finish_batch(self) -> None:
        for bucket, delta in sorted(self.deltas.items()):
            key = f"bucket {bucket}"
            value = self.database.get(key)
            if value is None or value.txid != self.attempt.txid:
                before = value.count if value is not None else 0
                self.database.put(key, Value(before + delta, self.attempt.txid))


WORDS = ["cat", "dog", "cat", "apple", "cat", "banana", "dog", "cat"]


def top_words(database: Database, batches: int = RECORDS, tasks: int = 5) -> Topology:
    """The second program of the page: words in buckets by their counts."""
    rows = [[word] for at in range(batches) for word in (WORDS[at % 8], WORDS[(3 * at) % 8])]
    spout = MemoryTransactionalSpout({0: rows}, Fields("word string"), 2)
    builder = TransactionalTopologyBuilder("top-n-words", "spout", spout, 2)
    counts = builder.set_bolt("count", KeyedCountUpdater(database), tasks)
    counts.fields_grouping("spout", "word")
    builder.set_bolt("bucketize", Bucketize()).none_grouping("count")
    buckets = builder.set_bolt("buckets", BucketCountUpdater(database), tasks)
    buckets.fields_grouping("bucketize", "bucket")
    return builder.build_topology()


def expected_top_words(batches: int = RECORDS) -> dict[str, int]:
    """Count without any of this."""
    counts: dict[str, int] = Counter()
    for at in range(batches):
        counts[WORDS[at % 8]] += 1
        counts[WORDS[(3 * at) % 8]] += 1
    buckets = Counter(f"bucket {count // BUCKET}" for count in counts.values())
    return {**counts, **buckets}


@dataclass(frozen=True)
class Tables:
    """Two tables of the user's: how many words there were, and a line for each batch.

    Attributes:
        url: URL of their database, which has a state, too.
        other: URL of another database with a state. It is written later, so a process can die while
            one has a batch, and the other does not. Then the batch is written again.
    """

    url: str
    other: str

    @classmethod
    def new(cls, url: str, other: str) -> Tables:
        """Make them."""
        made = cls(url, other)
        made.ask("CREATE TABLE total (words BIGINT)")
        made.ask("INSERT INTO total VALUES (0)")
        made.ask("CREATE TABLE lines (line BIGINT, txid BIGINT, epoch BIGINT, words BIGINT)")
        return made

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute a statement without txtopo."""
        engine = sa.create_engine(self.url)
        try:
            with engine.begin() as connection:
                found = connection.execute(sa.text(statement))
                return [tuple(row) for row in found] if found.returns_rows else []
        finally:
            engine.dispose()

    def total(self) -> int:
        """Return the count."""
        ((words,),) = self.ask("SELECT words FROM total")
        return int(words)

    def lines(self) -> list[tuple[int, int, int, int]]:
        """Return (line, txid, epoch, words) of each line, in their order."""
        found = self.ask("SELECT line, txid, epoch, words FROM lines ORDER BY line, txid, epoch")
        return [
            (int(line), int(txid), int(epoch), int(words)) for line, txid, epoch, words in found
        ]

    def readers(self) -> list[StateReader]:
        """Return a reader of each state."""
        states = ((self.url, "here"), (self.other, "there"))
        return [open_state(url, table=table).reader() for url, table in states]

    def held(self) -> list[tuple[int, int]]:
        """Return the first and the last txid of the group that each state holds."""
        found = []
        for each in self.readers():
            with each as reader:
                assert reader.ledger is not None
                found.append((reader.ledger.first_txid, reader.ledger.txid))
        return found

    def counts(self) -> list[int]:
        """Return the count, the sum of the lines, and the counts of the states."""
        found = [self.total(), sum(words for *_, words in self.lines())]
        for each in self.readers():
            with each as reader:
                found.append(reader.get("global", 0))
        return found

    def astray(self) -> list[tuple[int, int, int, int]]:
        """Return the lines that are not in the place of their txid; each txid has one place."""
        lines = self.lines()
        return [line for at, line in enumerate(lines, 1) if line[:2] != (at, at)]


class ExecutedCount(Batched, Committer):
    """Adds the batch to the count by SQL in the transaction of its txid, and so counts it once."""

    writes_nowhere_else = True

    def __init__(self, *, opaque: bool) -> None:
        self.opaque, self.sum = opaque, 0

    def execute(self, tuple: Tuple) -> None:
        self.sum += tuple["count"]

    def finish_batch(self) -> None:
        add = "UPDATE total SET words = words + :more"
        subtract = "UPDATE total SET words = words - :more" if self.opaque else None
        line = "INSERT INTO lines SELECT COUNT(*) + 1, :txid, :epoch, :more FROM lines"
        erase = "DELETE FROM lines WHERE txid = :txid" if self.opaque else None
        more = {"more": self.sum}
        for name in ("here", "there"):
            with self.context.state(name).transaction(self.attempt) as state:
                state.update("global", lambda count: (count or 0) + self.sum)
                if name == "here":
                    state.execute(add, more, undo=subtract)
                    state.execute(line, more, undo=erase)


def executed_count(tables: Tables, *, opaque: bool = False, take: int = 1) -> Topology:
    """The first program of the page with SQL in the transaction of a txid."""
    kind = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    spout = kind({0: ROWS}, Fields("word string"), take)
    builder = TransactionalTopologyBuilder("executed-count", "spout", spout, 3)
    builder.set_bolt("partial-count", BatchCount(), 5).shuffle_grouping("spout")
    committer = builder.set_bolt("sum", ExecutedCount(opaque=opaque))
    committer.global_grouping("partial-count")
    committer.with_state("here", open_state(tables.url))
    committer.with_state("there", open_state(tables.other))
    return builder.build_topology()
