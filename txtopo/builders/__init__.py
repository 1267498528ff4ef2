"""What the user holds: builders, and the topology that they build."""

from txtopo.builders.declarer import BoltDeclarer
from txtopo.builders.topology import Topology
from txtopo.builders.transactional import TransactionalTopologyBuilder

__all__ = ["BoltDeclarer", "Topology", "TransactionalTopologyBuilder"]
