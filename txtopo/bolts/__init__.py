"""What is done with a batch."""

from txtopo.bolts.arrow import ArrowBolt
from txtopo.bolts.basic import BasicBolt
from txtopo.bolts.batch import BatchBolt
from txtopo.bolts.bolt import Bolt
from txtopo.bolts.committer import Committer
from txtopo.bolts.dataframe import DataFrameBolt
from txtopo.bolts.kafka import KafkaSink
from txtopo.bolts.persistent_aggregate import PersistentAggregate

__all__ = [
    "ArrowBolt",
    "BasicBolt",
    "BatchBolt",
    "Bolt",
    "Committer",
    "DataFrameBolt",
    "KafkaSink",
    "PersistentAggregate",
]
