"""SimulatedSource: records that become available bit by bit, in partitions that go away at times.

The record at an offset is always the same, so that the checkers know what each batch must have been
without asking anybody. Three spouts read it; see
:mod:`txtopo.testing.simulation.spouts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.errors import FailedException
from txtopo.testing.simulation.chaos import AWAY_S
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from txtopo.testing.simulation.world import World

FIELDS = Fields("partition long, offset long, key string, amount long")
KEYS = 5
GROWTH_PERIOD_S = 0.2


def record(partition: int, offset: int) -> tuple[int, int, str, int]:
    """Return the record at an offset; every amount is another power or sum, so none hides."""
    mixed = (partition * 1_000_003 + offset * 7_919) % 1_000
    return partition, offset, f"key-{mixed % KEYS}", 1 + mixed


class SimulatedSource:
    """What is outside and outlives all processes.

    Args:
        world: The world.
        partitions: Partitions at the end; some may come later.
        records: Records of each partition at the end.
        batch_records_max: Most records that a batch takes from a partition.
    """

    def __init__(self, world: World, partitions: int, records: int, batch_records_max: int) -> None:
        self.partitions = partitions
        self.records = records
        self.batch_records_max = batch_records_max
        self.otherwise = False
        """Whether each new cut is another one, as it is when a lost task is computed again."""
        self._world = world
        self._ends: list[int] = []
        self._away_until_s: dict[int, float] = {}
        self._empty: dict[TransactionAttempt, bool] = {}
        self._cuts: dict[TransactionAttempt, dict[int, int]] = {}
        self._committing: dict[int, TransactionAttempt] = {}
        self._trimmed: dict[int, int] = {}
        self._grow()

    def end(self, partition: int) -> int:
        """Return the offset behind the last record that is there now."""
        return self._ends[partition]

    def number_of_partitions(self) -> int:
        """Return how many partitions there are now."""
        return len(self._ends)

    def is_away(self, partition: int) -> bool:
        """Return whether a partition cannot be read now."""
        now_s = self._world.timeline.now_s
        return now_s < self._away_until_s.get(partition, 0.0) and not self._world.chaos.healed

    def goes_away(self, partition: int) -> bool:
        """Let a partition go away now and then; return whether it cannot be read now."""
        chaos = self._world.chaos
        if chaos.happens("source_away"):
            self._away_until_s[partition] = self._world.timeline.now_s + chaos.between(*AWAY_S)
        return self.is_away(partition)

    def check(self, partition: int, start: int, count: int) -> None:
        """Check that records can be read again.

        Raises:
            FailedException: They are away and will be back, or were trimmed and will not.
        """
        if count and start < self._trimmed.get(partition, 0):
            raise FailedException(f"offset {start} of partition {partition} was trimmed")
        if count and (self.goes_away(partition) or start + count > self.end(partition)):
            raise FailedException(f"partition {partition} of the simulated source is away")

    def is_empty_replay(self, attempt: TransactionAttempt) -> bool:
        """Return whether an opaque attempt takes nothing, though one before it may have."""
        if attempt not in self._empty:
            replay = any(known.txid == attempt.txid for known in self._empty)
            chaos = self._world.chaos
            self._empty[attempt] = replay and chaos.happens("empty_replay")
        return self._empty[attempt]

    def note_end(self, attempt: TransactionAttempt, partition: int, end: int) -> None:
        """Take note of where an attempt ends, for the day when its txid is done.

        A task that Spark runs twice may cut twice under one attempt, and only the driver knows
        which of the two counted; so what is trimmed in the end is what both had.
        """
        ends = self._cuts.setdefault(attempt, {})
        ends[partition] = min(end, ends.get(partition, end))

    def commit(self, attempt: TransactionAttempt) -> None:
        """Take note that an attempt is about to be committed."""
        known = self._committing.get(attempt.txid)
        if known is None or known < attempt:
            self._committing[attempt.txid] = attempt

    def trim(self, txid: int) -> None:
        """Forget the records of all batches before *txid*: nobody may need them again."""
        for done in [each for each in self._committing if each < txid]:
            for partition, end in self._cuts.get(self._committing.pop(done), {}).items():
                self._trimmed[partition] = max(end, self._trimmed.get(partition, 0))

    def take(self, available: int) -> int:
        """Return how many of the available records a batch takes."""
        most = min(max(available, 0), self.batch_records_max)
        chaos = self._world.chaos
        recut = most and (self.otherwise or chaos.happens("recut"))
        return chaos.below(most + 1) if recut else most

    @property
    def is_complete(self) -> bool:
        """Whether everything is there that will ever be."""
        return self._ends == [self.records] * self.partitions

    def complete(self) -> None:
        """Let everything be there that will ever be."""
        self._ends = [self.records] * self.partitions

    def _grow(self) -> None:
        chaos = self._world.chaos
        if len(self._ends) < self.partitions and (not self._ends or chaos.below(3)):
            self._ends.append(0)
        for partition, end in enumerate(self._ends):
            more = chaos.below(3 * self.batch_records_max)
            if chaos.happens("source_shrinks"):
                more = -more  # as seen on a replica that is behind
            self._ends[partition] = max(0, min(self.records, end + more))
        if not self.is_complete:
            delay_s = chaos.between(0.0, 2 * GROWTH_PERIOD_S)
            self._world.timeline.after(delay_s, self._grow)
