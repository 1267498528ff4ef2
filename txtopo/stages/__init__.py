"""Stages: how a topology runs, as functions over envelopes. Uses pyarrow and numpy, not Spark."""
