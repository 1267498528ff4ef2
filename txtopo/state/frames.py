"""Frames: writes that stay in Spark on their way to a state, and backends that take them.

A batch of many rows should not pass the driver. A store that Spark itself writes to can take them
as a DataFrame, as long as it keeps the promise of :mod:`txtopo.state.backend`: ledger, undo and
rows in one store transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError
from txtopo.state.aggregates import Operator
from txtopo.state.backend import StateTable
from txtopo.state.ledger import Ledger
from txtopo.state.transaction import OneTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPERATORS: tuple[Operator, ...] = ("add", "min", "max")
DELETED = "deleted"
"""A column of a frame of final values: whether the row deletes its key. May be missing."""


@dataclass(frozen=True, slots=True)
class FrameWrites:
    """The writes of a txid as a DataFrame.

    Attributes:
        frame: Key columns and value columns, by name; others are passed over, but for ``deleted``
            in a frame of final values.
        operators: How each value column meets the stored one, and rows of one key each other; None
            if the rows are final values, whose keys must be distinct.
    """

    frame: DataFrame
    operators: tuple[Operator, ...] | None = None

    @property
    def deletes(self) -> bool:
        """Whether rows may delete their keys."""
        return self.operators is None and DELETED in self.frame.columns


@runtime_checkable
class FrameBackend(Protocol):
    """A :class:`~txtopo.state.backend.StateBackend` that can take frames as well.

    Who calls it: the driver, as ``commit``, and instead of it for a txid whose writes are a frame.
    ``commit`` may be called for another attempt of the same txid, so both must fence, undo and redo
    each other's. Its factory says so: see :class:`FrameFactory`.
    """

    def apply_frame(self, attempt: TransactionAttempt, writes: FrameWrites) -> Ledger:
        """Apply the rows of an attempt and set the ledger, in one store transaction.

        Returns:
            The ledger as it stands now.

        Raises:
            Everything that ``StateBackend.commit`` raises, and means by it.
        """
        ...


@runtime_checkable
class FrameFactory(Protocol):
    """A factory of backends (see ``BackendFactory``) of which some take frames."""

    def frames_refused(self, url: str, table: StateTable) -> str | None:
        """Return why the state of this URL takes no frames, or None if it does. Opens nothing."""
        ...

    def session_conf(self) -> Mapping[str, str]:
        """Return what a Spark session has to be built with to write frames.

        Raises:
            ConfigError: Something is not installed; the message says how to get it.
        """
        ...

    def check_session(self, spark: SparkSession) -> None:
        """Check that a session can write frames.

        Raises:
            ConfigError: It cannot; the message says what it lacks.
        """
        ...


class FrameStateHandle:
    """A state in the hands of a DataFrame committer; ``context.state(name)`` gives it.

    Args:
        name: The name that ``with_state`` gave it, for messages.
        table: What the state looks like; None where nothing can be written.
        open: Whether the commit phase has begun.
    """

    def __init__(self, name: str, table: StateTable | None, *, open: bool) -> None:
        self.name = name
        self.table = table
        self._open = open
        self._rule = OneTransaction(name, "unite the frames")
        self._writes: FrameWrites | None = None

    @property
    def writes(self) -> FrameWrites | None:
        """What the transaction wrote, once it has ended well; None if it wrote nothing."""
        return self._writes

    def transaction(self, attempt: TransactionAttempt) -> FrameTransaction:
        """Begin the one transaction that *attempt* may have on this state.

        Use it in a ``with`` statement. An exception in its body discards the frame.

        Raises:
            StateUsageError: The attempt had its transaction already, or this is not ``commit``.
        """
        if not self._open or self.table is None:
            raise StateUsageError(
                f"state {self.name!r} is not open in transform, which runs in the processing "
                "phase; use it in commit(frame, attempt)",
                state=self.name,
            )
        self._rule.begin(attempt)
        return FrameTransaction(self.name, self.table, self._finish)

    def _finish(self, writes: FrameWrites | None) -> None:
        self._writes = writes


class FrameTransaction:
    """What one attempt writes to a state: one frame.

    Delivery: what is given here is in the state exactly once, together with everything else of its
    txid: undo of an earlier attempt, rows and ledger are one store transaction, which the framework
    makes when ``commit`` has returned.
    """

    def __init__(
        self, name: str, table: StateTable, finish: Callable[[FrameWrites | None], None]
    ) -> None:
        self._name = name
        self._table = table
        self._finish = finish
        self._writes: FrameWrites | None = None
        self._entered = False

    def put(self, frame: DataFrame) -> None:
        """Set the values of keys: one row for each; a column ``deleted`` may say which go away.

        A key that is NULL or NaN or stands twice fails the batch, and nothing is written.
        """
        self._take(FrameWrites(frame))

    def merge(self, frame: DataFrame, operators: Mapping[str, Operator]) -> None:
        """Combine values with those that are stored, and the rows of one key with each other.

        Args:
            frame: Key columns and value columns.
            operators: ``"add"``, ``"min"`` or ``"max"`` for each value column. NULL is no value. A
                sum that does not fit its column fails the batch, and nothing is written.
        """
        names = self._table.value.names
        wrong = {n: o for n, o in operators.items() if n not in names or o not in OPERATORS}
        missing = [name for name in names if name not in operators]
        if wrong or missing:
            raise StateUsageError(
                f"merge into state {self._name!r} needs an operator for each value column; got "
                f"{dict(operators)!r}; expected {', '.join(names)}, each with one of "
                f"{', '.join(OPERATORS)}",
                state=self._name,
            )
        self._take(FrameWrites(frame, tuple(operators[name] for name in names)))

    def __enter__(self) -> FrameTransaction:
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._entered = False
        if kind is None:
            self._finish(self._writes)

    def _take(self, writes: FrameWrites) -> None:
        if not self._entered:
            raise StateUsageError(
                f"the transaction on state {self._name!r} is not open; "
                "use it inside its with statement"
            )
        if self._writes is not None:
            raise StateUsageError(
                f"a second frame for state {self._name!r} in one transaction; expected one; unite "
                "the frames",
                state=self._name,
            )
        columns = writes.frame.columns
        lacks = [n for n in (*self._table.key.names, *self._table.value.names) if n not in columns]
        if lacks:
            raise StateUsageError(
                f"a frame for state {self._name!r} lacks columns; got {', '.join(columns)}; "
                f"expected {', '.join(lacks)} as well; select or rename them",
                state=self._name,
                columns=tuple(columns),
            )
        self._writes = writes
