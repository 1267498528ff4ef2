"""UncommittedOffsets: which offset of a partition may be committed, for any order of acks.

No I/O, clock, thread or random number is used here.

Rules
-----
1. The offset that may be committed is the offset of the lowest record that is not acked; or, if all
   records that were taken are acked, the offset after them. So a committed offset never passes a
   record that is not acked. A failed record counts as not acked.
2. Offsets need not be consecutive. Compaction, aborted transactions and transaction markers leave
   offsets without a record, which nobody would ever ack. They are passed together with the records
   around them.

A committed offset stays valid: everything below it is processed. So a commit that arrives too late,
or twice, may set a group back, but never makes it skip a record.

One object belongs to one assignment of a partition to one task. When the partition is assigned
again, a new one begins at the committed offset.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Record = TypeVar("Record")


class UncommittedOffsets(Generic[Record]):
    """The offsets of a partition that were taken and are not all committable.

    Args:
        start: The offset from which the partition is read; all below it is processed.
    """

    def __init__(self, start: int) -> None:
        self.position = start
        """The offset of the next record, or a lower one without a record."""
        self._open: dict[int, Record] = {}
        # In the order of the log, from the first one that is not acked.
        self._taken: deque[int] = deque()

    def __len__(self) -> int:
        """The number of records from the first one that is not acked: a restart repeats them."""
        return len(self._taken)

    @property
    def committable(self) -> int:
        """The offset that may be committed, of the record that the group would read next."""
        return self._taken[0] if self._taken else self.position

    def take(self, offset: int, record: Record) -> bool:
        """Add the next record of the log; return False if it was added before."""
        if offset < self.position:
            return False
        self.position = offset + 1
        self._open[offset] = record
        self._taken.append(offset)
        return True

    def reach(self, offset: int) -> None:
        """Record that the log has no more records below *offset*."""
        self.position = max(self.position, offset)

    def ack(self, offset: int) -> None:
        """Record that a record is processed; one that is not open is ignored."""
        if offset not in self._open:
            return
        del self._open[offset]
        while self._taken and self._taken[0] not in self._open:
            self._taken.popleft()

    def open_record(self, offset: int) -> Record | None:
        """Return a record that was taken and is not acked; None for any other."""
        return self._open.get(offset)
