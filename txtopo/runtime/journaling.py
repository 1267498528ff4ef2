"""How the coordinator's batches look in the journal, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from txtopo.coordinator.protocol import Advance, StoreBatches
from txtopo.errors import BatchMetadataTooLarge, CorruptNodeError
from txtopo.metadata import BatchMetadata, Json
from txtopo.retries import warn_of_retry
from txtopo.transactional_state.journal import Journal
from txtopo.transactional_state.nodes import STEP_BYTES_MAX, StoredBatch

if TYPE_CHECKING:
    from txtopo.runtime.run_context import RunContext

METADATA_BYTES_MAX = STEP_BYTES_MAX - 4096
"""What a step has room for besides its path, the attempt and the check of the epoch."""


def store_action(parts: RunContext, journal: Journal, action: StoreBatches | Advance) -> None:
    """Make what the coordinator asks for durable, in one write."""
    match action:
        case StoreBatches():
            parts.scheduler.point("store-metadata.before")
            journal.store_batches(
                [
                    StoredBatch(attempt, to_json(metadata), metadata.content)
                    for attempt, metadata in zip(action.attempts, action.metadata, strict=True)
                ]
            )
            parts.scheduler.point("store-metadata.after")
        case Advance():
            parts.scheduler.point("advance.before")
            journal.advance(action.current, drop_before=action.drop_before)
            parts.scheduler.point("advance.after")
            _clean_up(parts, action.current)


def _clean_up(parts: RunContext, current: int) -> None:
    """Tell the spout what is done; it is told again with the next txid, so errors may pass."""
    parts.scheduler.point("cleanup.before")
    try:
        parts.planner.cleanup_before(current)
    except Exception as error:  # noqa: BLE001 - the spout's code; what is done is done all the same
        warn_of_retry(
            f"the spout's cleanup_before({current})",
            error,
            topology=parts.graph.id,
            failures=parts.planner.cleanup_failures,
            txid=current - 1,
            component=parts.program.spout_id,
        )
    parts.scheduler.point("cleanup.after")


def check_size(txid: int, metadata: BatchMetadata) -> None:
    """Find metadata that will not fit while its batch can still be named.

    Raises:
        BatchMetadataTooLarge: Cut smaller batches.
    """
    size = len(json.dumps([to_json(metadata), metadata.content]))
    if size > METADATA_BYTES_MAX:
        raise BatchMetadataTooLarge(
            f"the metadata of txid {txid} takes {size} bytes; a znode has room for "
            f"{METADATA_BYTES_MAX}; cut smaller batches, or name ranges instead of records",
            txid=txid,
            bytes=size,
        )


def to_json(metadata: BatchMetadata) -> Json:
    """Return the JSON form of what a spout needs of a batch's metadata."""
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
        "object with 'planned' and 'cut'; put it back with txtopo.operations.repair_node",
        txid=txid,
    )
