"""StateReader: reads a state, in or outside a topology, in the form that users see.

Users see a mean where its sum and count are stored, and a number where a sketch is stored.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from txtopo.errors import StateUsageError
from txtopo.state.aggregates import MeanCount, MeanSum
from txtopo.state.backend import Snapshot, StateBackend, StateTable, Values
from txtopo.state.columns import Columns
from txtopo.state.ledger import Ledger


class StateReader:
    """Reads a consistent snapshot of a state: the result of the batches 1 to ``ledger.txid``.

    It is a context manager. Everything read in one ``with`` block is of the same instant. It takes
    no lock and never delays a topology.

    Example:
        >>> with open_state("sqlite:///counts.db", table="counts").reader() as reader:
        ...     print(reader.get("global"), reader.ledger.txid)
    """

    def __init__(
        self,
        table: str | None,
        declared: StateTable,
        opener: Callable[[StateTable], StateBackend],
        txid: int | None = None,
    ) -> None:
        self._txid = txid
        self._wanted = table
        self._table = declared
        self._open = opener
        self._stack = ExitStack()
        self._snapshot: Snapshot | None = None

    @property
    def ledger(self) -> Ledger | None:
        """The ledger: the last txid, its attempt, the epoch that may write; None if unclaimed."""
        return self._opened().ledger

    @property
    def table(self) -> StateTable:
        """The columns of the state, as the store knows them."""
        self._opened()
        return self._table

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of *key*: plain for one value field, else a dict by field name.

        A mean and a count of distinct values are returned as numbers, not as they are stored.
        """
        snapshot = self._opened()
        packed = Columns(self._table.name, "key", self._table.key).pack(key)
        row = snapshot.rows([packed]).get(packed)
        values = None if row is None else row.visible()
        return default if values is None else ReaderView(self._table).value(values)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield every key with its value, in no particular order."""
        snapshot = self._opened()
        keys, shown = Columns(self._table.name, "key", self._table.key), ReaderView(self._table)
        for key, row in snapshot.items():
            seen = row.visible()
            if seen is not None:
                yield keys.plain(key), shown.value(seen)

    def __enter__(self) -> StateReader:
        with ExitStack() as stack:
            backend = self._open(self._table)
            stack.callback(backend.close)
            found = self._pick(backend)
            if found != self._table:
                self._table = found
                backend = self._open(found)
                stack.callback(backend.close)
            asked = backend.snapshot() if self._txid is None else backend.snapshot_of(self._txid)
            self._snapshot = stack.enter_context(asked)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._snapshot = None
        self._stack.close()

    def _pick(self, backend: StateBackend) -> StateTable:
        stored = backend.stored()
        if stored is None:
            return self._table
        names = ", ".join(sorted(table.name for table in stored)) or "none"
        if self._wanted is None:
            if len(stored) == 1:
                return stored[0]
            raise StateUsageError(
                f"which state is meant? the store holds {names}; expected table='…'"
            )
        for table in stored:
            if table.name == self._wanted:
                return table
        raise StateUsageError(
            f"the store holds no state {self._wanted!r}; it holds {names}; "
            "has its topology run yet?"
        )

    def _opened(self) -> Snapshot:
        if self._snapshot is None:
            raise StateUsageError("the reader is not open; use it in a with statement")
        return self._snapshot


_DIVISION = decimal.Context(prec=38)


class ReaderView:
    """Turns stored values of a state into what users see.

    Args:
        table: The state.
    """

    def __init__(self, table: StateTable) -> None:
        self._columns = Columns(table.name, "value", table.value)
        self._aggregates = table.aggregates
        self._means = mean_names(table)
        taken = {at + 1 for at in self._means}
        self._names = {
            at: self._means.get(at, name)
            for at, name in enumerate(table.value.names)
            if at not in taken
        }

    def value(self, packed: Values) -> Any:
        """Return what a user sees of stored values: one plain value, or a dict by name."""
        if not self._aggregates:
            return self._columns.named(packed)
        opened = self._columns.opened(packed)
        shown = {name: self._shown(at, opened) for at, name in self._names.items()}
        return next(iter(shown.values())) if len(shown) == 1 else shown

    def _shown(self, at: int, opened: Values) -> Any:
        if at in self._means:
            return _mean(opened[at], opened[at + 1])
        return self._aggregates[at].shown(opened[at])


def mean_names(table: StateTable) -> dict[int, str]:
    """Return the name of each mean by the position of its sum; its count is the next column."""
    names = table.value.names
    return {
        at: names[at].removesuffix("_sum")
        for at, (left, right) in enumerate(
            zip(table.aggregates, table.aggregates[1:], strict=False)
        )
        if isinstance(left, MeanSum) and isinstance(right, MeanCount)
    }


def _mean(total: Any, count: int | None) -> Any:
    if total is None or not count:
        return None
    if isinstance(total, decimal.Decimal):
        return _DIVISION.divide(total, decimal.Decimal(count))
    return total / count
