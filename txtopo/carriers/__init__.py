"""Carriers: run the stages of a topology, in this process or on Spark."""
