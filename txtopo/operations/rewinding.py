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
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from txtopo.config import Config
from txtopo.errors import StateUsageError
from txtopo.metadata import BatchMetadata, Json
from txtopo.operations.batches import BEGINNING, checked_metadata, dropped, stored
from txtopo.operations.plan import Plan, Step, Work, check_turn, note, planned
from txtopo.operations.site import Access, Claim, Site
from txtopo.runtime.journaling import to_json
from txtopo.state.backend import Key, Puts, StateBackend, Values
from txtopo.state.ledger import Ledger
from txtopo.transactional_state.journal import JournalContents
from txtopo.transactional_state.nodes import CURRENT
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

    def look(self, site: Site) -> Work:
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
                    f"let txid {last} end where txid {self.txid} ended, at {to_json(end)!r:.300}, "
                    f"and plan anew from txid {last + 1} on",
                    partial(self._finish, contents, end),
                ),
            ],
            ledgers,
        )

    def _reason(self, site: Site, name: str, ledger: Ledger | None, last: int) -> str | None:
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

    def _position(self, site: Site, contents: JournalContents) -> BatchMetadata:
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

    def _restore(self, name: str, last: int, claim: Claim) -> None:
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

    def _finish(self, contents: JournalContents, end: BatchMetadata, claim: Claim) -> None:
        last = contents.current - 1
        claim.write(
            stored(claim.attempt(last), end),
            *dropped(txid for txid in contents.batches if txid > last),
            Put(CURRENT, {"current": contents.current}),
        )
