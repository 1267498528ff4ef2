"""BatchMetadata: what has to be known to emit a batch again."""

from __future__ import annotations

from dataclasses import dataclass

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""What metadata is made of. Nothing is ever pickled into the transactional state."""


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """What has to be known to emit a batch again.

    Attributes:
        planned: What the spout's coordinator part said (``initialize_transaction``; for a
            partitioned spout the number of partitions).
        cut: What the emitters said, by partition, carried forward for partitions that emitted
            nothing; None for a spout whose emitters have no metadata of their own, and for a batch
            that was never processed.
    """

    planned: Json = None
    cut: dict[str, Json] | None = None
