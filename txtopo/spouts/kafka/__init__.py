"""Kafka as a source: batches are ranges of offsets, which confluent-kafka reads in the tasks."""

from txtopo.spouts.kafka.spouts import KafkaOpaqueSpout, KafkaTransactionalSpout

__all__ = ["KafkaOpaqueSpout", "KafkaTransactionalSpout"]
