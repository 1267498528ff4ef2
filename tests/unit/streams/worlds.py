"""Programs under the simulator against plain Python; every attempt cuts its batches again."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from zlib import crc32

from tests.unit.streams.plain import PlainBuilder
from txtopo import Config, Fields, Topology, TopologyRun, open_state
from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.context import EPOCH, TaskContext
from txtopo.errors import FencedError, InfrastructureError, PoisonBatchError, TopologyKilled
from txtopo.metadata import Json
from txtopo.sources.clock import ClockTransactionalSpout
from txtopo.spouts import OpaqueMemoryTransactionalSpout
from txtopo.spouts.spout import OpaquePartitionedTransactionalEmitter
from txtopo.streams import StreamBuilder
from txtopo.testing.checkers import Evidence
from txtopo.testing.checkers.evidence import stored_attempts, stored_stamp
from txtopo.testing.simulation.campaign import Verdict, quiet, verdict
from txtopo.testing.simulation.clock import ThreadHandoff
from txtopo.testing.simulation.history import History, NodesWrite
from txtopo.testing.simulation.scenario import CHAOS_S, Scenario
from txtopo.testing.simulation.topologies import Oracle, Rows
from txtopo.testing.simulation.world import World

SALE = "id string, shop string, amount long"
NAMES = ("id", "shop", "amount")
TIMED = f"{SALE}, ts timestamp"
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
# Virtual time begins six minutes and forty seconds later, amid the rows: so that clocks matter.
BEGINNING = datetime.datetime(2020, 9, 13, 12, 20, tzinfo=datetime.UTC)
LOCAL = Config(carrier="local", zookeeper="memory", slots=2)
# Batches of few rows, many in flight: most txids share a write.
GROUPS = Config(carrier="local", zookeeper="memory", group_txids_max=10, slots=2)

Program = Callable[[Any, Any, Callable[..., Any]], object]
"""Takes the builder, its source and a function that opens a state by name."""


def sales(count: int, seed: int = 0) -> list[list[Any]]:
    """Return rows with ids of their own; some amounts are NULL."""
    rows: list[list[Any]] = []
    for number in range(count):
        chance = crc32(f"{seed}/{number}".encode())
        amount = None if chance % 7 == 0 else chance % 50 - 10
        rows.append([f"s{number:03}", "abcd"[chance // 7 % 4], amount])
    return rows


def timed_sales(
    count: int, seed: int = 0, source: str = "s", first: datetime.datetime = NOON
) -> list[list[Any]]:
    """Return sales with event times: a minute apart, out of order, some of them far behind."""
    rows: list[list[Any]] = []
    for number, sale in enumerate(sales(count, seed)):
        chance = crc32(f"{seed}/{source}/{number}/time".encode())
        minute = number * 1.5 + chance % 9 - 4 - (30 if chance // 9 % 12 == 0 else 0)
        # Whole minutes are where windows end.
        at = first + datetime.timedelta(minutes=round(minute) if chance // 128 % 2 else minute)
        rows.append([f"{source}{sale[0][1:]}", *sale[1:], at])
    return rows


class RecuttingSpout(OpaqueMemoryTransactionalSpout):
    """Cuts each attempt at a batch in its own way, and at times leaves a partition out."""

    def __init__(
        self, rows: Sequence[Sequence[Any]], take: int, partitions: int = 2, fields: str = SALE
    ) -> None:
        shares = {number: list(rows[number::partitions]) for number in range(partitions)}
        super().__init__(shares, Fields(fields), take)

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        return RecuttingEmitter(self._partitions, self._take)


class RecuttingEmitter(OpaquePartitionedTransactionalEmitter):
    """See the spout."""

    def __init__(self, partitions: Sequence[Sequence[Sequence[Any]]], take: int) -> None:
        self._partitions, self._take = partitions, take

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        *,
        rows_max: int | None = None,
    ) -> Json:
        start = sum(last_metadata) if isinstance(last_metadata, list) else 0  # type: ignore[arg-type]
        chance = crc32(f"{attempt.epoch}/{attempt.txid}/{attempt.attempt}/{partition}".encode())
        take = 1 + chance % self._take
        if chance // 64 % 11 == 0:
            take = 0
        if rows_max is not None:
            take = min(take, rows_max)
        taken = self._partitions[partition][start : start + take]
        for row in taken:
            collector.emit(row)
        return [start, len(taken)]


def memory_state(name: str, **more: Any) -> Any:
    return open_state("memory:", table=name, **more)


def topology_of(
    program: Program, spout: Any, parallelism: int = 1, state: Callable[..., Any] = memory_state
) -> Topology:
    builder = StreamBuilder("program")
    program(builder, builder.source("sales", spout, parallelism), state)
    return builder.build_topology()


def plain_tables(
    program: Program, batches: Sequence[Sequence[Sequence[Any]]]
) -> dict[str, dict[Any, Any]]:
    """Return what each table of a program holds after some batches, in plain Python."""
    builder = PlainBuilder()
    program(builder, builder.source("sales", NAMES), lambda name, **_: name)
    builder.run([{"sales": batch} for batch in batches])
    return builder.tables


TimedProgram = Callable[[Any, Callable[..., Any], Callable[..., Any]], object]
"""Takes the builder, a function that adds a source by name, with its time, and one for states."""


def timed_topology(
    program: TimedProgram,
    spouts: Mapping[str, Any],
    parallelism: int = 1,
    state: Callable[..., Any] = memory_state,
) -> Topology:
    builder = StreamBuilder("program")

    def source(id: str, **time: Any) -> Any:
        return builder.source(id, spouts[id], parallelism, max_ahead=None, **time)

    program(builder, source, state)
    return builder.build_topology()


def timed_tables(
    program: TimedProgram,
    batches: Sequence[Sequence[Sequence[Any]]],
    stamps: Mapping[int, Any] = MappingProxyType({}),
) -> dict[str, dict[Any, Any]]:
    """Return what each table holds after some batches; the ids of records begin like a source's.

    Args:
        program: The program.
        batches: The records of each txid.
        stamps: The stamp of each txid: its planned time, and the versions of lookups.
    """
    builder = PlainBuilder()
    sources: list[str] = []

    def source(id: str, **time: Any) -> Any:
        sources.append(id)
        return builder.source(id, (*NAMES, "ts"), **time)

    program(builder, source, lambda name, **_: name)
    builder.run(
        [
            {id: [each for each in batch if str(each[0])[0] == id[0]] for id in sources}
            for batch in batches
        ],
        [planned_time(stamps.get(txid)) for txid in range(1, len(batches) + 1)],
        [versions(stamps.get(txid)) for txid in range(1, len(batches) + 1)],
    )
    return builder.tables


def planned_time(stamp: Any) -> datetime.datetime | None:
    return None if stamp is None else EPOCH + datetime.timedelta(milliseconds=stamp["time"])


def versions(stamp: Any) -> Mapping[str, Any]:
    tables = {} if stamp is None else stamp.get("tables") or {}
    return {id: held["version"] for id, held in tables.items()}


def planned_stamps(topology_id: str, history: History) -> dict[int, Any]:
    """Return what was planned with each txid; nothing for a topology that needs none."""
    found: dict[int, Any] = {}
    for write in history.writes:
        if isinstance(write, NodesWrite):
            for attempt in stored_attempts(topology_id, write):
                stamp = stored_stamp(topology_id, write.after, attempt.txid)
                if stamp is not None:
                    found[attempt.txid] = stamp
    return found


class Held(dict[Any, Any]):
    """Rows of a table that remember the batches that they follow from."""

    batches: tuple[Sequence[Any], ...] = ()


Tables = Callable[[Sequence[Sequence[Sequence[Any]]], Mapping[int, Any]], dict[str, dict[Any, Any]]]
"""Returns what each table holds after some batches, of which it is known what was planned."""


def oracle_of(tables: Tables, table: str, stamps: Mapping[int, Any]) -> Oracle:
    def step(rows: Rows, batch: Sequence[Any]) -> Rows:
        batches = (*(rows.batches if isinstance(rows, Held) else ()), tuple(batch))
        held = Held(
            (key if isinstance(key, tuple) else (key,), tuple(value.values()))
            for key, value in tables(batches, stamps)[table].items()
        )
        held.batches = batches
        return held

    return step


def simulated(
    program: Program, seed: int, rows: Sequence[Sequence[Any]], config: Config | None = None
) -> Verdict:
    """Run a program under faults of a seed, and judge it by the program in plain Python."""
    take, parallelism = 1 + seed % 5, 1 + seed % 3
    topology = topology_of(program, RecuttingSpout(rows, take), parallelism)
    return judged(topology, seed, lambda batches, _: plain_tables(program, batches), rows, config)


def simulated_timed(
    program: TimedProgram,
    seed: int,
    rows: Mapping[str, Sequence[Sequence[Any]]],
    config: Config | None = None,
) -> Verdict:
    """Do the same with a program of event time, and the rows of each of its sources."""
    spouts = {
        id: RecuttingSpout(each, 1 + (seed + number) % 5, 1 + (seed + number) % 3, TIMED)
        for number, (id, each) in enumerate(rows.items())
    }
    topology = timed_topology(program, spouts, 1 + seed % 3)
    known: dict[Any, dict[str, dict[Any, Any]]] = {}

    def tables(
        batches: Sequence[Sequence[Sequence[Any]]], stamps: Mapping[int, Any]
    ) -> dict[str, dict[Any, Any]]:
        # Each table asks for the same batches.
        key = tuple(tuple(each[0] for each in batch) for batch in batches)
        if key not in known:
            known[key] = timed_tables(program, batches, stamps)
        return known[key]

    records = [record for each in rows.values() for record in each]
    return judged(topology, seed, tables, records, config)


def judged(
    topology: Topology,
    seed: int,
    tables: Tables,
    records: Sequence[Sequence[Any]] | None = None,
    config: Config | None = None,
) -> Verdict:
    """Run a topology under faults of a seed, and judge it by what its tables should hold."""
    scenario = replace(
        Scenario.drawn(seed), min_batch_rows=None, max_rows_per_second=None, target_commit_s=None
    )
    handoff = ThreadHandoff()
    given = scenario.config() if config is None else config
    world = World(seed, scenario.faults, given, scenario.coordinators, handoff)
    world.take(topology)
    with quiet():
        history = world.run(CHAOS_S)
    stamps = planned_stamps(topology.id, history)
    spouts = {spout.id: spout.prototype for spout in topology.graph.spouts}
    # How many rows a clock has is not known, so nobody counts them.
    ticks = any(isinstance(spout, ClockTransactionalSpout) for spout in spouts.values())
    evidence = Evidence(
        topology_id=topology.id,
        history=history,
        oracles={table: oracle_of(tables, table, stamps) for table in tables([], {})},
        source=None,
        leftovers=world.leftovers.found,
        expected=(FencedError, PoisonBatchError, InfrastructureError, TopologyKilled),
        records=None if ticks or records is None else [tuple(each) for each in records],
        spouts=list(spouts) if len(spouts) > 1 else (),
    )
    found = verdict(seed, world, evidence)
    handoff.close()
    return found


def assert_right(
    program: Program,
    seeds: range,
    rows: Sequence[Sequence[Any]] | None = None,
    config: Config | None = None,
) -> list[Verdict]:
    """Check that a program under the faults of some seeds equals the one in plain Python."""
    found = []
    for seed in seeds:
        found.append(simulated(program, seed, rows or sales(24, seed), config))
        assert not found[-1].violations, f"{replay_of(seed)}: {found[-1].violations[:3]}"
    return found


def replay_of(seed: int) -> str:
    """Return a seed of the current test, and the command that runs the same seeds again."""
    node, _, _ = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")
    return f"seed {seed} of: python -m pytest '{node}'"


def run(topology: Topology, config: Config = LOCAL, spark: Any = None) -> TopologyRun:
    """Run a topology to its end."""
    with topology.start(spark, config) as handle:
        handle.process_all_available()
    return handle
