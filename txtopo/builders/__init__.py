"""What the user holds: builders, and the topologies that they build."""

from txtopo.builders.at_least_once import ReliableTopology, TopologyBuilder
from txtopo.builders.declarer import BoltDeclarer, InputDeclarer
from txtopo.builders.topology import Topology
from txtopo.builders.transactional import TransactionalTopologyBuilder

__all__ = [
    "BoltDeclarer",
    "InputDeclarer",
    "ReliableTopology",
    "Topology",
    "TopologyBuilder",
    "TransactionalTopologyBuilder",
]
