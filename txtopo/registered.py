"""Registered: what the core asks a wing for. ``txtopo/wings.py`` registers it.

The core imports no wing. It names the question, as a :class:`Registered`, and the wing answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Registered(Generic[T]):
    """What a wing provides. It belongs to the process, not to a topology or a run.

    Args:
        what: What it is, for the error when nothing is registered.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._load: Callable[[], T] | None = None

    def register(self, load: Callable[[], T]) -> None:
        """Register a function that imports the wing and returns the object; ``get`` calls it."""
        self._load = load

    def get(self) -> T:
        """Return the object, which the registered function loads."""
        assert self._load is not None, f"{self._what}: nothing is registered"
        return self._load()
