"""DataFrames: the part of a topology that Spark computes as plans, without envelopes.

The core does not import this package. ``txtopo/wings.py`` registers :mod:`txtopo.frames.engine`
with it, in :mod:`txtopo.topology.engine`.
"""
