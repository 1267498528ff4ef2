"""The verb ``forget``, which gives up a topology or one of its states; no row is touched.

A released ledger keeps its txid and epoch. So its rows keep their meaning, and a coordinator that
wakes up later is still refused. The ledger no longer names an owner or an ensemble. The next owner
of the tables calls ``rebuild`` and supplies the position of its source.

A topology is forgotten with the program that ran, since ZooKeeper does not record where its states
are. If that program is gone, another one under the same id may do it with
``Config(allow_change=True)``: it releases its own states, and the plan names the others. A single
state can be released by any program in which it has the table and columns of the state that ran, or
a table that the topology no longer uses.

Order of the writes: the verb into ``/current``; the ledgers, one after the other; deletion of the
batches and of commands; deletion of all other nodes, the desired status among them, in one write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from txtopo.config import ChangeKind, Config
from txtopo.ensemble.nodes import (
    BATCHES,
    COMMANDS,
    CURRENT,
    DESIRED,
    EPOCH,
    PUBLISHED,
    QUARANTINE,
)
from txtopo.ensemble.store import Delete
from txtopo.errors import StateUsageError
from txtopo.fingerprint import in_words
from txtopo.metadata import Json
from txtopo.operations.plan import (
    Plan,
    VerbStep,
    VerbSteps,
    check_unfinished,
    make_plan,
    note_begun,
)
from txtopo.operations.program import SAME_PROGRAM, differences_of, known_topology
from txtopo.operations.session import Access, OperatorSession, VerbClaim, holder
from txtopo.state.ledger import RELEASED, Claim, Ledger, Owner
from txtopo.topology.graph import fingerprint

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology

# Far below what fits into one request of ZooKeeper.
DELETES_MAX = 1_000

FORK = "fork"
"""The verb whose unfinished work can be given up."""


def forget(
    topology: Topology,
    config: Config = Config(),
    *,
    state: str | None = None,
    access: Access = Access(),
) -> Plan:
    """Delete the nodes of a topology in ZooKeeper, and release its states. No row is touched.

    Args:
        topology: The topology, which must not run.
        config: As for ``start``; with ``allow_change`` the topology may differ from the one that
            ran, and states that it lacks are not released.
        state: Release only this state, given as ``component.state``, and delete nothing in
            ZooKeeper.
        access: How to reach ZooKeeper, if the ``Config`` is not enough.

    Raises:
        CoordinatorActive: A coordinator leads; stop it first.
        CorruptNodeError: A node cannot be read; restore it with ``repair_node``.
        StateUsageError: The topology has no such state.
        TopologyChanged: It is another topology than the one that ran, and ``config.allow_change``
            is not set; nothing was written.
    """
    if state is not None:
        return make_plan(_Release(state, {"state": state}), topology, config, access)
    return make_plan(_Forget(), topology, config, access)


@dataclass(frozen=True, slots=True)
class _Release:
    state: str
    arguments: dict[str, Json]
    name: str = "forget"

    def objection(self, session: OperatorSession) -> str | None:
        """Return how the state differs from the one of the topology that ran."""
        known, owner = known_topology(session), session.owners.get(self.state)
        if known is None or owner is None:
            return None  # its ledger alone says whose it is
        name = (owner.component, owner.state)
        state = fingerprint(session.graph).states[name]
        users = {each: form for each, form in known.states.items() if form.table == state.table}
        if known.states.get(name) == state or not users:
            return None
        told = ", ".join(f"{in_words(each)}, {form}" for each, form in users.items())
        return (
            f"the topology uses table {state.table!r}, for {told}; got {in_words(name)}, {state}; "
            "give it a program with the state as it ran"
        )

    def look(self, session: OperatorSession) -> VerbSteps:
        if self.state not in session.backends:
            raise StateUsageError(
                f"topology {session.graph.id!r} has no state {self.state!r}; expected one of "
                f"{', '.join(session.backends)}",
                state=self.state,
            )
        check_unfinished(self, session.contents())
        ledger = session.ledgers()[self.state]
        if ledger is None or ledger.topology != session.graph.id:
            return VerbSteps()
        step = _release_step(session, self.state, ledger)
        return VerbSteps([step], {self.state: ledger}, takes_over=True, keeps_topology=False)


@dataclass(frozen=True, slots=True)
class _Forget:
    arguments: dict[str, Json] = field(default_factory=dict)
    name: str = "forget"

    def objection(self, session: OperatorSession) -> str | None:
        if session.config.may_change(*(each.change for each in differences_of(session))):
            return None
        return (
            f"{SAME_PROGRAM}; or, if that program is gone, forget it with "
            "Config(allow_change=True), which releases only the states of this one"
        )

    def look(self, session: OperatorSession) -> VerbSteps:
        known = session.known
        contents = session.contents()
        if not _is_fork(contents.operation):
            check_unfinished(self, contents)
        mine: dict[str, Ledger] = {
            name: ledger
            for name, ledger in session.ledgers().items()
            if ledger is not None and ledger.topology == session.graph.id
        }
        if not known and not mine:
            return VerbSteps()
        children = [
            f"{parent}/{name}"
            for parent in (BATCHES, QUARANTINE, COMMANDS, PUBLISHED)
            for name in session.state.children(parent)
        ]
        groups = [children[at : at + DELETES_MAX] for at in range(0, len(children), DELETES_MAX)]
        return VerbSteps(
            [
                VerbStep(
                    f"note in {CURRENT} that the topology is being forgotten",
                    lambda claim: claim.write(note_begun(self, contents.current)),
                ),
                *(_release_step(session, name, ledger) for name, ledger in mine.items()),
                *(
                    VerbStep(
                        f"delete {len(group)} nodes from {group[0]} on", partial(_delete, group)
                    )
                    for group in groups
                ),
                VerbStep(f"delete {CURRENT} and {EPOCH}{_not_released(session)}", _end),
            ],
            mine,
            takes_over=True,
            lifts=True,
            keeps_topology=False,
        )


def _is_fork(operation: dict[str, Json] | None) -> bool:
    """Return whether a fork is unfinished: no coordinator has ever run, so it may be given up."""
    return operation is not None and operation.get("verb") == FORK


def _not_released(session: OperatorSession) -> str:
    """Return which states of the topology that ran the program does not have, for the plan."""
    found = differences_of(session)
    others = [each.text for each in found if each.change in (ChangeKind.STATES, ChangeKind.COLUMNS)]
    if not others:
        return ""
    return f"; not released, because the program has a different state or none: {'; '.join(others)}"


def _release_step(session: OperatorSession, name: str, ledger: Ledger) -> VerbStep:
    text = f"release state {name!r}, which keeps its rows and txid {ledger.txid}"
    if not session.may_claim(name, ledger) and session.state.get(EPOCH) is not None:
        text += f"; it is taken from {holder(ledger)}"
    return VerbStep(text, partial(_release, name))


def _release(name: str, claim: VerbClaim) -> None:
    claim.session.backends[name].claim(Claim(Owner(RELEASED), claim.epoch, term=claim.term))


def _delete(paths: list[str], claim: VerbClaim) -> None:
    claim.write(*(Delete(path) for path in paths))


def _end(claim: VerbClaim) -> None:
    paths = (BATCHES, QUARANTINE, COMMANDS, PUBLISHED, DESIRED, CURRENT, EPOCH)
    claim.write(*(Delete(path) for path in paths))
