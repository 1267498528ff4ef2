"""A SQL table or query as a source: batches are ranges of a growing key."""

from txtopo.sources.query.spout import QueryTransactionalSpout

__all__ = ["QueryTransactionalSpout"]
