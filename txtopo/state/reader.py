"""StateReader: what anyone may read of a state, in or out of a topology."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from txtopo.errors import StateUsageError
from txtopo.state.backend import Snapshot, StateBackend, StateTable
from txtopo.state.columns import Columns
from txtopo.state.ledger import Ledger
from txtopo.state.shown import Shown


class StateReader:
    """One consistent reading of a state: the fold of the batches 1 to ``ledger.txid``.

    It is a context manager; everything read in one ``with`` block is of the same instant. It takes
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
        """What the state holds (``txid``, ``attempt``) and which ``epoch`` may write; or None."""
        return self._opened().ledger

    @property
    def table(self) -> StateTable:
        """The columns of the state, as the store knows them."""
        self._opened()
        return self._table

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of *key*: plain for one value field, else a dict by field name.

        A mean and a count of distinct values are shown as numbers, not as what is stored.
        """
        snapshot = self._opened()
        packed = Columns(self._table.name, "key", self._table.key).pack(key)
        row = snapshot.rows([packed]).get(packed)
        values = None if row is None else row.visible()
        return default if values is None else Shown(self._table).value(values)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield every key with its value, in no promised order."""
        snapshot = self._opened()
        keys, shown = Columns(self._table.name, "key", self._table.key), Shown(self._table)
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
