"""Builders: where users put topologies together, and the topologies that result."""

from txtopo.builders.at_least_once import ReliableTopology, TopologyBuilder
from txtopo.builders.declarer import BoltDeclarer, InputDeclarer
from txtopo.builders.from_yaml import topology_from_yaml
from txtopo.builders.transactional import Topology, TransactionalTopologyBuilder

__all__ = [
    "BoltDeclarer",
    "InputDeclarer",
    "ReliableTopology",
    "Topology",
    "TopologyBuilder",
    "TransactionalTopologyBuilder",
    "topology_from_yaml",
]
