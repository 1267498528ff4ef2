"""HOW a topology runs: stage functions over envelopes. Knows pyarrow and numpy, not Spark."""
