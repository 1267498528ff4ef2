"""What users import to keep state: open_state, the aggregates, the reader.

Whoever writes a store imports :mod:`txtopo.plugins.stores` instead.
"""

from __future__ import annotations

from txtopo.state.aggregates import Aggregate, Count, Max, Mean, Min, OwnAggregate, Sum
from txtopo.state.backend import StateKind, StateMode
from txtopo.state.frames import FrameStateHandle, FrameTransaction
from txtopo.state.ledger import Ledger
from txtopo.state.python_aggregates import CountDistinct, First, Last, TopN
from txtopo.state.reader import StateReader
from txtopo.state.registry import State, open_state, register_backend
from txtopo.state.transaction import StateHandle, StateTransaction

__all__ = [
    "Aggregate",
    "Count",
    "CountDistinct",
    "First",
    "FrameStateHandle",
    "FrameTransaction",
    "Last",
    "Ledger",
    "Max",
    "Mean",
    "Min",
    "OwnAggregate",
    "State",
    "StateHandle",
    "StateKind",
    "StateMode",
    "StateReader",
    "StateTransaction",
    "Sum",
    "TopN",
    "open_state",
    "register_backend",
]
