"""Reconciliation: what the ledgers of all states and ZooKeeper together show about the past.

A write to a state compares the attempt with one ledger (:mod:`txtopo.state.ledger`). A new
coordinator, and the commands of operators, compare all ledgers with each other and with what
ZooKeeper knows as planned and committed. Nothing is read or written here.

Adoption
--------
A crash between the writes to the stores and the advance in ZooKeeper leaves a group that the stores
hold, but that ZooKeeper does not record as committed.

1. A new coordinator adopts it, see :func:`compared`, only if every ledger holds it from the same
   attempts, and the stored metadata of each member is from the same attempt: the batch of another
   attempt may end elsewhere, and continuing from there would count records twice.
2. Otherwise the same group is undone and redone.

Every ledger is read after its claim, so that the predecessor can no longer write.

A past that was restored
------------------------
If ZooKeeper or a store is restored from a backup, an epoch may have two terms, which are two
histories, see "One epoch, two terms" in :mod:`txtopo.state.ledger`.

1. If a ledger names an epoch that ZooKeeper does not have, or has under another term, nothing is
   claimed, see :func:`check_known`. If refused starts claimed epochs, a later start would reach
   that epoch and be let in.
2. The attempt that wrote ``current`` - 1 is the one whose metadata is stored, see
   :func:`check_timeline`. The number of the txid alone does not show that.
3. The stored metadata of a txid that a state holds, and that is not committed, is of the attempt
   that the state holds, or of a later one.
4. A state that holds such a txid was claimed by the epoch that stored its metadata, see
   :func:`check_claimed_since`.
5. Where ZooKeeper proves nothing, the ledgers must be from the same moment, see
   :func:`check_one_moment`: a state that lacks what another state holds was claimed by the epoch
   that wrote it.

A state that comes back
-----------------------
The ledger of a state that is added may already hold a txid: the state was removed earlier.

1. The state may continue only if it has missed nothing: it holds ``current`` - 1 from the attempt
   that was committed, or a txid that is redone anyway. The number of the txid alone does not show
   that: a deposed coordinator may have written it, or the state was removed while some states held
   a batch and others did not.
2. If the other states hold a group that is not committed, it is not adopted, since the added state
   lacks it. All states redo it with the same bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from txtopo.attempt import TransactionAttempt, group_of, txids_text
from txtopo.errors import StoreAheadOfCoordinator, StoreBehindCoordinator, TwoHistoriesError
from txtopo.state.ledger import SET_BACK, Ledger, may_be_one


@dataclass(frozen=True, slots=True)
class Compared:
    """What the ledgers show about the txids from ``current`` on.

    Attributes:
        adopted: The last txid of the group that is already committed; None if there is no such
            group.
        pinned: The last txid of the group that some state holds, and that is redone as it is; None
            for none.
    """

    adopted: int | None = None
    pinned: int | None = None


def compared(
    ledgers: Mapping[str, Ledger],
    current: int,
    stored: Mapping[int, TransactionAttempt],
    urls: Mapping[str, str] | None = None,
    added: Collection[str] = (),
) -> Compared:
    """Decide whether a group that begins with *current* is already committed or must be redone.

    Args:
        ledgers: The ledgers by name of their state, read after their claim; may be empty.
        current: The lowest txid that ZooKeeper does not record as committed.
        stored: The attempt of the metadata that ZooKeeper holds for each txid from *current* - 1
            on.
        urls: The URLs of the stores by name of their state, without passwords, for messages.
        added: Names of the states that were added and to which no txid was written since.

    Raises:
        StoreBehindCoordinator: A store lacks txids that were committed.
        StoreAheadOfCoordinator: A store holds txids that ZooKeeper cannot explain.
    """
    last = max((each.txid for each in ledgers.values()), default=0)
    for name in added:
        _check_nothing_missed(name, ledgers[name], current, stored)
    for name, ledger in ledgers.items():
        _check(name, ledger, current, last, stored, (urls or {}).get(name, "its URL"))
    if last < current:
        return Compared()
    members = [stored[txid] for txid in range(current, last + 1)]
    of_one_term = len({(each.epoch, each.term) for each in members}) == 1
    if of_one_term and all(each.writer == group_of(members) for each in ledgers.values()):
        return Compared(adopted=last)
    return Compared(pinned=last)


def _check(
    name: str,
    ledger: Ledger,
    current: int,
    last: int,
    stored: Mapping[int, TransactionAttempt],
    url: str,
) -> None:
    if ledger.txid < current - 1:
        raise StoreBehindCoordinator(
            f"state {name!r} holds txid {ledger.txid}, but in ZooKeeper txid {current - 1} is the "
            f"last committed one; expected the same; {_cause(ledger.txid, url)}",
            state=name,
            ledger_txid=ledger.txid,
            committed_txid=current - 1,
        )
    committed = stored.get(current - 1)
    if committed is not None:
        check_timeline(name, ledger, committed)
    if ledger.txid < current:
        return
    # Metadata is durable before the commit of its txid starts. So if a store holds a txid for which
    # ZooKeeper has no metadata, the txid was written in another history. The same is true of a
    # group that begins or ends elsewhere, since a group keeps its bounds until it is committed.
    missing = [txid for txid in range(current, ledger.txid + 1) if txid not in stored]
    if missing or ledger.txid != last or ledger.writer.first_txid != current:
        of = txids_text(ledger.writer.first_txid, ledger.txid)
        nothing = f"nothing of txid {missing[0]}" if missing else f"the metadata of txid {current}"
        raise StoreAheadOfCoordinator(
            f"state {name!r} holds {of}, but in ZooKeeper txid {current - 1} is the last "
            f"committed one, and it has {nothing}; was ZooKeeper's data wiped, or is this another "
            "ensemble? use the right one, or call txtopo.operations.rebuild, which adjusts "
            "ZooKeeper to the states",
            state=name,
            ledger_txid=ledger.txid,
            committed_txid=current - 1,
        )
    _check_stored_since(name, ledger, stored)


def _check_stored_since(
    name: str, ledger: Ledger, stored: Mapping[int, TransactionAttempt]
) -> None:
    """Check that the stored metadata is of the attempts that a state holds, or of later ones.

    The metadata of an attempt is durable before the attempt is committed. Only a later attempt
    replaces it, or an operator, who writes epoch 0.
    """
    writer = ledger.writer
    for txid, number in zip(
        range(writer.first_txid, writer.txid + 1), writer.attempts, strict=True
    ):
        member = TransactionAttempt(txid, number, writer.epoch, term=writer.term)
        there = stored[txid]
        if there.epoch and writer.epoch and there < member:
            raise StoreAheadOfCoordinator(
                f"state {name!r} holds txid {txid} from attempt {member}, but the metadata that "
                f"ZooKeeper has of it is of {there}, which is earlier; expected that of the "
                f"attempt, or of a later one; {SET_BACK}",
                state=name,
                ledger_txid=ledger.txid,
            )


def check_claimed_since(
    ledgers: Mapping[str, Ledger | None], current: int, stored: Mapping[int, TransactionAttempt]
) -> None:
    """Check that no state which holds an uncommitted txid was restored from a backup.

    A coordinator claims every state before it stores metadata. So if a state holds a txid whose
    metadata was stored by a later epoch than the state's claim, the state is from an earlier time,
    perhaps from another history. A redo would restore what that history had before the txid.

    Args:
        ledgers: The ledgers by name of their state, as they were before the claim.
        current: The lowest txid that ZooKeeper does not know as committed.
        stored: The attempts of the stored metadata, by txid.

    Raises:
        StoreBehindCoordinator: A store was restored from a backup.
    """
    for name, ledger in ledgers.items():
        if ledger is None or ledger.is_empty:
            continue
        there = [stored[txid] for txid in range(current, ledger.txid + 1) if txid in stored]
        last = max((each.epoch for each in there), default=0)
        if ledger.epoch < last:
            raise StoreBehindCoordinator(
                f"state {name!r} was claimed by epoch {ledger.epoch} last, and holds txid "
                f"{ledger.txid}, which epoch {last} has planned in ZooKeeper since; expected a "
                "state that this epoch has claimed, as it does before it plans; was the store "
                "restored from a backup? restore the newer data, or call "
                "txtopo.operations.rebuild, which adjusts ZooKeeper to the states",
                state=name,
                ledger_txid=ledger.txid,
                committed_txid=current - 1,
            )


def check_one_moment(ledgers: Mapping[str, Ledger | None]) -> None:
    """Check from the ledgers alone that states which differ by a group are from the same moment.

    If a state holds the group, a redo takes it back to what it held before. Its ledger does not
    record which attempt that was. But a coordinator claims every state before it writes to one. So
    a state that lacks the group was claimed by the epoch that wrote it, or by a later one, and
    holds nothing of a later epoch. Otherwise it is from another moment, perhaps from another
    history.

    Args:
        ledgers: The ledgers by name of their state.

    Raises:
        TwoHistoriesError: One was restored from a backup without the others.
    """
    held = {name: each for name, each in ledgers.items() if each is not None and each.txid}
    last = max((each.txid for each in held.values()), default=0)
    for ahead, ledger in held.items():
        wrote = ledger.last_writer
        if ledger.txid < last or not wrote.epoch:
            continue
        for behind, other in held.items():
            # Before the first txid all histories are the same.
            if other.txid < last and not _fits(other, wrote):
                raise TwoHistoriesError(
                    f"state {ahead!r} holds txid {last} from attempt {wrote} of term "
                    f"{wrote.term!r}, and state {behind!r} holds txid {other.txid} from attempt "
                    f"{other.last_writer} and was claimed by epoch {other.epoch} of term "
                    f"{other.term!r} last; expected a claim by the epoch that wrote txid {last}, "
                    "or by a later one, and nothing that a later one wrote, since all states are "
                    "claimed before one is written; was one of them restored from a backup? "
                    "restore them from backups of the same moment",
                    state=behind,
                    attempt=wrote,
                    holder=other.last_writer,
                )


def _fits(ledger: Ledger, wrote: TransactionAttempt) -> bool:
    """Return whether a state that lacks *wrote* can belong to the same history.

    Then the epoch of *wrote*, or a later one, has claimed it, and no later epoch has written to it.
    """
    writer = ledger.last_writer
    claimed_since = ledger.epoch == wrote.epoch and may_be_one(ledger.term, wrote.term)
    before = writer.epoch == wrote.epoch and may_be_one(writer.term, wrote.term)
    return (claimed_since or ledger.epoch > wrote.epoch) and (before or writer.epoch < wrote.epoch)


def check_timeline(name: str, ledger: Ledger, committed: TransactionAttempt) -> None:
    """Check that a state holds the committed txid itself, not the same txid of another history.

    A state to which nothing was written, and a store that has lost the writer of its txid, have
    nothing to compare.

    Raises:
        TwoHistoriesError: It holds something else.
    """
    writer = ledger.last_writer
    if ledger.is_empty or not writer.epoch or writer == committed:
        return
    # Whatever follows a commit is from its term, or from a later epoch.
    if writer.txid > committed.txid:
        if (writer.epoch, writer.term) == (committed.epoch, committed.term):
            return
        if writer.epoch > committed.epoch:
            return
    raise TwoHistoriesError(
        f"state {name!r} holds txid {writer.txid} from attempt {writer} of term {writer.term!r}, "
        f"but ZooKeeper says that txid {committed.txid} was committed by attempt {committed} of "
        f"term {committed.term!r}; expected what was committed, or what came after it; was the "
        "store restored from a backup, from before a rebuild or a rewind? restore the newer "
        "data, or call txtopo.operations.rebuild, which adjusts ZooKeeper to the states",
        state=name,
        attempt=committed,
        holder=writer,
    )


def check_known(
    ledgers: Mapping[str, Ledger | None], topology: str, ensemble: str, terms: Mapping[int, str]
) -> None:
    """Check that ZooKeeper has the epochs that ledgers name, before another one is claimed.

    Each epoch is claimed in ZooKeeper before a ledger names it. So a ledger with an epoch above
    ZooKeeper's, or with one of another term, proves that ZooKeeper was reverted to an earlier
    state.

    Args:
        ledgers: The ledgers by name of their state, read *before* ZooKeeper: a successor may claim
            a ledger at any time, after an epoch in ZooKeeper.
        topology: Id of the topology.
        ensemble: Token of the ensemble; empty if it has none yet.
        terms: The term ids that ZooKeeper has, by epoch.

    Raises:
        StoreAheadOfCoordinator: ZooKeeper does not have an epoch. Nothing may be claimed: after
            enough starts, the count would reach that epoch.
    """
    newest = max(terms, default=0)
    for name, ledger in ledgers.items():
        # A released state has the epochs of its former owner.
        if ledger is None or ledger.topology != topology or ledger.ensemble != ensemble:
            continue
        if _is_known(ledger, terms):
            continue
        known = terms.get(ledger.epoch)
        knows = f"epoch {newest} is the newest" if known is None else f"that epoch of {known!r}"
        raise StoreAheadOfCoordinator(
            f"state {name!r} was claimed by epoch {ledger.epoch} of term {ledger.term!r}, up to "
            f"txid {ledger.txid}, which ZooKeeper does not know; it knows {knows}; expected each "
            "epoch of a ledger in ZooKeeper; nothing was claimed; was ZooKeeper's data wiped, or "
            "set back to an earlier state, or is this another ensemble? use the right one, or "
            "call txtopo.operations.rebuild, which fits ZooKeeper to the states",
            state=name,
            ledger_txid=ledger.txid,
        )


def _is_known(ledger: Ledger, terms: Mapping[int, str]) -> bool:
    """Return whether ZooKeeper has the epoch of a ledger, under the same term."""
    newest, oldest = max(terms, default=0), min(terms, default=0)
    # Terms before the oldest one are not kept, and a store may have lost the term of its ledger.
    if ledger.epoch < oldest:
        return True
    return ledger.epoch <= newest and ledger.term in ("", terms.get(ledger.epoch))


def _check_nothing_missed(
    name: str, ledger: Ledger, current: int, stored: Mapping[int, TransactionAttempt]
) -> None:
    """Check that a state that is added again holds what was committed while it was removed."""
    committed = stored.get(current - 1)
    writer = ledger.last_writer
    same = ledger.is_empty or writer == committed
    if ledger.txid >= current or (ledger.txid == current - 1 and same):
        return
    raise StoreBehindCoordinator(
        f"state {name!r} was removed from the topology and comes back with what it held then: "
        f"txid {ledger.txid} of {writer}; ZooKeeper says that txid {current - 1} is committed, of "
        f"{committed}; expected a state that has missed nothing; to start it over, empty, with "
        f"txid {current}, drop its table and its ledger, or give it another table; to have all "
        "batches in it, call txtopo.operations.rebuild with another table for each state",
        state=name,
        ledger_txid=ledger.txid,
        committed_txid=current - 1,
    )


def _cause(txid: int, url: str) -> str:
    """Return why a state may be behind, and what to do."""
    if txid:
        return (
            "was the store restored from a backup, or its table dropped? restore the newer data, "
            f"or call txtopo.operations.rebuild, which takes ZooKeeper back to txid {txid}, and "
            "the source with it"
        )
    if url.startswith("memory:"):
        return (
            "a store in memory is lost with its process; use a store that lasts, or "
            "zookeeper='memory' as well; to start over, delete the progress: "
            "txtopo.operations.forget"
        )
    return (
        f"the store at {url} contains nothing of this topology; was the URL changed, or the table "
        "dropped? use the store where the state was, or copy its table and ledger from there "
        "with the store's own tools; or, to start it over, empty, start once without the state "
        "and once with it, each with Config(allow_change=True); or, to begin again with the "
        "first record of the source, give the topology another id and the state another table, "
        "or call txtopo.operations.rebuild(topology, config).apply()"
    )
