"""The verbs ``show`` and ``verify``, which read and change nothing.

``show`` returns the contents of ZooKeeper and of every ledger, and the lag of the spout. It takes
no lock and may run while a coordinator does; then its parts are from different moments. ``verify``
compares ZooKeeper, ledgers and tables, and gives a remedy for each finding. It leads while it
reads, so that everything it compares is from one moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txtopo.attempt import ranges_text, txids_text
from txtopo.config import Config
from txtopo.ensemble.commands import Desired
from txtopo.ensemble.nodes import (
    BATCHES,
    CURRENT,
    EPOCH,
    QUARANTINE,
    StoredBatch,
    batch_of,
    batch_path,
    metadata_from_json,
    terms_of,
)
from txtopo.ensemble.store import Node
from txtopo.errors import InfrastructureError, PromiseError, TxtopoError
from txtopo.fingerprint import Difference, setting_for
from txtopo.metadata import Json
from txtopo.operations.program import differences_of
from txtopo.operations.session import Access, OperatorSession, Reading, open_operator_session, read
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.stages.groups import why_one_by_one
from txtopo.state.backend import Key
from txtopo.state.ledger import RELEASED, Ledger, same_owner
from txtopo.state.reconciliation import Compared, check_claimed_since, check_known, compared
from txtopo.state.witness import check_witness

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology


def show(topology: Topology, config: Config = Config(), *, access: Access = Access()) -> Overview:
    """Return the contents of ZooKeeper, the ledgers and the spout's lag. Callable at any time.

    Raises:
        CoordinatorUnavailable: ZooKeeper cannot be reached.
    """
    with open_operator_session(topology, config, access) as session:
        reading = read(session)
        return Overview(
            topology_id=topology.id,
            leader=session.state.leader(),
            epoch=reading.epoch,
            ensemble=reading.ensemble,
            current=reading.current,
            desired=reading.desired,
            operation=reading.operation,
            batches=reading.values(BATCHES),
            quarantined=reading.values(QUARANTINE),
            states=reading.ledgers,
            lag=_lag(session, reading),
            unreadable={
                path: error
                for path, error in reading.nodes.items()
                if isinstance(error, TxtopoError)
            },
        )


def verify(
    topology: Topology,
    config: Config = Config(),
    *,
    rows: bool = True,
    access: Access = Access(),
) -> list[Finding]:
    """Compare ZooKeeper, ledgers and tables.

    Args:
        topology: The topology, which must not run.
        config: As for ``start``.
        rows: Whether to read every row of every state as well.
        access: How to reach ZooKeeper, if the ``Config`` is not enough.

    Returns:
        What is wrong; an empty list means that a coordinator can continue.

    Raises:
        CoordinatorActive: A coordinator leads; stop it first.
        CoordinatorUnavailable: ZooKeeper cannot be reached.
    """
    with open_operator_session(topology, config, access) as session, session.leading():
        reading = read(session)
        findings = [
            *_nodes(session, reading),
            *_batches(session, reading),
            *_ledgers(session, reading),
            *_witnesses(session, reading),
        ]
        return [*findings, *(_rows(session, reading) if rows else ())]


@dataclass(frozen=True, slots=True)
class Overview:
    """What :func:`show` found; ``print`` shows it.

    Attributes:
        topology_id: Id of the topology.
        leader: The candidate that leads, or None.
        epoch: The last claimed epoch; None if its node is missing or cannot be read.
        ensemble: The token by which ledgers name this ZooKeeper; empty if it has none yet.
        current: The lowest uncommitted txid; None if its node is missing or cannot be read.
        desired: What an operator wants of the topology; None if its node cannot be read.
        operation: The unfinished verb of an operator, or None.
        batches: The node of each stored batch, by txid. Keep it with your backups:
            ``repair_node``, ``rebuild`` and ``rewind`` accept it.
        quarantined: The node of each batch that ``quarantine`` took out, by txid.
        states: The ledger of each state; None if nobody has claimed the state, an error if the
            ledger cannot be read.
        lag: Records after the last committed txid, by partition, or the error of the spout.
        unreadable: The error of each node that cannot be read, by path.
    """

    topology_id: str
    leader: Json
    epoch: int | None
    ensemble: str
    current: int | None
    desired: Desired | None
    operation: dict[str, Json] | None
    batches: dict[int, Json]
    quarantined: dict[int, Json]
    states: dict[str, Ledger | TxtopoError | None]
    lag: Mapping[str, int] | Exception
    unreadable: dict[str, TxtopoError]

    def __str__(self) -> str:
        lines = [
            f"topology {self.topology_id!r}",
            f"  leader       {self.leader if self.leader is not None else 'none'}",
            f"  epoch        {self.epoch}",
            f"  ensemble     {self.ensemble or 'none'}",
            f"  current      {self.current}",
            f"  desired      {self.desired or 'unknown'}",
        ]
        if self.operation is not None:
            lines.append(f"  under way    {json.dumps(self.operation)}")
        lines += [f"  unreadable   {path}: {error}" for path, error in self.unreadable.items()]
        used_from = (self.current or 1) - 1
        if earlier := [txid for txid in self.batches if txid < used_from]:
            lines.append(f"  history      the metadata of {ranges_text(earlier)}")
        lines += [
            f"  batch        {txid}: {json.dumps(each)}"
            for txid, each in self.batches.items()
            if txid >= used_from
        ]
        lines += [
            f"  quarantined  {txid}: {json.dumps(each)}" for txid, each in self.quarantined.items()
        ]
        lines += [
            f"  state        {name!r}: {_ledger_text(each)}" for name, each in self.states.items()
        ]
        lines.append(f"  lag          {self.lag if self.lag else 'unknown, or none'}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that :func:`verify` found wrong; ``print`` shows it.

    Attributes:
        where: Path of the node, or name of the state.
        problem: What is wrong with it.
        remedy: What to do about it.
    """

    where: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; {self.remedy}"


def _lag(session: OperatorSession, reading: Reading) -> Mapping[str, int] | Exception:
    last = (reading.current or 1) - 1
    value = reading.values(BATCHES).get(last)
    if value is None:
        return {}
    stored = batch_of("", last, Node(value, 0)).metadata
    try:
        metadata = session.metadata_of(last, stored)
        planner = BatchPlanner(session.graph, session.config)
        try:
            return planner.lag(metadata)
        finally:
            planner.close()
    except Exception as error:  # noqa: BLE001 - the spout's code; its error is part of the answer
        return error


def _ledger_text(ledger: Ledger | TxtopoError | None) -> str:
    if ledger is None:
        return "nobody has claimed it"
    if isinstance(ledger, TxtopoError):
        return f"cannot be read: {ledger}"
    if ledger.topology == RELEASED:
        owner = "nobody any more"
    else:
        owner = f"{ledger.owner} and ensemble {ledger.ensemble!r}"
    first, last = ledger.writer.first_txid, ledger.txid
    group = "" if first == last else f", written together with {txids_text(first, last - 1)}"
    return f"txid {last} of {ledger.writer}{group}, epoch {ledger.epoch}, belongs to {owner}"


BRING_BACK = "restore it, then verify again"
RESTORE = "restore the newer side, or call rebuild"


def _nodes(session: OperatorSession, reading: Reading) -> Iterator[Finding]:
    for path, node in reading.nodes.items():
        if isinstance(node, TxtopoError):
            yield Finding(path, str(node), f"call repair_node({path!r})")
    epoch, current = reading.nodes[EPOCH], reading.nodes[CURRENT]
    if (epoch is None) != (current is None):
        path = EPOCH if epoch is None else CURRENT
        yield Finding(path, "is missing", f"call repair_node({path!r})")
    if (operation := reading.operation) is not None:
        yield Finding(
            CURRENT,
            f"{operation.get('verb')} was begun with {operation.get('arguments')!r:.300}",
            "call it again with the same arguments: it resumes where it stopped",
        )
    if found := _differences(session):
        yield Finding(
            EPOCH,
            f"the topology has changed: {'; '.join(each.text for each in found)}",
            "start the old one, or, if the change is intended, start once with "
            f"{setting_for(found)}",
        )


def _differences(session: OperatorSession) -> list[Difference]:
    try:
        return differences_of(session)
    except TxtopoError:
        return []  # a node or a store that cannot be read has a finding of its own


def _batches(session: OperatorSession, reading: Reading) -> Iterator[Finding]:
    current = reading.current
    if current is None:
        return
    there = {txid for txid in reading.values(BATCHES) if txid >= current - 1}
    for txid in range(max(1, current - 1), max(there, default=current - 1) + 1):
        path = batch_path(txid)
        if path not in reading.nodes:
            yield Finding(path, "is missing", f"call repair_node({path!r})")
    last = _stored(reading, current - 1)
    metadata = None if last is None else metadata_from_json(current - 1, last.metadata)
    if metadata is not None and not metadata.is_cut(session.cutting):
        yield Finding(
            batch_path(current - 1),
            "does not say where its batch ended",
            f"call rebuild with metadata={{{current - 1}: …}}",
        )


def _ledgers(session: OperatorSession, reading: Reading) -> Iterator[Finding]:
    ledgers: dict[str, Ledger] = {}
    findings: list[Finding] = []
    for name, ledger in reading.ledgers.items():
        if isinstance(ledger, InfrastructureError):
            findings.append(Finding(name, f"its store cannot be reached: {ledger}", BRING_BACK))
        elif isinstance(ledger, TxtopoError):
            findings.append(Finding(name, f"its ledger cannot be read: {ledger}", BRING_BACK))
        else:
            ledgers[name] = ledger or Ledger(session.graph.id, 0)
            findings += _ledger(session, reading, name, ledgers[name])
    # What is wrong with only one of them is not reported again.
    return iter(findings or _together(session, reading, ledgers))


def _ledger(
    session: OperatorSession, reading: Reading, name: str, ledger: Ledger
) -> Iterator[Finding]:
    if ledger.topology == RELEASED:
        yield Finding(name, "was released by the topology that had it", "call rebuild")
        return
    if not same_owner(ledger, session.owners[name]):
        yield Finding(
            name,
            f"belongs to {ledger.owner}",
            "use another table, or release it with forget of that topology; if the component was "
            "renamed, start once with allow_change=True",
        )
        return
    token = reading.ensemble
    if ledger.txid and token and ledger.ensemble not in ("", token):
        yield Finding(
            name,
            f"takes its epochs from ensemble {ledger.ensemble!r}; this ZooKeeper is {token!r}",
            "use the right ZooKeeper, or call rebuild",
        )
    counted_here = ledger.ensemble in ("", token) or not token
    known = not isinstance(reading.nodes[EPOCH], TxtopoError)
    if counted_here and known and ledger.epoch > (reading.epoch or 0):
        yield Finding(
            name,
            f"was claimed by epoch {ledger.epoch}; ZooKeeper knows {reading.epoch or 'none'}",
            "use the right ZooKeeper, or call rebuild",
        )
    elif counted_here and known and (error := _restored(session, reading, name, ledger)):
        yield Finding(name, str(error), RESTORE)
    findings, _ = _compared(session, reading, {name: ledger})
    yield from findings


def _restored(
    session: OperatorSession, reading: Reading, name: str, ledger: Ledger
) -> PromiseError | None:
    """Return why a takeover would refuse before it claims; None if it would not."""
    epoch, current = reading.nodes[EPOCH], reading.current or 1
    assert not isinstance(epoch, TxtopoError)
    try:
        stored = {
            txid: batch.attempt
            for txid in range(current, ledger.txid + 1)
            if (batch := _stored(reading, txid)) is not None
        }
        check_known({name: ledger}, session.graph.id, reading.ensemble, terms_of(epoch))
        check_claimed_since({name: ledger}, current, stored)
    except PromiseError as error:
        return error
    return None


def _together(
    session: OperatorSession, reading: Reading, ledgers: Mapping[str, Ledger]
) -> list[Finding]:
    findings, found = _compared(session, reading, ledgers)
    current = reading.current or 1
    if not findings:
        findings = _ends(session, reading, current, found)
    pinned = found.pinned
    if pinned is None or pinned == current:
        return findings
    # It needs pyarrow, which may be missing where the verbs are only imported.
    from txtopo.stages.compiled_topology import compile_topology

    graph, config = session.graph, session.config
    backends = {
        (owner.component, owner.state): session.backends[name]
        for name, owner in session.owners.items()
    }
    why = why_one_by_one(graph, compile_topology(graph, config, config.slots or 1), backends)
    if why is None:
        return []
    problem = (
        f"{txids_text(current, pinned)} must be written again together, but the topology commits "
        f"its batches one by one: {why}"
    )
    remedy = (
        "start the topology that wrote them until it has committed them, or call rewind with txid "
        f"{current - 1}, which takes them back"
    )
    return [Finding(CURRENT, problem, remedy)]


def _ends(
    session: OperatorSession, reading: Reading, current: int, found: Compared
) -> list[Finding]:
    """Return the batch that a takeover would refuse because its end is unknown."""
    held = range(current, (found.adopted or found.pinned or 0) + 1)
    batches = {each: batch for each in held if (batch := _stored(reading, each)) is not None}
    try:
        session.check_ends(batches, current, found)
    except PromiseError as error:
        remedy = f"restore the newer side, or call rebuild with metadata={{{max(held)}: …}}"
        return [Finding(batch_path(max(held)), str(error), remedy)]
    return []


def _compared(
    session: OperatorSession, reading: Reading, ledgers: Mapping[str, Ledger]
) -> tuple[list[Finding], Compared]:
    """Return the findings that a takeover would refuse, and the group it would adopt or redo.

    Nothing if the values to compare cannot be read.
    """
    current = reading.current or 1
    owners = {name: session.owners[name] for name in ledgers}
    added = [n for n, o in owners.items() if (o.component, o.state) in reading.added]
    begins = current - 1
    begun = {
        name: replace(ledgers[name], txid=begins, first_txid=begins)
        for name in added
        if not ledgers[name].txid
    }
    ledgers = {**ledgers, **begun}
    held = range(current - 1, max((each.txid for each in ledgers.values()), default=0) + 1)
    paths = [CURRENT, *(batch_path(txid) for txid in held if txid >= current or added)]
    if any(isinstance(reading.nodes.get(path), TxtopoError) for path in paths):
        return [], Compared()
    stored = {each: batch.attempt for each in held if (batch := _stored(reading, each)) is not None}
    try:
        return [], compared(ledgers, current, stored, added=added)
    except PromiseError as error:
        return [Finding(str(error.facts.get("state")), str(error), RESTORE)], Compared()


def _witnesses(session: OperatorSession, reading: Reading) -> Iterator[Finding]:
    for name, ledger in reading.ledgers.items():
        if not isinstance(ledger, Ledger):
            continue
        try:
            with session.backends[name].snapshot() as snapshot:
                check_witness(snapshot, session.table(name), name)
        except TxtopoError as error:
            remedy = "restore table and ledger as of the same moment, then verify again"
            yield Finding(name, str(error), remedy)


def _rows(session: OperatorSession, reading: Reading) -> Iterator[Finding]:
    for name, ledger in reading.ledgers.items():
        if isinstance(ledger, TxtopoError):
            continue
        try:
            held, beyond = _beyond(session, name)
        except PromiseError as error:
            remedy = "call verify with the program that ran, or restore the table"
            yield Finding(name, f"its rows cannot be read: {error}", remedy)
            continue
        if beyond:
            key, txid = beyond[0]
            yield Finding(
                name,
                f"{len(beyond)} rows are of later txids than its ledger, which holds {held}; the "
                f"first is {key!r:.100} of txid {txid}",
                "something writes without the ledger, or only the ledger was restored; restore "
                "table and ledger from the same backup, then call rebuild",
            )


def _beyond(session: OperatorSession, name: str) -> tuple[int, list[tuple[Key, int | None]]]:
    """Return the txid of a state, and key and txid of each row with a later txid."""
    with session.backends[name].snapshot() as snapshot:
        held = snapshot.ledger.txid if snapshot.ledger is not None else 0
        return held, [(key, row.txid) for key, row in snapshot.items() if (row.txid or 0) > held]


def _stored(reading: Reading, txid: int) -> StoredBatch | None:
    value = reading.values(BATCHES).get(txid)
    return None if value is None else batch_of(batch_path(txid), txid, Node(value, 0))
