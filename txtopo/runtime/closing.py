"""Closing: what a run lets go of when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from txtopo.state.backend import StateBackend
from txtopo.transactional_state.store import Leadership

if TYPE_CHECKING:
    from txtopo.runtime.parts import Parts

logger = logging.getLogger("txtopo")


def close_parts(
    parts: Parts, leadership: Leadership | None, release_states: Callable[[], None] | None
) -> None:
    """Let go of everything but the spout; the place in the election first: others wait for it."""
    steps: list[Callable[[], None]] = [] if leadership is None else [leadership.release]
    if release_states is not None:
        steps.append(release_states)
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


def close_backends(backends: Mapping[tuple[str, str], StateBackend]) -> None:
    """Close the states of a term or of a takeover that failed; errors are logged."""
    for name, backend in backends.items():
        try:
            backend.close()
        except Exception:
            logger.warning("could not close state %s", ".".join(name), exc_info=True)
