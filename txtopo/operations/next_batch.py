"""The next batch of a topology, planned as a leader would plan it, and stored nowhere.

Of a batch that only opaque spouts bring, nothing is stored before it was processed. So one that
fails on its way is planned again to look at it, from where the batch before it ended. A spout that
plans whole batches has its plan stored before a task sees it, and is not asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.coordinator.protocol import Failed, PlanBatch, Planned
from txtopo.ensemble.nodes import EPOCH, StoredBatch, epoch_of, metadata_to_json, terms_of
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.runtime.scheduler import ThreadScheduler

if TYPE_CHECKING:
    from txtopo.metadata import BatchMetadata
    from txtopo.operations.session import OperatorSession


def planned_batch(session: OperatorSession, before: int, last: BatchMetadata) -> StoredBatch | None:
    """Plan the batch after txid *before*, whose metadata is *last*.

    Returns:
        The batch; None if a spout plans whole batches, if the topology never ran, or if the source
        has no record for it.

    Raises:
        Exception: What a spout raised.
    """
    node = session.state.get(EPOCH)
    if node is None or session.repeatable:
        return None
    epoch = epoch_of(node)
    attempt = TransactionAttempt(before + 1, 0, epoch, term=terms_of(node).get(epoch, ""))
    clocks = ThreadScheduler(f"txtopo-{session.graph.id}-plan")
    planner = BatchPlanner(session.graph, session.config, clocks)
    try:
        answer = planner.plan(PlanBatch(attempt, before, last if before else None))
    finally:
        planner.close()
    match answer:
        case Planned(metadata=metadata):
            return StoredBatch(attempt, metadata_to_json(metadata))
        case Failed(failure=failure):
            raise failure.error
        case _:
            return None
