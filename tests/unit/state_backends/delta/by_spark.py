"""Delta states whose every commit is merged by Spark, so that the suites try that writer."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from state_backends.delta.backend import DeltaBackend
from state_backends.delta.factory import DeltaFactory
from state_backends.delta.layout import location_of
from state_backends.delta.spark import sql_types
from tests.harness.spark_session import open_test_session
from txtopo import TransactionAttempt
from txtopo.carriers.session import active_session
from txtopo.errors import ValueRefusedError
from txtopo.plugins.stores import (
    FrameWrites,
    Merges,
    StateBackend,
    StateTable,
    Writes,
    combines_in_store,
)
from txtopo.state import Ledger, register_backend

SCHEME = "delta-by-spark"


class DeltaBySpark(DeltaBackend):
    """Hands every commit to Spark; ``alternate`` every second one.

    Aggregates that no store combines reach no frame: topologies send them by envelopes.
    """

    alternate: ClassVar[bool] = False
    groups = False  # frames are committed one by one

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.commits = 0

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        self.commits += 1
        in_python = isinstance(writes, Merges) and not combines_in_store(self._state)
        if in_python or (self.alternate and self.commits % 2):
            return super().commit(attempt, writes)
        return self.apply_frame(attempt, framed(self._state, writes))


class DeltaByBoth(DeltaBySpark):
    alternate = True


def framed(table: StateTable, writes: Writes) -> FrameWrites:
    """Return writes as a frame of the active session."""
    session = active_session()
    assert session is not None
    if isinstance(writes, Merges):
        operators = [each.operator for each in table.aggregates if each.operator is not None]
        assert len(operators) == len(table.aggregates), "this state is combined in Python"
        return FrameWrites(_frame(session, table, writes.partials), tuple(operators))
    schema = pa.schema([*table.key.arrow_schema(), *table.value.arrow_schema()])
    schema = schema.append(pa.field("deleted", pa.bool_()))
    gone = (None,) * len(table.value)
    rows = [(*k, *(gone if v is None else v), v is None) for k, v in writes.rows.items()]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    try:
        arrays = [pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)]
    except UnicodeEncodeError as error:
        # No frame has it, so nothing that the writer is handed does: Spark's strings are UTF-8.
        raise ValueRefusedError(f"a string of state {table.name!r} is no UTF-8: {error}") from error
    return FrameWrites(_frame(session, table, pa.table(arrays, schema=schema)))


def _frame(session: Any, table: StateTable, rows: pa.Table) -> Any:
    """Return rows as a frame with the types that the state declares.

    Else Spark would read Arrow's timestamps without a zone as those of the session's zone.
    """
    kinds = {**sql_types(table.key), **sql_types(table.value), "deleted": "boolean"}
    schema = ", ".join(f"`{name}` {kinds[name]}" for name in rows.column_names)
    return session.createDataFrame(rows, schema)


class _Factory(DeltaFactory):
    def __init__(self, kind: type[DeltaBySpark]) -> None:
        self._kind = kind

    def anchor(self, url: str) -> tuple[str, object]:
        return url, None

    def __call__(self, url: str, table: StateTable) -> Any:
        url = f"delta:{url.partition(':')[2]}"
        super().__call__(url, table)  # for what it refuses
        backend: StateBackend = self._kind(location_of(url), table)
        return backend

    def __reduce__(self) -> Any:
        return _Factory, (self._kind,)


class _ElsewhereFactory(_Factory):
    """Writes by delta-rs in one process, and by Spark in each other one, which has a session."""

    def __init__(self, process: int) -> None:
        super().__init__(DeltaBySpark)
        self._process = process

    def __call__(self, url: str, table: StateTable) -> Any:
        backend = super().__call__(url, table)
        if os.getpid() == self._process:
            backend.commit = partial(DeltaBackend.commit, backend)
        elif active_session() is None:
            open_test_session("local[1]")
        return backend

    def __reduce__(self) -> Any:
        return _ElsewhereFactory, (self._process,)


def register() -> None:
    register_backend(SCHEME, _Factory(DeltaBySpark))
    register_backend(f"{SCHEME}-and-rs", _Factory(DeltaByBoth))
    register_backend(f"{SCHEME}-elsewhere", _ElsewhereFactory(os.getpid()))
