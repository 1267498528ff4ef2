"""Recovery: which batches a new coordinator starts from. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from txtopo.coordinator.transactions import CoordinatorSettings
from txtopo.errors import CorruptNodeError
from txtopo.metadata import BatchMetadata


def recover(
    stored: Mapping[int, BatchMetadata], *, current: int, settings: CoordinatorSettings
) -> tuple[BatchMetadata | None, dict[int, BatchMetadata]]:
    """Return the metadata of the txid before *current*, and of every batch already planned.

    Planned batches are replayed without asking the spouts. A repeatable spout keeps its cut, and an
    opaque one cuts its share again.

    Raises:
        CorruptNodeError: Metadata is missing; restore the node. Missing metadata is never taken as
            empty, because the source would then be read from a wrong position.
    """
    newest = max(stored, default=current - 1)
    for txid in range(max(1, current - 1), newest + 1):
        if txid not in stored:
            raise _missing(f"metadata of txid {txid} is missing", current, stored)
    before = stored[current - 1] if current > 1 else None
    if before is not None and not before.is_cut(settings.cutting_spouts):
        raise _missing(f"metadata of txid {current - 1} has no end", current, stored)
    planned = {txid: metadata for txid, metadata in stored.items() if txid >= current}
    if not settings.repeatable:
        repeats = settings.repeatable_spouts
        planned = {txid: metadata.cut_again(repeats) for txid, metadata in planned.items()}
    return before, planned


def _missing(what: str, current: int, stored: Mapping[int, BatchMetadata]) -> CorruptNodeError:
    return CorruptNodeError(
        f"{what} in the transactional state; got txids {sorted(stored)}; expected one for each "
        f"batch from {max(1, current - 1)} on, because {current} is the lowest uncommitted one; "
        "restore it with txtopo.operations.repair_node, from show() or a log of its content",
        current=current,
        got=tuple(sorted(stored)),
    )
