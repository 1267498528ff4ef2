"""repair_node: puts back one node of ZooKeeper that cannot be read, from what is known or given.

What is known:

* ``/epoch``: any number above all that ledgers and batches name, if a ledger was ever claimed; with
  the token of the ensemble that the ledgers name, by which they know the coordinator again.
* ``/current``: follows from the ledgers and the batches, as a takeover would decide it.
* ``/batches/<txid>`` that no state holds: it and the later ones may be planned anew. Of an opaque
  spout also one that some state holds: it is undone and cut anew.

Everything else has to be given, in the form in which ``show()`` prints it. A node that can be read
is never written over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.errors import SchemaVersionError, StateUsageError, TxtopoError
from txtopo.metadata import BatchMetadata, Json
from txtopo.operations.plan import Plan, Step, Work, checked_metadata, dropped, planned, stored
from txtopo.operations.session import Access, OperatorSession, Reading, VerbClaim, read
from txtopo.state.ledger import Ledger
from txtopo.transactional_state.nodes import (
    BATCHES,
    CURRENT,
    EPOCH,
    EPOCH_ROOM,
    REWRITES_MAX,
    batch_of,
    batch_path,
    current_of,
    ensemble_of,
    epoch_of,
    metadata_from_json,
    txid_of,
)
from txtopo.transactional_state.store import CompareAndSet, Node, Put
from txtopo.transactional_state.store import Step as Write

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology


def repair_node(
    topology: Topology,
    path: str,
    config: Config = Config(),
    *,
    value: Json = None,
    access: Access = Access(),
) -> Plan:
    """Put back a node that is missing or cannot be read.

    Args:
        topology: The topology, which must not run.
        path: As the error names it, below the topology: ``/epoch``, ``/current`` or
            ``/batches/<txid as 20 digits>``. ``/epoch`` comes first, then ``/current``.
        config: As for ``start``.
        value: What it held, as ``show()`` or ZooKeeper had it; needed when it is not known.
        access: How ZooKeeper is reached.

    Raises:
        StateUsageError: The value is not known, or not possible; nothing was written.
        SchemaVersionError: A newer txtopo wrote the node; upgrade this one.
        CoordinatorActive: A coordinator leads; stop it first.
    """
    return planned(
        _RepairNode(path, value, {"path": path, "value": value}), topology, config, access
    )


@dataclass(frozen=True, slots=True)
class _RepairNode:
    path: str
    value: Json
    arguments: dict[str, Json]
    name: str = "repair_node"

    def look(self, site: OperatorSession) -> Work:
        known = self.path in (EPOCH, CURRENT) or self.path.startswith(f"{BATCHES}/")
        if not known:
            raise StateUsageError(
                f"there is no node {self.path!r}; expected {EPOCH}, {CURRENT} or {BATCHES}/<txid>"
            )
        reading = read(site)
        node = reading.nodes.get(self.path)
        if isinstance(node, SchemaVersionError):
            raise node
        if isinstance(node, Node):
            if self.value in (None, node.value):
                return Work()
            raise StateUsageError(
                f"node {self.path} can be read and is not written over; got {self.value!r:.200}; "
                f"it holds {node.value!r:.200}; expected no value; rewind and rebuild change what "
                "is there",
                path=self.path,
            )
        errors = [e for e in reading.ledgers.values() if isinstance(e, TxtopoError)]
        if errors:
            raise errors[0]
        if self.path == EPOCH:
            return self._epoch(site, reading)
        if not isinstance(epoch := reading.nodes[EPOCH], Node):
            raise self._unknown(f"{EPOCH} cannot be read either; put that back first")
        if self.path == CURRENT:
            return self._current(reading, epoch)
        return self._batch(site, reading)

    def _epoch(self, site: OperatorSession, reading: Reading) -> Work:
        highest = reading.known_epoch
        epoch = highest + EPOCH_ROOM
        if self.value is not None:
            epoch = epoch_of(Node(self.value, 0))
            if epoch < highest:
                raise self._unknown(f"epoch {highest} is known, which is above {epoch}")
        elif not highest:
            raise self._unknown("no ledger and no batch names an epoch")
        value: dict[str, Json] = {"epoch": epoch, "leader": None}
        given = ensemble_of(Node(self.value, 0))
        token = given or self._ensemble(site, reading)
        if token:
            value["ensemble"] = token
        # Made anew it must not have a version that a coordinator of the lost node may hold.
        rewrites = min(epoch, REWRITES_MAX) if reading.nodes[EPOCH] is None else 0
        writes: list[Write] = [Put(EPOCH, value)] * (rewrites + 1)
        source = "is given" if given else "the ledgers name"
        told = f", as the ensemble {token!r} that {source}" if token else ""
        step = Step(f"set {EPOCH} to {epoch}{told}", lambda claim: claim.site.state.apply(writes))
        return Work([step])

    def _ensemble(self, site: OperatorSession, reading: Reading) -> str:
        """Return the token that the ledgers name; empty if none does."""
        tokens = {
            each.ensemble
            for each in reading.ledgers.values()
            if isinstance(each, Ledger) and each.topology == site.graph.id and each.ensemble
        }
        if len(tokens) > 1:
            raise self._unknown(
                f"the ledgers name several ensembles, {', '.join(map(repr, sorted(tokens)))}; "
                "say which in value={'epoch': …, 'ensemble': …}"
            )
        return tokens.pop() if tokens else ""

    def _current(self, reading: Reading, epoch: Node) -> Work:
        held = [each.txid for each in reading.ledgers.values() if isinstance(each, Ledger)]
        low, high = min(held, default=0), max(held, default=0)
        if self.value is not None:
            current = current_of(Node(self.value, 0))
            if reading.ledgers and not high <= current <= low + 1:
                raise self._unknown(f"states hold txid {low} to {high}, which is not at {current}")
        else:
            current = self._current_of(reading, low, high)
        bumped = {**epoch.value, "epoch": epoch_of(epoch) + 1}  # type: ignore[dict-item]
        writes: list[Write] = [
            CompareAndSet(EPOCH, bumped, epoch.version),
            Put(CURRENT, {"current": current}),
        ]
        text = f"set {CURRENT} to {current}, and {EPOCH} to {epoch_of(epoch) + 1}"
        return Work([Step(text, lambda claim: claim.site.state.apply(writes))])

    def _current_of(self, reading: Reading, low: int, high: int) -> int:
        if not reading.ledgers:
            raise self._unknown("the topology has no state, so no ledger says what is committed")
        if high > low + 1:
            raise self._unknown(f"the states are too far apart: they hold txid {low} to {high}")
        if high > low or not high:
            return max(high, 1)
        value = reading.values(BATCHES).get(high)
        if value is None:
            raise self._unknown(f"the metadata of txid {high}, which the states hold, is missing")
        attempt = batch_of("", high, Node(value, 0)).attempt
        writers = {each.writer for each in reading.ledgers.values() if isinstance(each, Ledger)}
        # Otherwise a replay was under way: then the txid is done again.
        return high + 1 if writers == {attempt} else high

    def _batch(self, site: OperatorSession, reading: Reading) -> Work:
        txid, current = txid_of(self.path), reading.current
        if current is None:
            raise self._unknown(f"{CURRENT} cannot be read either; put that back first")
        there = reading.values(BATCHES)
        held = max((e.txid for e in reading.ledgers.values() if isinstance(e, Ledger)), default=0)
        missing = reading.nodes.get(self.path) is None
        if self.value is not None:
            batch = batch_of(self.path, txid, Node(self.value, 0))
            metadata = metadata_from_json(txid, batch.metadata)
            if txid < current:
                metadata = checked_metadata(site, txid, batch.metadata)
            metadata = replace(metadata, content=batch.content)
            step = Step(
                f"set {self.path} to {self.value!r:.300}", partial(_put, batch.attempt, metadata)
            )
            return Work([step], {})
        if txid < current - 1:
            drops = [txid]
        elif txid >= current and txid > held:
            drops = [txid, *(later for later in there if later > txid)]
        elif txid == current and not site.repeatable and txid - 1 in there:
            before = batch_of("", txid - 1, Node(there[txid - 1], 0)).metadata
            partitions = metadata_from_json(txid - 1, before).planned
            attempt = TransactionAttempt(txid, 0, 0)
            anew = partial(_put, attempt, BatchMetadata(partitions, None))
            return Work([Step(f"let txid {txid} be undone and cut anew", anew)], {})
        else:
            raise self._unknown(f"only ZooKeeper had the metadata of txid {txid}, which is in use")
        if missing and drops == [txid]:
            return Work()
        paths = ", ".join(batch_path(each) for each in drops)
        step = Step(f"delete {paths}, which will be planned anew if needed", partial(_drop, drops))
        return Work([step], {})

    def _unknown(self, why: str) -> StateUsageError:
        return StateUsageError(
            f"node {self.path} cannot be put back; got value={self.value!r:.200}; {why}; expected "
            "value=… as an earlier show(), a log or a snapshot of ZooKeeper had it",
            path=self.path,
        )


def _put(attempt: TransactionAttempt, metadata: BatchMetadata, claim: VerbClaim) -> None:
    claim.write(stored(attempt, metadata))


def _drop(txids: list[int], claim: VerbClaim) -> None:
    claim.write(*dropped(txids))
