"""What the runtime does with a state, in a few words, so that tests read as scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StoreUnavailable
from txtopo.state import (
    LEDGER_SCHEMA,
    RELEASED,
    Claim,
    Columns,
    Ledger,
    Merges,
    Owner,
    Puts,
    State,
    StateBackend,
    StateHandle,
    StateTransaction,
    commit_resolved,
)
from txtopo.state.plug_in import claim_state

Result = TypeVar("Result")
_TRIES_MAX = 50


class StateDriver:
    """A state in the hands of one epoch of one coordinator.

    Attributes:
        state: The state.
        epoch: The epoch of the attempts that it commits.
        backend: The backend, opened, created and claimed.
        ledger: What the claim returned.
    """

    def __init__(
        self,
        state: State,
        epoch: int = 1,
        topology: str = "topology",
        *,
        component: str = "component",
        ensemble: str = "ensemble",
    ) -> None:
        self.state = state
        self.epoch = epoch
        self.backend: StateBackend = state.open()
        self.backend.create()
        claim = claim_of(topology, epoch, component=component, ensemble=ensemble)
        self.ledger = claim_state(self.backend, claim, "counts")

    def attempt(self, txid: int, attempt: int = 0) -> TransactionAttempt:
        """Return an attempt of this epoch."""
        return TransactionAttempt(txid, attempt, self.epoch)

    def commit(self, txid: int, writes: Puts | Merges, attempt: int = 0) -> Ledger:
        """Commit writes, as the runtime does."""
        return commit_resolved(self.backend, self.attempt(txid, attempt), writes)

    def puts(self, txid: int, rows: Mapping[Any, Any], attempt: int = 0) -> Ledger:
        """Commit final values by plain key; None deletes."""
        return self.commit(txid, packed(rows), attempt)

    def merge(self, txid: int, rows: Sequence[tuple[Any, ...]], attempt: int = 0) -> Ledger:
        """Commit partial aggregates: key fields, then value fields."""
        return self.commit(txid, partials(self.state, rows), attempt)

    def run(self, txid: int, body: Callable[[StateTransaction], Any], attempt: int = 0) -> Any:
        """Run the body of a committer in a transaction, commit, and return what it returned."""
        handle = StateHandle("counts", self.state.layout(), self.backend.snapshot)
        with handle.transaction(self.attempt(txid, attempt)) as transaction:
            result = body(transaction)
        assert handle.writes is not None
        self.commit(txid, handle.writes, attempt)
        return result

    def contents(self) -> dict[Any, Any]:
        """Return what the state holds: value by key, plain for one field."""
        table = self.state.layout()
        keys = Columns(table.name, "key", table.key)
        values = Columns(table.name, "value", table.value)
        with self.backend.snapshot() as snapshot:
            seen = [(key, row.visible()) for key, row in snapshot.items()]
        return {keys.plain(key): values.named(row) for key, row in seen if row is not None}

    def held(self) -> Ledger | None:
        """Return the ledger of the state."""
        with self.backend.snapshot() as snapshot:
            return snapshot.ledger

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()


def claim_of(
    topology: str = "topology",
    epoch: int = 1,
    *,
    component: str = "component",
    state: str = "state",
    ensemble: str = "ensemble",
) -> Claim:
    """Return the claim of a topology's state."""
    return Claim(Owner(topology, component, state), epoch, ensemble)


def release(epoch: int) -> Claim:
    """Return the claim by which an operator releases a state."""
    return Claim(Owner(RELEASED), epoch)


def whole_ledger(
    topology: str, epoch: int, txid: int = 0, writer_epoch: int = 0, attempt: int = 0
) -> Ledger:
    """Return the whole ledger of a state that :func:`claim_of` or :func:`release` claimed."""
    released = topology == RELEASED
    return Ledger(
        topology,
        epoch,
        txid,
        writer_epoch,
        attempt,
        component="" if released else "component",
        state="" if released else "state",
        ensemble="" if released else "ensemble",
        first_txid=txid,
        attempts=(attempt,) if txid else (),
        schema=LEDGER_SCHEMA,
    )


def packed(rows: Mapping[Any, Any]) -> Puts:
    """Return final values by plain key, or by tuple, as writes; None deletes."""
    return Puts(
        {
            key if isinstance(key, tuple) else (key,): None if value is None else (value,)
            for key, value in rows.items()
        }
    )


def partials(state: State, rows: Sequence[tuple[Any, ...]]) -> Merges:
    """Return partial aggregates, key fields and then value fields, as writes."""
    schema = pa.schema([*state.key.arrow_schema(), *state.value.arrow_schema()])
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)]
    return Merges(pa.table(arrays, schema=schema))


def patiently(action: Callable[[], Result]) -> Result:
    """Do what may find the store busy with another writer, until it is not."""
    for _ in range(_TRIES_MAX):
        try:
            return action()
        except StoreUnavailable as error:
            last = error
    raise last


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
