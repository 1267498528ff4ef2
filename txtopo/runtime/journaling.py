"""How the coordinator's batches look in the journal, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from txtopo.coordinator.actions import Advance, StoreBatches
from txtopo.errors import CorruptNodeError
from txtopo.metadata import BatchMetadata, Json
from txtopo.transactional_state.journal import StoredBatch

if TYPE_CHECKING:
    from txtopo.runtime.parts import Parts


def store_action(parts: Parts, action: StoreBatches | Advance) -> None:
    """Make what the coordinator asks for durable, in one write."""
    match action:
        case StoreBatches():
            parts.scheduler.point("P2.before")
            parts.journal.store_batches(
                [
                    StoredBatch(attempt, to_json(metadata))
                    for attempt, metadata in zip(action.attempts, action.metadata, strict=True)
                ]
            )
            parts.scheduler.point("P2.after")
        case Advance():
            parts.scheduler.point("P9.before")
            parts.journal.advance(action.current, drop_before=action.drop_before)
            parts.scheduler.point("P9.after")
            parts.planner.cleanup_before(action.current)
            parts.scheduler.point("P10.after")


def to_json(metadata: BatchMetadata) -> Json:
    """Return the JSON form of a batch's metadata."""
    return {"planned": metadata.planned, "cut": metadata.cut}


def from_json(txid: int, value: Json) -> BatchMetadata:
    """Read the JSON form back.

    Raises:
        CorruptNodeError: It is something else; never taken as empty.
    """
    if isinstance(value, Mapping) and set(value) == {"planned", "cut"}:
        cut = value["cut"]
        if cut is None or isinstance(cut, dict):
            return BatchMetadata(value["planned"], cut)
    raise CorruptNodeError(
        f"the stored metadata of txid {txid} cannot be read; got {value!r:.200}; expected an "
        "object with 'planned' and 'cut'; restore the node",
        txid=txid,
    )
