"""Streams: topologies written as chains of operators, which become spouts, bolts and states."""

from txtopo.streams.builder import StreamBuilder
from txtopo.streams.lookup_sources import DeltaLookup, FilesLookup, QueryLookup
from txtopo.streams.lookups import Lookup
from txtopo.streams.stream import DataStream, Grouped, RowWindowed, Table, Windowed
from txtopo.streams.timers import DueTimer, Timers
from txtopo.streams.windows import session, sliding, tumbling

__all__ = [
    "DataStream",
    "DeltaLookup",
    "DueTimer",
    "FilesLookup",
    "Grouped",
    "Lookup",
    "QueryLookup",
    "RowWindowed",
    "StreamBuilder",
    "Table",
    "Timers",
    "Windowed",
    "session",
    "sliding",
    "tumbling",
]
