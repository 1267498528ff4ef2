"""Whether a tree of tuples is complete. Pure: no clock, no thread, no I/O."""

from txtopo.acking.acker import Acker, Ended
from txtopo.acking.pending import EndedTrees, PendingTrees
from txtopo.acking.rotating_map import RotatingMap
from txtopo.acking.tuple_tree import Ids, Xors

__all__ = ["Acker", "Ended", "EndedTrees", "Ids", "PendingTrees", "RotatingMap", "Xors"]
