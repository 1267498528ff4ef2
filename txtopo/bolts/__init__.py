"""Bolts: the classes that users subclass, and ready-made ones."""

from txtopo.bolts.bolt import ArrowBolt, BasicBolt, BatchBolt, Bolt, Committer, DataFrameBolt
from txtopo.bolts.dead_letters import DeadLetters
from txtopo.bolts.kafka import KafkaSink
from txtopo.bolts.persistent_aggregate import PersistentAggregate

__all__ = [
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
