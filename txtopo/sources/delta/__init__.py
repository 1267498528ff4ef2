"""A Delta table as a source: its appended rows, or all of its changes."""

from txtopo.sources.delta.spout import DeltaDataFrameSpout, DeltaTransactionalSpout

__all__ = ["DeltaDataFrameSpout", "DeltaTransactionalSpout"]
