"""ComponentTimes: how long each component took in a commit phase that runs in the driver.

The clock comes from the caller, since a simulator runs the stages in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ComponentTimes:
    """Adds up how long components took.

    Args:
        now: Returns the time in seconds.

    Attributes:
        component_s: How long each component took, by its id.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.component_s: dict[str, float] = {}

    @contextmanager
    def of(self, component: str) -> Iterator[None]:
        """Add the time that passes in the ``with`` statement, also if that raises."""
        started_s = self._now()
        try:
            yield
        finally:
            took_s = self._now() - started_s
            self.component_s[component] = self.component_s.get(component, 0.0) + took_s
