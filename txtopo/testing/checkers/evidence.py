"""Evidence: the history that is checked, with the data that all checkers derive from it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.ensemble.memory import Nodes
from txtopo.state.ledger import Ledger
from txtopo.state.row_backend import Contents
from txtopo.state.values import Row
from txtopo.testing.simulation.history import EmittedShare, History, NodesWrite, Record, StoreWrite
from txtopo.testing.simulation.source import PARTITIONS_APART
from txtopo.testing.simulation.topologies import Oracle, Rows


@dataclass(slots=True)
class Evidence:
    """One history, and the data to compare it with.

    Attributes:
        topology_id: Id of the topology.
        history: What happened.
        oracles: The plain fold of each state, by table.
        source: Size of the source; None if its offsets are not known.
        repeatable: Numbers of the spouts whose part of a batch must be the same in every attempt; 0
            for the only one.
        records: All records that must be counted; None if not known.
        outside: What was written outside the states, by name, at the end.
        leftovers: What was wrong at the end of the simulation.
        expected: Classes of errors that a run may end with.
        limited: Whether each batch must have a limit in its metadata.
        rows_per_second: The rate of planned rows; None for no rate, or if clocks jump.
        spouts: Ids of the spouts.
        base: The records of the txids that the states held at the beginning, from txid 1.
    """

    topology_id: str
    history: History
    oracles: Mapping[str, Oracle]
    source: Source | None
    leftovers: Sequence[str]
    expected: tuple[type[Exception], ...]
    repeatable: Collection[int] = ()
    records: Sequence[Record] | None = None
    outside: Mapping[str, Rows] = field(default_factory=dict)
    limited: bool = False
    rows_per_second: float | None = None
    spouts: Sequence[str] = ("spout",)
    base: Sequence[Sequence[Record]] = ()
    _store_writes: list[StoreWrite] | None = None

    def store_writes(self) -> list[StoreWrite]:
        """Return every version of every table, in order."""
        if self._store_writes is None:
            writes = self.history.writes
            self._store_writes = [each for each in writes if isinstance(each, StoreWrite)]
        return self._store_writes

    def versions(self, table: str) -> list[tuple[StoreWrite, Rows]]:
        """Return every version of a table, with the rows that have expired earlier.

        Whether and when an expired row is deleted does not matter. So comparisons of rows include
        it, until something else is written under its key.
        """
        found: list[tuple[StoreWrite, Rows]] = []
        expired: Rows = {}
        for write in self.store_writes():
            if write.table == table:
                more = visible(write.before) if is_expiry(write) else {}
                gone = {**expired, **more}
                expired = {key: row for key, row in gone.items() if key not in write.after.rows}
                found.append((write, expired))
        return found

    def tables(self) -> list[str]:
        """Return the tables of the states that have an oracle."""
        return [table for table in self.oracles if table not in self.outside]

    def batch(self, attempt: TransactionAttempt, nodes: Nodes) -> list[Record]:
        """Return the records of an attempt.

        Args:
            attempt: The attempt.
            nodes: The nodes in ZooKeeper then. They determine which cut counts if a task ran twice.

        Raises:
            TwoCuts: They do not determine which cut counts.
        """
        shares: dict[int, list[EmittedShare]] = {}
        for emission in self.history.emissions.get(attempt, ()):
            known = shares.setdefault(emission.share, [])
            if emission not in known:
                known.append(emission)
        records: list[Record] = []
        for share, emissions in sorted(shares.items()):
            if len(emissions) > 1:
                number, partition = divmod(share, PARTITIONS_APART)
                cut = self._cut(attempt, nodes, self.spouts[number]).get(str(partition))
                # A task that could not reach its partition has no cut. Then the end of the previous
                # batch is stored, which no emission of this attempt has.
                fitting = [each for each in emissions if each.metadata == cut]
                emissions = fitting or [each for each in emissions if each.metadata is None]
            if len(emissions) != 1:
                raise TwoCuts(f"attempt {attempt} has two cuts of partition {share}")
            records += emissions[0].records
        return records

    def _cut(self, attempt: TransactionAttempt, nodes: Nodes, spout: str) -> dict[str, Any]:
        """Return the cut of a spout in an attempt, as ZooKeeper has it or had it.

        If the answer to its commit was lost, the write may arrive after the txid was planned
        again. If ZooKeeper was restored, the last version before that is in no later write.
        """
        path = f"/{self.topology_id}/batches/{attempt.txid:020d}"
        held = [nodes]
        if stored_attempt(self.topology_id, nodes, attempt.txid) != attempt:
            writes = [each for each in self.history.writes if isinstance(each, NodesWrite)]
            held = [version for each in writes for version in (each.before, each.after)]
        cut: dict[str, Any] = {}
        for each in held:
            if stored_attempt(self.topology_id, each, attempt.txid) == attempt:
                cut = _decoded(each[path][0])["metadata"]["spouts"][spout].get("cut") or cut
        return cut

    def batches(self, table: str) -> list[list[Record]]:
        """Return the records of each txid that a table holds at the end, from txid 1.

        Raises:
            TwoCuts: It is unknown which cut of an attempt was committed.
        """
        last: dict[int, tuple[TransactionAttempt, Nodes]] = {}
        for write in self.store_writes():
            if write.table == table and write.after.ledger is not None:
                members = members_of(write.after.ledger)
                last |= {each.txid: (each, write.nodes) for each in members}
        since = [txid for txid in sorted(last) if txid > len(self.base)]
        return [*map(list, self.base), *(self.batch(*last[txid]) for txid in since)]


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken.

    Attributes:
        checker: Name of the checker that found it, for instance ``C2``.
        what: What was found, and what was expected.
    """

    checker: str
    what: str


@dataclass(frozen=True, slots=True)
class Source:
    """The size of the sources at the end: each partition has *records* records, from offset 0."""

    partitions: int
    records: int
    sources: int = 1

    @property
    def all_partitions(self) -> list[int]:
        """The partitions of all sources, as records name them."""
        numbers = range(0, self.sources * PARTITIONS_APART, PARTITIONS_APART)
        return [first + partition for first in numbers for partition in range(self.partitions)]


class TwoCuts(Exception):
    """An attempt was cut in two ways, and it is unknown which one was committed."""


def members_of(ledger: Ledger) -> list[TransactionAttempt]:
    """Return the attempts at single txids that a state took with its last write."""
    last = ledger.writer
    if not last.txid:
        return []
    txids = range(last.first_txid, last.txid + 1)
    pairs = zip(txids, last.attempts, strict=True)
    return [TransactionAttempt(txid, number, last.epoch, term=last.term) for txid, number in pairs]


def is_expiry(write: StoreWrite) -> bool:
    """Return whether a write deleted expired rows: the ledger is unchanged."""
    return write.before.ledger is not None and write.before.ledger == write.after.ledger


def visible(contents: Contents) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the rows that a reader sees. It does not reuse the code that is being checked."""
    return {key: row.current for key, row in contents.rows.items() if not row.deleted}


def before(row: Row) -> tuple[Any, ...] | None:
    """Return the value of a row before the txid that wrote it; None if there was no row."""
    return row.previous if row.previous_txid is not None else None


def current_of(topology_id: str, nodes: Nodes) -> int:
    """Return the lowest txid that is not committed according to ZooKeeper."""
    found = nodes.get(f"/{topology_id}/current")
    return int(_decoded(found[0])["current"]) if found else 1


def epoch_of(topology_id: str, nodes: Nodes) -> int:
    """Return the epoch in ZooKeeper; 0 if there is none."""
    found = nodes.get(f"/{topology_id}/epoch")
    return int(_decoded(found[0])["epoch"]) if found else 0


def stored_attempt(topology_id: str, nodes: Nodes, txid: int) -> TransactionAttempt | None:
    """Return the attempt whose metadata ZooKeeper has for a txid, or None."""
    found = nodes.get(f"/{topology_id}/batches/{txid:020d}")
    if found is None:
        return None
    epoch, attempt, term = _decoded(found[0])["attempt"]
    return TransactionAttempt(txid, attempt, epoch, term=term)


def node_of(topology_id: str, path: str, nodes: Nodes) -> Any:
    """Return the value of a node of the topology; None if there is none."""
    found = nodes.get(f"/{topology_id}/{path}")
    return None if found is None else _decoded(found[0])


def stored_pace(topology_id: str, nodes: Nodes, txid: int) -> dict[str, Any] | None:
    """Return the limit that ZooKeeper has for a txid, or None."""
    found = nodes.get(f"/{topology_id}/batches/{txid:020d}")
    return None if found is None else _decoded(found[0])["metadata"].get("pace")


def stored_stamp(topology_id: str, nodes: Nodes, txid: int) -> dict[str, Any] | None:
    """Return the stamp that ZooKeeper has for a planned txid, or None."""
    found = nodes.get(f"/{topology_id}/batches/{txid:020d}")
    return None if found is None else _decoded(found[0])["metadata"].get("stamp")


def stored_plan(topology_id: str, nodes: Nodes, txid: int, spout: str) -> Any:
    """Return the plan of a spout that ZooKeeper has for a txid, or None."""
    found = nodes.get(f"/{topology_id}/batches/{txid:020d}")
    shares = {} if found is None else _decoded(found[0])["metadata"]["spouts"]
    return shares.get(spout, {}).get("planned")


def takes_part(topology_id: str, nodes: Nodes, txid: int, spout: str) -> bool:
    """Return whether a spout emits something in a txid, unless ZooKeeper says that it is absent."""
    found = nodes.get(f"/{topology_id}/batches/{txid:020d}")
    shares = {} if found is None else _decoded(found[0])["metadata"]["spouts"]
    return not shares.get(spout, {}).get("absent", False)


@lru_cache(maxsize=4096)
def _decoded(data: bytes) -> Any:
    """Decode a node. It is cached, since every version of the nodes holds all of them."""
    return json.loads(data)["value"]


def stored_attempts(topology_id: str, write: NodesWrite) -> set[TransactionAttempt]:
    """Return the attempts whose metadata was stored by a write to ZooKeeper."""
    prefix = f"/{topology_id}/batches/"
    new = [
        int(path[len(prefix) :])
        for path, node in write.after.items()
        if path.startswith(prefix) and write.before.get(path) is not node
    ]
    found = (stored_attempt(topology_id, write.after, txid) for txid in new)
    return {attempt for attempt in found if attempt is not None}
