"""The verb ``repair_node``, which restores one node of ZooKeeper that is lost or cannot be read.

These values can be derived from the rest:

* ``/epoch``: any number above all that ledgers and batches name, if a ledger was ever claimed; with
  the token of the ensemble that the ledgers name, so that they accept the coordinator again; and
  with the fingerprint of the lost node or of the given value, or otherwise of the program, so that
  the next verb and the next start are compared with it.
* ``/current``: it follows from the ledgers and the batches, as in a takeover. It is never within a
  group of txids that a state holds.
* ``/desired`` must be supplied, since nothing else shows whether the topology should run.
* ``/batches/<txid>`` that no state holds: this batch and the later ones may be planned again. For
  an opaque spout this is true of a batch that some state holds as well: it is undone and cut again.

Everything else must be supplied, in the form that ``show()`` prints. A node that can be read is
never overwritten.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt, group_of
from txtopo.config import Config
from txtopo.ensemble.commands import desired_of, last_number
from txtopo.ensemble.journal import rewritten
from txtopo.ensemble.nodes import (
    BATCHES,
    CURRENT,
    DESIRED,
    EPOCH,
    EPOCH_ROOM,
    REWRITES_MAX,
    batch_of,
    batch_path,
    claimed_terms,
    current_of,
    ensemble_of,
    epoch_of,
    fingerprint_of,
    metadata_from_json,
    terms_of,
    txid_of,
)
from txtopo.ensemble.store import CompareAndSet, Node, Put, Step
from txtopo.errors import SchemaVersionError, StateUsageError, TxtopoError
from txtopo.fingerprint import Fingerprint, differences
from txtopo.metadata import BatchMetadata, Json
from txtopo.operations.plan import (
    Plan,
    VerbStep,
    VerbSteps,
    checked_metadata,
    delete_batches,
    make_plan,
    put_metadata,
)
from txtopo.operations.program import (
    SAME_PROGRAM,
    changed,
    known_topology,
)
from txtopo.operations.session import Access, HeldTxids, OperatorSession, Reading, VerbClaim, read
from txtopo.state.ledger import Ledger
from txtopo.topology.graph import fingerprint

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
    """Restore a node that is missing or cannot be read.

    Args:
        topology: The topology, which must not run.
        path: Its path below the topology, as the error names it: ``/epoch``, ``/current``,
            ``/desired`` or ``/batches/<txid as 20 digits>``. If several are lost, restore
            ``/epoch`` first, then ``/current``.
        config: As for ``start``.
        value: What the node held, from ``show()`` or a snapshot of ZooKeeper; needed when it cannot
            be derived.
        access: How to reach ZooKeeper, if the ``Config`` is not enough.

    Raises:
        StateUsageError: The value cannot be derived, or contradicts the rest; nothing was written.
        TopologyChanged: It is another topology than the one that ran; nothing was written.
        SchemaVersionError: A newer txtopo wrote the node; upgrade this one.
        CoordinatorActive: A coordinator leads; stop it first.
    """
    return make_plan(
        _RepairNode(path, value, {"path": path, "value": value}), topology, config, access
    )


@dataclass(frozen=True, slots=True)
class _RepairNode:
    path: str
    value: Json
    arguments: dict[str, Json]
    name: str = "repair_node"

    def objection(self, session: OperatorSession) -> str | None:
        return SAME_PROGRAM

    def look(self, session: OperatorSession) -> VerbSteps:
        one = self.path in (EPOCH, CURRENT, DESIRED)
        if not one and not self.path.startswith(f"{BATCHES}/"):
            raise StateUsageError(
                f"there is no node {self.path!r}; expected {EPOCH}, {CURRENT}, {DESIRED} or "
                f"{BATCHES}/<txid>",
                path=self.path,
            )
        reading = read(session)
        node = reading.nodes.get(self.path)
        if isinstance(node, SchemaVersionError):
            raise node
        if isinstance(node, Node):
            if self.value in (None, node.value):
                return VerbSteps()
            raise StateUsageError(
                f"node {self.path} is readable, so it is not overwritten; got "
                f"{self.value!r:.200}; it holds {node.value!r:.200}; expected no value; to change "
                "what is there, use rewind or rebuild",
                path=self.path,
            )
        errors = [e for e in reading.ledgers.values() if isinstance(e, TxtopoError)]
        if errors:
            raise errors[0]
        if self.path == EPOCH:
            return self._epoch(session, reading)
        if not isinstance(epoch := reading.nodes[EPOCH], Node):
            raise self._unknown(f"{EPOCH} cannot be read either; restore that node first")
        if self.path == CURRENT:
            return self._current(reading, epoch)
        if self.path == DESIRED:
            return self._desired(session)
        return self._batch(session, reading)

    def _epoch(self, session: OperatorSession, reading: Reading) -> VerbSteps:
        highest = reading.known_epoch
        epoch = highest + EPOCH_ROOM
        if self.value is not None:
            epoch = epoch_of(Node(self.value, 0))
            if epoch < highest:
                raise self._unknown(f"epoch {highest} is known, which is above {epoch}")
        elif not highest:
            raise self._unknown("no ledger and no batch names an epoch")
        value: dict[str, Json] = {
            "epoch": epoch,
            "leader": None,
            **self._terms(reading, epoch),
            "topology": self._topology(session).to_json(),
        }
        given = ensemble_of(Node(self.value, 0))
        token = given or self._ensemble(session, reading)
        if token:
            value["ensemble"] = token
        # A coordinator may still hold the version of the lost node; the new node's must be higher.
        rewrites = min(epoch, REWRITES_MAX) if reading.nodes[EPOCH] is None else 0
        writes = rewritten(value, rewrites + 1)
        source = "is given" if given else "the ledgers name"
        as_ensemble = f", as the ensemble {token!r} that {source}" if token else ""
        step = VerbStep(
            f"set {EPOCH} to {epoch}{as_ensemble}", lambda claim: claim.session.state.apply(writes)
        )
        return VerbSteps([step])

    def _terms(self, reading: Reading, epoch: int) -> dict[str, Json]:
        """Return the term id of the epoch: as given, or as a ledger of this epoch names it."""
        if isinstance(self.value, dict) and "term" in self.value:
            return claimed_terms(None, terms_of(Node({"terms": [], **self.value}, 0))[epoch])
        ledgers = [each for each in reading.ledgers.values() if isinstance(each, Ledger)]
        named = [each.term for each in ledgers if each.epoch == epoch]
        return claimed_terms(None, named[0] if named else secrets.token_hex(8))

    def _topology(self, session: OperatorSession) -> Fingerprint:
        """Return the fingerprint for ``/epoch``; the program must match a given one."""
        now = fingerprint(session.graph)
        given = fingerprint_of(Node(self.value, 0)) or known_topology(session) or now
        if found := differences(given, now):
            raise changed(self.name, session, found, SAME_PROGRAM)
        return given

    def _ensemble(self, session: OperatorSession, reading: Reading) -> str:
        """Return the token of the ensemble that the ledgers name; empty if none names one."""
        tokens = {
            each.ensemble
            for each in reading.ledgers.values()
            if isinstance(each, Ledger) and each.topology == session.graph.id and each.ensemble
        }
        if len(tokens) > 1:
            raise self._unknown(
                f"the ledgers name several ensembles, {', '.join(map(repr, sorted(tokens)))}; "
                "choose one with value={'epoch': …, 'ensemble': …}"
            )
        return tokens.pop() if tokens else ""

    def _current(self, reading: Reading, epoch: Node) -> VerbSteps:
        ledgers = [each for each in reading.ledgers.values() if isinstance(each, Ledger)]
        held = HeldTxids.of(ledgers)
        if self.value is not None:
            current = current_of(Node(self.value, 0))
            again = held.first if held.low == held.high else None
            if reading.ledgers and not (held.fits and current in (held.low + 1, again)):
                group = (
                    "" if held.first in (None, held.high) else f", since {held.first} as a group"
                )
                raise self._unknown(
                    f"states hold txid {held.low} to {held.high}{group}, which is not at {current}"
                )
        else:
            current = self._current_of(reading, ledgers, held)
        terms = claimed_terms(epoch, secrets.token_hex(8))
        bumped = {**epoch.value, "epoch": epoch_of(epoch) + 1, **terms}  # type: ignore[dict-item]
        writes: list[Step] = [
            CompareAndSet(EPOCH, bumped, epoch.version),
            Put(CURRENT, {"current": current}),
        ]
        text = f"set {CURRENT} to {current}, and {EPOCH} to {epoch_of(epoch) + 1}"
        return VerbSteps([VerbStep(text, lambda claim: claim.session.state.apply(writes))])

    def _current_of(self, reading: Reading, ledgers: Sequence[Ledger], held: HeldTxids) -> int:
        low, high = held.low, held.high
        if not reading.ledgers:
            raise self._unknown("the topology has no state, so no ledger shows what is committed")
        if not held.fits:
            raise self._unknown(f"the states are too far apart: they hold txid {low} to {high}")
        if high > low or not high:
            return low + 1
        first, there = held.first or high, reading.values(BATCHES)
        group = range(first, high + 1)
        for txid in group:
            unreadable = isinstance(reading.nodes.get(batch_path(txid)), TxtopoError)
            if unreadable or (txid == high and txid not in there):
                what = "cannot be read" if unreadable else "is missing"
                raise self._unknown(f"the metadata of txid {txid}, which the states hold, {what}")
        members = [
            batch_of("", txid, Node(there[txid], 0)).attempt for txid in group if txid in there
        ]
        if len(members) < len(group):
            # Only rebuild and rewind store the last txid alone, and they commit it.
            last = members[-1]
            if {each.last_writer for each in ledgers if not each.is_empty} - {last}:
                raise self._unknown(f"the metadata of txids {first} to {high} is not complete")
            return high + 1
        of_one_term = len({(each.epoch, each.term) for each in members}) == 1
        # Ledgers with other attempts mean that a replay had begun; the group is redone.
        same = of_one_term and {each.writer for each in ledgers} == {group_of(members)}
        return high + 1 if same else first

    def _desired(self, session: OperatorSession) -> VerbSteps:
        if self.value is None:
            raise self._unknown(
                "no other node records whether the topology should run, and it is {'status': "
                "'running', 'command': 0} unless somebody asked"
            )
        given = desired_of(Node(self.value, 0))
        # Numbers of commands must not be reused, so no known number may be higher than this.
        known = last_number(session.state)
        desired = replace(given, command=max(given.command, known))
        text = f"set {DESIRED} to {desired.to_json()}"
        return VerbSteps(
            [VerbStep(text, lambda claim: claim.write(Put(DESIRED, desired.to_json())))], {}
        )

    def _batch(self, session: OperatorSession, reading: Reading) -> VerbSteps:
        txid, current = txid_of(self.path), reading.current
        if current is None:
            raise self._unknown(f"{CURRENT} cannot be read either; restore that node first")
        there = reading.values(BATCHES)
        held = max((e.txid for e in reading.ledgers.values() if isinstance(e, Ledger)), default=0)
        missing = reading.nodes.get(self.path) is None
        if self.value is not None:
            batch = batch_of(self.path, txid, Node(self.value, 0))
            metadata = metadata_from_json(txid, batch.metadata)
            if txid < current:
                metadata = checked_metadata(session, txid, batch.metadata)
            metadata = replace(metadata, content=batch.content)
            step = VerbStep(
                f"set {self.path} to {self.value!r:.300}",
                partial(_put, batch.attempt, metadata, verb=batch.verb),
            )
            return VerbSteps([step], {})
        if txid < current - 1:
            drops = [txid]
        elif txid >= current and txid > held:
            drops = [txid, *(later for later in there if later > txid)]
        elif txid >= current and not session.repeatable and txid - 1 in there:
            before = batch_of("", txid - 1, Node(there[txid - 1], 0)).metadata
            # The number of partitions and the limit are those of the previous batch.
            planned = session.metadata_of(txid - 1, before).cut_again()
            cut_again = partial(_put, TransactionAttempt(txid, 0, 0), planned)
            return VerbSteps([VerbStep(f"let txid {txid} be undone and cut again", cut_again)], {})
        else:
            raise self._unknown(f"only ZooKeeper had the metadata of txid {txid}, which is in use")
        if missing and drops == [txid]:
            return VerbSteps()
        paths = ", ".join(batch_path(each) for each in drops)
        step = VerbStep(
            f"delete {paths}, which will be planned again if needed", partial(_drop, drops)
        )
        return VerbSteps([step], {})

    def _unknown(self, why: str) -> StateUsageError:
        return StateUsageError(
            f"node {self.path} cannot be restored; got value={self.value!r:.200}; {why}; expected "
            "value=… with its content from an earlier show(), a log or a snapshot of ZooKeeper",
            path=self.path,
        )


def _put(
    attempt: TransactionAttempt, metadata: BatchMetadata, claim: VerbClaim, verb: str | None = None
) -> None:
    claim.write(put_metadata(attempt, metadata, verb))


def _drop(txids: list[int], claim: VerbClaim) -> None:
    claim.write(*delete_batches(txids))
