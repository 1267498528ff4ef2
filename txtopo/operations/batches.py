"""Metadata of batches as operators give it: in the form in which ``show()`` prints it."""

from __future__ import annotations

from collections.abc import Iterable

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError
from txtopo.metadata import BatchMetadata, Json, json_flaw
from txtopo.operations.site import Site
from txtopo.runtime.journaling import from_json, to_json
from txtopo.transactional_state.journal import put_batch
from txtopo.transactional_state.nodes import StoredBatch, batch_path
from txtopo.transactional_state.store import Delete, Put

BEGINNING = BatchMetadata(None, {})
"""Where a source stands before txid 1."""


def checked_metadata(site: Site, txid: int, value: Json) -> BatchMetadata:
    """Return metadata that says where a batch ended; alone, or with its attempt as a node has it.

    Raises:
        StateUsageError: It does not.
    """
    if isinstance(value, dict) and {*value, "content"} == {"attempt", "metadata", "content"}:
        value = value["metadata"]
    flaw = json_flaw(value)
    keys = set(value) if isinstance(value, dict) else None
    cut = value.get("cut") if isinstance(value, dict) else None
    if flaw is None and keys == {"planned", "cut"} and isinstance(cut, dict | None):
        metadata = from_json(txid, value)
        if metadata.cut is not None or not site.chained:
            return metadata
        flaw = "its cut is None, so it does not say where the batch ended in each partition"
    raise StateUsageError(
        f"metadata of txid {txid} cannot be used; got {value!r:.200}"
        f"{'' if flaw is None else f' ({flaw})'}; expected {{'planned': …, 'cut': …}} as show() "
        "prints it, with what initialize_transaction returned in 'planned', or what each "
        "partition's emitter returned in 'cut', by the partition's number as a string",
        txid=txid,
    )


def carried(before: BatchMetadata | None, metadata: BatchMetadata) -> BatchMetadata:
    """Return metadata in which partitions that are not named stand where they stood before."""
    if metadata.cut is None or before is None or before.cut is None:
        return metadata
    return BatchMetadata(metadata.planned, {**before.cut, **metadata.cut})


def stored(attempt: TransactionAttempt, metadata: BatchMetadata) -> Put:
    """Return the step that stores a batch."""
    return put_batch(StoredBatch(attempt, to_json(metadata), metadata.content))


def dropped(txids: Iterable[int]) -> list[Delete]:
    """Return the steps that delete batches."""
    return [Delete(batch_path(txid)) for txid in sorted(txids)]
