"""Kafka as a source: in batches that are ranges of offsets, or record by record for a group."""

from txtopo.kafka.spout import KafkaSpout
from txtopo.kafka.spouts import KafkaOpaqueSpout, KafkaTransactionalSpout

__all__ = ["KafkaOpaqueSpout", "KafkaSpout", "KafkaTransactionalSpout"]
