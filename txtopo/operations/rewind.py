"""rewind: takes the states and the source back to what they were after an earlier txid.

The numbers do not go back: a ledger never does, and other readers rely on that. The last txid, *t*,
is written once more, as a batch that leaves the states as they were after the txid that is wanted;
*t + 1* then starts where that one ended. So the records of the txids between come again, under new
numbers.

* To *t - 1*: an opaque state takes back what *t* wrote, as it does for any redo.
* Further: the store has to say what it held then (Delta, as far as its ``history_txids`` go).

Where the source stood is in ZooKeeper for ``Config.history_txids`` txids before the last; for
others it has to be given.

Order: the note in ``/current``; the states, one after the other; the new end of *t*, what was
planned after it away, and the note away, in one write.

rebuild: makes ZooKeeper fit what the stores hold, whether it knows less or more than they do.

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
from txtopo.operations.plan import (
    BEGINNING,
    Plan,
    Step,
    Work,
    check_turn,
    checked_metadata,
    dropped,
    note,
    planned,
    stored,
)
from txtopo.operations.session import Access, OperatorSession, VerbClaim, holder
from txtopo.state.backend import Key, Puts, StateBackend, Values
from txtopo.state.ledger import RELEASED, Ledger, adopts
from txtopo.transactional_state.journal import JournalContents
from txtopo.transactional_state.nodes import CURRENT, metadata_to_json
from txtopo.transactional_state.store import Put

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology


def rewind(
    topology: Topology,
    txid: int,
    config: Config = Config(),
    *,
    metadata: Json = None,
    access: Access = Access(),
) -> Plan:
    """Take all states back to what they held after *txid*, and the source to where it ended.

    Args:
        topology: The topology, which must not run.
        txid: Whose state is wanted again; 0 for the one before the first batch.
        config: As for ``start``.
        metadata: Where the source stood after *txid*, as ``{"planned": …, "cut": …}``; needed when
            ZooKeeper does not have it any more.
        access: How ZooKeeper is reached.

    Raises:
        StateUsageError: A store did not keep enough, or it is not known where the source stood;
            nothing was written.
        CoordinatorActive: A coordinator leads; stop it first.
    """
    arguments: dict[str, Json] = {"txid": txid, "metadata": metadata}
    return planned(_Rewind(txid, metadata, arguments), topology, config, access)


@dataclass(frozen=True, slots=True)
class _Rewind:
    txid: int
    metadata: Json
    arguments: dict[str, Json]
    name: str = "rewind"

    def look(self, site: OperatorSession) -> Work:
        contents = site.journal.read()
        check_turn(self, contents)
        last = contents.current - 1
        if not 0 <= self.txid < last:
            raise StateUsageError(
                f"cannot rewind to txid {self.txid}; the last committed one is {last}; expected "
                f"{f'one from 0 to {last - 1}' if last else 'a topology that has committed some'}",
                txid=self.txid,
                committed_txid=last,
            )
        ledgers = site.ledgers()
        reasons = [
            reason
            for name, ledger in ledgers.items()
            if (reason := self._reason(site, name, ledger, last)) is not None
        ]
        if reasons:
            raise StateUsageError(
                f"cannot rewind to txid {self.txid}; {'; '.join(reasons)}; restore the stores from "
                "a backup of that txid, then call rebuild",
                txid=self.txid,
            )
        end = self._position(site, contents)
        undo = self.txid == last - 1
        how = f"undo txid {last} in" if undo else f"write what txid {self.txid} left into"
        return Work(
            [
                Step(
                    f"note in {CURRENT} that the states are being taken back",
                    lambda claim: claim.write(note(self, contents.current)),
                ),
                *(Step(f"{how} state {n!r}", partial(self._restore, n, last)) for n in ledgers),
                Step(
                    f"let txid {last} end where txid {self.txid} ended, at "
                    f"{metadata_to_json(end)!r:.300}, "
                    f"and plan anew from txid {last + 1} on",
                    partial(self._finish, contents, end),
                ),
            ],
            ledgers,
        )

    def _reason(
        self, site: OperatorSession, name: str, ledger: Ledger | None, last: int
    ) -> str | None:
        """Say why a state cannot be taken back; None if it can."""
        held = 0 if ledger is None else ledger.txid
        if held != last:
            return (
                f"state {name!r} holds txid {held}, not {last}; start the topology until it has "
                "settled, or call verify"
            )
        if site.kind(name) == "transactional":
            return f"state {name!r} is transactional and keeps no earlier values"
        if self.txid == last - 1:
            return None
        try:
            with site.backends[name].snapshot_of(self.txid):
                return None
        except StateUsageError as error:
            return f"state {name!r} keeps txid {last - 1} only: {error}"

    def _position(self, site: OperatorSession, contents: JournalContents) -> BatchMetadata:
        if self.metadata is not None:
            return checked_metadata(site, self.txid, self.metadata)
        if self.txid == 0:
            return BEGINNING
        batch = contents.batches.get(self.txid)
        if batch is None:
            raise StateUsageError(
                f"it is not known where the source stood after txid {self.txid}; ZooKeeper has the "
                f"metadata of {sorted(contents.batches)}; expected metadata={{'planned': …, "
                "'cut': …}; Config.history_txids says how many are kept from now on",
                txid=self.txid,
            )
        return checked_metadata(site, self.txid, batch.metadata)

    def _restore(self, name: str, last: int, claim: VerbClaim) -> None:
        rows = {} if self.txid == last - 1 else self._differences(claim.site.backends[name], last)
        claim.commit(name, last, Puts(rows))

    def _differences(self, backend: StateBackend, last: int) -> dict[Key, Values | None]:
        """Return what makes the state before *last* the one that is wanted."""
        with backend.snapshot_of(self.txid) as then:
            wanted = {
                key: values for key, row in then.items() if (values := row.visible()) is not None
            }
        with backend.snapshot() as now:
            before = {key: row.before(last) for key, row in now.items()}
        changes: dict[Key, Values | None] = {
            key: values for key, values in wanted.items() if before.get(key) != values
        }
        gone = [key for key, old in before.items() if old is not None and key not in wanted]
        return changes | dict.fromkeys(gone)

    def _finish(self, contents: JournalContents, end: BatchMetadata, claim: VerbClaim) -> None:
        last = contents.current - 1
        claim.write(
            stored(claim.attempt(last), end),
            *dropped(txid for txid in contents.batches if txid > last),
            Put(CURRENT, {"current": contents.current}),
        )


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

    def look(self, site: OperatorSession) -> Work:
        contents = site.contents()
        check_turn(self, contents)
        ledgers = site.ledgers()
        low, high = _held(site, ledgers)
        if _fits(site, contents, ledgers):
            return Work()
        current = high if high > low else low + 1
        batches = self._batches(site, contents, low, high)
        told = ", ".join(
            f"txid {txid}: {metadata_to_json(each)!r:.300}" for txid, each in batches.items()
        )
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
        self, site: OperatorSession, contents: JournalContents, low: int, high: int
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

    def _known(self, site: OperatorSession, contents: JournalContents, txid: int) -> BatchMetadata:
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


def _held(site: OperatorSession, ledgers: Mapping[str, Ledger | None]) -> tuple[int, int]:
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


def _fits(
    site: OperatorSession, contents: JournalContents, ledgers: Mapping[str, Ledger | None]
) -> bool:
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
    contents: JournalContents, current: int, batches: Mapping[int, BatchMetadata], claim: VerbClaim
) -> None:
    claim.write(
        Put(CURRENT, {"current": current}),
        # An attempt that no ledger holds: what states hold of a txid above is undone and redone.
        *(stored(TransactionAttempt(txid, 0, 0), each) for txid, each in batches.items()),
        *dropped(txid for txid in contents.batches if txid not in batches),
    )
