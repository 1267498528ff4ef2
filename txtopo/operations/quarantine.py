"""quarantine: takes a batch that cannot pass out of the order, without breaking the order.

The txid is committed as an empty batch: every ledger gets it, and rows that an earlier attempt left
are taken back. The next batch starts where this one ended. For a transactional spout that is what
was planned; for a spout whose emitters decide where a batch ends it is what was stored when the
batch was processed, and if that never succeeded only its user can say it. What the batch was is
kept in ``/quarantine/<txid>``.

Order: the note in ``/current`` together with ``/quarantine/<txid>``; the states, one after the
other; the new ``current`` with the end of the batch, and the note away, in one write.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from txtopo.config import Config
from txtopo.errors import StateUsageError
from txtopo.metadata import BatchMetadata, Json
from txtopo.operations.plan import (
    BEGINNING,
    Plan,
    Step,
    Work,
    carried,
    check_turn,
    checked_metadata,
    note,
    planned,
    stored,
)
from txtopo.operations.session import Access, OperatorSession, VerbClaim
from txtopo.state.backend import Puts
from txtopo.state.ledger import Ledger
from txtopo.transactional_state.journal import JournalContents
from txtopo.transactional_state.nodes import (
    CURRENT,
    QUARANTINE,
    batch_path,
    metadata_from_json,
    metadata_to_json,
)
from txtopo.transactional_state.store import Put

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology

ADVICE = "a batch that is committed is undone with rewind, not taken out"


def quarantine(
    topology: Topology,
    txid: int,
    config: Config = Config(),
    *,
    end: Json = None,
    reason: str = "",
    access: Access = Access(),
) -> Plan:
    """Commit the batch that blocks a topology as an empty one, and keep what it was.

    Args:
        topology: The topology, which must not run.
        txid: The lowest uncommitted txid: the one that ``PoisonBatchError`` names.
        config: As for ``start``.
        end: Where the batch ends, as ``{"planned": …, "cut": …}``; needed when the emitters of a
            partitioned or opaque spout decide that and never got through with this batch. Of
            partitions that it does not name nothing is skipped.
        reason: Kept with the batch.
        access: How ZooKeeper is reached.

    Raises:
        StateUsageError: It cannot be done; the message says why.
        CoordinatorActive: A coordinator leads; stop it first.
    """
    arguments: dict[str, Json] = {"txid": txid, "end": end, "reason": reason}
    return planned(_Quarantine(txid, end, reason, arguments), topology, config, access)


@dataclass(frozen=True, slots=True)
class _Quarantine:
    txid: int
    end: Json
    reason: str
    arguments: dict[str, Json]
    name: str = "quarantine"

    def look(self, site: OperatorSession) -> Work:
        contents = site.journal.read()
        begun = check_turn(self, contents)
        kept = site.state.get(batch_path(self.txid, QUARANTINE))
        if kept is not None and not begun and self.txid < contents.current:
            return Work()
        if self.txid != contents.current:
            raise StateUsageError(
                f"txid {self.txid} cannot be taken out; expected {contents.current}, the lowest "
                f"uncommitted one, since commits go in order; {ADVICE}",
                txid=self.txid,
                current=contents.current,
            )
        ledgers = site.ledgers()
        for name, ledger in ledgers.items():
            self._check(site, contents, name, ledger)
        end = self._end(site, contents)
        return Work(
            [
                Step(
                    f"note in {CURRENT} that txid {self.txid} is being taken out, and keep what is "
                    f"known of it in {batch_path(self.txid, QUARANTINE)}",
                    partial(self._begin, contents),
                ),
                *(
                    Step(
                        f"commit txid {self.txid} to state {name!r} as an empty batch",
                        partial(self._commit, name),
                    )
                    for name in ledgers
                ),
                Step(
                    f"let txid {self.txid} end at {metadata_to_json(end)!r:.300}, go on at txid "
                    f"{self.txid + 1}",
                    partial(self._end_it, end),
                ),
            ],
            ledgers,
        )

    def _check(
        self, site: OperatorSession, contents: JournalContents, name: str, ledger: Ledger | None
    ) -> None:
        held = 0 if ledger is None else ledger.txid
        if held not in (self.txid - 1, self.txid):
            raise StateUsageError(
                f"state {name!r} holds txid {held}; expected {self.txid - 1} or {self.txid}; "
                "call verify, which says what to do first",
                state=name,
            )
        since = (contents.operation or {}).get("epoch")
        ours = ledger is not None and isinstance(since, int) and ledger.writer_epoch >= since
        if held == self.txid and site.kind(name) == "transactional" and not ours:
            raise StateUsageError(
                f"state {name!r} holds txid {self.txid} already and is transactional: it keeps no "
                "earlier values, so it cannot take the batch back; mend what stops the other "
                "states and start the topology",
                state=name,
            )

    def _end(self, site: OperatorSession, contents: JournalContents) -> BatchMetadata:
        """Return where the batch ends.

        No later batch has to be planned anew when that is given: those of an opaque spout are cut
        anew anyway, and one of a partitioned spout is not cut before this one is.
        """
        batch = contents.batches.get(self.txid)
        known = None if batch is None else metadata_from_json(self.txid, batch.metadata)
        complete = known is not None and (known.cut is not None or not site.chained)
        if self.end is None:
            if known is not None and complete:
                return known
            raise StateUsageError(
                f"it is not known where txid {self.txid} ends; "
                + ("it was never planned" if known is None else "it was never processed, and ")
                + ("" if known is None else "its emitters decide in the tasks where it ends")
                + "; expected end={'planned': …, 'cut': …} with the position in each partition "
                "behind the records that cannot be processed",
                txid=self.txid,
            )
        given = checked_metadata(site, self.txid, self.end)
        if complete and site.repeatable and given != known:
            raise StateUsageError(
                f"txid {self.txid} of a transactional spout ends where it was planned to end; got "
                f"end={self.end!r:.200}; expected none, or {known}",
                txid=self.txid,
            )
        before = contents.batches.get(self.txid - 1)
        last = BEGINNING if before is None else metadata_from_json(self.txid - 1, before.metadata)
        return carried(last, given)

    def _begin(self, contents: JournalContents, claim: VerbClaim) -> None:
        batch = contents.batches.get(self.txid)
        attempt = batch and batch.attempt
        kept: dict[str, Json] = {
            "attempt": [attempt.epoch, attempt.attempt] if attempt else None,
            "metadata": batch.metadata if batch else None,
            "reason": self.reason,
        }
        if batch is not None and batch.content is not None:
            kept["content"] = batch.content
        begun = contents.operation
        since = claim.epoch if begun is None else begun["epoch"]
        steps = [note(self, self.txid, epoch=since)]
        if begun is None:
            steps.append(Put(batch_path(self.txid, QUARANTINE), kept))
        claim.write(*steps)

    def _commit(self, name: str, claim: VerbClaim) -> None:
        claim.commit(name, self.txid, Puts({}))

    def _end_it(self, end: BatchMetadata, claim: VerbClaim) -> None:
        claim.write(stored(claim.attempt(self.txid), end), Put(CURRENT, {"current": self.txid + 1}))
