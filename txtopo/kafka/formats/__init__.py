"""Formats of Kafka records whose schemas are in a schema registry: Avro and Protobuf."""

from txtopo.kafka.formats.avro import Avro
from txtopo.kafka.formats.protobuf import Protobuf

__all__ = ["Avro", "Protobuf"]
