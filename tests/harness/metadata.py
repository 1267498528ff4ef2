"""of_one: the metadata of a batch of a topology with one spout."""

from __future__ import annotations

from dataclasses import replace

from txtopo.metadata import BatchMetadata, Json, SpoutShare

CUTTING = frozenset({"spout"})
"""The spout, if its emitters decide where a batch ends."""


def of_one(
    planned: Json = None,
    cut: dict[str, Json] | None = None,
    *,
    spout: str = "spout",
    pace: dict[str, Json] | None = None,
    stamp: dict[str, Json] | None = None,
) -> BatchMetadata:
    """Return metadata with the share of one spout."""
    return BatchMetadata({spout: SpoutShare(planned, cut)}, pace=pace, stamp=stamp)


def with_cut(
    metadata: BatchMetadata, cut: dict[str, Json] | None, spout: str = "spout"
) -> BatchMetadata:
    """Return metadata in which a spout has this cut."""
    return replace(metadata, spouts={spout: replace(metadata.of(spout), cut=cut)})
