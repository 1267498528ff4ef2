"""Listeners: everybody who is told of every change."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from txtopo.runtime.progress import Change, TopologyListener

logger = logging.getLogger("txtopo")


class Listeners:
    """Tells all listeners; what one of them raises is logged and changes nothing."""

    def __init__(self, listeners: Iterable[TopologyListener]) -> None:
        self._listeners = list(listeners)

    def tell(self, change: Change) -> None:
        """Tell all of a change."""
        for listener in self._listeners:
            try:
                listener.on_change(change)
            except BaseException:
                logger.warning("a listener failed on %s", change, exc_info=True)
