"""Script: what the batches of a scripted spout are, and what happens to them, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.errors import FailedException, SourceDataLost, TopologyError
from txtopo.spouts.memory import Outage, Recut
from txtopo.tuples import Fields

Row = Sequence[Any]
Batches = Sequence[Sequence[Row] | Mapping[int, Sequence[Row]]]


@dataclass(frozen=True, slots=True)
class Late:
    """The spout says that a batch is not ready, a number of times in each start.

    ``process_all_available`` takes that for an end; wait for what you expect in the state instead.

    Attributes:
        txid: The batch.
        asks: How often it says so.
    """

    txid: int
    asks: int = 1


@dataclass(frozen=True, slots=True)
class Poison:
    """A record cannot be read: the attempt that comes to it fails.

    Attributes:
        record: Number of the record in its partition, from 0.
        partition: Number of the partition.
        attempts: Only the attempts 0 to *attempts* - 1 of a batch fail; None for all.
        error: What is raised; a ``FailedException`` by default, which has the batch tried again.
            Any other one ends the run.
    """

    record: int
    partition: int = 0
    attempts: int | None = None
    error: Exception | None = None


Event = Outage | Recut | Late | Poison


@dataclass(frozen=True, slots=True)
class Script:
    """What a scripted spout was given, checked.

    Attributes:
        records: The records of each partition, of all batches one behind the other.
        takes: How many records each batch takes from each partition.
        events: What happens.
    """

    records: tuple[tuple[Row, ...], ...]
    takes: tuple[tuple[int, ...], ...]
    events: tuple[Event, ...]

    @classmethod
    def of(cls, fields: Fields, batches: Batches, events: Sequence[Event]) -> Script:
        """Check what was given.

        Raises:
            TopologyError: It is wrong; mend it.
        """
        if not isinstance(fields, Fields):
            raise TopologyError(
                f"fields of a scripted spout are wrong; got {fields!r:.200}; expected Fields"
            )
        cut = [batch if isinstance(batch, Mapping) else {0: batch} for batch in batches]
        numbers = {partition for batch in cut for partition in batch}
        if any(type(number) is not int or number < 0 for number in numbers):
            raise TopologyError(
                f"partitions of a scripted spout are wrong; got {sorted(map(repr, numbers))}; "
                "expected whole numbers from 0"
            )
        partitions = range(max(numbers, default=0) + 1)
        records = tuple(
            tuple(_checked(fields, row) for batch in cut for row in batch.get(partition, ()))
            for partition in partitions
        )
        takes = tuple(
            tuple(len(batch.get(partition, ())) for partition in partitions) for batch in cut
        )
        for event in events:
            _check(event, [len(each) for each in records])
        return cls(records, takes, tuple(events))

    def left(self, partition: int, start: int) -> int:
        """Return how many records a partition has from *start* on.

        Raises:
            SourceDataLost: The script of an earlier start had more of them.
        """
        left = len(self.records[partition]) - start
        if left < 0:
            raise SourceDataLost(
                f"partition {partition} of the script has {len(self.records[partition])} records, "
                f"but a batch ends at {start}; expected at least {start}; start with what was in "
                "the script before, or begin with a new topology id",
                partition=partition,
            )
        return left

    def take(self, attempt: TransactionAttempt, partition: int, start: int) -> int | None:
        """Return how many records an attempt takes from a partition; None if it is down."""
        left = take = self.left(partition, start)
        if attempt.txid <= len(self.takes):
            take = min(take, self.takes[attempt.txid - 1][partition])
        for event in self.events:
            if not isinstance(event, Outage | Recut) or event.txid != attempt.txid:
                continue
            if event.attempt not in (None, attempt.attempt):
                continue
            if event.partition not in (None, partition):
                continue
            if isinstance(event, Outage):
                return None
            take = min(event.take, left)
        return take

    def emit(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        cut: tuple[int, int],
    ) -> None:
        """Emit a range of records, unless one of them is poison or gone."""
        self.left(partition, cut[1])
        for record in range(*cut):
            self._check_poison(attempt, partition, record)
            collector.emit(self.records[partition][record])

    def _check_poison(self, attempt: TransactionAttempt, partition: int, record: int) -> None:
        for event in self.events:
            if not isinstance(event, Poison):
                continue
            here = (event.partition, event.record) == (partition, record)
            if here and (event.attempts is None or attempt.attempt < event.attempts):
                raise event.error or FailedException(
                    f"record {record} of partition {partition} is poison, says the script"
                )


def _check(event: Event, records: Sequence[int]) -> None:
    """Refuse what could not happen, since a test with it would show nothing."""
    flaw = None
    if not isinstance(event, Event):
        flaw = "expected Outage, Recut, Late or Poison"
    elif not isinstance(event, Poison) and not _counts(event.txid, 1):
        flaw = "expected a txid, from 1"
    elif isinstance(event, Late):
        flaw = None if _counts(event.asks, 1) else "expected asks of at least 1"
    elif event.partition not in range(len(records)) and not (
        isinstance(event, Recut) and event.partition is None
    ):
        flaw = f"expected a partition below {len(records)}: there are no others in the batches"
    elif isinstance(event, Recut) and not (_counts(event.take) and _counts(event.attempt)):
        flaw = "expected an attempt and a number of rows to take, from 0"
    elif isinstance(event, Outage) and not (event.attempt is None or _counts(event.attempt)):
        flaw = "expected the number of an attempt, from 0, or None for all"
    elif isinstance(event, Poison):
        flaw = _flaw_of_poison(event, records[event.partition])
    if flaw is not None:
        raise TopologyError(f"the script of a scripted spout is wrong; got {event!r}; {flaw}")


def _flaw_of_poison(event: Poison, records: int) -> str | None:
    if not _counts(event.record) or event.record >= records:
        return f"expected one of the {records} records of the partition, from 0"
    if event.attempts is not None and not _counts(event.attempts, 1):
        return "expected at least 1 attempt that fails, or None for all"
    if event.error is not None and not isinstance(event.error, Exception):
        return "expected an exception, such as ValueError('…')"
    return None


def _counts(number: object, least: int = 0) -> bool:
    return type(number) is int and number >= least


def _checked(fields: Fields, row: Row) -> Row:
    if not isinstance(row, list | tuple) or len(row) != len(fields):
        raise TopologyError(
            f"a row of a scripted spout does not fit the fields; got {row!r:.200}; expected "
            f"{len(fields)} values: {', '.join(fields.names)}"
        )
    return tuple(row)
