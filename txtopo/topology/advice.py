"""What is allowed but hardly meant: one sentence each, for a warning."""

from __future__ import annotations

from txtopo.topology.graph import Graph


def advice(graph: Graph) -> tuple[str, ...]:
    """Return what the user of this topology should be warned of."""
    if len(graph.components) == 1:
        return (
            f"topology {graph.id!r} has a spout and no bolts; its batches are emitted and "
            "forgotten; add a bolt with set_bolt",
        )
    if not graph.committing:
        return (
            f"topology {graph.id!r} has no committer; its batches are computed, but nothing is "
            "kept or ordered; add a PersistentAggregate or a bolt derived from Committer",
        )
    return ()
