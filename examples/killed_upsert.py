"""Upserts of foreachBatch that are written by hand, and txtopo, under the same kill.

Run it with ``python -m examples.killed_upsert``. It needs Java, no service, and half a minute. A
streaming query of Spark hands each micro-batch to four sinks. Each counts words in an SQLite file
of its own. The process is killed with SIGKILL in the second of three batches, after the sinks have
written and before Spark notes that the batch is done, and started again. Then the folder of the
checkpoint is lost, and a query with a new one reads what came since. ``docs/how-to/migrate`` says
what each sink does wrong.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from txtopo import (
    Config,
    Count,
    Fields,
    PersistentAggregate,
    PromiseError,
    TransactionalTopologyBuilder,
    open_session,
    open_state,
)
from txtopo.spouts import StreamSpout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txtopo import Topology

FILES = ("cat dog", "cat cat", "bird dog")
AFTER = ("cat owl", "owl")
KILLED_IN_BATCH = 1
SINKS = ("no batch id", "batch id after it", "batch id with it", "txtopo")
NEW_BATCH_ID = "CREATE TABLE IF NOT EXISTS done (batch INTEGER)"
NEW_COUNTS = "CREATE TABLE IF NOT EXISTS counts (word TEXT PRIMARY KEY, count INTEGER)"
# A few words need no tasks of Spark: the topology processes them in the driver.
LOCAL = Config(carrier="local")
UPSERT = "INSERT INTO counts VALUES (?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count"

Words = list[tuple[str, int]]


class ByHand:
    """Three sinks as one writes them: they differ in when they note the id of the batch.

    Args:
        folder: Where their databases are.
        dies: The batch in which the process is killed, if any.
    """

    def __init__(self, folder: Path, dies: int | None) -> None:
        self._folder, self._dies = folder, dies

    def no_batch_id(self, words: Words, batch: int) -> None:
        """Add the counts of a batch, whatever is there already."""
        with closing(self._connect("no batch id")) as database, database:
            database.executemany(UPSERT, words)

    def batch_id_with_it(self, words: Words, batch: int) -> None:
        """Add the counts and note the batch in one transaction; leave out one that is noted."""
        with closing(self._connect("batch id with it")) as database, database:
            if not noted(database, batch):
                database.executemany(UPSERT, words)
                database.execute("INSERT INTO done VALUES (?)", [batch])

    def batch_id_after_it(self, words: Words, batch: int) -> None:
        """Add the counts, then note the batch; leave out one that is noted."""
        with closing(self._connect("batch id after it")) as database:
            if noted(database, batch):
                return
            with database:
                database.executemany(UPSERT, words)
            if batch == self._dies:
                os.killpg(os.getpgid(0), signal.SIGKILL)  # this process, and its JVM
            with database:
                database.execute("INSERT INTO done VALUES (?)", [batch])

    def write(self, frame: DataFrame, batch: int) -> None:
        """Write a batch to the three sinks."""
        words = list(Counter(row["word"] for row in frame.collect()).items())
        for sink in (self.no_batch_id, self.batch_id_with_it, self.batch_id_after_it):
            sink(words, batch)

    def _connect(self, sink: str) -> sqlite3.Connection:
        database = sqlite3.connect(database_of(self._folder, sink))
        database.execute(NEW_COUNTS)
        database.execute(NEW_BATCH_ID)
        return database


def noted(database: sqlite3.Connection, batch: int) -> bool:
    """Return whether a batch, or a later one, is noted as done."""
    (newest,) = database.execute("SELECT max(batch) FROM done").fetchone()
    return newest is not None and newest >= batch


def topology(folder: Path) -> Topology:
    """Return the topology that counts the same words."""
    builder = TransactionalTopologyBuilder("words", "stream", StreamSpout(Fields("word string")))
    state = open_state(f"sqlite:///{database_of(folder, 'txtopo')}")
    builder.set_bolt("counts", PersistentAggregate(state, "word", Count())).fields_grouping(
        "stream", "word"
    )
    return builder.build_topology()


def run_query(
    spark: SparkSession, folder: Path, checkpoint: str, write: Callable[[DataFrame, int], None]
) -> str:
    """Hand the files that a checkpoint does not know to a function, one a batch.

    Returns:
        The id of the query.
    """
    stream = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "files"))
    words = stream.selectExpr("explode(split(value, ' ')) AS word")
    query = (
        words.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return str(query.id)


def live(folder: Path, dies: int | None) -> None:
    """Be the process: count all files, then those of a new checkpoint, unless it is killed."""
    spark, _ = open_session(conf={"spark.ui.enabled": "false"})
    by_hand, txtopo = ByHand(folder, dies), topology(folder).foreach_batch(carrier="local")

    def write(frame: DataFrame, batch: int) -> None:
        txtopo(frame, batch)
        by_hand.write(frame, batch)

    query = run_query(spark, folder, "checkpoint", write)
    show("after the kill", folder, FILES)

    shutil.rmtree(folder / "checkpoint")
    shutil.rmtree(folder / "files")
    put_files(folder, AFTER, first=len(FILES))
    refusals: list[str] = []

    def write_new(frame: DataFrame, batch: int) -> None:
        by_hand.write(frame, batch)
        try:
            txtopo(frame, batch)
        except PromiseError as error:
            refusals.append(str(error))

    run_query(spark, folder, "new", write_new)
    show("with a new checkpoint", folder, FILES + AFTER, refused=bool(refusals))

    goes_on = topology(folder).foreach_batch(
        carrier="local", continues=query, after_txid=len(FILES)
    )
    run_query(spark, folder, "continued", goes_on)
    show("txtopo, continued as its refusal says", folder, FILES + AFTER, sinks=("txtopo",))


def show(
    when: str,
    folder: Path,
    files: tuple[str, ...],
    refused: bool = False,
    sinks: tuple[str, ...] = SINKS,
) -> None:
    """Print what is in each sink, beside the truth."""
    truth = Counter(word for line in files for word in line.split())
    print(f"{when}; expected {text_of(truth)}")
    for sink in sinks:
        found = counts_of(folder, sink)
        judged = "right" if found == truth else "wrong"
        if refused and sink == "txtopo":
            judged = "refused"
        print(f"  {sink:18} {judged:8} {text_of(found)}", flush=True)


def text_of(counts: Counter[str]) -> str:
    """Return counts as text."""
    return " ".join(f"{word}={count}" for word, count in sorted(counts.items()))


def counts_of(folder: Path, sink: str) -> Counter[str]:
    """Return the counts of a sink."""
    path = database_of(folder, sink)
    if sink == "txtopo":
        with open_state(f"sqlite:///{path}", table="counts").reader() as reader:
            return Counter(dict(reader.items()))
    with closing(sqlite3.connect(path)) as database:
        return Counter(dict(database.execute("SELECT word, count FROM counts")))


def database_of(folder: Path, sink: str) -> Path:
    """Return the database of a sink."""
    return folder / f"{sink.replace(' ', '-')}.db"


def put_files(folder: Path, lines: tuple[str, ...], first: int) -> None:
    """Write files of one line each, with modification times in their order."""
    (folder / "files").mkdir(exist_ok=True)
    for number, line in enumerate(lines, first):
        path = folder / "files" / f"{number}.txt"
        path.write_text(line)
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def one_life(folder: Path, dies: int | None) -> subprocess.CompletedProcess[str]:
    """Run :func:`live` in a process group of its own."""
    command = [sys.executable, "-m", "examples.killed_upsert", "--folder", str(folder)]
    if dies is not None:
        command += ["--dies", str(dies)]
    with (folder / "log").open("a") as log:
        return subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            check=False,
        )


def compare() -> str:
    """Run the sinks under the kill; return what the process that was started again printed."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        put_files(folder, FILES, first=0)
        killed = one_life(folder, KILLED_IN_BATCH)
        done = one_life(folder, None)
        if (killed.returncode, done.returncode) != (-signal.SIGKILL, 0):
            raise RuntimeError(f"it failed: {(folder / 'log').read_text()[-4000:]}")
        return done.stdout


def main() -> None:
    """Compare the sinks, or be the process that is killed."""
    parser = argparse.ArgumentParser(description="sinks of foreachBatch under the same kill")
    parser.add_argument("--folder", type=Path, help="run as the child process, in this folder")
    parser.add_argument("--dies", type=int, help="the batch in which the process is killed")
    args = parser.parse_args()
    if args.folder:
        live(args.folder, args.dies)
    else:
        print(compare(), end="")


if __name__ == "__main__":
    main()
