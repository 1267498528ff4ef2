"""Kafka as a source: offsets are planned as ranges, and read by confluent-kafka in the tasks."""

from txtopo.spouts.kafka.opaque import KafkaOpaqueSpout
from txtopo.spouts.kafka.transactional import KafkaTransactionalSpout

__all__ = ["KafkaOpaqueSpout", "KafkaTransactionalSpout"]
