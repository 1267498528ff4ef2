"""forget: lets go of a topology; its rows stay, and another topology may have its tables.

A released ledger keeps its txid and epoch, so that rows keep their meaning and a coordinator that
wakes up stays fenced. Whoever wants the tables says from where it goes on: with ``rebuild``.

Order: the note in ``/current``; the ledgers, one after the other; the batches; all other nodes in
one write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from txtopo.config import Config
from txtopo.metadata import Json
from txtopo.operations.plan import Plan, Step, Work, check_turn, note, planned
from txtopo.operations.site import Access, Claim, Site
from txtopo.state.ledger import RELEASED, Ledger
from txtopo.transactional_state.journal import JournalContents
from txtopo.transactional_state.nodes import BATCHES, CURRENT, EPOCH, QUARANTINE
from txtopo.transactional_state.store import Delete

if TYPE_CHECKING:
    from txtopo.builders.topology import Topology

# Far below what fits into one request of ZooKeeper.
DELETES_MAX = 1_000


def forget(topology: Topology, config: Config = Config(), *, access: Access = Access()) -> Plan:
    """Delete what ZooKeeper has of a topology, and release its states. No row is touched.

    Args:
        topology: The topology, which must not run.
        config: As for ``start``.
        access: How ZooKeeper is reached.

    Raises:
        CoordinatorActive: A coordinator leads; stop it first.
        CorruptNodeError: A node cannot be read; put it back with ``repair_node``.
    """
    return planned(_Forget(), topology, config, access)


@dataclass(frozen=True, slots=True)
class _Forget:
    arguments: dict[str, Json] = field(default_factory=dict)
    name: str = "forget"

    def look(self, site: Site) -> Work:
        known = site.state.get(EPOCH) is not None or site.state.get(CURRENT) is not None
        contents = site.journal.read() if known else JournalContents(1, {})
        check_turn(self, contents)
        mine: dict[str, Ledger | None] = {
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
                *(
                    Step(
                        f"release state {name!r}, which keeps its rows and txid "
                        f"{ledger.txid if ledger else 0}",
                        partial(_release, name),
                    )
                    for name, ledger in mine.items()
                ),
                *(
                    Step(f"delete {len(group)} nodes from {group[0]} on", partial(_delete, group))
                    for group in groups
                ),
                Step(f"delete {CURRENT} and {EPOCH}", _end),
            ],
            mine,
        )


def _release(name: str, claim: Claim) -> None:
    claim.site.backends[name].claim(RELEASED, claim.epoch)


def _delete(paths: list[str], claim: Claim) -> None:
    claim.write(*(Delete(path) for path in paths))


def _end(claim: Claim) -> None:
    claim.write(Delete(BATCHES), Delete(QUARANTINE), Delete(CURRENT), Delete(EPOCH))
