"""What the user defines: components and the checked graph that they make."""

from txtopo.topology.component import Component, Role, Subscription, declared_streams
from txtopo.topology.graph import Edge, Graph

__all__ = ["Component", "Edge", "Graph", "Role", "Subscription", "declared_streams"]
