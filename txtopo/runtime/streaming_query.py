"""StreamingQueryFacts: what Spark says of the streaming query that a micro-batch belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.errors import ConfigError
from txtopo.runtime.session import is_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# org.apache.spark.sql.execution.streaming.StreamExecution.QUERY_ID_KEY
_QUERY_ID = "sql.streaming.queryId"


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
        """
        if not is_classic(session):
            raise ConfigError(
                "foreach_batch needs classic Spark; got a Spark Connect session, whose "
                "foreachBatch runs in another process; run the query in the driver"
            )
        context = session.sparkContext
        id = context.getLocalProperty(_QUERY_ID)
        java = context._jvm
        if id is None or java is None:
            return cls(None, None)
        active = session._jsparkSession.sharedState().activeStreamingQueries()
        query = active.get(java.java.util.UUID.fromString(id))
        if query is None:
            return cls(None, None)
        kind = query.getClass().getSimpleName()
        if "Async" in kind:
            raise ConfigError(
                "the query tracks its progress asynchronously, which does not note a batch before "
                f"it is computed, so that a replay may be another batch; got {kind}; expected "
                "asyncProgressTrackingEnabled=false"
            )
        return cls(id, query.runId().toString())
