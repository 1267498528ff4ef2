"""An opaque topology with a random emitter, whose tasks kill their own executors or workers.

It says where each committed batch ended in each partition, and what failed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from tests.harness.processes import parent_of, say
from tests.harness.spark_session import open_test_session
from tests.services.integration.bolts import Gathering
from txtopo import (
    Committer,
    Config,
    Fields,
    Topology,
    TransactionalTopologyBuilder,
    TransactionAttempt,
)
from txtopo.collector import BatchOutputCollector
from txtopo.config import Carrier
from txtopo.context import TaskContext
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
)
from txtopo.runtime.progress import BatchCommitted, BatchFailed, TopologyEvent, TopologyListener
from txtopo.state import open_state

PARTITIONS = 4
ROWS = 1_000
TAKE_MAX = 100
# The component in which the process dies, by txid.
PLACES = ("committer", "bolt", "emitter", "bolt", "bolt")
DEATHS = {3 * at: place for at, place in enumerate(PLACES, 1)}
# Time for the tasks of the other executor to read what is about to be lost.
OTHERS_READ_S = 0.4
NUMBERS = Fields("part long, number long")


class Deaths:
    """Kills the executor of a task, or its Python worker, once for each step and txid."""

    def __init__(self, folder: Path, whom: str, deaths: int) -> None:
        self.folder, self.whom = folder, whom
        self.places = dict(list(DEATHS.items())[:deaths])

    def reach(self, step: str, txid: int, task: int) -> None:
        """Die if it is time to."""
        if self.places.get(txid) != step or task != 1:
            return
        try:
            (self.folder / f"{step}-{txid}").touch(exist_ok=False)
        except FileExistsError:
            return
        time.sleep(OTHERS_READ_S)
        # A worker is forked by PySpark's daemon, which the executor has started.
        victim = os.getpid() if self.whom == "worker" else parent_of(os.getppid())
        os.kill(victim, signal.SIGKILL)
        time.sleep(OTHERS_READ_S)


class RandomCuts(OpaquePartitionedTransactionalSpout):
    """Each call takes another number of rows."""

    output_fields = NUMBERS

    def __init__(self, deaths: Deaths) -> None:
        self.deaths = deaths

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return Rows()

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        return RandomEmitter(self.deaths, context)


class Rows(PartitionedCoordinator):
    """Is ready until all rows are committed."""

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        ends = last.metadata if isinstance(last.metadata, dict) else {}
        return any(_number(ends.get(str(part))) < ROWS for part in range(PARTITIONS))

    def number_of_partitions(self) -> int:
        return PARTITIONS

    def lag(self, metadata: Mapping[str, Json]) -> Mapping[str, int]:
        return {part: ROWS - _number(end) for part, end in metadata.items()}


class RandomEmitter(OpaquePartitionedTransactionalEmitter):
    """Draws from the system's chance, so that no two runs of a task are alike."""

    def __init__(self, deaths: Deaths, context: TaskContext) -> None:
        self.deaths, self.context = deaths, context

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
    ) -> Json:
        start = _number(last_metadata)
        end = min(ROWS, start + random.SystemRandom().randrange(TAKE_MAX))
        for number in range(start, end):
            collector.emit([partition, number])
        self.deaths.reach("emitter", attempt.txid, self.context.task_index)
        return end


class Pass(Gathering):
    """Passes its tuples on."""

    output_fields = NUMBERS

    def __init__(self, deaths: Deaths) -> None:
        self.deaths = deaths

    def finish_batch(self) -> None:
        for each in self.tuples:
            self.collector.emit(each.values)
        self.deaths.reach("bolt", self.attempt.txid, self.context.task_index)


class Keep(Gathering, Committer):
    """Keeps how many rows of each part each batch had, and their sum."""

    def __init__(self, deaths: Deaths) -> None:
        self.deaths = deaths

    def finish_batch(self) -> None:
        rows: Counter[int] = Counter()
        total: Counter[int] = Counter()
        for each in self.tuples:
            rows[each["part"]] += 1
            total[each["part"]] += each["number"]
        with self.context.state("parts").transaction(self.attempt) as state:
            for part in rows:
                kept = {"rows": rows[part], "total": total[part]}
                state.put((self.attempt.txid, part), kept)
        self.deaths.reach("committer", self.attempt.txid, self.context.task_index)


class Telling(TopologyListener):
    """Says which batches are committed and which failed."""

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted):
            ends = {part: ROWS - left for part, left in change.progress.lag.items()}
            say("committed", txid=change.progress.txid, ends=ends)
        elif isinstance(change, BatchFailed):
            say("failed", kind=change.kind, error=type(change.error).__name__)


def _number(metadata: Json) -> int:
    return metadata if isinstance(metadata, int) else 0


def random_cuts(folder: Path, whom: str, number: int) -> Topology:
    """Return the topology; its committer runs in tasks."""
    deaths = Deaths(folder, whom, number)
    parts = open_state(
        f"sqlite:///{folder / 'parts.db'}",
        key=Fields("batch long, part long"),
        value=Fields("rows long, total long"),
    )
    builder = TransactionalTopologyBuilder("random-cuts", "spout", RandomCuts(deaths), 2)
    builder.set_bolt("pass", Pass(deaths), 2).shuffle_grouping("spout")
    committer = builder.set_bolt("keep", Keep(deaths), 2).fields_grouping("pass", "part")
    committer.with_state("parts", parts)
    return builder.build_topology()


def main(carrier: Carrier, whom: str, folder: str, deaths: int) -> None:
    """Process everything.

    Args:
        carrier: The carrier.
        whom: Who is killed: ``executor`` or ``worker``.
        folder: Where everything is kept.
        deaths: How many there are.
    """
    master = "local[2]" if whom == "worker" else "local-cluster[2,1,1024]"
    spark = open_test_session(master, {"spark.executor.memory": "1024m"})
    # So that a commit and a later batch do not both lose an executor: two take long to start.
    config = Config(carrier=carrier, zookeeper="memory", max_spout_pending=2)
    with random_cuts(Path(folder), whom, deaths).start(spark, config, [Telling()]) as run:
        run.process_all_available()
    say("done")
    spark.stop()


if __name__ == "__main__":
    main(cast("Carrier", sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
