"""TransactionAttempt: how one try at one batch is named."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionAttempt:
    """One try at one batch (Storm ``TransactionAttempt``, with order and an epoch).

    Storm's attempt ids are random and have no order. Here attempts count from 0 in each epoch, and
    the epoch is part of the identity, so that a store can refuse the late write of a deposed
    coordinator. The order is (epoch, txid, attempt).

    Attributes:
        txid: Number of the batch, from 1.
        attempt: Number of the try at this batch within its epoch, from 0.
        epoch: Number of the coordinator that made it, from 1; it only grows.
    """

    txid: int
    attempt: int = 0
    epoch: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Where this attempt stands: (epoch, txid, attempt)."""
        return (self.epoch, self.txid, self.attempt)

    def __lt__(self, other: TransactionAttempt) -> bool:
        return self.order < other.order

    def __le__(self, other: TransactionAttempt) -> bool:
        return self.order <= other.order

    def __str__(self) -> str:
        return f"{self.txid}:{self.attempt}@{self.epoch}"
