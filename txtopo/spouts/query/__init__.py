"""Rows of a SQL table or query, by ranges of a key that grows."""

from txtopo.spouts.query.spout import QueryTransactionalSpout

__all__ = ["QueryTransactionalSpout"]
