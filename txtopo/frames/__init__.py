"""DataFrames: the part of a topology that Spark computes as plans, without envelopes.

The core does not import this package. ``txtopo/wings.py`` registers :mod:`txtopo.frames.engine`
with it, in the two places where it asks: :mod:`txtopo.topology.engine` and
:mod:`txtopo.runtime.engine`.
"""
