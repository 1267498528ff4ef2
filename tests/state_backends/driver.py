"""What the runtime does with a state, in a few words, so that tests read as scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.state import (
    Ledger,
    Merges,
    Puts,
    State,
    StateBackend,
    StateHandle,
    StateTransaction,
    commit_resolved,
)


class StateDriver:
    """A state in the hands of one epoch of one coordinator."""

    def __init__(self, state: State, epoch: int = 1, topology: str = "topology") -> None:
        self.state = state
        self.epoch = epoch
        self.backend: StateBackend = state.open()
        self.backend.create()
        self.ledger = self.backend.claim(topology, epoch)

    def attempt(self, txid: int, attempt: int = 0) -> TransactionAttempt:
        return TransactionAttempt(txid, attempt, self.epoch)

    def puts(self, txid: int, rows: Mapping[Any, Any], attempt: int = 0) -> Ledger:
        """Commit final values by plain key; None deletes."""
        packed = {
            key if isinstance(key, tuple) else (key,): None if value is None else (value,)
            for key, value in rows.items()
        }
        return commit_resolved(self.backend, self.attempt(txid, attempt), Puts(packed))

    def merge(self, txid: int, rows: Sequence[tuple[Any, ...]], attempt: int = 0) -> Ledger:
        """Commit partial aggregates: key fields, then value fields."""
        schema = pa.schema([*self.state.key.arrow_schema(), *self.state.value.arrow_schema()])
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        arrays = [pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)]
        partials = pa.table(arrays, schema=schema)
        return commit_resolved(self.backend, self.attempt(txid, attempt), Merges(partials))

    def run(self, txid: int, body: Callable[[StateTransaction], Any], attempt: int = 0) -> Any:
        """Run the body of a committer in a transaction, commit, and return what it returned."""
        handle = StateHandle("counts", self.state.layout(), self.backend.snapshot)
        with handle.transaction(self.attempt(txid, attempt)) as transaction:
            result = body(transaction)
        assert handle.writes is not None
        commit_resolved(self.backend, self.attempt(txid, attempt), handle.writes)
        return result

    def contents(self) -> dict[Any, Any]:
        with self.state.reader() as reader:
            return dict(reader.items())

    def held(self) -> Ledger | None:
        with self.state.reader() as reader:
            return reader.ledger


def putting(rows: Mapping[Any, Any]) -> Callable[[StateTransaction], None]:
    """Return a committer's body that sets values."""

    def body(state: StateTransaction) -> None:
        for key, value in rows.items():
            state.put(key, value)

    return body


def adding(*amounts: tuple[Any, int]) -> Callable[[StateTransaction], list[Any]]:
    """Return a committer's body that adds amounts to keys, and returns what it saw."""

    def body(state: StateTransaction) -> list[Any]:
        return [state.update(key, _adder(amount)) for key, amount in amounts]

    return body


def _adder(amount: int) -> Callable[[int | None], int]:
    return lambda old: (old or 0) + amount
