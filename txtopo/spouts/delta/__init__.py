"""Rows that are appended to a Delta table, and those that change in it."""

from txtopo.spouts.delta.spout import DeltaDataFrameSpout, DeltaTransactionalSpout

__all__ = ["DeltaDataFrameSpout", "DeltaTransactionalSpout"]
