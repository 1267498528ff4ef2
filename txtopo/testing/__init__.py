"""Tools for tests: of txtopo, of users' topologies and of plug-ins."""

from txtopo.testing.cluster import SimulatedCluster
from txtopo.testing.completing import Completed, complete_topology
from txtopo.testing.feeder import FeederSpout
from txtopo.testing.own_topology import SimulationFailed, simulate
from txtopo.testing.script import Late, Poison
from txtopo.testing.scripted import ScriptedSpout, ScriptedTransactionalSpout
from txtopo.testing.shared import Shared
from txtopo.testing.tracked import TrackedTopology

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
