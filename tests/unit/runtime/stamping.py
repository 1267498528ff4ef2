"""A topology whose tasks tell when their batches were planned, and what is stored of that."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.harness.runs import LOCAL
from tests.harness.sources import Opaque, Partitioned, Ranges, Source
from txtopo import BatchBolt, Committer, Config, TaskContext, Topology, TransactionalTopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.state import State
from txtopo.tuples import Fields, Tuple

SPOUTS: dict[str, type[Ranges] | type[Partitioned] | type[Opaque]] = {
    "ranges": Ranges,
    "partitioned": Partitioned,
    "opaque": Opaque,
}
ONE_BY_ONE = replace(LOCAL, max_spout_pending=3, group_txids_max=1, history_txids=50)


class Stamp(BatchBolt):
    """Tells when its batch was planned, in each task."""

    output_fields = Fields("planned_time timestamp")
    needs_planned_time = True

    def prepare(self, config: Config, context: TaskContext, collector: Any, attempt: Any) -> None:
        self.context, self.collector = context, collector

    def execute(self, tuple: Tuple) -> None:
        pass

    def finish_batch(self) -> None:
        self.collector.emit([self.context.planned_time])


class Stamps(BatchBolt, Committer):
    """Keeps the times that it was told, and its own, for each txid."""

    writes_nowhere_else = True

    def prepare(
        self, config: Config, context: TaskContext, collector: Any, attempt: TransactionAttempt
    ) -> None:
        self.context, self.attempt = context, attempt
        self.told: set[datetime] = set()

    def execute(self, tuple: Tuple) -> None:
        self.told.add(tuple["planned_time"])

    def finish_batch(self) -> None:
        own = self.context.planned_time
        assert self.told == {own}, "both phases are told the same"
        with self.context.state("stamps").transaction(self.attempt) as state:
            state.put(self.attempt.txid, own)


def stamped(
    state: State, *sources: Source, kind: str = "opaque", second: State | None = None
) -> Topology:
    first, *others = sources
    builder = TransactionalTopologyBuilder("stamps", first.name, SPOUTS[kind](first))
    for other in others:
        builder.set_spout(other.name, SPOUTS[kind](other))
    stamp = builder.set_bolt("stamp", Stamp(), 2)
    for source in sources:
        stamp.shuffle_grouping(source.name)
    columns = state.with_columns(Fields("number long"), Fields("planned_time timestamp"))
    builder.set_bolt("stamps", Stamps()).global_grouping("stamp").with_state("stamps", columns)
    if second is not None:
        columns = second.with_columns(Fields("number long"), Fields("planned_time timestamp"))
        more = builder.set_bolt("more", Stamps()).global_grouping("stamp")
        more.with_state("stamps", columns)
    return builder.build_topology()


def stamps_in(state: State) -> dict[int, datetime]:
    columns = state.with_columns(Fields("number long"), Fields("planned_time timestamp"))
    with columns.named("stamps").reader() as reader:
        return dict(reader.items())


def stored_stamps(ensemble: MemoryEnsemble) -> dict[int, dict[str, Any]]:
    paths = [path for path in ensemble.nodes if "/batches/" in path]
    values = {
        int(path.rpartition("/")[2]): json.loads(ensemble.nodes[path][0])["value"] for path in paths
    }
    return {txid: value["metadata"]["stamp"] for txid, value in values.items()}
