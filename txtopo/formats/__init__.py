"""Formats of Kafka records whose schemas are in a schema registry: Avro and Protobuf."""

from txtopo.formats.avro import Avro
from txtopo.formats.protobuf import Protobuf

__all__ = ["Avro", "Protobuf"]
