"""WHEN: the protocol, without I/O. Events in, ordered actions out."""

from txtopo.coordinator.machine import Coordinator
from txtopo.coordinator.transactions import CoordinatorSettings, Phase, Transaction

__all__ = ["Coordinator", "CoordinatorSettings", "Phase", "Transaction"]
