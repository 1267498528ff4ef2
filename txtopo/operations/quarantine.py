"""The verb ``quarantine``, which takes out a batch that always fails.

The txid is committed as an empty batch: every ledger gets it, and rows that an earlier attempt
wrote are taken back. The next batch starts where this one ended. For a transactional spout the plan
contains that position. If emitters decide where a batch ends, the position was stored when the
batch was processed; if no attempt got that far, the operator must supply it. The attempt and
metadata of the batch are kept in ``/quarantine/<txid>``.

A group of txids that some state holds is written together or not at all, so none of them can be
taken out. It is committed first, or taken back with ``rewind``.

Order of the writes: the verb into ``/current`` together with ``/quarantine/<txid>``; the states,
those of one database in one transaction; in one write the new ``current``, the end of the batch,
and the removal of the verb.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from txtopo.attempt import txids_text
from txtopo.config import Config
from txtopo.ensemble.journal import JournalContents
from txtopo.ensemble.nodes import (
    CURRENT,
    QUARANTINE,
    attempt_to_json,
    batch_path,
    metadata_to_json,
)
from txtopo.ensemble.store import Put
from txtopo.errors import StateUsageError
from txtopo.metadata import BatchMetadata, Json
from txtopo.operations.plan import (
    Plan,
    VerbStep,
    VerbSteps,
    check_histories,
    check_unfinished,
    checked_metadata,
    in_states,
    make_plan,
    metadata_form,
    note_begun,
    put_metadata,
    with_stored_stamp,
    with_unnamed_partitions,
)
from txtopo.operations.program import SAME_PROGRAM
from txtopo.operations.session import Access, HeldTxids, OperatorSession, VerbClaim
from txtopo.state.backend import Puts
from txtopo.state.ledger import Ledger

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology


def quarantine(
    topology: Topology,
    txid: int,
    config: Config = Config(),
    *,
    end: Json = None,
    reason: str = "",
    access: Access = Access(),
) -> Plan:
    """Commit the batch that blocks a topology as an empty one, and keep its metadata.

    Args:
        topology: The topology, which must not run.
        txid: The lowest uncommitted txid: the one that ``PoisonBatchError`` names.
        config: As for ``start``.
        end: Where the batch ends, as ``{"spouts": {id: {"planned": …, "cut": …}}}``; needed when
            the emitters of a partitioned or opaque spout decide that and no attempt was processed.
            Partitions that it does not name skip nothing.
        reason: A text that is stored with the batch.
        access: How to reach ZooKeeper, if the ``Config`` is not enough.

    Raises:
        StateUsageError: The batch cannot be taken out; the message says why.
        TopologyChanged: It is another topology than the one that ran; nothing was written.
        CoordinatorActive: A coordinator leads; stop it first.
    """
    arguments: dict[str, Json] = {"txid": txid, "end": end, "reason": reason}
    return make_plan(_Quarantine(txid, end, reason, arguments), topology, config, access)


@dataclass(frozen=True, slots=True)
class _Quarantine:
    txid: int
    end: Json
    reason: str
    arguments: dict[str, Json]
    name: str = "quarantine"

    def objection(self, session: OperatorSession) -> str | None:
        return SAME_PROGRAM

    def look(self, session: OperatorSession) -> VerbSteps:
        contents = session.journal.read()
        begun = check_unfinished(self, contents)
        kept = session.state.get(batch_path(self.txid, QUARANTINE))
        if kept is not None and not begun and self.txid < contents.current:
            return VerbSteps()
        ledgers = session.sound_ledgers()
        check_histories(contents, ledgers)
        self._check_turn(contents, HeldTxids.of(ledgers.values()))
        for name, ledger in ledgers.items():
            self._check(session, contents, name, ledger)
        end = self._end(session, contents)
        commit = VerbStep(
            f"commit txid {self.txid} to {in_states(ledgers)} as an empty batch",
            partial(self._commit, ledgers),
        )
        return VerbSteps(
            [
                VerbStep(
                    f"note in {CURRENT} that txid {self.txid} is being removed, and keep what is "
                    f"known of it in {batch_path(self.txid, QUARANTINE)}",
                    partial(self._begin, contents),
                ),
                *([commit] if ledgers else []),
                VerbStep(
                    f"let txid {self.txid} end at {metadata_to_json(end)!r:.300}, continue at txid "
                    f"{self.txid + 1}",
                    partial(self._end_it, end),
                ),
            ],
            ledgers,
        )

    def _check_turn(self, contents: JournalContents, held: HeldTxids) -> None:
        current = contents.current
        pinned = held.high > current and held.fits and held.first == current
        if pinned and self.txid >= current:
            raise StateUsageError(
                f"txid {self.txid} cannot be removed: a state holds "
                f"{txids_text(current, held.high)}, which are written all together or not at all; "
                "start the topology until it has committed them; if they cannot be committed, "
                f"call rewind with txid {current - 1}, which takes them back, and start with "
                "Config(group_txids_max=1): their records are then planned again, and the "
                "failing batch can be removed by its new txid",
                txid=self.txid,
                current=current,
            )
        if self.txid != current:
            expected = (
                f"expected {current}, the lowest uncommitted one, because commits happen in order"
            )
            advice = "to undo a committed batch, use rewind"
            if self.txid > current:
                before = txids_text(current, self.txid - 1)
                advice = f"start the topology until it has committed {before}, then call this again"
            raise StateUsageError(
                f"txid {self.txid} cannot be removed; {expected}; {advice}",
                txid=self.txid,
                current=current,
            )

    def _check(
        self, session: OperatorSession, contents: JournalContents, name: str, ledger: Ledger | None
    ) -> None:
        held = 0 if ledger is None else ledger.txid
        alone = ledger is None or ledger.writer.first_txid == held
        if held not in (self.txid - 1, self.txid) or (held == self.txid and not alone):
            holds = txids_text(ledger.writer.first_txid, held) if ledger is not None else "none"
            raise StateUsageError(
                f"state {name!r} holds {holds}; expected {self.txid - 1} or {self.txid}; call "
                "verify, which shows what to do first",
                state=name,
            )
        since = (contents.operation or {}).get("epoch")
        ours = ledger is not None and isinstance(since, int) and ledger.writer_epoch >= since
        if held == self.txid and session.kind(name) == "transactional" and not ours:
            raise StateUsageError(
                f"state {name!r} already holds txid {self.txid} and is transactional: it keeps no "
                "earlier values, so it cannot undo the batch; fix what stops the other states "
                "and start the topology",
                state=name,
            )
        why = session.missing_undo(name) if held == self.txid and not ours else None
        if why is not None:
            raise StateUsageError(
                f"state {name!r} already holds txid {self.txid} and cannot undo it: {why}; fix "
                "what stops the other states and start the topology",
                state=name,
            )

    def _end(self, session: OperatorSession, contents: JournalContents) -> BatchMetadata:
        """Return the metadata with the end of the batch.

        Later batches need no new plan when the operator supplies the end: an opaque spout cuts them
        again anyway, and a partitioned spout has not cut them yet.
        """
        batch = contents.batches.get(self.txid)
        known = None if batch is None else session.metadata_of(self.txid, batch.metadata)
        complete = known is not None and known.is_cut(session.cutting)
        if self.end is None:
            if known is not None and complete:
                return known
            raise StateUsageError(
                f"it is unknown where txid {self.txid} ends; "
                + ("it was never planned" if known is None else "it was never processed, and ")
                + ("" if known is None else "its emitters decide in the tasks where it ends")
                + f"; expected end={metadata_form(session)} with the position in each partition "
                "after the records that cannot be processed",
                txid=self.txid,
            )
        given = checked_metadata(session, self.txid, self.end, given=True)
        given = with_stored_stamp(contents, self.txid, given)
        for spout in session.repeatable:
            if known is None or not complete:
                continue
            if (given.of(spout), given.stamp) != (known.of(spout), known.stamp):
                raise StateUsageError(
                    f"txid {self.txid} of a transactional spout, {spout!r}, ends where it was "
                    f"planned to end; got end={self.end!r:.200}; expected none, or "
                    f"{metadata_to_json(known)}",
                    txid=self.txid,
                )
        before = contents.batches.get(self.txid - 1)
        last = session.beginning
        if before is not None:
            last = session.metadata_of(self.txid - 1, before.metadata)
        return with_unnamed_partitions(last, given)

    def _begin(self, contents: JournalContents, claim: VerbClaim) -> None:
        batch = contents.batches.get(self.txid)
        attempt = batch and batch.attempt
        kept: dict[str, Json] = {
            "attempt": attempt_to_json(attempt) if attempt else None,
            "metadata": batch.metadata if batch else None,
            "reason": self.reason,
        }
        if batch is not None and batch.content is not None:
            kept["content"] = {**batch.content}
        begun = contents.operation
        since = claim.epoch if begun is None else begun["epoch"]
        steps = [note_begun(self, self.txid, epoch=since)]
        if begun is None:
            steps.append(Put(batch_path(self.txid, QUARANTINE), kept))
        claim.write(*steps)

    def _commit(self, states: Collection[str], claim: VerbClaim) -> None:
        claim.commit(claim.attempt(self.txid), states, lambda _: Puts({}))

    def _end_it(self, end: BatchMetadata, claim: VerbClaim) -> None:
        claim.write(
            put_metadata(claim.attempt(self.txid), end, self.name),
            Put(CURRENT, {"current": self.txid + 1}),
        )
