"""Tools for tests: of txtopo, of users' topologies and of plug-ins."""

from txtopo.testing.own_topology import SimulationFailed, simulate

__all__ = ["SimulationFailed", "simulate"]
