"""Kafka as a source: offsets are planned as ranges, and read by confluent-kafka in the tasks."""

from txtopo.spouts.kafka.spouts import KafkaOpaqueSpout, KafkaTransactionalSpout

__all__ = ["KafkaOpaqueSpout", "KafkaTransactionalSpout"]
