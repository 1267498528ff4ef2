"""SpoutSource: a source that the suite fills, reads and breaks; you write it for your spout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import ClassVar, Literal

import pytest

from txtopo.spouts.sequence import SequenceSpout
from txtopo.spouts.spout import (
    OpaquePartitionedTransactionalSpout,
    PartitionedTransactionalSpout,
    TransactionalSpout,
)

Spout = (
    TransactionalSpout
    | PartitionedTransactionalSpout
    | OpaquePartitionedTransactionalSpout
    | SequenceSpout
)

Row = tuple[object, ...]


class SpoutSource(ABC):
    """An empty source for one test, and how to make the spout that reads it.

    :class:`~txtopo.testing.conformance.SpoutSuite` calls it from one thread, and uses a new one for
    each test. ``spout`` and ``append`` are required, and ``record`` if a tuple is not its own
    record. The other methods let something happen to the source; the tests of a method that is not
    overridden are skipped.

    Partitions are numbered from 0. A source without partitions has one.

    Attributes:
        partitions: Number of partitions at the beginning.
        batch_rows_max: The most records that a batch of ``spout()`` takes from a partition.
            Keep it small, since the suite writes several batches.
        live: Whether a running spout notices changes of the source. If not, the suite starts the
            spout again after each change.
        ordered: Whether a replay has its tuples in the same order, which ``First``, ``Last`` and a
            shuffle grouping need. False for a source without an order, such as a query; a
            transactional spout over it needs ``Config(check_replays=False)``.
        asks: How many times the spout is asked for a batch before it counts as having none.
        on_data_loss: What the spout does when unread records are lost: ``"stop"`` (it raises
            ``SourceDataLost``), or ``"record"`` (an opaque spout continues after them).
    """

    partitions: ClassVar[int] = 2
    batch_rows_max: ClassVar[int] = 2
    live: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    asks: ClassVar[int] = 3
    on_data_loss: ClassVar[Literal["stop", "record"]] = "stop"

    @abstractmethod
    def spout(self) -> Spout:
        """Return a new spout over the source, as each start of a program makes one."""

    @abstractmethod
    def append(self, partition: int, count: int) -> Sequence[Hashable]:
        """Append *count* records to a partition; they can be read when this returns.

        Returns:
            What :meth:`record` returns for each of them, in order. All records of a source have to
            be distinct.
        """

    def record(self, row: Row) -> Hashable:
        """Return the record that a tuple of the spout stands for; by default the tuple itself."""
        return row

    def take_down(self, partition: int) -> None:
        """Make a partition unreadable until :meth:`bring_up`."""
        pytest.skip("take_down: no partition of this source can be down by itself")

    def bring_up(self, partition: int) -> None:
        """Make a partition readable again."""
        raise NotImplementedError

    def add_partition(self) -> None:
        """Add an empty partition after the others."""
        pytest.skip("add_partition: the number of partitions of this source never grows")

    def remove_partition(self) -> None:
        """Remove the last partition, of which all records were read and committed."""
        pytest.skip("remove_partition: the number of partitions of this source never shrinks")

    def lose(self, partition: int) -> None:
        """Lose all records that a partition has now."""
        pytest.skip("lose: nothing can be lost from this source")

    def close(self) -> None:  # noqa: B027 - optional hook
        """Close what was opened; called when the test ends."""


class SpoutRule(Enum):
    """A promise of a spout; see the docstrings of :mod:`txtopo.spouts`."""

    SAME = "transactional: each attempt of a txid has the same tuples"
    CHAIN = "in each partition a batch starts where the previous one ended"
    UNION = "the batches together are the input, each record once"
    RESTART = "after a restart it continues from the stored metadata and from nothing else"
    DOWN = "a partition that is down keeps its position"
    JSON = "metadata is JSON, is unchanged after a round trip, and fits into a znode"
    ADDED = "a partition that was added is read from its beginning, and by no older batch"
    GONE = "when a partition is gone, the others are still read"
    LOST = "data that is gone stops the run, or is recorded; it is never skipped silently"
    TASKS = "its tasks share a batch, each record in one of them"
    LIMIT = "a batch does not exceed its limit, in every attempt, and the next one continues there"
    LAG = "the lag is what is left, and zero when everything is read"

    @property
    def broken(self) -> str:
        """The note on a test that found the rule broken."""
        return f"the spout violated a rule: {self.value}; see txtopo/testing/conformance/spout.py"
