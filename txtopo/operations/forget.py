"""forget: lets go of a topology; its rows stay, and another topology may have its tables.

A released ledger keeps its txid and epoch, so that rows keep their meaning and a coordinator that
wakes up stays fenced. It names no owner and no ensemble any more. Whoever wants the tables says
from where it goes on: with ``rebuild``. One state of a topology can be released alone.

Order: the note in ``/current``; the ledgers, one after the other; the batches; all other nodes in
one write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from txtopo.config import Config
from txtopo.errors import StateUsageError
from txtopo.metadata import Json
from txtopo.operations.plan import Plan, Step, Work, check_turn, note, planned
from txtopo.operations.session import Access, OperatorSession, VerbClaim, holder
from txtopo.state.ledger import RELEASED, Claim, Ledger, Owner
from txtopo.transactional_state.nodes import BATCHES, CURRENT, EPOCH, QUARANTINE
from txtopo.transactional_state.store import Delete

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology

# Far below what fits into one request of ZooKeeper.
DELETES_MAX = 1_000


def forget(
    topology: Topology,
    config: Config = Config(),
    *,
    state: str | None = None,
    access: Access = Access(),
) -> Plan:
    """Delete what ZooKeeper has of a topology, and release its states. No row is touched.

    Args:
        topology: The topology, which must not run.
        config: As for ``start``.
        state: Release only this one, named ``component.state`` as ``show`` does, and delete
            nothing in ZooKeeper.
        access: How ZooKeeper is reached.

    Raises:
        CoordinatorActive: A coordinator leads; stop it first.
        CorruptNodeError: A node cannot be read; put it back with ``repair_node``.
        StateUsageError: The topology has no such state.
    """
    if state is not None:
        return planned(_Release(state, {"state": state}), topology, config, access)
    return planned(_Forget(), topology, config, access)


@dataclass(frozen=True, slots=True)
class _Release:
    state: str
    arguments: dict[str, Json]
    name: str = "forget"

    def look(self, site: OperatorSession) -> Work:
        if self.state not in site.backends:
            raise StateUsageError(
                f"topology {site.graph.id!r} has no state {self.state!r}; expected one of "
                f"{', '.join(site.backends)}",
                state=self.state,
            )
        check_turn(self, site.contents())
        ledger = site.ledgers()[self.state]
        if ledger is None or ledger.topology != site.graph.id:
            return Work()
        step = _release_step(site, self.state, ledger)
        return Work([step], {self.state: ledger}, takes_over=True)


@dataclass(frozen=True, slots=True)
class _Forget:
    arguments: dict[str, Json] = field(default_factory=dict)
    name: str = "forget"

    def look(self, site: OperatorSession) -> Work:
        known = site.known
        contents = site.contents()
        check_turn(self, contents)
        mine: dict[str, Ledger] = {
            name: ledger
            for name, ledger in site.ledgers().items()
            if ledger is not None and ledger.topology == site.graph.id
        }
        if not known and not mine:
            return Work()
        children = [
            f"{parent}/{name}"
            for parent in (BATCHES, QUARANTINE)
            for name in site.state.children(parent)
        ]
        groups = [children[at : at + DELETES_MAX] for at in range(0, len(children), DELETES_MAX)]
        return Work(
            [
                Step(
                    f"note in {CURRENT} that the topology is being forgotten",
                    lambda claim: claim.write(note(self, contents.current)),
                ),
                *(_release_step(site, name, ledger) for name, ledger in mine.items()),
                *(
                    Step(f"delete {len(group)} nodes from {group[0]} on", partial(_delete, group))
                    for group in groups
                ),
                Step(f"delete {CURRENT} and {EPOCH}", _end),
            ],
            mine,
            takes_over=True,
        )


def _release_step(site: OperatorSession, name: str, ledger: Ledger) -> Step:
    text = f"release state {name!r}, which keeps its rows and txid {ledger.txid}"
    if not site.may_claim(name, ledger) and site.state.get(EPOCH) is not None:
        text += f"; it is taken from {holder(ledger)}"
    return Step(text, partial(_release, name))


def _release(name: str, claim: VerbClaim) -> None:
    claim.site.backends[name].claim(Claim(Owner(RELEASED), claim.epoch))


def _delete(paths: list[str], claim: VerbClaim) -> None:
    claim.write(*(Delete(path) for path in paths))


def _end(claim: VerbClaim) -> None:
    claim.write(Delete(BATCHES), Delete(QUARANTINE), Delete(CURRENT), Delete(EPOCH))
