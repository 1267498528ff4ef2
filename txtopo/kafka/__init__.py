"""Kafka as a source: in batches that are ranges of offsets, or record by record for a group."""

from txtopo.kafka.batch_spouts import KafkaOpaqueSpout, KafkaTransactionalSpout
from txtopo.kafka.group_spout import KafkaSpout

__all__ = ["KafkaOpaqueSpout", "KafkaSpout", "KafkaTransactionalSpout"]
