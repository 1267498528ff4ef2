"""Builders: where users put topologies together, and the topologies that result."""

from typing import TYPE_CHECKING

from txtopo.builders.declarer import BoltDeclarer, InputDeclarer
from txtopo.builders.transactional import Topology, TransactionalTopologyBuilder
from txtopo.lazy_names import lazy_names

if TYPE_CHECKING:
    from txtopo.reliable.builder import ReliableTopology, TopologyBuilder
    from txtopo.yaml.loading import topology_from_yaml

_LAZY = {
    "txtopo.reliable.builder": ("ReliableTopology", "TopologyBuilder"),
    "txtopo.yaml.loading": ("topology_from_yaml",),
}

__all__ = [
    "BoltDeclarer",
    "InputDeclarer",
    "ReliableTopology",
    "Topology",
    "TopologyBuilder",
    "TransactionalTopologyBuilder",
    "topology_from_yaml",
]

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
