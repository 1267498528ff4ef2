"""Program: whether a verb is given the topology that ran, looked at by every verb before its steps.

A verb works on the states and spouts of the program that it is given. With another program than the
one that ran it would do half of its work: a state that the program lacks is not taken back and
counts its records twice, and a spout that it lacks loses its position. So each verb compares the
program with what is stored, when its plan is made and again before its first step; and the claim of
its epoch compares once more, right before the write that it fences.

What is compared
----------------
1. With the fingerprint that ZooKeeper has, as a start does.
2. If ZooKeeper has none, since its nodes were lost, with what else is stored: a state in the stores
   of the program whose ledger names the topology and lacks nothing of what the others hold, and a
   spout in the metadata of a batch that is in use. Both have to be in the program.
3. The first verb that claims an epoch where no fingerprint is stored stores that of its program.

A verb may accept another program where that does no harm, which it decides itself
(``Verb.objection``): ``rebuild`` if all states of the other one are empty, so that it begins again;
``forget`` as :mod:`txtopo.operations.forget` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from txtopo.config import ChangeKind
from txtopo.ensemble.nodes import (
    BATCHES,
    CURRENT,
    EPOCH,
    batch_of,
    current_of,
    fingerprint_of,
    metadata_from_json,
    txid_of,
)
from txtopo.errors import CorruptNodeError, InfrastructureError, TopologyChanged, TxtopoError
from txtopo.fingerprint import (
    Difference,
    Fingerprint,
    differences,
    in_words,
)
from txtopo.metadata import BatchMetadata
from txtopo.state.ledger import Ledger
from txtopo.topology.graph import fingerprint

if TYPE_CHECKING:
    from txtopo.operations.plan import Verb
    from txtopo.operations.session import OperatorSession
    from txtopo.state import State

SAME_PROGRAM = (
    "a verb works on all states and spouts that ran; expected the program that ran; or, if the "
    "change is intended, start the new one once with Config(allow_change=True) and call this "
    "again"
)
"""Why most verbs do not accept another program."""


def check_program(verb: Verb, session: OperatorSession) -> Fingerprint | None:
    """Check that a verb got the topology that ran, or accepts a different one. Writes nothing.

    Returns:
        The fingerprint to claim with; None for a different topology that the verb accepts.

    Raises:
        TopologyChanged: It is another one; the message names what differs.
    """
    changes = differences_of(session)
    if not changes:
        return fingerprint(session.graph)
    if (why := verb.objection(session)) is not None:
        raise changed(verb.name, session, changes, why)
    return None


def changed(
    verb: str, session: OperatorSession, found: Sequence[Difference], why: str
) -> TopologyChanged:
    """Return the error for a verb that got another topology than the one that ran."""
    changes = tuple(each.text for each in found)
    return TopologyChanged(
        f"{verb} was called with a different topology than the one that ran as "
        f"{session.graph.id!r}; {'; '.join(changes)}; nothing was written; {why}",
        changes=changes,
    )


def differences_of(session: OperatorSession) -> list[Difference]:
    """Return how the program differs from the stored record of the topology that ran."""
    known = known_topology(session)
    if known is not None:
        return differences(known, fingerprint(session.graph))
    return [*_states_left_out(session), *_spouts_left_out(session)]


def known_topology(session: OperatorSession) -> Fingerprint | None:
    """Return the stored fingerprint; None if there is none, or if its node cannot be read."""
    with suppress(CorruptNodeError):
        return fingerprint_of(session.state.get(EPOCH))
    return None


def _states_left_out(session: OperatorSession) -> Iterator[Difference]:
    """Yield the states that ran, are in the program's stores, and are missing from the program.

    A state that was removed from the topology earlier holds a lower txid than the others.
    """
    held = [each for each in session.ledgers().values() if each is not None]
    lowest = min((each.txid for each in held if each.topology == session.graph.id), default=0)
    owners = set(session.owners.values())
    for table, ledger in _others(session):
        if ledger.owner not in owners and ledger.txid >= max(1, lowest):
            name = in_words((ledger.component, ledger.state))
            yield Difference(
                ChangeKind.STATES,
                f"{name} is gone, but its table {table!r} holds txid {ledger.txid}",
            )


def _others(session: OperatorSession) -> Iterator[tuple[str, Ledger]]:
    """Return the tables, with ledgers, in the program's stores that none of its states has."""
    stores: dict[str, State] = {}
    own: dict[str, set[str]] = {}
    for component in session.graph.components.values():
        for name, state in component.states.items():
            stores.setdefault(state.url, state)
            own.setdefault(state.url, set()).add(state.layout(name).name)
    for url, store in stores.items():
        with closing(store.open(next(iter(own[url])))) as backend:
            tables = backend.stored() or ()
        for table in tables:
            if table.name not in own[url]:
                ledger = _ledger(store, table.name)
                if ledger is not None and ledger.topology == session.graph.id:
                    yield table.name, ledger


def _ledger(store: State, table: str) -> Ledger | None:
    """Return the ledger of a table; None if it has none, or is damaged, as foreign ones may be."""
    try:
        with store.beside(table).reader() as reader:
            return reader.ledger
    except InfrastructureError:
        raise
    except TxtopoError:
        return None


def _spouts_left_out(session: OperatorSession) -> Iterator[Difference]:
    """Yield the spouts that the metadata of batches in use names and the program lacks."""
    spouts = {each.id for each in session.graph.spouts}
    named: dict[str, int] = {}
    for txid, metadata in _in_use(session).items():
        for spout in metadata.spouts:
            named.setdefault(spout, txid)
    for spout, txid in named.items():
        if spout not in spouts:
            text = f"component {spout!r}, a spout of txid {txid}, is gone"
            yield Difference(ChangeKind.COMPONENTS, text)


def _in_use(session: OperatorSession) -> dict[int, BatchMetadata]:
    """Return the metadata of the batches that can be read, from current - 1 on."""
    state, found = session.state, dict[int, BatchMetadata]()
    current = 1  # if unknown, all existing batches count as in use
    with suppress(CorruptNodeError):
        current = current_of(state.get(CURRENT))
    for name in state.children(BATCHES):
        path = f"{BATCHES}/{name}"
        try:
            txid = txid_of(path)
            stored = batch_of(path, txid, state.get(path)).metadata
            metadata = metadata_from_json(txid, stored)
        except CorruptNodeError:
            continue  # whatever needs it reports it
        if txid >= current - 1:
            found[txid] = metadata
    return found
