"""KafkaCoordinator: cuts the logs into batches of bounded size.

It keeps nothing that decides what a batch is: the batch of a txid follows from the metadata of the
txid before and from one look at the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from txtopo.metadata import Json
from txtopo.spouts.kafka.loss import LossCheck, unseen
from txtopo.spouts.kafka.offsets import Look, Offsets
from txtopo.spouts.kafka.positions import Place, Positions, Range, Start, from_json
from txtopo.spouts.transactional import LastBatch, TransactionalCoordinator

PARTIAL_PENDING_MAX = 2


class KafkaCoordinator(TransactionalCoordinator):
    """Plans ranges in the driver, up to the last stable offsets."""

    def __init__(self, offsets: Offsets, start: Start, records_max: int) -> None:
        self._offsets = offsets
        self._start: Start = start
        self._records_max = records_max
        self._check = LossCheck()
        self._look: Look | None = None

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Look whether there is anything behind the last batch.

        The first batch of a start that depends on the time is ready at once, empty or not, so that
        it is durable where the topology started.
        """
        self._look = look = self._offsets.look()
        before = from_json(last.metadata)
        self._check.positions(before, look)
        if last.metadata is None and self._offsets.seen_as_wanted(look):
            fixed = self._start == "earliest" or isinstance(self._start, Mapping)
            if not fixed:
                return True
        left = [
            bounds.end - (before.ranges[place].end if place in before.ranges else bounds.start)
            for place, bounds in look.bounds.items()
        ]
        return worth_a_batch(max(left, default=0), self._records_max, last)

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        """Cut the next batch.

        Raises:
            SourceDataLost: Records that were not read are gone.
            InfrastructureError: The cluster cannot be reached, or does not show all that the first
                batch needs; try again.
        """
        before = from_json(previous_metadata)
        look = self._look or self._offsets.look()
        self._check.topics(before, look)
        new = [place for place in look.places if place not in before.ranges]
        starts = self._offsets.starts(self._start, look, new, first=previous_metadata is None)
        ends = {place: each.end for place, each in before.ranges.items()} | starts
        ranges = unseen(before, look)
        for place in look.places:
            if place in ends:
                ranges[place] = self._range(place, ends[place], look.bounds.get(place))
        ids = {name: topic.id for name, topic in look.topics.items()}
        return Positions(ids, ranges).to_json()

    def lag(self, metadata: Json) -> Mapping[str, int]:
        """Return how far each partition was behind its end at the last look."""
        return behind(self._look, from_json(metadata))

    def _range(self, place: Place, start: int, bounds: Range | None) -> Range:
        if bounds is None:
            return Range(start, start)
        self._check.range(place, start, bounds)
        return Range(start, min(bounds.end, start + self._records_max))


def worth_a_batch(left: int, records_max: int, last: LastBatch) -> bool:
    """Return whether a batch is to be cut now, with *left* offsets in the fullest partition.

    A full one is, at once: the window is there for that. One that has room grows while it waits,
    and a record waits for all batches before its own. So while two are in flight, one of which
    commits and one is processed, the rest is left to gather: no record then waits for more than
    two others, and the slower the commits, the larger the batches.
    """
    return left >= records_max or (left > 0 and last.pending < PARTIAL_PENDING_MAX)


def behind(look: Look | None, positions: Positions) -> dict[str, int]:
    """Return how many offsets each partition has behind *positions*, as far as was seen."""
    if look is None:
        return {}
    return {
        str(place): max(0, look.bounds[place].end - each.end)
        for place, each in positions.ranges.items()
        if place in look.bounds
    }
