"""``python -m benchmarks.start``: how long it takes from ``start()`` to the first job, and to end.

A run counts a few words into an empty database of PostgreSQL's, with an embedded ZooKeeper in an
empty folder, on a Spark session that is there and warm. The carriers take turns. Printed are
medians (and the least) of when each step began and ended, in ms after the call of ``start()``.

*first job* is the moment in which the first batch is handed to Spark, or to slots that are ready.
*stop* begins when everything is committed, and its times count from there.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

from benchmarks.report import machine
from benchmarks.store import fresh_database
from state_backends.sql.backend import SqlBackend
from tests.harness.servers.postgresql import PostgresServer
from txtopo import (
    BatchCommitted,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Topology,
    TopologyEvent,
    TopologyListener,
    TransactionalTopologyBuilder,
    ZooKeeper,
    open_session,
    open_state,
)
from txtopo.carriers.carrier import LocalCarrier
from txtopo.carriers.spark import RddCarrier
from txtopo.ensemble.embedded import EmbeddedServer
from txtopo.ensemble.journal import Journal
from txtopo.ensemble.memory import MemoryTransactionalState
from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState
from txtopo.resident.carrier import ResidentCarrier, StageSlots
from txtopo.runtime import driver
from txtopo.runtime import start as starting
from txtopo.spouts import MemoryTransactionalSpout

ROWS = 100
BATCH_ROWS = 10
TIMEOUT_S = 60.0

# The function of each step, where its caller finds it.
STEPS: list[tuple[str, Any, str]] = [
    ("session", starting, "_session_and_carrier"),
    ("zookeeper", starting, "open_transactional_state"),
    ("· server", EmbeddedServer, "attach"),
    *[("carrier", each, "start") for each in (RddCarrier, ResidentCarrier, LocalCarrier)],
    ("· connect", SqlBackend, "connect"),
    ("store", SqlBackend, "create"),
    *[("election", e, "lead") for e in (ZooKeeperTransactionalState, MemoryTransactionalState)],
    ("takeover", driver, "take_over"),
    ("· epoch", Journal, "claim_epoch"),
    ("· claim", SqlBackend, "claim"),
    ("· load", Journal, "load"),
    ("plan stored", Journal, "store_batches"),
    *[("job", each, "process") for each in (RddCarrier, ResidentCarrier, LocalCarrier)],
    ("slots ready", StageSlots, "slot_ready"),
    ("commit", SqlBackend, "commit"),
]
ENDING: list[tuple[str, Any, str]] = [
    *[("end carrier", each, "close") for each in (RddCarrier, ResidentCarrier, LocalCarrier)],
    ("end zookeeper", ZooKeeperTransactionalState, "close"),
    ("· end server", EmbeddedServer, "close"),
    ("end store", SqlBackend, "close"),
]
WHOLE = ("start() returned", "first job", "all committed", "stop took", "all", "processor time")
CARRIERS: dict[str, dict[str, Any]] = {
    "rdd": {"carrier": "rdd"},
    "resident": {"carrier": "resident"},
    "local": {"carrier": "local", "zookeeper": "memory"},
}


class Times(TopologyListener):
    """When each step of one run began and ended, in seconds after the start of the run."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.steps: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def on_change(self, change: TopologyEvent) -> None:
        """Note the last commit."""
        if isinstance(change, BatchCommitted):
            now_s = time.monotonic() - self.began_s
            self.steps.setdefault("committed", [(now_s, now_s)])

    def timed(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and notes when."""

        def call(*arguments: Any, **named: Any) -> Any:
            began_s = time.monotonic() - self.began_s
            try:
                return function(*arguments, **named)
            finally:
                self.steps[step].append((began_s, time.monotonic() - self.began_s))

        return call

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note when the functions of all steps are called."""
        with ExitStack() as stack:
            for step, owner, name in [*STEPS, *ENDING]:
                function = getattr(owner, name)
                stack.callback(setattr, owner, name, function)
                setattr(owner, name, self.timed(step, function))
            yield

    def first_job_s(self) -> float:
        """Return when the first batch could be handed over."""
        slots_s = [end for _, end in self.steps["slots ready"]]
        return max([self.steps["job"][0][0], *slots_s])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--runs", type=int, default=11, help="runs of each; default 11")
    parser.add_argument("--carriers", default=",".join(CARRIERS), help="which; default all")
    arguments = parser.parse_args()
    names = arguments.carriers.split(",")
    print(f"{machine()}; medians of {arguments.runs} runs", flush=True)
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    spark, _ = open_session(app_name="txtopo-start", master="local[2]")
    try:
        with PostgresServer() as server:
            for number in range(arguments.runs + 1):
                for name in names:
                    times = measure(spark, server, CARRIERS[name])
                    if number:  # the first run of each warms up
                        found[name].append(times)
    finally:
        spark.stop()
    print("load", *(f"{each:.1f}" for each in os.getloadavg()))
    for name in names:
        report(name, found[name])


def measure(spark: Any, server: PostgresServer, settings: Mapping[str, Any]) -> dict[str, float]:
    """Do one run; return milliseconds by what they are of."""
    with (
        fresh_database(server) as url,
        tempfile.TemporaryDirectory(prefix="txtopo-start-zookeeper-") as folder,
    ):
        config = Config(**({"zookeeper": ZooKeeper(dir=folder)} | dict(settings)))
        topology, used_s = words(url), time.process_time()
        times = Times()
        with times.watching():
            run = topology.start(None if config.carrier == "local" else spark, config, [times])
            started_s = time.monotonic() - times.began_s
            run.process_all_available(TIMEOUT_S)
            rested_s = time.monotonic() - times.began_s
            run.stop()
            stopped_s = time.monotonic() - times.began_s
        used_s = time.process_time() - used_s
    found = {
        "start() returned": started_s,
        "first job": times.first_job_s(),
        "all committed": rested_s,
        "stop took": stopped_s - rested_s,
        "all": stopped_s,
        "processor time": used_s,
    }
    ending = {step for step, _, _ in ENDING}
    for step, spans in times.steps.items():
        for number, (began_s, ended_s) in enumerate(spans[:2], 1):
            since_s = rested_s if step in ending and began_s > rested_s else 0.0
            found[f"{step} {number} began"] = began_s - since_s
            found[f"{step} {number} ended"] = ended_s - since_s
    return {name: 1000 * seconds for name, seconds in found.items()}


def report(name: str, runs: list[dict[str, float]]) -> None:
    """Print the medians of a carrier's runs."""
    medians = {key: median(run[key] for run in runs if key in run) for key in runs[0]}
    print(f"\n{name}")
    for key in WHOLE:
        print(f"  {key:18} {medians[key]:7.0f}  least {min(run[key] for run in runs):5.0f}")
    for key, began_ms in medians.items():
        if key.endswith(" began"):
            step = key.removesuffix(" began")
            ended_ms = medians[f"{step} ended"]
            print(f"  {step:18} {began_ms:7.0f} {ended_ms:7.0f}  took {ended_ms - began_ms:6.0f}")


def words(url: str) -> Topology:
    """Return the topology."""
    rows = [[f"w{number % BATCH_ROWS}"] for number in range(ROWS)]
    spout = MemoryTransactionalSpout({0: rows}, Fields("word string"), BATCH_ROWS)
    builder = TransactionalTopologyBuilder("words", "words", spout)
    counts = PersistentAggregate(open_state(url), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("words", "word")
    return builder.build_topology()


if __name__ == "__main__":
    main()
