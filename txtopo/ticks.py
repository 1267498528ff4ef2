"""Tick tuples: what a bolt is given every ``tick_interval_s`` seconds (Storm's ``__tick``).

A tick comes from no spout, hangs in no tree and need not be acked.
"""

from __future__ import annotations

from txtopo.tuples import Fields, Origin, Tuple

SYSTEM_COMPONENT = "__system"
TICK_STREAM = "__tick"
TICK = Origin(None, SYSTEM_COMPONENT, TICK_STREAM, Fields("interval_s double"))


def is_tick(tuple: Tuple) -> bool:
    """Return whether a tuple is a tick; its only value is the interval in seconds."""
    return tuple.origin.stream == TICK_STREAM and tuple.origin.component == SYSTEM_COMPONENT
