"""States of committers: how a task of the commit phase gets at them, and what it leaves behind.

A task only reads. What it writes is a write set, which goes to the driver as data, so that all
tasks of a txid are applied in one store transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError
from txtopo.stages.program import Program
from txtopo.stages.stamps import WriteSet
from txtopo.state.backend import StateBackend
from txtopo.state.transaction import StateHandle

StateOpener = Callable[[str, str], StateHandle]
"""(component id, name of the state) -> a fresh handle."""


class TaskStates:
    """The states of one task of a committer in one attempt."""

    def __init__(self, opener: StateOpener, component: str, attempt: TransactionAttempt) -> None:
        self._opener = opener
        self._component = component
        self._attempt = attempt
        self._handles: dict[str, StateHandle] = {}

    def state(self, name: str) -> StateHandle:
        """Return the handle of a state, the same one each time."""
        if name not in self._handles:
            self._handles[name] = self._opener(self._component, name)
        return self._handles[name]

    def write_sets(self, task: int) -> list[WriteSet]:
        """Return what the task wrote."""
        return [
            WriteSet(self._attempt.txid, self._component, task, name, handle.writes)
            for name, handle in self._handles.items()
            if handle.writes is not None
        ]


def open_in_task(program: Program, closing: ExitStack) -> StateOpener:
    """Return what opens states from inside a task; *closing* releases them."""
    backends: dict[tuple[str, str], StateBackend] = {}

    def opener(component: str, name: str) -> StateHandle:
        states = program.components[component].states
        if name not in states:
            raise no_such_state(component, name, list(states))
        if (component, name) not in backends:
            backend = states[name].open()
            closing.callback(backend.close)
            backends[component, name] = backend
        return StateHandle(name, states[name].layout(), backends[component, name].snapshot)

    return opener


def no_such_state(component: str, name: str, declared: list[str]) -> StateUsageError:
    """Return the error for a state that ``with_state`` has not declared."""
    return StateUsageError(
        f"bolt {component!r} has no state {name!r}; declared are "
        f"{', '.join(sorted(declared)) or 'none'}; add .with_state({name!r}, open_state(…))",
        component=component,
        state=name,
    )
