"""Tools for tests: of txtopo, of users' topologies and of plug-ins."""

from txtopo.testing.own_topology import SimulationFailed, simulate
from txtopo.testing.script import Late, Poison
from txtopo.testing.scripted import ScriptedSpout, ScriptedTransactionalSpout

__all__ = [
    "Late",
    "Poison",
    "ScriptedSpout",
    "ScriptedTransactionalSpout",
    "SimulationFailed",
    "simulate",
]
