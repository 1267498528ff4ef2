"""The checked graph of a topology: its components, and the checks that it must pass."""

from txtopo.topology.bolt_kinds import BoltKind
from txtopo.topology.component import Component, Subscription, declared_streams
from txtopo.topology.graph import Edge, Graph
from txtopo.topology.spout_kinds import SpoutKind

__all__ = [
    "BoltKind",
    "Component",
    "Edge",
    "Graph",
    "SpoutKind",
    "Subscription",
    "declared_streams",
]
