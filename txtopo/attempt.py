"""TransactionAttempt: how one try at one batch, or at a group of batches, is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from txtopo.errors import TwoHistoriesError


@dataclass(frozen=True, slots=True)
class TransactionAttempt:
    """One try at one batch (Storm ``TransactionAttempt``, with order and an epoch).

    Storm's attempt ids are random and have no order. Here attempts count from 0 in each epoch, and
    the epoch is part of the identity, so that a store can refuse the late write of a deposed
    coordinator. The order is (epoch, txid, attempt).

    Numbers repeat when ZooKeeper is set back to an earlier state: a new coordinator claims an epoch
    that another one had, and counts as that one did. So the identity also has the *term id*, which
    is random. Attempts of one epoch and two terms belong to two histories: neither is older, and
    comparing them raises ``TwoHistoriesError``.

    Attributes:
        txid: Number of the batch, from 1.
        attempt: Number of the try at this batch within its epoch, from 0.
        epoch: Number of the coordinator that made it, from 1; it only grows.
        term: Term id of that coordinator, which was drawn with its epoch; empty for none.
    """

    txid: int
    attempt: int = 0
    epoch: int = 0
    term: str = field(default="", kw_only=True)

    @property
    def first_txid(self) -> int:
        """The first txid that a state writes with this attempt; without a group, its own txid."""
        return self.txid

    @property
    def attempts(self) -> tuple[int, ...]:
        """The attempt numbers of the txids from *first_txid* on."""
        return (self.attempt,)

    @property
    def order(self) -> tuple[int, int, int]:
        """The position of this attempt among all, as (epoch, txid, attempt)."""
        return (self.epoch, self.txid, self.attempt)

    @property
    def held_as(self) -> TransactionAttempt:
        """The attempt that a ledger names as the writer once this one has written."""
        return self

    def __lt__(self, other: TransactionAttempt) -> bool:
        check_one_history(self, other)
        return self.order < other.order

    def __le__(self, other: TransactionAttempt) -> bool:
        check_one_history(self, other)
        return self.order <= other.order

    def __str__(self) -> str:
        return f"{self.txid}:{self.attempt}@{self.epoch}"


@dataclass(frozen=True, slots=True)
class GroupAttempt(TransactionAttempt):
    """One try at consecutive batches of one epoch, which a state takes in one write.

    A state treats it as an attempt at its last txid: rows are tagged with that one. It equals only
    an attempt at the same batches, with the same attempt numbers. A group of one batch is a plain
    :class:`TransactionAttempt`.

    Attributes:
        earlier: Attempt numbers of the txids before *txid*, in their order; at least one.
    """

    earlier: tuple[int, ...] = ()

    @property
    def first_txid(self) -> int:
        """The first txid of the group."""
        return self.txid - len(self.earlier)

    @property
    def attempts(self) -> tuple[int, ...]:
        """The attempt numbers of the txids from *first_txid* on."""
        return (*self.earlier, self.attempt)

    def __str__(self) -> str:
        return f"{self.first_txid}-{self.txid}:{self.attempt}@{self.epoch}"


@dataclass(frozen=True, slots=True)
class CopyAttempt(TransactionAttempt):
    """One try at a copy of what another state held after a txid.

    See "A state that is a copy" in :mod:`txtopo.state.ledger`. Its txid is 0, so that the rows are
    tagged as rows from before the first txid.

    Attributes:
        copied_txid: The txid whose result is copied, which the ledger then names.
    """

    copied_txid: int = 0

    @property
    def held_as(self) -> TransactionAttempt:
        """The attempt that the ledger names afterwards, which is nobody's, at the copied txid."""
        return TransactionAttempt(self.copied_txid)

    def __str__(self) -> str:
        return f"copy of {self.copied_txid}@{self.epoch}"


def group_of(attempts: Sequence[TransactionAttempt]) -> TransactionAttempt:
    """Return attempts at consecutive batches of one epoch as one attempt at all of them."""
    last = attempts[-1]
    earlier = tuple(each.attempt for each in attempts[:-1])
    if not earlier:
        return last
    return GroupAttempt(last.txid, last.attempt, last.epoch, earlier, term=last.term)


def check_one_history(one: TransactionAttempt, other: TransactionAttempt) -> None:
    """Check that attempts of one epoch are of one term.

    Raises:
        TwoHistoriesError: They are not.
    """
    if one.epoch == other.epoch and one.term != other.term:
        raise TwoHistoriesError(
            f"attempts {one} of term {one.term!r} and {other} of term {other.term!r} have the "
            f"same epoch {one.epoch}, which two coordinators claimed, so they belong to two "
            "histories; expected one term for each epoch; was ZooKeeper or a store restored from "
            "a backup? call txtopo.operations.verify and restore what belongs together, or call "
            "txtopo.operations.rebuild",
            attempt=one,
            holder=other,
        )


def txids_text(first: int, last: int) -> str:
    """Return consecutive txids in words, for messages."""
    return f"txid {last}" if first == last else f"txids {first} to {last}"


def ranges_text(txids: Iterable[int]) -> str:
    """Return any txids in words, for messages: ``"no txid"``, ``"txid 7"``, ``"txids 2 to 5, 7"``.

    Example:
        >>> ranges_text([7, 3, 2, 4])
        'txids 2 to 4, 7'
    """
    ranges: list[tuple[int, int]] = []
    for txid in sorted(txids):
        if ranges and ranges[-1][1] == txid - 1:
            ranges[-1] = (ranges[-1][0], txid)
        else:
            ranges.append((txid, txid))
    if not ranges:
        return "no txid"
    texts = [str(last) if first == last else f"{first} to {last}" for first, last in ranges]
    one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"txid{'' if one else 's'} {', '.join(texts)}"
