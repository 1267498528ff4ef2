"""The verbs ``rewind`` and ``rebuild``, which make states and source agree again.

``rewind`` takes both back to what they were after an earlier txid. Txids themselves never go back:
ledgers and readers rely on that. The last group of txids, [s..t], is written once more, as a group
that restores what the states held after the wanted txid. Txid *t* + 1 then starts where the wanted
one ended. So the records in between are read again, under new txids.

* To *s* - 1: an opaque state takes back what the group wrote, as it does in every redo.
* Further back: the store must still have its earlier values (Delta does, for ``history_txids``
  txids).
* Not to a txid within a group: no store has ever held that.

The last group need not be committed. If only some states hold it and the others cannot take it, it
is taken back in the same way, and becomes committed without effect.

ZooKeeper has the position of the source for ``Config.history_txids`` txids before the last one; for
others it must be supplied. Order of the writes: the verb into ``/current``; the states, those of
one database in one transaction; in one write the new end of *t*, the deletion of batches after *t*
and within its group, and the removal of the verb.

``rebuild`` adjusts ZooKeeper to the stores, whether it is behind or ahead of them. The ledgers show
which txids are committed, but have no metadata, so they do not show where the source was. The
metadata of that txid is taken from ZooKeeper if it is still there. Otherwise it must be supplied,
from an earlier ``show()`` or from the source; it is never guessed. A ledger names the ensemble that
its epochs come from. If that is a different one, because ZooKeeper was wiped or replaced, the state
is taken over, and the plan shows that. Order of the writes: the epoch in ZooKeeper; the epoch in
the ledgers; in one write ``current`` and the batches. Before that last write a coordinator refuses
to start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt, ranges_text, txids_text
from txtopo.config import Config
from txtopo.ensemble.journal import JournalContents
from txtopo.ensemble.nodes import (
    CURRENT,
    EPOCH,
    StoredBatch,
    batch_of,
    batch_path,
    ensemble_of,
    metadata_to_json,
    terms_of,
)
from txtopo.ensemble.published import published_after, what_is_published
from txtopo.ensemble.store import Node, Put
from txtopo.errors import (
    CorruptNodeError,
    ForeignStateError,
    PromiseError,
    StateUsageError,
    TwoHistoriesError,
)
from txtopo.metadata import BatchMetadata, Json
from txtopo.operations.plan import (
    Plan,
    VerbStep,
    VerbSteps,
    check_histories,
    check_unfinished,
    checked_metadata,
    delete_batches,
    in_states,
    make_plan,
    metadata_form,
    note_begun,
    put_metadata,
    with_stored_stamp,
)
from txtopo.operations.program import SAME_PROGRAM, known_topology
from txtopo.operations.session import Access, HeldTxids, OperatorSession, VerbClaim, holder
from txtopo.state.backend import Key, Puts, StateBackend, Values
from txtopo.state.ledger import RELEASED, Ledger
from txtopo.state.reconciliation import check_claimed_since, check_known, check_one_moment, compared
from txtopo.topology.changes import other_spouts
from txtopo.topology.graph import fingerprint

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
    """Take all states back to their contents after *txid*, and the source to its position then.

    Args:
        topology: The topology, which must not run.
        txid: The txid to go back to; 0 is before the first batch. It must not be within a group of
            txids that were committed together.
        config: As for ``start``.
        metadata: Position of the sources after *txid*, as
            ``{"spouts": {id: {"planned": …, "cut": …}}}``; needed when ZooKeeper no longer has it.
        access: How to reach ZooKeeper, if the ``Config`` is not enough.

    Raises:
        StateUsageError: A store did not keep enough, or the position of the source is not known;
            nothing was written.
        TopologyChanged: It is another topology than the one that ran; nothing was written.
        CoordinatorActive: A coordinator leads; stop it first.
    """
    arguments: dict[str, Json] = {"txid": txid, "metadata": metadata}
    return make_plan(_Rewind(txid, metadata, arguments), topology, config, access)


def rebuild(
    topology: Topology,
    config: Config = Config(),
    *,
    metadata: Mapping[int, Json] | None = None,
    access: Access = Access(),
) -> Plan:
    """Set ``current`` and the source's position according to the ledgers of the states.

    Args:
        topology: The topology, which must not run. It may be a new one, with states that another
            topology has released (``forget``); its txids continue from theirs.
        config: As for ``start``.
        metadata: Metadata by txid, as ``{"spouts": {id: {"planned": …, "cut": …}}}``: the metadata
            of the txid that all states hold, and of each later txid that some state holds if the
            spout is transactional. ``{"absent": None, "cut": {}}`` is the start of a source.
        access: How to reach ZooKeeper, if the ``Config`` is not enough.

    Raises:
        StateUsageError: The position of the source is not known; nothing was written.
        PromiseError: The ledgers contradict each other, or it is another topology than the one
            that ran, with a state that holds a txid; nothing was written.
        CoordinatorActive: A coordinator leads; stop it first.
    """
    given = dict(metadata or {})
    arguments: dict[str, Json] = {"metadata": {str(txid): given[txid] for txid in sorted(given)}}
    return make_plan(_Rebuild(given, arguments), topology, config, access)


@dataclass(frozen=True, slots=True)
class _Rewind:
    txid: int
    metadata: Json
    arguments: dict[str, Json]
    name: str = "rewind"

    def objection(self, session: OperatorSession) -> str | None:
        return SAME_PROGRAM

    def look(self, session: OperatorSession) -> VerbSteps:
        contents = session.journal.read()
        check_unfinished(self, contents)
        ledgers = session.sound_ledgers()
        check_histories(contents, ledgers)
        groups = _last_groups(contents, ledgers)
        first, last = min(groups.values(), default=(contents.current - 1,) * 2)
        if not 0 <= self.txid < first:
            raise self._not_there(contents, first, last)
        reasons = [
            reason
            for name, ledger in ledgers.items()
            if (reason := self._reason(session, contents, name, ledger, groups[name])) is not None
        ]
        if reasons:
            raise StateUsageError(
                f"cannot rewind to txid {self.txid}; {'; '.join(reasons)}; restore the stores from "
                "a backup of that txid, then call rebuild",
                txid=self.txid,
            )
        end = self._position(session, contents)
        undo = self.txid == first - 1
        how = (
            f"undo {txids_text(first, last)} in"
            if undo
            else f"write what txid {self.txid} left into"
        )
        restore = VerbStep(f"{how} {in_states(groups)}", partial(self._restore, groups))
        return VerbSteps(
            [
                VerbStep(
                    f"note in {CURRENT} that the states are being rewound",
                    lambda claim: claim.write(note_begun(self, contents.current)),
                ),
                *([restore] if groups else []),
                VerbStep(
                    f"let txid {last} end where txid {self.txid} ended, at "
                    f"{metadata_to_json(end)!r:.300}, "
                    f"and plan again from txid {last + 1} on"
                    f"{what_is_published(session.state, self.txid)}",
                    partial(self._finish, contents, (first, last), end),
                ),
            ],
            ledgers,
        )

    def _not_there(self, contents: JournalContents, first: int, last: int) -> StateUsageError:
        if first <= self.txid < last:
            why = f"{txids_text(first, last)} are written together, as one group"
        else:
            why = f"the last committed one is {contents.current - 1}"
        expected = f"one from 0 to {first - 1}" if last else "a topology that has committed some"
        return StateUsageError(
            f"cannot rewind to txid {self.txid}; {why}; expected {expected}",
            txid=self.txid,
            committed_txid=contents.current - 1,
        )

    def _reason(
        self,
        session: OperatorSession,
        contents: JournalContents,
        name: str,
        ledger: Ledger | None,
        group: tuple[int, int],
    ) -> str | None:
        """Return why a state cannot be taken back; None if it can."""
        held = 0 if ledger is None else ledger.txid
        first, last = group
        if held != last and (last < contents.current or held != first - 1):
            return (
                f"state {name!r} holds txid {held}, not {last}; start the topology until it has "
                "settled, or call verify"
            )
        if session.kind(name) == "transactional":
            return f"state {name!r} is transactional and keeps no earlier values"
        if held == last and (why := session.missing_undo(name)) is not None:
            return f"state {name!r} cannot undo what it holds: {why}"
        if self.txid == first - 1:
            return None
        try:
            with session.backends[name].snapshot_of(self.txid):
                return None
        except StateUsageError as error:
            return f"state {name!r} keeps txid {first - 1} only: {error}"

    def _position(self, session: OperatorSession, contents: JournalContents) -> BatchMetadata:
        if self.metadata is not None:
            given = checked_metadata(session, self.txid, self.metadata, given=True)
            return with_stored_stamp(contents, self.txid, given)
        if self.txid == 0:
            return session.beginning
        batch = contents.batches.get(self.txid)
        if batch is None:
            raise StateUsageError(
                f"the position of the source after txid {self.txid} is unknown; ZooKeeper has the "
                f"metadata of {ranges_text(contents.batches)}; expected "
                f"metadata={metadata_form(session)}; Config.history_txids says how many are kept "
                "from now on",
                txid=self.txid,
            )
        return checked_metadata(session, self.txid, batch.metadata)

    def _restore(self, groups: Mapping[str, tuple[int, int]], claim: VerbClaim) -> None:
        for first, last in sorted(set(groups.values())):
            states = [name for name, group in groups.items() if group == (first, last)]
            writes = partial(self._writes, claim.session, (first, last))
            claim.commit(claim.attempt(last, first), states, writes)

    def _writes(self, session: OperatorSession, group: tuple[int, int], name: str) -> Puts:
        first, last = group
        undo = self.txid == first - 1
        return Puts({} if undo else self._differences(session.backends[name], last))

    def _differences(self, backend: StateBackend, last: int) -> dict[Key, Values | None]:
        """Return the writes that turn the state before *last* into the wanted one."""
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

    def _finish(
        self,
        contents: JournalContents,
        group: tuple[int, int],
        end: BatchMetadata,
        claim: VerbClaim,
    ) -> None:
        first, last = group
        claim.write(
            put_metadata(claim.attempt(last), end, self.name),
            *delete_batches(txid for txid in contents.batches if txid >= first and txid != last),
            Put(CURRENT, {"current": last + 1}),
        )


def _last_groups(
    contents: JournalContents, ledgers: Mapping[str, Ledger | None]
) -> dict[str, tuple[int, int]]:
    """Return first and last txid that each state takes back; see the docstring of this module."""
    current, held = contents.current, HeldTxids.of(ledgers.values())
    if held.high >= current and held.fits and held.first == current:
        return dict.fromkeys(ledgers, (current, held.high))
    last = current - 1
    return {
        name: (last if each is None or each.txid != last else each.writer.first_txid, last)
        for name, each in ledgers.items()
    }


@dataclass(frozen=True, slots=True)
class _Rebuild:
    given: dict[int, Json]
    arguments: dict[str, Json]
    name: str = "rebuild"

    def objection(self, session: OperatorSession) -> str | None:
        """Return what prevents another topology from beginning again with empty states."""
        known = known_topology(session)
        if known is not None and (why := other_spouts(known, fingerprint(session.graph))):
            return f"{why}; to begin again with other spouts, give the topology another id"
        ledgers = session.ledgers()
        held = {name: each.txid for name, each in ledgers.items() if each is not None}
        if ledgers and not any(held.values()):
            return None
        return (
            "rebuild accepts a different program only to begin again, with each of its states in "
            f"a new table; its states hold {held}; {SAME_PROGRAM}"
        )

    def look(self, session: OperatorSession) -> VerbSteps:
        contents = session.contents()
        check_unfinished(self, contents)
        ledgers = session.sound_ledgers(every_row=True)
        held = _held(session, ledgers)
        if _fits(session, contents, ledgers):
            return VerbSteps()
        check_one_moment(ledgers)
        current, writer = held.low + 1, _writer(ledgers, held.low)
        writers = {txid: _writers(ledgers, txid) for txid in range(held.low, held.high + 1)}
        batches = self._batches(session, contents, held, writers)
        with_metadata = ", ".join(
            f"txid {txid}: {metadata_to_json(each)!r:.300}" for txid, each in batches.items()
        )
        work = f"set {CURRENT} from {contents.current} to {current}, with the metadata of " + (
            with_metadata or "no txid"
        )
        taken = "".join(
            f"; state {name!r} is taken over from {holder(each)}"
            for name, each in ledgers.items()
            if each is not None and not session.may_claim(name, each)
        )
        published = what_is_published(session.state, held.low)
        write = partial(_write, contents, writer, batches)
        step = VerbStep(f"{work}; drop all other batches{taken}{published}", write)
        return VerbSteps([step], ledgers, takes_over=True, lifts=True)

    def _batches(
        self,
        session: OperatorSession,
        contents: JournalContents,
        held: HeldTxids,
        writers: Mapping[int, Collection[TransactionAttempt]],
    ) -> dict[int, BatchMetadata]:
        batches: dict[int, BatchMetadata] = {}
        if held.low:
            batches[held.low] = self._known(session, contents, held.low, writers[held.low])
        before = batches.get(held.low, session.beginning)
        for txid in range(held.low + 1, held.high + 1):
            if session.repeatable:
                batches[txid] = self._known(session, contents, txid, writers[txid])
                if session.graph.asks and batches[txid].stamp is None:
                    raise StateUsageError(
                        f"txid {txid}, which some states hold, is to be done again as it was, and "
                        "its metadata has no 'stamp'; expected "
                        f"{metadata_form(session)}, from an earlier show()",
                        txid=txid,
                    )
            else:
                # It is undone and cut again. Its plan is only the number of partitions, and a
                # limit.
                plan = replace(before.cut_again(), stamp=None)
                plan = with_stored_stamp(contents, txid, plan)
                batches[txid] = replace(plan, stamp=plan.stamp or before.stamp)
        return batches

    def _known(
        self,
        session: OperatorSession,
        contents: JournalContents,
        txid: int,
        writers: Collection[TransactionAttempt],
    ) -> BatchMetadata:
        """Return the metadata of a txid, as given or as a writer of the txid stored it."""
        if txid in self.given:
            _check_attempt(txid, self.given[txid], writers)
            given = checked_metadata(session, txid, self.given[txid], given=True)
            return with_stored_stamp(contents, txid, given)
        batch = contents.batches.get(txid)
        if batch is not None and (not writers or batch.attempt in writers):
            return checked_metadata(session, txid, batch.metadata)
        other = ""
        if batch is not None:
            wrote = ", ".join(f"{each} of term {each.term!r}" for each in writers)
            other = (
                f"; that of txid {txid} is of attempt {batch.attempt} of term "
                f"{batch.attempt.term!r}, and the states hold {wrote}"
            )
        raise StateUsageError(
            f"the position of the source after txid {txid}, which the states hold, is unknown; "
            f"ZooKeeper has the metadata of {ranges_text(contents.batches)}{other}; expected "
            f"metadata={{{txid}: {metadata_form(session)}}}, from an earlier show(), or from what "
            "the source shows",
            txid=txid,
        )


def _check_attempt(txid: int, given: Json, writers: Collection[TransactionAttempt]) -> None:
    """Check that the node of a batch is from an attempt that states hold.

    Metadata alone does not name its attempt; then the operator is trusted.
    """
    if not isinstance(given, dict) or "attempt" not in given or not writers:
        return
    try:
        attempt = batch_of(batch_path(txid), txid, Node(given, 0)).attempt
    except CorruptNodeError:
        return  # the caller reports what is wrong with it
    if attempt not in writers:
        wrote = ", ".join(f"{each} of term {each.term!r}" for each in writers)
        raise StateUsageError(
            f"metadata of txid {txid} belongs to another attempt; got that of {attempt} of term "
            f"{attempt.term!r}; expected that of {wrote}, which the states hold: another attempt "
            "may have ended elsewhere; give that of an earlier show(), or as you know it from "
            "the source, without 'attempt'",
            txid=txid,
        )


def _held(session: OperatorSession, ledgers: Mapping[str, Ledger | None]) -> HeldTxids:
    """Return the txids that the ledgers hold, if a coordinator could continue from there."""
    for name, ledger in ledgers.items():
        if ledger is None or ledger.topology == RELEASED:
            continue
        other = ledger.owner != session.owners[name] and ledger.owner in session.owners.values()
        if ledger.topology != session.graph.id or other:
            raise ForeignStateError(
                f"state {name!r} belongs to {ledger.owner}; got {session.owners[name]}; release it "
                "with forget of that topology, or use another table",
                state=name,
                owner=ledger.topology,
            )
    if not ledgers:
        raise StateUsageError(
            f"topology {session.graph.id!r} has no state, so no ledger shows what is committed; "
            "expected at least one; restore single nodes with repair_node",
            topology=session.graph.id,
        )
    held = HeldTxids.of(ledgers.values())
    if not held.fits:
        txids = {name: 0 if ledger is None else ledger.txid for name, ledger in ledgers.items()}
        raise StateUsageError(
            f"the states are too far apart; they hold {txids}; expected txids that differ by at "
            "most one, or by one group that was written together; restore those behind from a "
            "newer backup, or all of them from backups of the same moment",
            held=txids,
        )
    return held


def _fits(
    session: OperatorSession, contents: JournalContents, ledgers: Mapping[str, Ledger | None]
) -> bool:
    """Return whether a coordinator could start now."""
    mine = {name: each or Ledger(session.graph.id, 0) for name, each in ledgers.items()}
    if not all(session.may_claim(name, ledger) for name, ledger in mine.items()):
        return False
    begins = contents.current == 1 or contents.current - 1 in contents.batches
    stored = {txid: batch.attempt for txid, batch in contents.batches.items()}
    node = session.state.get(EPOCH)
    try:
        check_known(ledgers, session.graph.id, ensemble_of(node), terms_of(node))
        check_claimed_since(ledgers, contents.current, stored)
        found = compared(mine, contents.current, stored)
        session.check_ends(contents.batches, contents.current, found)
    except PromiseError:
        return False
    return begins


def _writers(ledgers: Mapping[str, Ledger | None], txid: int) -> set[TransactionAttempt]:
    """Return the attempts at a txid that states hold, by their ledgers."""
    found = set()
    for ledger in ledgers.values():
        if ledger is None or ledger.is_empty:
            continue
        at, last = txid - ledger.writer.first_txid, ledger.last_writer
        if last.epoch and 0 <= at < len(ledger.attempts):
            found.add(replace(last, txid=txid, attempt=ledger.attempts[at]))
    return found


def _writer(ledgers: Mapping[str, Ledger | None], txid: int) -> TransactionAttempt:
    """Return the attempt from which states hold a txid, if it is their last one.

    Raises:
        TwoHistoriesError: They hold it from several attempts.
    """
    there = {name: each for name, each in ledgers.items() if each is not None and each.txid == txid}
    found = {name: each.last_writer for name, each in there.items() if not each.is_empty}
    writers = {each for each in found.values() if each.epoch}
    if len(writers) > 1:
        shown = "; ".join(
            f"{name!r} from {each} of term {each.term!r}" for name, each in found.items()
        )
        raise TwoHistoriesError(
            f"the states hold txid {txid} from several attempts, whose batches may differ: "
            f"{shown}; expected one attempt; restore them from backups of the same moment",
            txid=txid,
        )
    # No ledger holds attempt 0 of epoch 0.
    return writers.pop() if writers else TransactionAttempt(txid, 0, 0)


def _write(
    contents: JournalContents,
    writer: TransactionAttempt,
    batches: Mapping[int, BatchMetadata],
    claim: VerbClaim,
) -> None:
    # If a state already has a later txid, it is redone, since no ledger holds attempt 0 of epoch 0.
    attempts = {txid: TransactionAttempt(txid, 0, 0) for txid in batches} | {writer.txid: writer}
    claim.write(
        Put(CURRENT, {"current": writer.txid + 1}),
        *(
            put_metadata(attempts[txid], each, verb=_verb_of(contents.batches.get(txid)))
            for txid, each in batches.items()
        ),
        *delete_batches(txid for txid in contents.batches if txid not in batches),
        # Their txids are used again, for other rows.
        *(each.put_back(writer.txid) for each in published_after(claim.session.state, writer.txid)),
    )


def _verb_of(batch: StoredBatch | None) -> str | None:
    return None if batch is None else batch.verb
