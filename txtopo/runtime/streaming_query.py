"""StreamingQueryFacts: what Spark says of the streaming query that a micro-batch belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txtopo.errors import ConfigError, RunLostError
from txtopo.runtime.session import is_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# org.apache.spark.sql.execution.streaming.StreamExecution.QUERY_ID_KEY
_QUERY_ID = "sql.streaming.queryId"

NEEDS_CLASSIC = (
    "needs classic Spark; got a Spark Connect session, whose foreachBatch runs in another process; "
    "run the query in the driver"
)


@dataclass(frozen=True, slots=True)
class StreamingQueryFacts:
    """The query that the calling thread works for.

    Attributes:
        id: Its id, kept in its checkpoint; None for a frame that no query brought.
        run_id: Id of this start of it.
    """

    id: str | None
    run_id: str | None

    @classmethod
    def of(cls, session: SparkSession) -> StreamingQueryFacts:
        """Ask the session of a micro-batch, on the thread that ``foreachBatch`` calls on.

        Raises:
            ConfigError: The query tracks its progress asynchronously, or runs on Spark Connect.
            RunLostError: The query has ended; nobody waits for this batch.
        """
        if not is_classic(session):
            raise ConfigError(f"foreach_batch {NEEDS_CLASSIC}")
        context = session.sparkContext
        id = context.getLocalProperty(_QUERY_ID)
        if id is None:
            return cls(None, None)
        java: Any = context._jvm
        active = session._jsparkSession.sharedState().activeStreamingQueries()
        query = active.get(java.java.util.UUID.fromString(id))
        if query is None:
            # Without its id another checkpoint's batches would pass for this one's.
            raise RunLostError(
                f"the streaming query {id} is not active any more, so its batch is not wanted; "
                "start the query again"
            )
        kind = query.getClass().getSimpleName()
        if "Async" in kind:
            raise ConfigError(
                "the query tracks its progress asynchronously, which does not note a batch before "
                f"it is computed, so that a replay may be another batch; got {kind}; expected "
                "asyncProgressTrackingEnabled=false"
            )
        return cls(id, query.runId().toString())
