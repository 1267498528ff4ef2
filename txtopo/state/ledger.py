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

One epoch, two terms
--------------------
If ZooKeeper or a store is restored from a backup, numbers are used a second time: a new coordinator
claims an epoch that an earlier one had, and numbers its attempts in the same way. So each epoch has
a random *term id*, which is drawn when ZooKeeper is claimed, and is part of the identity of an
attempt. Two terms of one epoch are two histories. What else such a restore mixes up is seen only
when all ledgers are compared with ZooKeeper, see :mod:`txtopo.state.reconciliation`.

1. Claims and attempts of the ledger's epoch but of another term are refused. A state holds an
   attempt only if its term is the same.

A state that is added
---------------------
A state that is added to a topology that has run begins at ``current`` - 1: it holds nothing, and
takes the next txid like any other state. Only a note in ZooKeeper (``/current``, see
:mod:`txtopo.ensemble.nodes`) allows that. Without it an empty ledger is a lost table.

1. Its claim has :attr:`Claim.begins`, and writes that txid into an empty ledger. The txid has no
   writer and no attempts, since the state has no data of it. So the ledger still counts as empty,
   and a later claim may write a later txid.

A state that is a copy
----------------------
A fork (:mod:`txtopo.operations.fork`) fills a new state with what another one held after a txid,
and the new one continues with the next txid. It is written like any attempt, by a
:class:`~txtopo.attempt.CopyAttempt` in one store transaction.

1. Its rows have txid 0, as if they were from before the first txid, so no undo ever reaches them.
2. Its ledger holds the copied txid without a writer: attempt 0 of epoch 0, which no coordinator
   has. It is not empty, so no later claim moves it to another txid.
3. Only a state to which no txid was ever written takes a copy. A copy is replaced by another one,
   and a copy of the txid that it holds changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from txtopo.attempt import CopyAttempt, GroupAttempt, TransactionAttempt, txids_text
from txtopo.errors import (
    FencedError,
    ForeignEnsembleError,
    ForeignStateError,
    GroupBoundsError,
    LedgerGapError,
    SchemaVersionError,
    StaleBatchError,
    TwoHistoriesError,
)

LEDGER_SCHEMA = 1
"""The version of the stored form of a ledger, which has all fields of :class:`Ledger`."""

RELEASED = ""
"""The topology in the ledger of a state that an operator has released. Anyone may claim it next.
The id of a topology is never empty."""


SET_BACK = (
    "was ZooKeeper or a store restored from a backup? restore what belongs together, or call "
    "txtopo.operations.rebuild, which adjusts ZooKeeper to the states"
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
                "wrote it; upgrade this installation",
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
    def is_copy(self) -> bool:
        """Whether nobody wrote the txid, since the state was filled as a copy."""
        return self.last_writer == TransactionAttempt(self.txid) and bool(self.attempts)

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
        writer = attempt.held_as
        return replace(
            self,
            txid=writer.txid,
            writer_epoch=writer.epoch,
            writer_term=writer.term,
            attempt=writer.attempt,
            first_txid=writer.first_txid,
            attempts=writer.attempts,
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
    if may_be_one(ledger.ensemble, claim.ensemble) and not begun_again:
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
    if isinstance(attempt, CopyAttempt):
        return _standing_of_copy(ledger, attempt)
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
            "the same txids, to be written again together; this is a bug in txtopo: please "
            "report it, with the log",
            attempt=attempt,
            holder=holder,
        )
    if ledger.writer == attempt:
        return Standing.HELD
    if attempt < ledger.writer:
        raise FencedError(
            f"attempt {attempt} is older than {ledger.writer}, which the state holds; it was "
            "abandoned and must not write",
            attempt=attempt,
            holder=ledger.writer,
        )
    return Standing.REDO


def _standing_of_copy(ledger: Ledger, attempt: CopyAttempt) -> Standing:
    if ledger.writer == attempt.held_as and not ledger.is_empty:
        return Standing.HELD
    if ledger.is_copy or (ledger.is_empty and not ledger.txid):
        return Standing.APPLY
    raise StaleBatchError(
        f"a copy of txid {attempt.copied_txid} meets a state that holds txid {ledger.txid}, "
        f"written by {ledger.writer}; expected a state to which no txid was written; copy into "
        "another table",
        txid=attempt.copied_txid,
        stored_txid=ledger.txid,
    )


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


def may_be_one(name: str, other: str) -> bool:
    """Return whether two ensembles or terms are the same; an empty name matches any."""
    return "" in (name, other) or name == other


def check_ensemble(ledger: Ledger, ensemble: str) -> None:
    """Check that the epochs of a ledger come from this ensemble, if both are known.

    Raises:
        ForeignEnsembleError: They come from another ensemble.
    """
    if may_be_one(ledger.ensemble, ensemble):
        return
    raise ForeignEnsembleError(
        f"the progress of {ledger.owner} is not in this ensemble: it was lost, or is elsewhere; "
        f"to start over, delete the table of the state; to continue after txid {ledger.txid}, set "
        "Config.zookeeper to the right ensemble (zookeeper='memory' keeps nothing), or call "
        f"txtopo.operations.rebuild; got ensemble {ensemble!r}; the ledger names "
        f"{ledger.ensemble!r}",
        ensemble=ensemble,
        stored_ensemble=ledger.ensemble,
        txid=ledger.txid,
    )


def _check_epoch(ledger: Ledger, epoch: int, term: str) -> None:
    if ledger.epoch > epoch:
        raise FencedError(
            f"this process no longer leads topology {ledger.topology!r} (epoch {epoch}): another "
            f"one took over (epoch {ledger.epoch}); start it again to make it the standby",
            epoch=epoch,
            successor=ledger.epoch,
        )
    # A store that has lost who wrote its txid may have lost the term as well.
    if ledger.epoch == epoch and ledger.term not in ("", term):
        raise TwoHistoriesError(
            f"two coordinators of topology {ledger.topology!r} claimed epoch {epoch}, which may "
            f"write now: that of term {term!r}, and that of term {ledger.term!r}, which the "
            f"ledger names up to txid {ledger.txid}; expected one term for each epoch; {SET_BACK}",
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
        remedy = "it was released in the meantime; stop this process, or start the topology again"
    elif ledger.topology == owner.topology:
        remedy = (
            "give each state its own table; do two URLs name the same table? if the component "
            "was renamed, start once with Config(allow_change=True); to give it up, call "
            "txtopo.operations.forget with state=…"
        )
    else:
        remedy = (
            "give each topology its own table, or release this one with txtopo.operations.forget "
            f"of {ledger.topology!r}"
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
