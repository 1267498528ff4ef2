"""Bolts: the classes that users subclass, and ready-made ones."""

from typing import TYPE_CHECKING

from txtopo.bolts.append import Append
from txtopo.bolts.bolt import ArrowBolt, BasicBolt, BatchBolt, Committer, DataFrameBolt
from txtopo.bolts.dead_letters import DeadLetters
from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.lazy_names import lazy_names

if TYPE_CHECKING:
    from txtopo.kafka.sink import KafkaSink
    from txtopo.reliable.bolt import Bolt

_LAZY = {
    "txtopo.kafka.sink": ("KafkaSink",),
    "txtopo.reliable.bolt": ("Bolt",),
}

__all__ = [
    "Append",
    "ArrowBolt",
    "BasicBolt",
    "BatchBolt",
    "Bolt",
    "Committer",
    "DataFrameBolt",
    "DeadLetters",
    "KafkaSink",
    "PersistentAggregate",
]

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
