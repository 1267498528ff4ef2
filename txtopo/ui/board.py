"""Board: the figures of a run, in memory. Progress bar, pages, metrics and notebooks read it.

It is a listener that each run has. Its size is bounded: the last thousand txids, the last hundred
failures, one sample for each ten seconds of the last hour, totals and histograms. The loop writes
and any thread reads; each holds the lock for a short time.

All methods return plain JSON values. Units are in the names: times (``…_at_s``) are seconds since
1970, durations (``…_s``) are seconds. Unknown values are None.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from txtopo import clock as real_clock
from txtopo.ensemble.store import this_process
from txtopo.log_records import one_line, printable
from txtopo.metadata import Json
from txtopo.runtime.histogram import Histogram
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesAbandoned,
    BatchesProcessed,
    BatchFailed,
    BatchPlanned,
    CommitStarted,
    ErrorReported,
    Leading,
    ProcessingStarted,
    Progress,
    Progressed,
    ReliableProgress,
    Restarting,
    SlotLost,
    Standby,
    Started,
    Stopped,
    TopologyEvent,
    TopologyListener,
    TreesFailed,
)
from txtopo.state.registry import redacted_url
from txtopo.ui.figures import SPANS, Rates, RecentDurations, Samples, percentiles, recent
from txtopo.ui.timeline import TXIDS_MAX, TxidTimeline

if TYPE_CHECKING:
    from txtopo.runtime.watching import RunKind
    from txtopo.topology.graph import Graph

FAILURES_MAX = 100
PARTITIONS_MAX = 100
CAUSE_CHARACTERS_MAX = 200

# Trees fail, and errors are reported, by the thousand; failures of one kind within this time are
# one row.
_MERGED_S = 1.0

# Frequent events are queued, at most this many, until somebody reads. Noting them together takes
# half the processor time of noting them one by one between the other work of a run.
_OFTEN = {BatchPlanned, ProcessingStarted, BatchesProcessed, CommitStarted, BatchCommitted}
_WAITING_MAX = 100

# Rows that are read under one hold of the lock.
_ROWS_AT_ONCE = 100

LAG_UNITS = ("files", "bytes", "versions", "keys", "offsets", "seconds")
"""What a spout that does not count records reports in place of partitions."""


def unit_of(name: str) -> str | None:
    """Return the unit of a lag with this name, perhaps of a part of a sequence; None for records.

    Args:
        name: The name of a partition, or of a unit; with several spouts behind the id of its spout.
    """
    unit = name.rpartition("/")[2]
    return unit if unit in LAG_UNITS else None


def lag_by_unit(lag: Mapping[str, int]) -> dict[str, int]:
    """Return how far all spouts are behind, in each unit: sums, but of seconds the most."""
    found: dict[str, int] = {}
    for name, count in lag.items():
        unit = unit_of(name) or "records"
        known = found.get(unit, 0)
        found[unit] = max(known, count) if unit == "seconds" else known + count
    return found


class Board(TopologyListener):
    """The figures of one run, across its restarts. All methods may be called from any thread.

    Args:
        topology_id: Id of the topology.
        kind: ``transactional`` or ``at-least-once``.
        graph: The topology.
        clock: Returns the seconds since 1970.

    Attributes:
        page: Address of the run's own page, if it has one; the server of the page sets it.
    """

    def __init__(
        self,
        topology_id: str,
        kind: RunKind,
        graph: Graph,
        clock: Callable[[], float] = real_clock.wall_clock,
    ) -> None:
        self.page: str | None = None
        self._id, self._kind, self._clock = topology_id, kind, clock
        self._lock = threading.Lock()
        self.attach(lambda: "starting")
        now_s = self._started_at_s = self._updated_at_s = clock()
        process = this_process()
        self._process = {"host": process["host"], "pid": process["pid"]}
        self._states, self._several_spouts = _states_of(graph), len(graph.spouts) > 1
        self._version, self._ended = 1, False
        self._seen: tuple[Json, ...] = ()
        self._epoch: int | None = None
        self._current: int | None = None
        self._adopted: int | None = None
        self._last: Progress | None = None
        self._trees: ReliableProgress | None = None
        self._batches = self._restarts = self._slots_lost = self._terms = self._driver_bytes = 0
        self._failed: Counter[tuple[str, str | None]] = Counter()
        self._trees_failed: Counter[tuple[str, str]] = Counter()
        self._errors: Counter[str] = Counter()
        self._lost: dict[str, str] = {}
        self._lost_total: Counter[str] = Counter()
        self._tuples: dict[str, int] = dict.fromkeys(graph.components, 0)
        self._failures: deque[tuple[int, dict[str, Any]]] = deque(maxlen=FAILURES_MAX)
        self._timeline = TxidTimeline()
        self._rates = Rates()
        self._history = Samples(now_s)
        self._histograms = {name: Histogram() for name in (*SPANS, "zookeeper")}
        self._told: deque[tuple[float, TopologyEvent]] = deque()
        # Faster than a match, and there are thousands of events a second.
        self._notes: dict[type, Callable[[Any, float], None]] = {
            BatchPlanned: self._timeline.planned,
            ProcessingStarted: self._timeline.processing,
            BatchesProcessed: self._timeline.processed,
            CommitStarted: self._timeline.committing,
            BatchCommitted: self._committed,
            BatchFailed: self._batch_failed,
            BatchesAbandoned: self._timeline.abandoned,
            Progressed: self._progressed,
            **dict.fromkeys((TreesFailed, ErrorReported, SlotLost), self._tuples_failed),
            **dict.fromkeys((Started, Standby, Leading, Restarting, Stopped), self._life),
        }
        self._of_state = {each["state"]: Histogram() for each in self._states}
        # Which components take part in the commit phase in the driver shows with the first commit.
        self._of_component: dict[str, Histogram] = {}
        self._parts = RecentDurations()
        self._in_a_row: dict[int, int] = {}

    @property
    def topology(self) -> str:
        """Id of the topology."""
        return self._id

    @property
    def kind(self) -> RunKind:
        """``transactional`` or ``at-least-once``."""
        return self._kind

    def attach(
        self, status: Callable[[], str], pace: Callable[[], dict[str, Json] | None] = lambda: None
    ) -> None:
        """Set the functions that return the status of the run and what limits its batches now."""
        self._status, self._pace = status, pace

    # ------------------------------------------------------------ writing

    def on_change(self, change: TopologyEvent) -> None:
        """Record a change, at the latest when somebody reads the board."""
        now_s = self._clock()
        with self._lock:
            self._told.append((now_s, change))
            if len(self._told) >= _WAITING_MAX or type(change) not in _OFTEN:
                self._catch_up()

    def _catch_up(self) -> None:
        """Record the queued events."""
        while self._told:
            now_s, change = self._told.popleft()
            if self._history.due(now_s):
                self._sample(now_s)
            self._updated_at_s = now_s
            self._version += 1
            self._timeline.version = self._version
            self._notes[type(change)](change, now_s)

    def _life(self, change: TopologyEvent, now_s: float) -> None:
        self._ended = isinstance(change, Stopped)
        match change:
            case Leading():
                self._epoch, self._current = change.epoch, change.current
                self._adopted = change.adopted
                self._terms += 1
                self._in_a_row.clear()
                self._timeline.end_term(change.adopted_txids, now_s)
                self._rates.begin(now_s, self._rows, self._tuples)
            case Standby():
                self._timeline.end_term(range(0), now_s)
            case Restarting():
                self._restarts += 1
                self._timeline.end_term(range(0), now_s)
                self._failure(now_s, "restarting", one_line(change.error), pause_s=change.pause_s)
            case Stopped():
                self._timeline.end_term(range(0), now_s)
                if change.error is not None:
                    self._failure(now_s, "ended", one_line(change.error))
            case Started():
                self._rates.begin(now_s, self._rows, self._tuples)

    def _committed(self, change: BatchCommitted, now_s: float) -> None:
        progress = self._last = change.progress
        self._batches += 1
        self._current = progress.txid + 1
        for id, count in progress.tuples.items():
            self._tuples[id] = self._tuples.get(id, 0) + count
        for partition, what in progress.lost.items():
            self._lost[partition] = what
            self._lost_total[partition] += 1
        plan_s, wait_s = self._timeline.committed(
            progress.attempt, progress.rows, progress.group, now_s
        )
        processing_s, commit_s = progress.processing_s, progress.commit_s
        histograms = self._histograms
        if plan_s is not None:
            histograms["plan"].observe(plan_s)
        histograms["process"].observe(processing_s)
        if wait_s is not None:
            histograms["wait"].observe(wait_s)
        histograms["commit"].observe(commit_s)
        for state, seconds in progress.state_s.items():
            self._of_state[state].observe(seconds)
            self._parts.add(f"commit:{state}", seconds)
        for component, seconds in progress.component_s.items():
            self._of_component.setdefault(component, Histogram()).observe(seconds)
            self._parts.add(f"component:{component}", seconds)
        for seconds in progress.zookeeper_s:
            histograms["zookeeper"].observe(seconds)
            self._parts.add("zookeeper", seconds)
        self._driver_bytes += progress.driver_bytes
        self._in_a_row.pop(progress.txid, None)
        self._history.latencies.append((now_s, plan_s, processing_s, wait_s, commit_s))
        self._rates.add(now_s, progress.rows_total, self._tuples)

    def _progressed(self, change: Progressed, now_s: float) -> None:
        progress = self._trees = change.progress
        self._tuples |= progress.emitted_by
        self._rates.add(now_s, progress.emitted, self._tuples)

    def _batch_failed(self, change: BatchFailed, now_s: float) -> None:
        cause, attempt = one_line(change.error), change.attempt
        self._failed[change.kind, change.component] += change.batches
        self._in_a_row[attempt.txid] = change.failures
        failure = {
            "kind": change.kind,
            "component": change.component,
            "cause": cause,
            "failures": change.failures,
        }
        again = change.pause_s is not None
        self._timeline.failed(attempt, change.batches, failure, now_s, again=again)
        self._failure(
            now_s,
            change.kind,
            cause,
            txid=attempt.txid,
            attempt=attempt.attempt,
            epoch=attempt.epoch,
            batches=change.batches,
            component=change.component,
            failures=change.failures,
            pause_s=change.pause_s,
        )

    def _tuples_failed(self, change: TreesFailed | ErrorReported | SlotLost, now_s: float) -> None:
        match change:
            case TreesFailed(component, task, message_ids, reason):
                self._trees_failed[component, reason] += len(message_ids)
                self._merged(now_s, f"trees {reason}", component, task, len(message_ids), reason)
            case ErrorReported(component, task, error):
                self._errors[component] += 1
                kind = f"reported {type(error).__name__}"
                self._merged(now_s, kind, component, task, 1, error)
            case SlotLost(slot, reason):
                self._slots_lost += 1
                self._failure(now_s, "slot lost", printable(f"slot {slot}: {reason}"))

    def _merged(
        self,
        now_s: float,
        kind: str,
        component: str,
        task: int,
        failures: int,
        cause: str | Exception,
    ) -> None:
        """Add a failure; one like those of the last second is added to their row."""
        key = kind, component, task
        for number in range(len(self._failures) - 1, -1, -1):
            _, row = self._failures[number]
            if not 0 <= now_s - row["at_s"] < _MERGED_S:
                break
            if (row["kind"], row["component"], row["task"]) == key:
                changed = {**row, "failures": row["failures"] + failures}
                self._failures[number] = self._version, changed
                return
        text = one_line(cause) if isinstance(cause, Exception) else cause
        self._failure(now_s, kind, text, component=component, task=task, failures=failures)

    def _failure(self, now_s: float, kind: str, cause: str, **more: Any) -> None:
        row = {
            "at_s": now_s,
            "txid": None,
            "attempt": None,
            "epoch": None,
            "batches": None,
            "kind": kind,
            "component": None,
            "task": None,
            "cause": cause,
            "failures": 1,
            "pause_s": None,
        }
        self._failures.append((self._version, {**row, **more}))

    # ------------------------------------------------------------ reading

    def summary(self) -> dict[str, Any]:
        """Return the run in one row: status, last txid, rate, lag, last failure and so on."""
        now_s, status = self._clock(), self._status()
        with self._caught_up():
            return self._summary(now_s, status)

    def figures(self) -> dict[str, Any]:
        """Return the summary and all other current figures."""
        now_s, status = self._clock(), self._status()
        with self._caught_up():
            figures = self._figures(now_s, status)
            latencies = list(self._history.latencies)
        return {**figures, "latency": percentiles(recent(latencies, now_s))}

    def txids(self, last: int = TXIDS_MAX) -> list[dict[str, Any]]:
        """Return the last txids with their attempts, the newest last: the timeline."""
        return self._txids(last, since=0)

    def failures(self, last: int = FAILURES_MAX) -> list[dict[str, Any]]:
        """Return the last failures, the newest last.

        A row is a failed attempt, a lost slot, a restart, or the error that ended the run. In an
        at-least-once topology it may also be failed trees or reported errors: those of one kind and
        task within a second share a row, whose key ``failures`` counts them.
        """
        with self._caught_up():
            rows = [row for _, row in self._failures]
        return rows[max(0, len(rows) - last) :]

    def history(self) -> list[dict[str, Any]]:
        """Return one sample for each ten seconds of the last hour, the newest last."""
        now_s = self._clock()
        with self._caught_up():
            if self._history.due(now_s):
                self._sample(now_s)
            return list(self._history.samples)

    def changes(self, since: int) -> dict[str, Any]:
        """Return what has changed since a version: figures, txids and failures.

        Args:
            since: The ``version`` of the last answer; 0 for all.
        """
        now_s, status = self._clock(), self._status()
        limited_by = (self._pace() or {}).get("limited_by")
        with self._caught_up():
            # These change without an event; the rate does so when it falls to 0.
            seen = status, limited_by, self._rate(now_s) > 0
            if seen != self._seen:
                self._seen = seen
                self._version += 1
            version = self._version
            since = since if 0 <= since <= version else 0  # from an earlier process
            failures = [row for changed, row in self._failures if changed > since]
        changed = version > since
        return {
            "version": version,
            "figures": self.figures() if changed else None,
            "txids": self._txids(TXIDS_MAX, since=since) if changed else [],
            "failures": failures,
        }

    @property
    def histograms(self) -> dict[str, Histogram]:
        """Durations of ``plan``, ``process``, ``wait`` and ``commit`` of committed txids.

        Also the commit of each state, as ``commit:<component>.<name>``, what each component took
        in the commit phase before that, as ``component:<id>``, the writes to ``zookeeper``, and, of
        an at-least-once topology, the time from emit to ``ack``.
        """
        with self._caught_up():
            by_state = {f"commit:{name}": each for name, each in self._of_state.items()}
            by_component = {f"component:{id}": each for id, each in self._of_component.items()}
            found = self._histograms | by_state | by_component
            if self._trees is not None and self._trees.latencies is not None:
                found["ack"] = self._trees.latencies
            return {name: each.copy() for name, each in found.items()}

    @property
    def counters(self) -> dict[str, Any]:
        """Totals since the start of the run, and other figures that only metrics show."""
        with self._caught_up():
            return {
                "batches": self._batches,
                "attempts_failed": [
                    {"kind": kind, "component": component, "count": count}
                    for (kind, component), count in self._failed.items()
                ],
                "trees_failed": [
                    {"cause": reason, "component": component, "count": count}
                    for (component, reason), count in self._trees_failed.items()
                ],
                "errors_reported": dict(self._errors),
                "replayed_txids": self._timeline.replayed_txids,
                "losses": dict(self._lost_total),
                "restarts": self._restarts,
                "ended": self._ended,
                "slots_lost": self._slots_lost,
                "run_txids": self._timeline.run_txids,
                "group_txids": self._group_txids,
                "terms": self._terms,
                "committed_at_s": None if self._last is None else self._last.timestamp_s,
                "driver_bytes": self._driver_bytes,
                "failures_in_a_row": max(self._in_a_row.values(), default=0),
            }

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """Hold the lock, after all queued events were processed."""
        with self._lock:
            self._catch_up()
            yield

    @property
    def _group_txids(self) -> int:
        first, last = (0, -1) if self._last is None else self._last.group
        return last - first + 1

    @property
    def _rows(self) -> int:
        if self._trees is not None:
            return self._trees.emitted
        return self._last.rows_total if self._last is not None else 0

    def _rate(self, now_s: float) -> float:
        return self._rates.at(now_s, self._rows, {})[0]

    def _summary(self, now_s: float, status: str) -> dict[str, Any]:
        return {
            "topology": self._id,
            "kind": self._kind,
            "status": status,
            "epoch": self._epoch,
            "txid": self._current - 1 if self._current is not None and self._current > 1 else None,
            "rows_per_second": self._rate(now_s),
            "lag_records": self._lag_records(),
            "lag": lag_by_unit(self._lag()),
            "rows_total": self._rows,
            "last_failure": self._last_failure(),
            "started_at_s": self._started_at_s,
            "updated_at_s": self._updated_at_s,
            "page": self.page,
            "process": dict(self._process),
        }

    def _figures(self, now_s: float, status: str) -> dict[str, Any]:
        by_kind: Counter[str] = Counter()
        for (kind, _), count in self._failed.items():
            by_kind[kind] += count
        lag = self._lag()
        _, rates = self._rates.at(now_s, self._rows, self._tuples)
        return {
            **self._summary(now_s, status),
            "phases": self._timeline.phases(),
            "adopted": self._adopted,
            "restarts": self._restarts,
            "failures_total": sum(by_kind.values())
            + sum(self._trees_failed.values())
            + sum(self._errors.values()),
            "attempts_failed": dict(by_kind),
            "partitions": self._partitions(lag),
            "partitions_total": len(lag.keys() | self._lost.keys()),
            "components": [
                {
                    "component": id,
                    "tuples_total": total,
                    "tuples_per_second": rate,
                    "commit": self._parts.of(f"component:{id}"),
                }
                for (id, total), rate in zip(self._tuples.items(), rates, strict=True)
            ],
            "pace": self._pace(),
            "states": [
                {**each, "commit": self._parts.of(f"commit:{each['state']}")}
                for each in self._states
            ],
            "zookeeper": self._parts.of("zookeeper"),
            "trees": None if self._trees is None else _trees_of(self._trees),
        }

    def _lag(self) -> Mapping[str, int]:
        return self._last.lag if self._last is not None else {}

    def _lag_records(self) -> int | None:
        return lag_by_unit(self._lag()).get("records")

    def _partitions(self, lag: Mapping[str, int]) -> list[dict[str, Any]]:
        """Return the partitions that are furthest behind; those with losses come first."""
        names = [*lag, *(each for each in self._lost if each not in lag)]
        names.sort(key=lambda name: (-lag.get(name, -1), name))
        return [
            {"partition": name, "lag_records": lag.get(name), "lost": self._lost.get(name)}
            for name in names[:PARTITIONS_MAX]
        ]

    def _last_failure(self) -> dict[str, Any] | None:
        if not self._failures:
            return None
        _, row = self._failures[-1]
        shown = {name: row[name] for name in ("at_s", "txid", "component")}
        return {**shown, "cause": row["cause"][:CAUSE_CHARACTERS_MAX]}

    def _txids(self, last: int, *, since: int) -> list[dict[str, Any]]:
        with self._caught_up():
            rows = self._timeline.rows(last)
        shown: list[dict[str, Any]] = []
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            with self._lock:
                some = rows[first : first + _ROWS_AT_ONCE]
                shown += [each.to_json() for each in some if each.version > since]
        return shown

    def _sample(self, now_s: float) -> None:
        others: dict[str, Any] = {"lag_records": self._lag_records()}
        if self._trees is not None:
            others["acked_per_second"] = self._trees.acked_per_second
            others["pending"] = self._trees.pending
        self._history.sample(now_s, self._rows, self._batches, others)


def _states_of(graph: Graph) -> list[dict[str, Any]]:
    return [
        {
            "state": f"{component.id}.{name}",
            "component": component.id,
            "url": redacted_url(state.url),
            "table": state.table,
            "kind": state.kind,
        }
        for component in graph.components.values()
        for name, state in component.states.items()
    ]


def _trees_of(progress: ReliableProgress) -> dict[str, Any]:
    bolts = progress.executed.keys() | progress.acked_by.keys() | progress.failed_by.keys()
    return {
        "pending": progress.pending,
        "acked": progress.acked,
        "failed": progress.failed,
        "timed_out": progress.timed_out,
        "replays": progress.replays,
        "backlog": progress.backlog,
        "acked_per_second": progress.acked_per_second,
        "latency_p50_s": progress.latency_p50_s,
        "latency_p99_s": progress.latency_p99_s,
        "slots_lost": progress.slots_lost,
        "trees_lost": progress.trees_lost,
        "ackers": [asdict(each) for each in progress.ackers],
        "bolts": [
            {
                "component": id,
                "executed": progress.executed.get(id, 0),
                "emitted": progress.emitted_by.get(id, 0),
                "acked": progress.acked_by.get(id, 0),
                "failed": progress.failed_by.get(id, 0),
            }
            for id in sorted(bolts)
        ],
    }
