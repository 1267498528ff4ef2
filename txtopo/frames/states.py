"""Frames: the writes of a txid as a DataFrame; Spark writes them to the store, not the driver.

A batch of many rows should not pass through the driver. A store that Spark can write to accepts it
as a DataFrame, if it still follows the rules of :mod:`txtopo.state.backend`: ledger, undo and rows
in one store transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError
from txtopo.state.aggregates import Operator
from txtopo.state.backend import StateBackend, StateTable
from txtopo.state.ledger import Ledger
from txtopo.state.registry import State, redacted_url
from txtopo.state.transaction import OneTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPERATORS: tuple[Operator, ...] = ("add", "min", "max")
DELETED = "deleted"
"""An optional column of a frame of final values: whether the row deletes its key."""


@dataclass(frozen=True, slots=True)
class FrameWrites:
    """The writes of a txid as a DataFrame.

    Attributes:
        frame: Key columns and value columns, by name. Other columns are ignored, except ``deleted``
            in a frame of final values.
        operators: The operator that combines each value column with the stored one, and rows of one
            key with each other. None if the rows are final values; then keys must be distinct.
    """

    frame: DataFrame
    operators: tuple[Operator, ...] | None = None

    @property
    def deletes(self) -> bool:
        """Whether rows may delete their keys."""
        return self.operators is None and DELETED in self.frame.columns


@runtime_checkable
class FrameBackend(Protocol):
    """A :class:`~txtopo.state.backend.StateBackend` that also accepts frames.

    Who calls it: the driver, instead of ``commit``, for a txid whose writes are a frame. Another
    attempt of the txid may call ``commit``. So each method must fence, undo and redo what the other
    one wrote. It gets one txid at a time, never a group.
    The factory of such a backend is a :class:`FrameFactory`.
    """

    def apply_frame(self, attempt: TransactionAttempt, writes: FrameWrites) -> Ledger:
        """Apply the rows of an attempt and set the ledger, in one store transaction.

        Returns:
            The ledger after the commit.

        Raises:
            TxtopoError: As ``StateBackend.commit``.
        """
        ...


@runtime_checkable
class FrameFactory(Protocol):
    """A factory of backends (see ``BackendFactory``), some of which accept frames."""

    def frames_refused(self, url: str, table: StateTable) -> str | None:
        """Return why the state of this URL does not accept frames; None if it does."""
        ...

    def session_conf(self) -> Mapping[str, str]:
        """Return the settings that a Spark session needs to write frames.

        Raises:
            ConfigError: A package or jar is not installed; the message says how to get it.
        """
        ...

    def check_session(self, spark: SparkSession) -> None:
        """Check that a session can write frames.

        Raises:
            ConfigError: It cannot; the message says what is missing.
        """
        ...


def frames_refused(state: State) -> str | None:
    """Return why a state does not accept DataFrames; None if it does. It connects to nothing."""
    factory = state.factory
    if not isinstance(factory, FrameFactory):
        return (
            f"{redacted_url(state.url)} is not a store that Spark writes to; use a state in Delta "
            "('delta:///folder?writer=spark'), or a BatchBolt or PersistentAggregate as the "
            "committer"
        )
    return factory.frames_refused(state.url, state.layout("state"))


@dataclass(frozen=True, slots=True)
class LabelledWrites:
    """Writes of a commit phase: a frame, and the label of the Spark jobs that write it.

    Attributes:
        frame: The frame.
        label: Labels the jobs of this thread, so that they can be cancelled.
    """

    frame: FrameWrites
    label: Callable[[], AbstractContextManager[None]]

    def labelled(self) -> AbstractContextManager[None]:
        """Label the jobs that write the frame."""
        return self.label()

    def apply(self, backend: StateBackend, attempt: TransactionAttempt) -> Ledger:
        """Let Spark write the frame, in the store transaction of the backend."""
        assert isinstance(backend, FrameBackend), "checked when the topology was built"
        return backend.apply_frame(attempt, self.frame)


class FrameStateHandle:
    """The handle of a state in a DataFrame committer; ``context.state(name)`` returns it.

    Args:
        name: Its name in ``with_state``, for messages.
        table: The schema of the state; None if nothing can be written.
        open: Whether the commit phase has begun.
    """

    def __init__(self, name: str, table: StateTable | None, *, open: bool) -> None:
        self.name = name
        self.table = table
        self._open = open
        self._rule = OneTransaction(name, "combine the frames with union")
        self._writes: FrameWrites | None = None

    @property
    def writes(self) -> FrameWrites | None:
        """The writes of the transaction, once it has ended without an error; None before."""
        return self._writes

    def transaction(self, attempt: TransactionAttempt) -> FrameTransaction:
        """Begin the one transaction that *attempt* may have on this state.

        Use it in a ``with`` statement. An exception in its body discards the frame.

        Raises:
            StateUsageError: The attempt has had its transaction already, or this is not ``commit``.
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
    """The write of one attempt to a state: one frame.

    Delivery: the rows of the frame are in the state exactly once, together with everything else of
    their txid. The undo of an earlier attempt, the rows and the ledger are one store transaction,
    which the framework runs after ``commit`` has returned.
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
        """Set the values of keys, one row for each. A column ``deleted`` may mark keys to delete.

        A key that is NULL or NaN or occurs twice fails the batch, and nothing is written.
        """
        self._take(FrameWrites(frame))

    def merge(self, frame: DataFrame, operators: Mapping[str, Operator]) -> None:
        """Combine rows with the stored values, and rows with the same key with each other.

        Args:
            frame: Key columns and value columns.
            operators: ``"add"``, ``"min"`` or ``"max"`` for each value column. NULL is not a value.
                A sum that does not fit its column fails the batch, and nothing is written.
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
                "use it inside its with statement",
                state=self._name,
            )
        if self._writes is not None:
            raise StateUsageError(
                f"a second frame for state {self._name!r} in one transaction; expected one; "
                "combine the frames with union",
                state=self._name,
            )
        columns = writes.frame.columns
        lacks = [n for n in (*self._table.key.names, *self._table.value.names) if n not in columns]
        if lacks:
            raise StateUsageError(
                f"a frame for state {self._name!r} lacks columns; got {', '.join(columns)}; "
                f"expected {', '.join(lacks)} as well; select or rename them",
                state=self._name,
                got=tuple(columns),
                expected=tuple(lacks),
            )
        self._writes = writes
