"""Metrics: the figures of a run's board in the text format of Prometheus.

They are read only on request, so that they cost a run nothing. ``docs/reference/metrics.md`` lists
them, with a dashboard and alerts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from txtopo.coordinator.transactions import Phase
from txtopo.runtime.histogram import Histogram
from txtopo.runtime.watching import Figures
from txtopo.ui.board import LAG_UNITS, PARTITIONS_MAX, unit_of
from txtopo.ui.figures import SPANS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of :func:`text`."""

STATUSES = (
    *("starting", "standby", "running", "deactivated", "leadership lost"),
    *("restarting", "stopping", "stopped", "killed", "failed"),
)
"""The possible values of ``status`` of a ``TopologyRun``."""

# A leader that is deactivated still leads, and so does one that is killed until it has finished.
_LEADING = ("running", "deactivated")

_IN_FLIGHT = (Phase.PLANNED, Phase.PROCESSING, Phase.PROCESSED, Phase.COMMITTING)
_KINDS = ("counted", "infrastructure", "fatal")

LABEL_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Described:
    """The description of a metric.

    Attributes:
        name: Its name, with the prefix ``txtopo_``.
        type: ``gauge``, ``counter`` or ``histogram``.
        labels: Its labels other than ``topology``.
        meaning: What it counts, with the unit.
    """

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str


def _described(table: str) -> dict[str, Described]:
    found = {}
    for line in table.strip().replace("\n    ", " ").split("\n"):
        name, type, labels, meaning = (part.strip() for part in line.split("|"))
        found[name] = Described(f"txtopo_{name}", type, tuple(labels.split()), meaning)
    return found


METRICS = _described("""
status | gauge | status | 1 for the current status of the run, 0 for all others
leading | gauge | | 1 if this process leads the topology, or runs it without ZooKeeper, otherwise 0
epoch | gauge | | number of the coordinator; 0 until one has led
started_timestamp_seconds | gauge | | start time of the run, in seconds since 1970
terms_total | counter | | how often this run started to lead; each time after the first follows a
    lost session or a restart
restarts_total | counter | | restarts of the run by its restart policy
committed_txid | gauge | | the last committed txid; 0 for none
last_commit_timestamp_seconds | gauge | | time of the last commit, in seconds since 1970
batches_total | counter | | committed batches
in_flight_txids | gauge | phase | txids that are planned but not committed
run_txids | gauge | | txids in the most recently started job
group_txids | gauge | | txids in the last commit
rows_total | counter | component | tuples that a component emitted; in a transactional topology,
    only those in committed batches
attempts_failed_total | counter | kind component | failed attempts; kind infrastructure is a failure
    of a store, ZooKeeper or Spark, which is retried
failures_in_a_row | gauge | | failures in a row of the txid in flight that has failed most often
replayed_txids_total | counter | | txids that were processed again, after a failure or by a new
    leader
lag_records | gauge | partition | records after the last committed batch; the 100 partitions with
    the most, and the sum of the others as (others)
partitions | gauge | shown | partitions with a known lag; shown is yes for those with their own
    lag_records
lag_files | gauge | | files after the last committed batch
lag_bytes | gauge | | bytes of files after the last committed batch
lag_versions | gauge | | versions of Delta tables after the last committed batch
lag_keys | gauge | | how far the newest key of SQL queries is ahead of the last committed batch
lag_offsets | gauge | | how far the offsets of Data Sources are ahead of the last committed batch
lag_seconds | gauge | | how far a query by time is behind, or how long ago a spout that cannot count
    was first found to have more than the last committed batch; the maximum over all spouts
held_back | gauge | by | 1 while something is not read: by is the spout whose rows wait for their
    time or were set aside, or (clock) while the clock of the driver is in doubt
losses_total | counter | | batches before which a partition of the source lost records, counted once
    per partition
plan_seconds | histogram | | time in which the spout planned a batch
process_seconds | histogram | | duration of the job of a committed batch
wait_seconds | histogram | | how long a processed batch waited for its turn to commit
commit_seconds | histogram | | duration of the commit phase of a batch
component_commit_seconds | histogram | component | time of a component in the driver for the commit
    phase of a batch or a group: receiving its rows, reading its states, computing and preparing the
    write; for a PersistentAggregate, merging its partial aggregates; part of the commit phase
store_commit_seconds | histogram | state | duration of the write of a batch or a group to a state;
    part of the commit phase; states that share a transaction each have its duration
zookeeper_write_seconds | histogram | | duration of a write to ZooKeeper
driver_bytes_total | counter | | bytes of committed batches that waited in the driver for their
    commit
trees_pending | gauge | | pending tuple trees
backlog_tuples | gauge | | tuples that slots have not yet consumed
acked_total | counter | | tuple trees that were fully processed
failed_total | counter | cause | tuple trees that failed; cause is failed or timed out
replayed_tuples_total | counter | | tuples that a spout emitted again after a failure
executed_total | counter | component | tuples that a bolt received
ack_seconds | histogram | | time from emit to ack of a tuple tree
slots_lost_total | counter | | lost slots, with their spouts and the memory of their bolts
trees_lost_total | counter | | tuple trees pending in lost slots, by the last report of each slot;
    the sources deliver their messages again
acker_trees | gauge | acker slot | tuple trees that an acker tracks; acker is its number
acker_ended_total | counter | acker slot how | ended tuple trees of an acker; how is completed,
    failed or timed out
errors_reported_total | counter | component | errors that a spout or bolt reported
""")
"""All metrics, by their names without the prefix."""


Sample = tuple[str, tuple[str, ...], float | Histogram]
"""The value of a metric, with the values of its labels other than ``topology``."""


def text(board: Figures) -> bytes:
    """Return all metrics of a run, and those of its process, in the format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BoardCollector(board))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class BoardCollector(Collector):
    """Reads a board on request, for a registry of ``prometheus_client``.

    Args:
        board: The board.
    """

    def __init__(self, board: Figures) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        """Return the current metrics."""
        families: dict[str, Any] = {}
        topology = label(self._board.topology)
        for name, labels, value in samples(self._board):
            family = families.get(name)
            if family is None:
                family = families[name] = _family(METRICS[name])
            values = [topology, *map(label, labels)]
            if isinstance(value, Histogram):
                family.add_metric(values, _buckets(value), value.sum_s)
            else:
                family.add_metric(values, value)
        yield from families.values()


def samples(board: Figures) -> Iterator[Sample]:
    """Return the values of all metrics that a run has."""
    figures, counters, histograms = board.figures(), board.counters, board.histograms
    for status in STATUSES:
        yield "status", (status,), figures["status"] == status
    yield "started_timestamp_seconds", (), figures["started_at_s"]
    yield "restarts_total", (), counters["restarts"]
    finishes = figures["status"] == "killed" and not counters["ended"]
    yield "leading", (), figures["status"] in _LEADING or finishes
    for each in figures["components"]:
        yield "rows_total", (each["component"],), each["tuples_total"]
    if figures["kind"] == "transactional":
        yield from _of_batches(figures, counters, histograms)
        yield from _lag(figures)
    else:
        yield from _of_trees(figures, counters, histograms)


def _of_batches(
    figures: dict[str, Any], counters: dict[str, Any], histograms: dict[str, Histogram]
) -> Iterator[Sample]:
    yield "epoch", (), figures["epoch"] or 0
    yield "terms_total", (), counters["terms"]
    yield "committed_txid", (), figures["txid"] or 0
    if counters["committed_at_s"] is not None:
        yield "last_commit_timestamp_seconds", (), counters["committed_at_s"]
    yield "batches_total", (), counters["batches"]
    for phase in _IN_FLIGHT:
        yield "in_flight_txids", (phase.value,), figures["phases"].get(phase.name, 0)
    yield "run_txids", (), counters["run_txids"]
    yield "group_txids", (), counters["group_txids"]
    failed = {(kind, ""): 0 for kind in _KINDS}
    for each in counters["attempts_failed"]:
        failed[each["kind"], each["component"] or ""] = each["count"]
    for kind, count in failed.items():
        yield "attempts_failed_total", kind, count
    yield "failures_in_a_row", (), counters["failures_in_a_row"]
    yield "replayed_txids_total", (), counters["replayed_txids"]
    for name in (figures["pace"] or {}).get("held_back") or ():
        yield "held_back", (name,), 1
    yield "losses_total", (), sum(counters["losses"].values())
    yield "driver_bytes_total", (), counters["driver_bytes"]
    for name in SPANS:
        yield f"{name}_seconds", (), histograms[name]
    yield "zookeeper_write_seconds", (), histograms["zookeeper"]
    for name, histogram in histograms.items():
        if name.startswith("commit:"):
            yield "store_commit_seconds", (name.removeprefix("commit:"),), histogram
        elif name.startswith("component:"):
            yield "component_commit_seconds", (name.removeprefix("component:"),), histogram


def _lag(figures: dict[str, Any]) -> Iterator[Sample]:
    known = {
        each["partition"]: each["lag_records"]
        for each in figures["partitions"]
        if each["lag_records"] is not None
    }
    for unit, lag in figures["lag"].items():
        if unit in LAG_UNITS:
            yield f"lag_{unit}", (), lag
    if figures["lag_records"] is None:
        return
    known = {name: lag for name, lag in known.items() if unit_of(name) is None}
    for partition, lag in known.items():
        yield "lag_records", (partition,), lag
    others = figures["partitions_total"] - len(figures["partitions"])
    if others:
        assert len(figures["partitions"]) == PARTITIONS_MAX
        yield "lag_records", ("(others)",), figures["lag_records"] - sum(known.values())
    yield "partitions", ("yes",), len(known)
    yield "partitions", ("no",), others


def _of_trees(
    figures: dict[str, Any], counters: dict[str, Any], histograms: dict[str, Histogram]
) -> Iterator[Sample]:
    yield "slots_lost_total", (), counters["slots_lost"]
    for component, count in counters["errors_reported"].items():
        yield "errors_reported_total", (component,), count
    trees = figures["trees"]
    if trees is None:
        return
    yield "trees_pending", (), trees["pending"]
    yield "backlog_tuples", (), trees["backlog"]
    yield "acked_total", (), trees["acked"]
    yield "failed_total", ("failed",), trees["failed"]
    yield "failed_total", ("timed out",), trees["timed_out"]
    yield "trees_lost_total", (), trees["trees_lost"]
    yield "replayed_tuples_total", (), trees["replays"]
    for acker in trees["ackers"]:
        where = (str(acker["number"]), str(acker["slot"]))
        yield "acker_trees", where, acker["trees"]
        for how in ("completed", "failed", "timed_out"):
            yield "acker_ended_total", (*where, how.replace("_", " ")), acker[how]
    for bolt in trees["bolts"]:
        yield "executed_total", (bolt["component"],), bolt["executed"]
    if "ack" in histograms:
        yield "ack_seconds", (), histograms["ack"]


def label(value: str) -> str:
    """Return a value of a label that is valid UTF-8 and not long.

    The end of a long value is replaced by a digest of the whole value, so that different values
    stay different: two series with one name would corrupt both.
    """
    shown = value.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(shown) <= LABEL_CHARACTERS_MAX:
        return shown
    digest = hashlib.sha256(shown.encode("utf-8")).hexdigest()[:8]
    return f"{shown[: LABEL_CHARACTERS_MAX - 10]}…{digest}"


def _family(described: Described) -> Any:
    labels = ("topology", *described.labels)
    kinds = {
        "gauge": GaugeMetricFamily,
        "counter": CounterMetricFamily,
        "histogram": HistogramMetricFamily,
    }
    return kinds[described.type](described.name, described.meaning, labels=labels)


def _buckets(histogram: Histogram) -> Iterable[tuple[str, float]]:
    total, found = 0, []
    for bound, count in zip((*histogram.buckets, None), histogram.counts, strict=True):
        total += count
        found.append(("+Inf" if bound is None else str(bound), float(total)))
    return found
