"""Kafka as a place for results."""

from txtopo.bolts.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
