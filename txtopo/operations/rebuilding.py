"""rebuild: makes ZooKeeper fit what the stores hold, whether it knows less or more than they do.

The stores are the truth about what is committed: their ledgers say up to which txid. What they do
not know is where the source stood then: a ledger has no metadata. So the metadata of that txid is
taken from ZooKeeper if it is still there, else it has to be given: from a ``show()`` of that time
or from the source. It is never guessed.

A ledger names the ensemble that its epochs come from. Where that is another one, because the data
of ZooKeeper was wiped or is another server's, the state is taken over; the plan says so.

Order: the epoch in ZooKeeper, the epoch in the ledgers, then ``current`` and the batches in one
write. Before that write a coordinator refuses to start, as it did before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.errors import ForeignStateError, PromiseError, StateUsageError
from txtopo.metadata import BatchMetadata, Json
from txtopo.operations.batches import checked_metadata, dropped, stored
from txtopo.operations.plan import Plan, Step, Work, check_turn, planned
from txtopo.operations.site import Access, Claim, Site, holder
from txtopo.runtime.journaling import to_json
from txtopo.state.adoption import adopts
from txtopo.state.ledger import RELEASED, Ledger
from txtopo.transactional_state.journal import JournalContents
from txtopo.transactional_state.nodes import CURRENT
from txtopo.transactional_state.store import Put

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology


def rebuild(
    topology: Topology,
    config: Config = Config(),
    *,
    metadata: Mapping[int, Json] | None = None,
    access: Access = Access(),
) -> Plan:
    """Set ``current`` and the source's position to what the ledgers of the states say.

    Args:
        topology: The topology, which must not run. It may be a new one whose states another one
            has released (``forget``): then the numbers go on.
        config: As for ``start``.
        metadata: By txid, as ``{"planned": …, "cut": …}``: of the txid that all states hold, and of
            the next one if some state holds it and the spout is transactional.
            ``{"planned": None, "cut": {}}`` begins at the start of the source.
        access: How ZooKeeper is reached.

    Raises:
        StateUsageError: It is not known where the source stood; nothing was written.
        PromiseError: The states do not fit together; nothing was written.
        CoordinatorActive: A coordinator leads; stop it first.
    """
    given = dict(metadata or {})
    arguments: dict[str, Json] = {"metadata": {str(txid): given[txid] for txid in sorted(given)}}
    return planned(_Rebuild(given, arguments), topology, config, access)


@dataclass(frozen=True, slots=True)
class _Rebuild:
    given: dict[int, Json]
    arguments: dict[str, Json]
    name: str = "rebuild"

    def look(self, site: Site) -> Work:
        contents = site.contents()
        check_turn(self, contents)
        ledgers = site.ledgers()
        low, high = _held(site, ledgers)
        if _fits(site, contents, ledgers):
            return Work()
        current = high if high > low else low + 1
        batches = self._batches(site, contents, low, high)
        told = ", ".join(f"txid {txid}: {to_json(each)!r:.300}" for txid, each in batches.items())
        work = f"set {CURRENT} from {contents.current} to {current}, with the metadata of " + (
            told or "no txid"
        )
        taken = "".join(
            f"; state {name!r} is taken over from {holder(each)}"
            for name, each in ledgers.items()
            if each is not None and not site.may_claim(name, each)
        )
        write = partial(_write, contents, current, batches)
        return Work(
            [Step(f"{work}; drop all other batches{taken}", write)], ledgers, takes_over=True
        )

    def _batches(
        self, site: Site, contents: JournalContents, low: int, high: int
    ) -> dict[int, BatchMetadata]:
        batches: dict[int, BatchMetadata] = {}
        if low:
            batches[low] = self._known(site, contents, low)
        if high > low and site.repeatable:
            batches[high] = self._known(site, contents, high)
        elif high > low:
            # It is undone and cut anew; what was planned is the number of partitions.
            planned_before = batches[low].planned if low else 0
            batches[high] = BatchMetadata(planned_before, None)
        return batches

    def _known(self, site: Site, contents: JournalContents, txid: int) -> BatchMetadata:
        if txid in self.given:
            return checked_metadata(site, txid, self.given[txid])
        if (batch := contents.batches.get(txid)) is not None:
            return checked_metadata(site, txid, batch.metadata)
        raise StateUsageError(
            f"it is not known where the source stood after txid {txid}, which the states hold; "
            f"ZooKeeper has the metadata of {sorted(contents.batches)}; expected "
            f"metadata={{{txid}: {{'planned': …, 'cut': …}}}}, from an earlier show(), or as you "
            "know it from the source",
            txid=txid,
        )


def _held(site: Site, ledgers: Mapping[str, Ledger | None]) -> tuple[int, int]:
    """Return the lowest and the highest txid that states hold."""
    for name, ledger in ledgers.items():
        if ledger is None or ledger.topology == RELEASED:
            continue
        other = ledger.owner != site.owners[name] and ledger.owner in site.owners.values()
        if ledger.topology != site.graph.id or other:
            raise ForeignStateError(
                f"state {name!r} belongs to {ledger.owner}; got {site.owners[name]}; release it "
                "with forget of that topology, or use another table",
                state=name,
                owner=ledger.topology,
            )
    held = {name: 0 if ledger is None else ledger.txid for name, ledger in ledgers.items()}
    if not held:
        raise StateUsageError(
            f"topology {site.graph.id!r} has no state, so no ledger says what is committed; "
            "expected one; put back single nodes with repair_node"
        )
    low, high = min(held.values()), max(held.values())
    if high > low + 1:
        raise StateUsageError(
            f"the states are too far apart; they hold {held}; expected txids that differ by one at "
            "the most; restore those behind from a newer backup, or all from backups of one moment",
            held=held,
        )
    return low, high


def _fits(site: Site, contents: JournalContents, ledgers: Mapping[str, Ledger | None]) -> bool:
    """Return whether a coordinator could go on from here."""
    mine = {name: each or Ledger(site.graph.id, 0) for name, each in ledgers.items()}
    if not all(site.may_claim(name, ledger) for name, ledger in mine.items()):
        return False
    begins = contents.current == 1 or contents.current - 1 in contents.batches
    batch = contents.batches.get(contents.current)
    try:
        adopts(mine, contents.current, batch.attempt if batch else None)
    except PromiseError:
        return False
    return begins


def _write(
    contents: JournalContents, current: int, batches: Mapping[int, BatchMetadata], claim: Claim
) -> None:
    claim.write(
        Put(CURRENT, {"current": current}),
        # An attempt that no ledger holds: what states hold of a txid above is undone and redone.
        *(stored(TransactionAttempt(txid, 0, 0), each) for txid, each in batches.items()),
        *dropped(txid for txid in contents.batches if txid not in batches),
    )
