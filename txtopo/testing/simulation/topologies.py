"""Random topologies over the simulated source, each with an oracle for its states.

An oracle is a plain fold: it takes what a state held before a batch, and the records of the batch,
and returns what the state holds afterwards. It does not know about tasks, groupings, attempts or
stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.bolts import BasicBolt, BatchBolt, Committer, PersistentAggregate
from txtopo.builders import Topology, TransactionalTopologyBuilder
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.dead_letters import STREAM, dead_letter, in_order
from txtopo.errors import FailedException, RecordFailed
from txtopo.metadata import Json
from txtopo.spouts.sequence import SequenceSpout
from txtopo.state import Count, Max, Min, State, Sum
from txtopo.state.backend import StateKind
from txtopo.testing.simulation.source import (
    FIELDS,
    PARTITIONS_APART,
    OpaqueSpout,
    PartitionedSpout,
    RangesSpout,
    end_of_first,
    worlds,
)
from txtopo.tuples import Fields, Tuple

Rows = Mapping[tuple[Any, ...], tuple[Any, ...]]
"""The rows of a state that a reader sees: values by key."""
Oracle = Callable[[Rows, Sequence[tuple[Any, ...]]], Rows]
"""A fold: (rows before the batch, records of the batch) -> rows after the batch."""

SPOUTS = ("transactional", "partitioned", "opaque")
COMMITTERS = ("totals", "balances", "logs", "aggregates")


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a random topology.

    Attributes:
        spout: Kind of the spout.
        kind: Kind of the states.
        committers: One or two of :data:`COMMITTERS`, each with its own state.
        relay: Whether there is a bolt between the spout and the committers.
        parallelism: Number of tasks of each component that may have several.
        dead_letters: Whether some records become dead letters in that bolt, which then exists.
        further_spouts: Kinds of further spouts, which share the txids of the first. If some are
            opaque and the states are transactional, the states depend only on the other spouts, and
            the tuples of the opaque ones go to an additional committer, ``rest``, with an opaque
            state.
        planned_time: Whether the spouts ask for the time at which a batch was planned.
        sequence: Kind of the spout that reads the first half of the source of the first spout,
            which then reads the rest; empty for none. Opaque only if the states are.
    """

    spout: str
    kind: StateKind
    committers: tuple[str, ...]
    relay: bool
    parallelism: int
    dead_letters: bool = False
    further_spouts: tuple[str, ...] = ()
    planned_time: bool = False
    sequence: str = ""

    def with_further_spouts(self, kinds: tuple[str, ...]) -> Shape:
        """Return this shape with further spouts, whose states can be as they are.

        Dead letters of opaque spouts would need an opaque state of their own.
        """
        shape = replace(self, further_spouts=kinds)
        return replace(shape, dead_letters=self.dead_letters and not shape.apart)

    @property
    def spouts(self) -> tuple[str, ...]:
        """The kinds of all spouts."""
        return (self.spout, *self.further_spouts)

    @property
    def repeating(self) -> tuple[int, ...]:
        """Numbers of the spouts whose plan says all that is needed to emit a batch again."""
        return tuple(
            number
            for number, kind in enumerate(self.spouts)
            if kind == "transactional" and (number or self.sequence in ("", "transactional"))
        )

    @property
    def apart(self) -> frozenset[int]:
        """Numbers of the opaque spouts that are not upstream of the transactional states."""
        opaque = (at for at, kind in enumerate(self.spouts) if kind == "opaque")
        return frozenset(opaque if self.kind == "transactional" else ())


def spout_id(number: int) -> str:
    """Return the id of a spout by its number."""
    return f"spout-{number}" if number else "spout"


SimulatedSpout = RangesSpout | PartitionedSpout | OpaqueSpout

SPOUT_CLASSES: dict[str, type[SimulatedSpout]] = {
    "transactional": RangesSpout,
    "partitioned": PartitionedSpout,
    "opaque": OpaqueSpout,
}


def build(shape: Shape, world_number: int, state: State) -> tuple[Topology, dict[str, Oracle]]:
    """Build a topology, and return the oracle of each of its states by table."""
    spouts: list[SimulatedSpout | SequenceSpout] = [
        SPOUT_CLASSES[kind](world_number, number) for number, kind in enumerate(shape.spouts)
    ]
    if shape.sequence:
        first, then = SPOUT_CLASSES[shape.sequence](world_number, half=True), spouts[0]
        assert not isinstance(then, SequenceSpout), "just made"
        spouts[0] = SequenceSpout(first, then, end_of_first)
    for spout in spouts:
        spout.needs_planned_time = shape.planned_time
    tasks = shape.parallelism
    letters = state if shape.dead_letters else None
    builder = TransactionalTopologyBuilder(
        "simulated", "spout", spouts[0], tasks, dead_letters=letters
    )
    for number, spout in enumerate(spouts[1:], 1):
        builder.set_spout(spout_id(number), spout, 1 + (tasks + number) % 3)
    sources = [spout_id(at) for at in range(len(spouts)) if at not in shape.apart]
    if shape.relay or shape.dead_letters:
        relay = builder.set_bolt(
            "relay", (Sieve if shape.dead_letters else Relay)(world_number), tasks
        )
        for source in sources:
            relay.shuffle_grouping(source)
        sources = ["relay"]
    for name in shape.committers:
        _add_committer(builder, name, sources, tasks, state)
    oracles = {name: ORACLES[name] for name in shape.committers}
    if shape.dead_letters:
        oracles = {name: _of_good_records(oracle) for name, oracle in oracles.items()}
        oracles[STREAM] = _dead_letters
    if shape.apart:
        together = frozenset(range(len(spouts))) - shape.apart
        oracles = {name: _of_spouts(together, oracle) for name, oracle in oracles.items()}
        apart = [spout_id(number) for number in sorted(shape.apart)]
        _add_committer(builder, "rest", apart, tasks, replace(state, kind="opaque"))
        oracles["rest"] = _of_spouts(shape.apart, _logs)
    return builder.build_topology(), oracles


def _add_committer(
    builder: TransactionalTopologyBuilder,
    name: str,
    sources: Sequence[str],
    tasks: int,
    state: State,
) -> None:
    match name:
        case "totals":
            partial = builder.set_bolt("partial", PartialTotal(), tasks)
            for source in sources:
                partial.none_grouping(source)
            declarer = builder.set_bolt("totals", Totals()).global_grouping("partial")
            declarer.with_state("totals", state)
            return
        case "balances":
            declarer = builder.set_bolt("balances", Balances(), tasks)
            declarer.with_state("balances", state)
        case "logs" | "rest":
            columns = state.with_columns(Fields("key string"), Fields("value string"))
            declarer = builder.set_bolt(name, Logs(name), tasks).with_state(name, columns)
        case _:
            aggregates = PersistentAggregate(
                state,
                key="key",
                aggregates={
                    "records": Count(),
                    "sum": Sum("amount"),
                    "least": Min("amount"),
                    "most": Max("amount"),
                },
            )
            declarer = builder.set_bolt("aggregates", aggregates, tasks)
    for source in sources:
        declarer.fields_grouping(source, "key")


class Relay(BasicBolt):
    """Emits what it receives, and fails when the simulation decides so."""

    writes_nowhere_else = True
    output_fields = FIELDS

    def __init__(self, world_number: int) -> None:
        self._world_number = world_number

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        """Emit the tuple."""
        chaos = worlds[self._world_number].chaos
        if chaos.happens("bolt_fails"):
            raise FailedException("this bolt fails by order of the simulation")
        if chaos.happens("bolt_breaks"):
            raise BoltBroken("this bolt breaks by order of the simulation")
        collector.emit(tuple.values)


class Sieve(Relay):
    """Emits what it receives, and retracts some of it by turning it into dead letters."""

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        """Emit the tuple, or turn it into a dead letter after it was emitted."""
        super().execute(tuple, collector)
        if is_bad(tuple.values):
            raise BAD


def is_bad(record: Sequence[Any]) -> bool:
    """Return whether a record of the source becomes a dead letter."""
    partition, offset, *_ = record
    return bool((partition + offset) % 4 == 1)


BAD = RecordFailed("this record is bad by order of the simulation")


class BoltBroken(Exception):
    """Raised by a bolt of the simulation to end the run."""


class PartialTotal(BatchBolt):
    """Adds up the records of one task."""

    writes_nowhere_else = True
    output_fields = Fields("records long, amount long")

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start from nothing."""
        self._collector = collector
        self._records = self._amount = 0

    def execute(self, tuple: Tuple) -> None:
        """Add a tuple."""
        self._records += 1
        self._amount += tuple["amount"]

    def finish_batch(self) -> None:
        """Emit both sums."""
        self._collector.emit([self._records, self._amount])


class Totals(BatchBolt, Committer):
    """Keeps two totals: how many records, and the sum of their amounts."""

    writes_nowhere_else = True

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start from nothing."""
        self._state, self._attempt = context.state("totals"), attempt
        self._records = self._amount = 0

    def execute(self, tuple: Tuple) -> None:
        """Add the sums of one task."""
        self._records += tuple["records"]
        self._amount += tuple["amount"]

    def finish_batch(self) -> None:
        """Add the batch; an empty one writes nothing."""
        if not self._records:
            return
        with self._state.transaction(self._attempt) as state:
            state.update("records", lambda total: (total or 0) + self._records)
            state.update("amount", lambda total: (total or 0) + self._amount)


class Balances(BatchBolt, Committer):
    """Keeps a balance for each key, and deletes it when it is a multiple of three."""

    writes_nowhere_else = True

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start from nothing."""
        self._state, self._attempt = context.state("balances"), attempt
        self._amounts: dict[str, int] = {}

    def execute(self, tuple: Tuple) -> None:
        """Add a tuple."""
        self._amounts[tuple["key"]] = self._amounts.get(tuple["key"], 0) + tuple["amount"]

    def finish_batch(self) -> None:
        """Add the batch."""
        with self._state.transaction(self._attempt) as state:
            for key, amount in self._amounts.items():
                balance = (state.get(key) or 0) + amount
                if balance % 3:
                    state.put(key, balance)
                else:
                    state.delete(key)


class Logs(BatchBolt, Committer):
    """Appends the ids of a batch's records to a text for each key, to show their order and loss."""

    writes_nowhere_else = True

    def __init__(self, name: str = "logs") -> None:
        self._name = name

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start from nothing."""
        self._state, self._attempt = context.state(self._name), attempt
        self._records: list[tuple[Any, ...]] = []

    def execute(self, tuple: Tuple) -> None:
        """Keep a tuple."""
        self._records.append((*tuple.values,))

    def finish_batch(self) -> None:
        """Append the batch."""
        with self._state.transaction(self._attempt) as state:
            for key, text in _texts(self._records).items():
                state.put(key, (state.get(key) or "") + text)


def _texts(records: Sequence[tuple[Any, ...]]) -> dict[str, str]:
    ids: dict[str, list[str]] = {}
    for partition, offset, key, _ in sorted(records):
        ids.setdefault(key, []).append(f"{partition}-{offset}")
    return {key: f"[{' '.join(each)}]" for key, each in ids.items()}


def _totals(rows: Rows, batch: Sequence[tuple[Any, ...]]) -> Rows:
    if not batch:
        return rows
    records, amount = rows.get(("records",), (0,))[0], rows.get(("amount",), (0,))[0]
    amount += sum(each[3] for each in batch)
    return {("records",): (records + len(batch),), ("amount",): (amount,)}


def _balances(rows: Rows, batch: Sequence[tuple[Any, ...]]) -> Rows:
    after = {**rows}
    for key in sorted({each[2] for each in batch}):
        balance = after.pop((key,), (0,))[0] + sum(each[3] for each in batch if each[2] == key)
        if balance % 3:
            after[key,] = (balance,)
    return after


def _logs(rows: Rows, batch: Sequence[tuple[Any, ...]]) -> Rows:
    after = {**rows}
    for key, text in _texts(batch).items():
        after[key,] = (after.get((key,), ("",))[0] + text,)
    return after


def _aggregates(rows: Rows, batch: Sequence[tuple[Any, ...]]) -> Rows:
    after = {**rows}
    for _, _, key, amount in batch:
        records, total, least, most = after.get((key,), (0, 0, amount, amount))
        after[key,] = (records + 1, total + amount, min(least, amount), max(most, amount))
    return after


def _of_good_records(oracle: Oracle) -> Oracle:
    return lambda rows, batch: oracle(rows, [each for each in batch if not is_bad(each)])


def _of_spouts(numbers: frozenset[int], oracle: Oracle) -> Oracle:
    return lambda rows, batch: oracle(
        rows, [each for each in batch if each[0] // PARTITIONS_APART in numbers]
    )


class _Letters(dict[tuple[Any, ...], tuple[Any, ...]]):
    """The rows of all dead letters, which also remember the number of batches."""

    batches: int = 0


def _dead_letters(rows: Rows, batch: Sequence[tuple[Any, ...]]) -> Rows:
    after = _Letters(rows)
    after.batches = 1 + (rows.batches if isinstance(rows, _Letters) else 0)
    bad = [dict(zip(FIELDS.names, each, strict=True)) for each in batch if is_bad(each)]
    letters = in_order([dead_letter("relay", BAD, _place(each), each) for each in bad])
    after.update({(after.batches, at): letter for at, letter in enumerate(letters, 1)})
    return after


def _place(record: Mapping[str, Any]) -> dict[str, Json]:
    return {"source": spout_id(record["partition"] // PARTITIONS_APART), "stream": "default"}


ORACLES: dict[str, Oracle] = {
    "totals": _totals,
    "balances": _balances,
    "logs": _logs,
    "aggregates": _aggregates,
}
