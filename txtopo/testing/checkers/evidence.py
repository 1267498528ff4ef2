"""Evidence: what the checkers judge, and what is derived from the history once for all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.state.row_backend import Contents
from txtopo.state.values import Row
from txtopo.testing.simulation.history import EmittedShare, History, NodesWrite, Record, StoreWrite
from txtopo.testing.simulation.topologies import Oracle, Rows
from txtopo.transactional_state.memory import Nodes


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken.

    Attributes:
        checker: Which one saw it, for instance ``C2``.
        what: What was got, and what was expected.
    """

    checker: str
    what: str


@dataclass(frozen=True, slots=True)
class Source:
    """What a source has at the end: records by partition, from offset 0."""

    partitions: int
    records: int


class TwoCuts(Exception):
    """An attempt has two contents, and nothing says which of them was committed."""


@dataclass(slots=True)
class Evidence:
    """One history, and what it should have been.

    Attributes:
        topology_id: Id of the topology.
        history: What happened.
        oracles: The plain fold of each state, by table.
        source: What should have been counted; None if its offsets are not known.
        repeatable: Whether the spout plans whole batches, which are the same in every attempt.
        records: All records that should have been counted; None if nobody knows.
        outside: What was written outside the states, by name, as it is at the end.
        leftovers: What was wrong at the end.
        expected: Classes of errors that a run may end with.
    """

    topology_id: str
    history: History
    oracles: Mapping[str, Oracle]
    source: Source | None
    leftovers: Sequence[str]
    expected: tuple[type[Exception], ...]
    repeatable: bool = False
    records: Sequence[Record] | None = None
    outside: Mapping[str, Rows] = field(default_factory=dict)

    def store_writes(self) -> list[StoreWrite]:
        """Return every version of every table, in order."""
        return [write for write in self.history.writes if isinstance(write, StoreWrite)]

    def tables(self) -> list[str]:
        """Return the tables of the states that have an oracle."""
        return [table for table in self.oracles if table not in self.outside]

    def batch(self, attempt: TransactionAttempt, nodes: Nodes) -> list[Record]:
        """Return what an attempt consisted of.

        Args:
            attempt: The attempt.
            nodes: What ZooKeeper held then; it says which cut counts if a task ran twice.

        Raises:
            TwoCuts: It consisted of two different things.
        """
        shares: dict[int, list[EmittedShare]] = {}
        for emission in self.history.emissions.get(attempt, ()):
            known = shares.setdefault(emission.share, [])
            if emission not in known:
                known.append(emission)
        records: list[Record] = []
        for share, emissions in sorted(shares.items()):
            if len(emissions) > 1:
                cut = self._cut(attempt, nodes).get(str(share))
                emissions = [each for each in emissions if each.metadata == cut]
            if len(emissions) != 1:
                raise TwoCuts(f"attempt {attempt} has two cuts of partition {share}")
            records += emissions[0].records
        return records

    def _cut(self, attempt: TransactionAttempt, nodes: Nodes) -> dict[str, Any]:
        """Return where an attempt ended, as ZooKeeper says, or said before a later attempt.

        A write of its commit phase whose answer was lost may land when the txid has been planned
        anew already.
        """
        path = f"/{self.topology_id}/batches/{attempt.txid:020d}"
        held = [nodes]
        if stored_attempt(self.topology_id, nodes, attempt.txid) != attempt:
            held = [w.before for w in self.history.writes if isinstance(w, NodesWrite)]
        cut: dict[str, Any] = {}
        for each in held:
            if stored_attempt(self.topology_id, each, attempt.txid) == attempt:
                cut = (_decoded(each[path][0])["metadata"] or {}).get("cut") or cut
        return cut

    def writers(self, table: str) -> list[StoreWrite]:
        """Return the last write of each txid to a table, from txid 1."""
        last: dict[int, StoreWrite] = {}
        for write in self.store_writes():
            ledger = write.after.ledger
            if write.table == table and ledger is not None and ledger.txid:
                last[ledger.txid] = write
        return [last[txid] for txid in sorted(last)]


def visible(contents: Contents) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return what a reader sees; said once more, since a checker must not trust what it judges."""
    return {key: row.current for key, row in contents.rows.items() if not row.deleted}


def before(row: Row) -> tuple[Any, ...] | None:
    """Return what a row was before the txid that wrote it, or None for no row."""
    return row.previous if row.previous_txid is not None else None


def current_of(topology_id: str, nodes: Nodes) -> int:
    """Return the lowest txid that ZooKeeper does not know as committed."""
    found = nodes.get(f"/{topology_id}/current")
    return int(_decoded(found[0])["current"]) if found else 1


def epoch_of(topology_id: str, nodes: Nodes) -> int:
    """Return the epoch that ZooKeeper knows."""
    found = nodes.get(f"/{topology_id}/epoch")
    return int(_decoded(found[0])["epoch"]) if found else 0


def stored_attempt(topology_id: str, nodes: Nodes, txid: int) -> TransactionAttempt | None:
    """Return the attempt whose metadata ZooKeeper has for a txid."""
    found = nodes.get(f"/{topology_id}/batches/{txid:020d}")
    if found is None:
        return None
    epoch, attempt = _decoded(found[0])["attempt"]
    return TransactionAttempt(txid, attempt, epoch)


@lru_cache(maxsize=4096)
def _decoded(data: bytes) -> Any:
    """Read a node; each is looked at many times, since every version holds all of them."""
    return json.loads(data)["value"]


def stored_attempts(topology_id: str, write: NodesWrite) -> set[TransactionAttempt]:
    """Return the attempts whose metadata a write to ZooKeeper made durable."""
    prefix = f"/{topology_id}/batches/"
    new = [
        int(path[len(prefix) :])
        for path, node in write.after.items()
        if path.startswith(prefix) and write.before.get(path) is not node
    ]
    found = (stored_attempt(topology_id, write.after, txid) for txid in new)
    return {attempt for attempt in found if attempt is not None}
