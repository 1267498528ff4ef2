"""Closing: what a run lets go of when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from txtopo.transactional_state.store import Leadership

if TYPE_CHECKING:
    from txtopo.runtime.parts import Parts

logger = logging.getLogger("txtopo")


def close_parts(parts: Parts, leadership: Leadership | None) -> None:
    """Let go of everything but the spout; the place in the election first: others wait for it."""
    steps: list[Callable[[], None]] = [] if leadership is None else [leadership.release]
    steps += [parts.transactional_state.close, parts.carrier.close]
    for step in steps:
        try:
            step()
        except Exception:
            logger.warning("topology %s: could not close", parts.graph.id, exc_info=True)


def close_spout(parts: Parts) -> None:
    """Close the user's parts of the spout."""
    try:
        parts.planner.close()
    except BaseException:
        logger.warning("topology %s: the spout could not close", parts.graph.id, exc_info=True)
