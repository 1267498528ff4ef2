"""Queries: a user's own read-only statement, which a store answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The answer to a query.

    Attributes:
        columns: Names of its columns, as the store gives them; two may be equal.
        rows: The rows, as the driver of the store returns their values.
        complete: Whether these are all rows of the answer.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    complete: bool


@runtime_checkable
class QueryBackend(Protocol):
    """A :class:`~txtopo.state.backend.StateBackend` whose store answers queries; optional.

    Who calls it: a person, through ``txtopo state query``, possibly while a topology runs. It opens
    any state of the store, even one that does not exist.
    """

    def query(self, statement: str, *, rows_max: int, timeout_s: float) -> QueryRows:
        """Return the rows that one statement selects.

        It must not change anything, or delay a commit for longer than *timeout_s*.

        Args:
            statement: The statement, in the language of the store.
            rows_max: How many rows to return at most.
            timeout_s: How long it may take, in seconds.

        Raises:
            StateUsageError: The statement is refused, or takes too long; the message says why.
            StoreUnavailable: Try again later.
        """
        ...
