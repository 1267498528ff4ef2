"""A SQL table or query as a source: batches are ranges of a growing key."""

from txtopo.spouts.query.spout import QueryTransactionalSpout

__all__ = ["QueryTransactionalSpout"]
