"""The checked graph of a topology: its components, and the checks that it must pass."""

from txtopo.topology.component import Component, Role, Subscription, declared_streams
from txtopo.topology.graph import Edge, Graph

__all__ = ["Component", "Edge", "Graph", "Role", "Subscription", "declared_streams"]
