"""``python -m benchmarks.scale``: what executors add, what the driver costs, and what follows.

Three things, one after the other:

1. **Costs.** Topologies with different numbers of slots, records and keys; the processor time of
   each part of a txid, and by least squares what belongs to the txid, to a slot, to 1,000 partial
   results. Processor time does not mind that slots share a core.
2. **Efficiency.** A bolt that computes for a millisecond a record, on one and on two executors of
   one core: wall time, and the driver's share of all processor time.
3. **The model** (:mod:`benchmarks.scale_model`) with the costs of 1, beside what 2 has measured,
   and for 10, 100 and 1,000 executors.

Runs of one number of slots share a session, which has a process of its own, in Spark's
``local-cluster``: executors are processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.processor import Processor, families, took_s
from benchmarks.report import machine
from benchmarks.scale_model import Costs, Load, rates, saturated, simulated
from txtopo import (
    BasicBolt,
    BatchCommitted,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Topology,
    TopologyEvent,
    TopologyListener,
    TransactionalTopologyBuilder,
    Tuple,
    ZooKeeper,
    open_session,
    open_state,
)
from txtopo.config import Carrier
from txtopo.plugins.spouts import (
    LastBatch,
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 3600.0
WARM_UP_TXIDS = 10
SPIN_S = 0.001
# The processor time of another process is told in ticks.
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
FAMILIES_COUNTED = ("driver's JVM", "workers")
SLOTS = (1, 4, 8)
EXECUTORS = (10, 100, 1_000)
CARRIERS: tuple[Carrier, ...] = ("resident", "rdd")


@dataclass(frozen=True, slots=True)
class Case:
    """A topology and where it runs.

    Attributes:
        carrier: The carrier.
        executors: Executors of one core each.
        slots: Slots, which share them.
        records: Records of a txid.
        keys: Different keys of a txid; each slot may see all of them.
        txids: How many to commit.
        spin_s: Processor time of the bolt for each record.
    """

    carrier: Carrier
    executors: int
    slots: int
    records: int
    keys: int
    txids: int
    spin_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run took. Units: seconds of the whole run.

    Attributes:
        wall_s: From the first commit that counts to the last.
        kinds_s: Processor time of the driver's Python by kind of work, and of the workers.
        families_s: Processor time of processes: driver, its JVM, executors' JVMs, workers.
        group: Txids in a group, on the average.
    """

    wall_s: float
    kinds_s: dict[str, float]
    families_s: dict[str, float]
    group: float


class Numbers(PartitionedTransactionalSpout):
    """Numbers below a limit, as many in each batch and partition."""

    output_fields = Fields("number long")

    def __init__(self, case: Case) -> None:
        self.case = case

    def coordinator(self, config: Any, context: Any) -> PartitionedCoordinator:
        return _Coordinator(self.case)

    def emitter(self, config: Any, context: Any) -> PartitionedTransactionalEmitter:
        return _Emitter(self.case)


class _Coordinator(PartitionedCoordinator):
    def __init__(self, case: Case) -> None:
        self.case = case

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= self.case.txids + WARM_UP_TXIDS

    def number_of_partitions(self) -> int:
        return self.case.slots


class _Emitter(PartitionedTransactionalEmitter):
    def __init__(self, case: Case) -> None:
        self.records, self.keys = case.records // case.slots, case.keys

    def emit_partition_batch_new(
        self, attempt: Any, collector: Any, partition: int, last_metadata: Any
    ) -> Any:
        first = 0 if last_metadata is None else last_metadata + self.records
        self.emit_partition_batch(attempt, collector, partition, first)
        return first

    def emit_partition_batch(
        self, attempt: Any, collector: Any, partition: int, metadata: Any
    ) -> None:
        for number in range(self.records):
            collector.emit([number % self.keys])


class Spin(BasicBolt):
    """Computes for a while, for each record, and passes it on."""

    output_fields = Fields("number long")

    def __init__(self, spin_s: float) -> None:
        self.spin_s = spin_s

    def execute(self, tuple: Tuple, collector: Any) -> None:
        end_s = time.thread_time() + self.spin_s
        while time.thread_time() < end_s:
            pass
        collector.emit(tuple.values)


class Clock(TopologyListener):
    """Notes times from the first commit that counts on, and counts groups."""

    def __init__(self, processor: Processor) -> None:
        self.processor = processor
        self.at_s: dict[int, float] = {}
        self.groups = 0
        self.before = self.now()

    def now(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the processor time so far, by kind of work and by family of processes."""
        by_family = {name: sum(map(took_s, pids)) for name, pids in families().items()}
        return self.processor.read(), by_family

    def on_change(self, change: TopologyEvent) -> None:
        """Note a commit."""
        if isinstance(change, BatchCommitted):
            txid = change.progress.txid
            self.at_s[txid] = time.monotonic()
            self.groups += change.progress.group[1] == txid
            if txid == WARM_UP_TXIDS:
                self.before = self.now()


def topology(case: Case) -> Topology:
    """Return the topology of a case: what the bolt has spun for is counted by number, in memory."""
    builder = TransactionalTopologyBuilder("scale", "numbers", Numbers(case), case.slots)
    builder.set_bolt("spin", Spin(case.spin_s), case.slots).local_or_shuffle_grouping("numbers")
    counts = PersistentAggregate(open_state("memory:"), "number", Count())
    builder.set_bolt("counts", counts).fields_grouping("spin", "number")
    return builder.build_topology()


def run_cases(cases: Sequence[Case]) -> list[Measured]:
    """Run cases in one session, which the first of them is for. Called in a process of its own."""
    executors, slots = cases[0].executors, cases[0].slots
    master = f"local-cluster[{executors},{-(-slots // executors)},1024]"
    conf = {"spark.executor.memory": "512m", "spark.driver.memory": "512m"}
    spark, _ = open_session(master=master, conf=conf, app_name="txtopo-scale")
    # The first run loads classes and compiles.
    run_case(spark, replace(cases[0], txids=WARM_UP_TXIDS))
    measured = [run_case(spark, case) for case in cases]
    spark.stop()
    return measured


def run_case(spark: SparkSession, case: Case) -> Measured:
    """Run a case."""
    processor = Processor("scale")
    with tempfile.TemporaryDirectory(prefix="txtopo-scale-") as folder, processor.measured():
        clock = Clock(processor)
        config = Config(carrier=case.carrier, slots=case.slots, zookeeper=ZooKeeper(dir=folder))
        run = topology(case).start(spark, config, [clock])
        run.process_all_available(TIMEOUT_S)
        after = clock.now()
        run.stop()
    kinds, by_family = (
        {name: now[name] - before[name] for name in now}
        for now, before in zip(after, clock.before, strict=True)
    )
    wall_s = clock.at_s[case.txids + WARM_UP_TXIDS] - clock.at_s[WARM_UP_TXIDS]
    return Measured(wall_s, kinds, by_family, len(clock.at_s) / clock.groups)


def in_process(cases: Sequence[Case]) -> list[Measured]:
    """Run cases of one session in a process of its own."""
    text = json.dumps([asdict(case) for case in cases])
    program = [sys.executable, "-m", "benchmarks.scale", "--cases", text]
    done = subprocess.run(program, stdout=subprocess.PIPE, check=True, text=True)
    return [Measured(**each) for each in json.loads(done.stdout.splitlines()[-1])]


def fitted(rows: Sequence[tuple[Sequence[float], float]], least: float) -> list[float]:
    """Return the factors, none below zero, that explain the costs of some rows best.

    Args:
        rows: Features and cost of each run.
        least: What the clock can tell; a cost below it is taken as that.
    """
    features = np.array([row for row, _ in rows])
    costs = np.maximum([cost for _, cost in rows], least)
    # Small runs count as much as large ones.
    weighted = features / costs[:, None]
    kept = list(range(features.shape[1]))
    while True:
        factors = np.linalg.lstsq(weighted[:, kept], np.ones(len(costs)), rcond=None)[0]
        if (factors >= 0).all():
            break
        del kept[int(np.argmin(factors))]
    found = [0.0] * features.shape[1]
    for place, factor in zip(kept, factors, strict=True):
        found[place] = float(factor)
    return found


def costs_of(measured: Sequence[tuple[Case, Measured]]) -> Costs:
    """Return what a txid, an order of a slot, a record and 1,000 partial results cost."""
    driver, jvm, worker, store = [], [], [], []
    for case, each in measured:
        kinds = {kind: s / case.txids for kind, s in each.kinds_s.items()}
        partials = min(case.records, case.keys * case.slots) / 1000
        python = sum(kinds.values()) - kinds["store"] - kinds["workers"]
        driver.append(((1.0, case.slots, partials), python))
        of_jvm, of_workers = (each.families_s[name] / case.txids for name in FAMILIES_COUNTED)
        jvm.append(((1.0, case.slots), of_jvm))
        worker.append(((case.slots, case.records), of_workers))
        store.append(((1.0 / each.group, partials), kinds["store"]))
    least = TICK_S / min(case.txids for case, _ in measured)
    return Costs(*(s for rows in (driver, jvm, worker, store) for s in fitted(rows, least)))


def cases_of(carrier: Carrier, slots: int, txids: int) -> list[Case]:
    """Return the cases of this many slots whose costs are taken apart."""
    return [
        Case(carrier, 1, slots, records, keys, txids)
        for records, keys in ((80, 8), (4_000, 8), (4_000, 2_000))
    ]


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    if arguments.cases:
        found = run_cases([Case(**each) for each in json.loads(arguments.cases)])
        print(json.dumps([asdict(each) for each in found]))
        return
    print(f"{machine()}; medians of {arguments.runs} runs\n", flush=True)
    for carrier in arguments.carrier or CARRIERS:
        costs = _print_costs(carrier, arguments.txids)
        _print_efficiency(carrier, costs, arguments)
        _print_model(carrier, costs, arguments.records)


def _print_costs(carrier: Carrier, txids: int) -> Costs:
    measured = []
    titles = (
        "slots",
        "records",
        "keys",
        "driver µs per txid",
        "by kind",
        "its JVM µs",
        "workers µs",
    )
    print(f"| {carrier}: {' | '.join(titles)} |")
    print("|---" * len(titles) + "|")
    cases = [case for slots in SLOTS for case in cases_of(carrier, slots, txids)]
    runs = [each for slots in SLOTS for each in in_process(cases_of(carrier, slots, txids))]
    for case, each in zip(cases, runs, strict=True):
        measured.append((case, each))
        us = {kind: 1e6 * s / txids for kind, s in each.kinds_s.items()}
        del us["workers"]
        jvm, workers = (1e6 * each.families_s[name] / txids for name in FAMILIES_COUNTED)
        kinds = ", ".join(f"{kind} {value:.0f}" for kind, value in us.items())
        row = (case.slots, case.records, case.keys, f"{sum(us.values()):.0f}", kinds)
        print(f"| {' | '.join(map(str, row))} | {jvm:.0f} | {workers:.0f} |", flush=True)
    costs = costs_of(measured)
    print(f"\n{carrier}, µs: ", end="")
    print(", ".join(f"{name} {1e6 * s:.1f}" for name, s in asdict(costs).items()), "\n", flush=True)
    return costs


def _print_efficiency(carrier: Carrier, costs: Costs, arguments: argparse.Namespace) -> None:
    print(
        f"| {carrier}: executors | wall s | speed-up | driver's share | formula s | simulated s |"
    )
    print("|---" * 6 + "|")
    first_s = 0.0
    for executors in (1, 2):
        txids, records = arguments.txids, arguments.records
        case = Case(carrier, executors, executors, records, 8, txids, SPIN_S)
        runs = in_process([case] * arguments.runs)
        wall_s = median(run.wall_s for run in runs)
        first_s = first_s or wall_s
        shares = []
        for run in runs:
            driver = run.families_s["driver"] + run.families_s["driver's JVM"]
            shares.append(driver / sum(run.families_s.values()))
        costs_here, load = spinning(costs), Load(records, 8 * executors)
        formula_s = txids / saturated(costs_here, load, executors)[0]
        simulated_s = txids / simulated(costs_here, load, executors, txids)
        print(
            f"| {executors} | {wall_s:.2f} | {first_s / wall_s:.2f} | {median(shares):.1%} "
            f"| {formula_s:.2f} | {simulated_s:.2f} |",
            flush=True,
        )
    print()


def _print_model(carrier: Carrier, costs: Costs, records: int) -> None:
    print(f"| {carrier}: executors | records per txid | formula: records/s | simulated | busy |")
    print("|---" * 5 + "|")
    for executors in EXECUTORS:
        for size in (records, 100 * executors, 1_000 * executors):
            load, here = Load(size, min(size, 1_000)), spinning(costs)
            rate, part = saturated(here, load, executors)
            others = ", ".join(f"{k} {v:,.0f}" for k, v in rates(here, load, executors).items())
            virtual = size * simulated(here, load, executors, 300)
            print(
                f"| {executors:,} | {size:,} | {size * rate:,.0f} | {virtual:,.0f} "
                f"| {part} (txids/s: {others}) |",
                flush=True,
            )
    print()


def spinning(costs: Costs) -> Costs:
    """Return the costs of a bolt that computes for a millisecond a record."""
    return Costs(**{**asdict(costs), "worker_record": costs.worker_record + SPIN_S})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each wall time; default 3")
    parser.add_argument("--txids", type=int, default=300, help="txids of a run; default 300")
    parser.add_argument("--records", type=int, default=100, help="that take 1 ms each; default 100")
    parser.add_argument(
        "--carrier", action="append", choices=CARRIERS, help="this one only; may be repeated"
    )
    parser.add_argument("--cases", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
