"""Tools for tests: of txtopo, of users' topologies and of plug-ins."""

from txtopo.testing.cluster import SimulatedCluster
from txtopo.testing.completing import Completed, TrackedTopology, complete_topology
from txtopo.testing.own_topology import SimulationFailed, simulate
from txtopo.testing.spouts import (
    FeederSpout,
    Late,
    Poison,
    ScriptedSpout,
    ScriptedTransactionalSpout,
    Shared,
)

__all__ = [
    "Completed",
    "FeederSpout",
    "Late",
    "Poison",
    "ScriptedSpout",
    "ScriptedTransactionalSpout",
    "Shared",
    "SimulatedCluster",
    "SimulationFailed",
    "TrackedTopology",
    "complete_topology",
    "simulate",
]
