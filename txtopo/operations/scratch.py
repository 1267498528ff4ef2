"""Scratch: tables of their own, into which the rows of a trial are written to look at them.

They belong to nobody who runs: the ledger names an owner that no topology has, so a start that
names such a table is refused. A table that exists, or that the topology has, is refused before
anything is computed. Empty tables of a trial that broke off are used again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError
from txtopo.state.backend import Puts, held_ledger
from txtopo.state.commit import claim_state, commit_resolved
from txtopo.state.ledger import Claim, Owner
from txtopo.state.registry import open_state

if TYPE_CHECKING:
    from txtopo.fingerprint import StateName
    from txtopo.state.backend import Key, StateBackend, Values
    from txtopo.state.registry import State
    from txtopo.topology.graph import Graph


class Scratch:
    """The tables of one trial in a store.

    Args:
        url: The store.
        graph: The program whose states they get.
        others: Programs whose tables are no scratch.
        stack: Closes what is opened.

    Raises:
        StateUsageError: A table exists, or is one of the topology.
        SchemaDrift: A table that txtopo did not make has its name.
        StoreUnavailable: The store cannot be reached.
    """

    def __init__(self, url: str, graph: Graph, others: Iterable[Graph], stack: ExitStack) -> None:
        self._id = graph.id
        self._states = _scratch_states(url, graph)
        self._backends: dict[StateName, StateBackend] = {}
        taken = [
            (state.location, state.names_taken())
            for other in others
            for component in other.components.values()
            for state in component.states.values()
        ]
        for name, state in self._states.items():
            state.check()
            for location, names in taken:
                if location == state.location and not names.keys().isdisjoint(state.names_taken()):
                    raise self._refused(state, "belongs to the topology itself")
            backend = state.open()
            stack.callback(backend.close)
            if _is_claimed(backend, str(state.table)):
                raise self._refused(state, "exists")
            self._backends[name] = backend
        for backend in self._backends.values():
            backend.create()

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(str(state.table) for state in self._states.values())

    def write(self, last: int, rows: Mapping[StateName, Mapping[Key, Values | None]]) -> None:
        """Write rows into the tables, as of the last txid; None is no row."""
        term = f"{secrets.randbits(64):016x}"
        for name, backend in self._backends.items():
            owner = Owner(f"{self._id} (tried)", *name)
            claim = Claim(owner, 1, term, begins=last - 1, term=term)
            claim_state(backend, claim, ".".join(name))
            there = {key: values for key, values in rows[name].items() if values is not None}
            commit_resolved(backend, TransactionAttempt(last, 0, 1, term=term), Puts(there))

    def _refused(self, state: State, why: str) -> StateUsageError:
        return StateUsageError(
            f"table {state.table!r} of {state.shown_url} {why}; expected a store without the "
            "tables that a trial creates; use another store, or drop the table of an earlier "
            "trial",
            state=state.table,
            path=state.shown_url,
        )


def _is_claimed(backend: StateBackend, table: str) -> bool:
    stored = backend.stored()
    there = stored is None or any(each.name == table for each in stored)
    return there and held_ledger(backend) is not None


def _scratch_states(url: str, graph: Graph) -> dict[StateName, State]:
    empty = open_state(url)
    found: dict[StateName, State] = {}
    tables = [
        state.layout().name
        for component in graph.components.values()
        for state in component.states.values()
    ]
    for component in graph.components.values():
        for name, state in component.states.items():
            table = state.layout()
            alone = tables.count(table.name) == 1
            found[component.id, name] = replace(
                empty,
                table=table.name if alone else f"{component.id}_{name}",
                kind=table.kind,
                key=table.key,
                value=table.value,
                aggregates=table.aggregates,
            )
    return found
