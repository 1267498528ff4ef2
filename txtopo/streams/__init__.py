"""Streams: topologies written as chains of operators, which become spouts, bolts and states."""

from txtopo.streams.builder import StreamBuilder
from txtopo.streams.stream import DataStream, Grouped, Table

__all__ = ["DataStream", "Grouped", "StreamBuilder", "Table"]
