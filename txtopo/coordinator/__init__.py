"""The protocol of batches and commits, without I/O: events in, ordered actions out."""

from txtopo.coordinator.machine import Coordinator
from txtopo.coordinator.transactions import CoordinatorSettings, Phase, Transaction

__all__ = ["Coordinator", "CoordinatorSettings", "Phase", "Transaction"]
