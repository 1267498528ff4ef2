"""WHEN: the protocol, without I/O. Events in, ordered actions out."""

from txtopo.coordinator.machine import Coordinator
from txtopo.coordinator.phases import Phase
from txtopo.coordinator.settings import CoordinatorSettings
from txtopo.coordinator.transaction import Transaction

__all__ = ["Coordinator", "CoordinatorSettings", "Phase", "Transaction"]
