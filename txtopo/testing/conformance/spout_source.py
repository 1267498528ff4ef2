"""SpoutSource: a source that the suite fills, reads and breaks; what you write for your spout.

What a spout promises, rule by rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import ClassVar, Literal

import pytest

from txtopo.spouts.spout import (
    OpaquePartitionedTransactionalSpout,
    PartitionedTransactionalSpout,
    TransactionalSpout,
)

Spout = TransactionalSpout | PartitionedTransactionalSpout | OpaquePartitionedTransactionalSpout

Row = tuple[object, ...]


class SpoutSource(ABC):
    """An empty source of a test's own, and how to make the spout that reads it.

    Who calls it: :class:`~txtopo.testing.conformance.SpoutSuite`, from one thread, a new one for
    each test. ``spout``, ``append`` and ``record`` are needed. What else a source can suffer is
    tried if its method is overridden; the test of one that is not is skipped, with the reason.

    Partitions are numbered from 0, as the source has them; a spout that knows none has one.

    Attributes:
        partitions: How many partitions there are at the beginning.
        batch_records_max: The most records that a batch of ``spout()`` takes from a partition;
            let it be small, since the suite writes several batches.
        live: Whether a running spout sees what is appended, added, removed, lost or down. The suite
            starts one that does not anew after each change.
        ordered: Whether a replay has its tuples in the same order too, as ``First``, ``Last`` and a
            shuffle grouping need it. False for a source that has no order, such as a query; a
            transactional spout over it runs only with ``Config(check_replays=False)``.
        asks: How often the spout is asked for a batch before it counts as having none.
        on_data_loss: What the spout does when unread records have gone: ``"stop"`` (it raises
            ``SourceDataLost``), or ``"record"`` (an opaque spout goes on behind them).
    """

    partitions: ClassVar[int] = 2
    batch_records_max: ClassVar[int] = 2
    live: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    asks: ClassVar[int] = 3
    on_data_loss: ClassVar[Literal["stop", "record"]] = "stop"

    @abstractmethod
    def spout(self) -> Spout:
        """Return a new spout over the source, as a program that was started again makes it."""

    @abstractmethod
    def append(self, partition: int, count: int) -> Sequence[Hashable]:
        """Write records behind those of a partition; they can be read when this returns.

        Returns:
            What :meth:`record` will say of each, in the order of the partition. All records that a
            source ever gets are distinct.
        """

    def record(self, row: Row) -> Hashable:
        """Return which record a tuple of the spout stands for; by default the tuple itself."""
        return row

    def take_down(self, partition: int) -> None:
        """Let a partition be unreadable for a while."""
        pytest.skip("take_down: no partition of this source can be down by itself")

    def bring_up(self, partition: int) -> None:
        """Let a partition be readable again."""
        raise NotImplementedError

    def add_partition(self) -> None:
        """Add an empty partition behind the others."""
        pytest.skip("add_partition: the number of partitions of this source never grows")

    def remove_partition(self) -> None:
        """Remove the last partition. The suite has had all of its records read and committed."""
        pytest.skip("remove_partition: the number of partitions of this source never shrinks")

    def lose(self, partition: int) -> None:
        """Let all records that a partition has now be gone for good."""
        pytest.skip("lose: nothing can be lost from this source")

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release what was opened. Called when the test ends."""


class SpoutRule(Enum):
    """What a spout promises; read the docstrings of :mod:`txtopo.spouts` with it."""

    SAME = "transactional: each attempt of a txid has the same tuples"
    CHAIN = "in each partition a batch starts where the one before ended"
    UNION = "the batches together are the input, each record once"
    RESTART = "after a restart it goes on from the stored metadata and from nothing else"
    DOWN = "a partition that is down keeps its position"
    JSON = "metadata is JSON, comes back from it as it was, and fits into a znode"
    ADDED = "a partition that was added is read from its beginning, and by no older batch"
    GONE = "when a partition has gone the others are read on"
    LOST = "data that has gone stops the run, or is recorded; it is never passed over in silence"
    TASKS = "its tasks share a batch, each record in one of them"
    LAG = "the lag is what is left, and nothing when all is read"

    @property
    def broken(self) -> str:
        """What to say when a test finds it broken."""
        return f"the spout broke a rule: {self.value}; read txtopo/testing/conformance/spout.py"
