"""The ledger: which (epoch, txid, attempt) a state holds, whose it is, and which epoch may write.

Every write to a state happens in one store transaction that reads the ledger, asks
:func:`standing` what the attempt may do, and writes the ledger together with the data.

Rules
-----
1. *The fence.* Only the epoch that claimed the state last may write, and no earlier epoch can claim
   it any longer. So a deposed coordinator changes nothing.
2. *The order.* A txid may be written only if the state holds the previous txid. So commits leave no
   gap and never step back.
3. *The redo.* A later attempt of the txid that the state holds replaces the earlier one. An earlier
   attempt is refused, and the one that the state holds changes nothing.
4. A claim changes neither the txid that a state holds nor the attempt that wrote it.

Two coordinators that know nothing of each other
------------------------------------------------
An attempt is identified by (epoch, txid, attempt), and each of these is counted from 0 or 1. Two
coordinators that count independently arrive at the same numbers, and each would take the other's
writes for its own. So the ledger also names its owner, and the ensemble that its epochs come from.

1. The *owner* is topology, component and name of the state. Two URLs may lead to one table (another
   host name, an additional parameter, a symbolic link), and comparing the URLs does not show that.
   The ledger refuses the second state: the first claim decides.
2. The *ensemble* is a token that is drawn once for the nodes of a topology and kept in ZooKeeper
   next to the epoch. A different token means that a different ZooKeeper counts the epochs. A claim
   with it is refused, unless the state holds no txid yet: then nothing can be lost, so the claim
   takes the state over, and the earlier claimant is refused from then on.
3. A commit is checked against both, since another claim may have taken the state over meanwhile.
4. A claim that takes a state over on purpose names the ledger that it replaces. If the ledger has
   another owner or ensemble in the meantime, the claim is refused.

Groups
------
A group of txids [t..L] is written like one txid L: its rows are tagged L, and their previous values
are the values before t.

1. The ledger keeps t and the attempt numbers of all members.
2. A redo has the same bounds. With other bounds it would undo other txids than it does again, so it
   is refused.

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
If ZooKeeper or a store is restored from a backup, numbers are used a second time: a new coordinator
claims an epoch that an earlier one had, and numbers its attempts in the same way. So each epoch has
a random *term id*, which is drawn when ZooKeeper is claimed, and is part of the identity of an
attempt. Two terms of one epoch are two histories.

1. Claims and attempts of the ledger's epoch but of another term are refused. A state holds an
   attempt only if its term is the same.
2. If a ledger names an epoch that ZooKeeper does not have, or has under another term, nothing is
   claimed, see :func:`check_known`. If refused starts claimed epochs, a later start would reach
   that epoch and be let in.
3. The attempt that wrote ``current`` - 1 is the one whose metadata is stored, see
   :func:`check_timeline`. The number of the txid alone does not show that.
4. The stored metadata of a txid that a state holds, and that is not committed, is of the attempt
   that the state holds, or of a later one.
5. A state that holds such a txid was claimed by the epoch that stored its metadata, see
   :func:`check_claimed_since`.
6. Where ZooKeeper proves nothing, the ledgers must be from the same moment, see
   :func:`check_one_moment`: a state that lacks what another state holds was claimed by the epoch
   that wrote it.

A state that is added, or that comes back
-----------------------------------------
A state that is added to a topology that has run begins at ``current`` - 1: it holds nothing, and
takes the next txid like any other state. Only a note in ZooKeeper (``/current``, see
:mod:`txtopo.ensemble.nodes`) allows that. Without it an empty ledger is a lost table.

1. Its claim has :attr:`Claim.begins`, and writes that txid into an empty ledger. The txid has no
   writer and no attempts, since the state has no data of it. So the ledger still counts as empty,
   and a later claim may write a later txid.
2. A ledger that already holds a txid belongs to a state that was removed earlier. The state may
   continue only if it has missed nothing: it holds ``current`` - 1 from the attempt that was
   committed, or a txid that is redone anyway. The number of the txid alone does not show that: a
   deposed coordinator may have written it, or the state was removed while some states held a batch
   and others did not.
3. If the other states hold a group that is not committed, it is not adopted, since the new state
   lacks it. All states redo it with the same bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from txtopo.attempt import GroupAttempt, TransactionAttempt, group_of, txids_text
from txtopo.errors import (
    FencedError,
    ForeignEnsembleError,
    ForeignStateError,
    GroupBoundsError,
    LedgerGapError,
    SchemaVersionError,
    StaleBatchError,
    StoreAheadOfCoordinator,
    StoreBehindCoordinator,
    TwoHistoriesError,
)

LEDGER_SCHEMA = 1
"""The version of the stored form of a ledger, which has all fields of :class:`Ledger`."""

RELEASED = ""
"""The topology in the ledger of a state that an operator has released. Anyone may claim it next.
The id of a topology is never empty."""


SET_BACK = (
    "was ZooKeeper set back to an earlier state, or a store restored from a backup? bring back "
    "what belongs together, or call txtopo.operations.rebuild, which adjusts ZooKeeper to the "
    "states"
)
"""How two histories may have been mixed, and what to do."""


class Standing(Enum):
    """What an attempt may do to a state."""

    APPLY = "apply"
    """Apply the writes, since the state holds txid - 1."""
    REDO = "redo"
    """Undo the txid (opaque) or keep it (transactional), then set the ledger to this attempt,
    since the state holds the txid from an earlier attempt."""
    HELD = "held"
    """Change nothing, since the state already holds this attempt."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a state.

    Attributes:
        topology: Id of the topology; :data:`RELEASED` if the state was released.
        component: Id of the committer; empty if the state was released.
        state: Name in ``with_state``; empty if the state was released.
    """

    topology: str
    component: str = ""
    state: str = ""

    def __str__(self) -> str:
        if not self.component:
            return f"topology {self.topology!r}"
        return f"state {self.state!r} of component {self.component!r} of topology {self.topology!r}"


@dataclass(frozen=True, slots=True)
class Ledger:
    """Which txid a state holds, and who may write to it.

    A store keeps every field as a plain value, also fields that later versions add: see
    ``dataclasses.asdict`` and :meth:`of`.

    Attributes:
        topology: Id of the topology that owns the state; :data:`RELEASED` if it was released.
        epoch: The epoch that may write; within an ensemble it only grows.
        txid: The last txid that the state holds; 0 for none.
        writer_epoch: Epoch of the attempt that wrote *txid*; 0 for none.
        attempt: Number of the attempt that wrote *txid*; 0 for none.
        component: Id of the component that owns the state; empty if it was released.
        state: Name of the state there; empty if it was released.
        ensemble: Token of the ensemble that the epochs come from; empty for none, which
            matches any.
        first_txid: First txid of the group that was written last; 0 for none.
        attempts: Attempt numbers of the txids of the group, from *first_txid* to *txid*.
        term: Term id of *epoch*.
        writer_term: Term id of *writer_epoch*.
        schema: The number of the form of these fields, see :data:`LEDGER_SCHEMA`.
        witness: The note of a row that the last change of rows left, as a text of ``Witness``;
            empty for none. Two ledgers that differ in it alone are equal.
    """

    topology: str
    epoch: int
    txid: int = 0
    writer_epoch: int = 0
    attempt: int = 0
    component: str = ""
    state: str = ""
    ensemble: str = ""
    first_txid: int = 0
    attempts: tuple[int, ...] = ()
    term: str = ""
    writer_term: str = ""
    schema: int = LEDGER_SCHEMA
    witness: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        # JSON has lists, but no tuples.
        object.__setattr__(self, "attempts", tuple(self.attempts))

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Ledger:
        """Return the ledger with these fields, as a store kept them; a missing one has its default.

        Raises:
            SchemaVersionError: A newer txtopo wrote them; upgrade this one.
            TypeError: They are not fields of a ledger.
        """
        schema = fields.get("schema")
        if isinstance(schema, int) and schema > LEDGER_SCHEMA:
            raise SchemaVersionError(
                f"a ledger has schema {schema}; expected at most {LEDGER_SCHEMA}; a newer txtopo "
                "wrote it; upgrade this one",
                schema=schema,
            )
        return cls(**fields)

    @property
    def writer(self) -> TransactionAttempt:
        """The attempt whose writes the state holds; a ``GroupAttempt`` for several txids."""
        if len(self.attempts) < 2:
            return self.last_writer
        earlier, term = self.attempts[:-1], self.writer_term
        return GroupAttempt(self.txid, self.attempt, self.writer_epoch, earlier, term=term)

    @property
    def last_writer(self) -> TransactionAttempt:
        """The attempt at the last txid that the state holds, even if it is one of a group."""
        return TransactionAttempt(self.txid, self.attempt, self.writer_epoch, term=self.writer_term)

    @property
    def is_empty(self) -> bool:
        """Whether no txid was ever written to the state, though it may begin after one.

        A store that has lost the writer of its txid has also lost where the group began.
        """
        return not (self.writer_epoch or self.attempts) and self.first_txid == self.txid

    @property
    def owner(self) -> Owner:
        """The owner of the state."""
        return Owner(self.topology, self.component, self.state)

    def written_by(self, attempt: TransactionAttempt, witness: str = "") -> Ledger:
        """Return the ledger after the write of *attempt*.

        Args:
            attempt: The attempt.
            witness: What ``witness_of`` returned; empty for a store that checks in another way
                whether its rows match its ledger.
        """
        return replace(
            self,
            txid=attempt.txid,
            writer_epoch=attempt.epoch,
            writer_term=attempt.term,
            attempt=attempt.attempt,
            first_txid=attempt.first_txid,
            attempts=attempt.attempts,
            witness=witness,
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a coordinator to write to a state.

    Attributes:
        owner: The new owner of the state; one with :data:`RELEASED` gives the state up.
        epoch: The epoch that may write from then on.
        ensemble: Token of the ensemble that the epoch comes from.
        replaces: Set to take the state over from another owner or ensemble on purpose: its ledger,
            as it was read. The claim is refused if owner, ensemble or last write have changed
            since, so that no write of a coordinator that still runs is undone.
        begins: For a state that is added to a topology that has run: the txid after which it
            begins; 0 for any other state.
        changes_table: Whether the columns of the table may be changed to those that the state
            declares, see :mod:`txtopo.state.evolution`.
        term: Term id of the epoch.
    """

    owner: Owner
    epoch: int
    ensemble: str = ""
    replaces: Ledger | None = None
    begins: int = 0
    changes_table: bool = False
    term: str = ""

    def takes_from(self, ledger: Ledger) -> bool:
        """Return whether the claim replaces owner and ensemble of this ledger on purpose."""
        meant = self.replaces
        if meant is None or (meant.owner, meant.ensemble) != (ledger.owner, ledger.ensemble):
            return False
        # Within an ensemble the epoch fences the writer, and its last write is read after the
        # claim.
        return self.ensemble == ledger.ensemble or meant.writer == ledger.writer


def claimed(ledger: Ledger | None, claim: Claim) -> Ledger:
    """Return the ledger after a claim. Its txid and the writer of that txid stay the same.

    A claim for :data:`RELEASED` gives the state up. It follows a claim for the owner.

    Raises:
        ForeignStateError: The table belongs to another topology, or to another state of this one;
            give this state a table of its own.
        ForeignEnsembleError: Its epochs come from another ZooKeeper; a person decides which of the
            two is right.
        FencedError: A later epoch has claimed the state; this coordinator must stop.
        TwoHistoriesError: Another coordinator has claimed the state with the same epoch.
    """
    owner = claim.owner
    mine = Ledger(
        owner.topology,
        claim.epoch,
        component=owner.component,
        state=owner.state,
        ensemble=claim.ensemble,
        term=claim.term,
    )
    if ledger is None:
        return _begun(mine, claim.begins)
    if claim.begins and not ledger.is_empty and ledger.topology == RELEASED:
        raise _foreign(ledger, owner, begins=claim.begins)
    if not claim.takes_from(ledger) and owner.topology != RELEASED:
        if not same_owner(ledger, owner):
            raise _foreign(ledger, owner)
        if ledger.txid:
            check_ensemble(ledger, claim.ensemble)
    # Epochs of another ensemble cannot be compared, and neither can those of a state that was
    # released before it held a txid.
    begun_again = ledger.topology == RELEASED and not ledger.txid
    if _may_be_one(ledger.ensemble, claim.ensemble) and not begun_again:
        _check_epoch(ledger, claim.epoch, claim.term)
    if ledger.is_empty:
        return _begun(mine, claim.begins or ledger.txid)
    return replace(
        mine,
        txid=ledger.txid,
        writer_epoch=ledger.writer_epoch,
        writer_term=ledger.writer_term,
        attempt=ledger.attempt,
        # A store that has lost who wrote its txid has lost its group as well.
        first_txid=ledger.first_txid or ledger.txid,
        attempts=ledger.attempts or (ledger.attempt,),
        witness=ledger.witness,
    )


def _begun(ledger: Ledger, txid: int) -> Ledger:
    """Return the ledger of a state that holds nothing and begins after a txid."""
    return replace(ledger, txid=txid, first_txid=txid)


def standing(
    ledger: Ledger | None, attempt: TransactionAttempt, claim: Claim | None = None
) -> Standing:
    """Decide what *attempt* may do to a state with this ledger.

    Args:
        ledger: The ledger, or None if there is none.
        attempt: The attempt, at one txid or at a group.
        claim: The claim under which it writes; None for a reader; the write is then checked again.

    Raises:
        FencedError: Another epoch may write, or a later attempt of the same txid has written.
        TwoHistoriesError: The epoch of the attempt was claimed, or has written, in another term.
        ForeignEnsembleError, ForeignStateError: Somebody else has taken the state over.
        StaleBatchError: The state holds a later txid.
        GroupBoundsError: The state holds only a part of the group, or its txid as part of another
            group.
        LedgerGapError: The state lacks txids before this one.
    """
    if ledger is None:
        raise _unclaimed(ledger, attempt)
    _check_holder(ledger, attempt, claim)
    if ledger.txid == attempt.first_txid - 1:
        return Standing.APPLY
    if ledger.txid > attempt.txid:
        raise StaleBatchError(
            f"batch of txid {attempt.txid} is behind the stored txid {ledger.txid}; commits must "
            "reach a state in txid order; do two running topologies share one state?",
            txid=attempt.txid,
            stored_txid=ledger.txid,
        )
    if ledger.txid < attempt.first_txid:
        raise LedgerGapError(
            f"batch of txid {attempt.first_txid} does not follow the stored txid {ledger.txid}; "
            f"expected txid {ledger.txid + 1}; was the store restored from a backup?",
            txid=attempt.first_txid,
            stored_txid=ledger.txid,
        )
    if (ledger.txid, ledger.writer.first_txid) != (attempt.txid, attempt.first_txid):
        holder = ledger.writer
        raise GroupBoundsError(
            f"a write of {txids_text(attempt.first_txid, attempt.txid)} meets a state that "
            f"already holds {txids_text(holder.first_txid, holder.txid)} in one write; expected "
            "the same txids, which are then written again together; this is a bug in txtopo: "
            "please report it, with the log",
            attempt=attempt,
            holder=holder,
        )
    if ledger.writer == attempt:
        return Standing.HELD
    if attempt < ledger.writer:
        raise FencedError(
            f"attempt {attempt} is older than {ledger.writer}, which the state holds; "
            "it was abandoned and must not write",
            attempt=attempt,
            holder=ledger.writer,
        )
    return Standing.REDO


def expiring(ledger: Ledger | None, claim: Claim | None, before_txid: int) -> int:
    """Return the txid before which a row must have been written for its claimant to delete it.

    Rows of the last txid or group stay, since it may be undone: they are tagged with the txid of
    the ledger.

    Args:
        ledger: The ledger, read in the store transaction that deletes.
        claim: The claim of the backend that deletes; None if it has claimed nothing.
        before_txid: What the runtime allows.

    Raises:
        FencedError: A later epoch has claimed the state.
        ForeignEnsembleError: A coordinator of another ensemble has taken the state over.
        ForeignStateError: Another owner has taken the state over.
        LedgerGapError: The state is not claimed.
    """
    epoch, term = (0, "") if claim is None else (claim.epoch, claim.term)
    attempt = TransactionAttempt(before_txid, 0, epoch, term=term)
    if ledger is None or claim is None:
        raise _unclaimed(ledger, attempt)
    _check_holder(ledger, attempt, claim)
    return min(before_txid, ledger.txid)


def same_owner(ledger: Ledger, owner: Owner) -> bool:
    """Return whether a ledger belongs to an owner, or was released.

    If a store has lost the component of its ledger, the code that reads it back reports it.
    """
    if ledger.topology != owner.topology:
        return ledger.topology == RELEASED
    return not ledger.component or ledger.owner == owner


def _check_holder(ledger: Ledger, attempt: TransactionAttempt, claim: Claim | None) -> None:
    """Check that nobody else has claimed the state. Ensembles come first: epochs depend on them."""
    if claim is not None and ledger.topology != RELEASED:
        if ledger.topology != claim.owner.topology:
            raise _foreign(ledger, claim.owner)
        check_ensemble(ledger, claim.ensemble)
    _check_epoch(ledger, attempt.epoch, attempt.term)
    if ledger.epoch < attempt.epoch:
        raise _unclaimed(ledger, attempt)
    if claim is not None and ledger.owner != claim.owner:
        raise _foreign(ledger, claim.owner)


def _may_be_one(name: str, other: str) -> bool:
    """Return whether two ensembles or terms are the same; an empty name matches any."""
    return "" in (name, other) or name == other


def check_ensemble(ledger: Ledger, ensemble: str) -> None:
    """Check that the epochs of a ledger come from this ensemble, if both are known.

    Raises:
        ForeignEnsembleError: They come from another ensemble.
    """
    if _may_be_one(ledger.ensemble, ensemble):
        return
    raise ForeignEnsembleError(
        f"{ledger.owner} takes its epochs from another ZooKeeper; got ensemble "
        f"{ensemble!r}; the ledger names {ledger.ensemble!r}, up to txid {ledger.txid}; was "
        "ZooKeeper's data deleted or moved, or is this zookeeper='memory', new in each run? to "
        "start over, delete the state as well; to continue, point to the right one, or call "
        "txtopo.operations.rebuild",
        ensemble=ensemble,
        stored_ensemble=ledger.ensemble,
        txid=ledger.txid,
    )


def _check_epoch(ledger: Ledger, epoch: int, term: str) -> None:
    if ledger.epoch > epoch:
        raise FencedError(
            f"epoch {epoch} of topology {ledger.topology!r} was deposed; "
            f"epoch {ledger.epoch} may write now; stop this coordinator",
            epoch=epoch,
            successor=ledger.epoch,
        )
    # A store that has lost who wrote its txid may have lost the term as well.
    if ledger.epoch == epoch and ledger.term not in ("", term):
        raise TwoHistoriesError(
            f"two coordinators of topology {ledger.topology!r} claimed epoch {epoch}, which may "
            f"write now: that of term {term!r}, and that of term {ledger.term!r}, which the ledger "
            f"names up to txid {ledger.txid}; expected one term to an epoch; {SET_BACK}",
            epoch=epoch,
            attempt=term,
            holder=ledger.term,
        )


def _foreign(ledger: Ledger, owner: Owner, begins: int = 0) -> ForeignStateError:
    if ledger.topology == RELEASED and begins:
        remedy = (
            f"it holds txid {ledger.txid} of the state's former owner, and this state is new, so "
            f"it begins empty after txid {begins}; give it another table, or drop that one"
        )
    elif ledger.topology == RELEASED:
        remedy = "it was released meanwhile; stop this coordinator, or start the topology again"
    elif ledger.topology == owner.topology:
        remedy = (
            "give each state a table of its own; do two URLs name one table? if the component was "
            "renamed, start once with Config(allow_change=True); to give it up, call "
            "txtopo.operations.forget with state=…"
        )
    else:
        remedy = (
            "give each topology a table of its own, or release this one with "
            f"txtopo.operations.forget of {ledger.topology!r}"
        )
    return ForeignStateError(
        f"a table belongs to another state; got {owner}; its ledger names {ledger.owner}; {remedy}",
        topology=owner.topology,
        owner=ledger.topology,
        claimant=owner,
        holder=ledger.owner,
    )


def _unclaimed(ledger: Ledger | None, attempt: TransactionAttempt) -> LedgerGapError:
    return LedgerGapError(
        f"attempt {attempt} writes to a state that its epoch has not claimed; "
        f"its ledger is {ledger}; was the state's table dropped during the run?",
        attempt=attempt,
        ledger=ledger,
    )


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
            f"state {name!r} holds txid {ledger.txid}, but ZooKeeper says that txid {current - 1} "
            f"is committed; expected the same; {_cause(ledger.txid, url)}",
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
            f"state {name!r} holds {of}, but ZooKeeper knows txid {current - 1} as "
            f"committed and {nothing}; "
            "was ZooKeeper's data wiped, or is this another ensemble? point to the right one, or "
            "call txtopo.operations.rebuild, which adjusts ZooKeeper to the states",
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
                "restored from a backup? bring back the newer data, or call "
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
                    "restore them from backups of one moment",
                    state=behind,
                    attempt=wrote,
                    holder=other.last_writer,
                )


def _fits(ledger: Ledger, wrote: TransactionAttempt) -> bool:
    """Return whether a state that lacks *wrote* can belong to the same history.

    Then the epoch of *wrote*, or a later one, has claimed it, and no later epoch has written to it.
    """
    writer = ledger.last_writer
    claimed_since = ledger.epoch == wrote.epoch and _may_be_one(ledger.term, wrote.term)
    before = writer.epoch == wrote.epoch and _may_be_one(writer.term, wrote.term)
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
        "store restored from a backup, from before a rebuild or a rewind? bring back the newer "
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
        if is_known(ledger, terms):
            continue
        known = terms.get(ledger.epoch)
        knows = f"epoch {newest} is the newest" if known is None else f"that epoch of {known!r}"
        raise StoreAheadOfCoordinator(
            f"state {name!r} was claimed by epoch {ledger.epoch} of term {ledger.term!r}, up to "
            f"txid {ledger.txid}, which ZooKeeper does not know; it knows "
            f"{knows}; expected each epoch of a ledger in ZooKeeper; nothing was claimed; was "
            "ZooKeeper's data wiped, or set back to an earlier state, or is this another ensemble? "
            "point to the right one, or call txtopo.operations.rebuild, which fits ZooKeeper to "
            "the states",
            state=name,
            ledger_txid=ledger.txid,
        )


def is_known(ledger: Ledger, terms: Mapping[int, str]) -> bool:
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
        f"state {name!r} was taken out of the topology and comes back with what it held then: txid "
        f"{ledger.txid} of {writer}; ZooKeeper says that txid {current - 1} is committed, of "
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
            "was the store restored from a backup, or its table dropped? bring back the newer "
            "data, or call txtopo.operations.rebuild, which takes ZooKeeper back to txid "
            f"{txid}, and the source with it"
        )
    return (
        f"nothing of this topology is in the store at {url}; was the URL changed, or the "
        "table dropped? point to the store where the state was, or copy its table and ledger from "
        "there with the store's own tools; or, to start it over, empty, start once "
        "without the state and once with it, each with Config(allow_change=True); or, to begin "
        "again with the first record of the source, give the topology another id and the state "
        "another table, or call txtopo.operations.rebuild(topology, config).apply()"
    )
