"""Formats of Kafka records: Avro and Protobuf with a schema registry, and Debezium's changes."""

from txtopo.kafka.formats.avro import Avro
from txtopo.kafka.formats.debezium import Debezium
from txtopo.kafka.formats.protobuf import Protobuf

__all__ = ["Avro", "Debezium", "Protobuf"]
