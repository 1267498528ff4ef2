"""Permit: what a leader asks for right before each call of user code that may write anywhere.

The stages call it, and the runtime says what it asks. Without one, nothing is asked: the component
is known to write to its states alone, whose ledgers refuse a deposed leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from txtopo.errors import TxtopoError


class Permit(Protocol):
    """Says whether an attempt may continue with its commit phase. Used on one thread at a time.

    Each question returns if it may, and raises :class:`NotPermitted` if not.
    """

    def ask(self) -> None:
        """Ask now. Blocks."""
        ...

    def look(self) -> None:
        """Ask if the last answer was too long ago; otherwise only look at the clock."""
        ...

    def check(self) -> None:
        """Raise if the last answer is too old; ask nothing."""
        ...

    def give_back(self) -> None:
        """Report that all user code has returned, so that the next attempt may begin."""
        ...


Permits = Callable[[str], Permit | None]
"""Returns the permit that a component needs, by its id; None if it needs none."""


class NotPermitted(TxtopoError):
    """An attempt may not continue. It is not an error of the component that was to be called.

    It stays in the process, and the commit phase raises its *error* instead.

    Attributes:
        error: Why not: another coordinator leads, ZooKeeper does not answer, or the attempt was
            abandoned.
    """

    error: Exception

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error), error=error)


def no_permits(component: str) -> None:
    """Return None: every component may continue."""


def no_question() -> None:
    """Ask nothing."""


def ask_for(components: Iterable[str], permits: Permits) -> None:
    """Ask once for some components, if any of them needs a permit, before their tasks begin.

    Raises:
        NotPermitted: They may not begin.
    """
    for component in components:
        if (permit := permits(component)) is not None:
            permit.ask()
            return
