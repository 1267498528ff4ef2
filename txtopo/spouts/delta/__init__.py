"""Rows that are appended to a Delta table."""

from txtopo.spouts.delta.spout import DeltaTransactionalSpout

__all__ = ["DeltaTransactionalSpout"]
