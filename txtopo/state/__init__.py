"""What users import to keep state: open_state, the aggregates, the reader.

Authors of stores import :mod:`txtopo.plugins.stores` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.lazy_names import lazy_names
from txtopo.state.aggregates import Aggregate, Count, Max, Mean, Min, OwnAggregate, Sum
from txtopo.state.backend import StateKind, StateMode
from txtopo.state.ledger import Ledger
from txtopo.state.python_aggregates import CountDistinct, First, Last, TopN
from txtopo.state.reader import StateReader, read_together
from txtopo.state.registry import State, open_state, register_backend
from txtopo.state.transaction import StateHandle, StateTransaction

if TYPE_CHECKING:
    from txtopo.frames.states import FrameStateHandle, FrameTransaction

_LAZY = {"txtopo.frames.states": ("FrameStateHandle", "FrameTransaction")}

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
    "read_together",
    "register_backend",
]

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
