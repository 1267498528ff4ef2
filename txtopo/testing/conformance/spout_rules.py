"""What a spout promises, rule by rule."""

from __future__ import annotations

from enum import Enum


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
