"""The states of a committer's task: how it opens them, and what it writes.

A committer's task only reads its states. It collects its writes in a write set and sends it to the
driver. The driver applies the write sets of all tasks of a txid in one store transaction, which
states of one database share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError
from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.stages.envelopes import WriteSet
from txtopo.state.backend import Key, StateBackend, Values
from txtopo.state.registry import State
from txtopo.state.transaction import StateHandle

StateOpener = Callable[[str, str], StateHandle]
"""Returns a new handle for (component id, name of the state)."""


class TaskStates:
    """The states of one task of a committer in one attempt."""

    def __init__(self, opener: StateOpener, component: str, attempt: TransactionAttempt) -> None:
        self._opener = opener
        self._component = component
        self._attempt = attempt
        self._handles: dict[str, StateHandle] = {}

    def state(self, name: str) -> StateHandle:
        """Return the handle of a state. It is the same one in each call."""
        if name not in self._handles:
            self._handles[name] = self._opener(self._component, name)
        return self._handles[name]

    def write_sets(self, task: int) -> list[WriteSet]:
        """Return the write sets of the task, one for each state that it wrote to."""
        return [
            WriteSet(self._attempt.txid, self._component, task, name, handle.writes)
            for name, handle in self._handles.items()
            if handle.writes is not None
        ]


def open_in_task(compiled: CompiledTopology, closing: ExitStack) -> StateOpener:
    """Return a function that opens states inside a task; *closing* closes their stores."""
    backends: dict[tuple[str, str], StateBackend] = {}

    def opener(component: str, name: str) -> StateHandle:
        state = _declared(component, name, compiled.components[component].states)
        if (component, name) not in backends:
            backend = state.open()
            closing.callback(backend.close)
            backends[component, name] = backend
        repeats = compiled.components[component].repeats
        return StateHandle(name, state.layout(), backends[component, name], repeats=repeats)

    return opener


def opener_of(
    states: Mapping[str, Mapping[str, State]],
    backends: Mapping[tuple[str, str], StateBackend],
    group: TransactionAttempt | None = None,
    written: Mapping[tuple[str, str], Sequence[Mapping[Key, Values | None]]] | None = None,
    repeating: Collection[str] = (),
) -> StateOpener:
    """Return a function that opens states in the driver, where their backends are already open.

    Args:
        states: The states of each component, by name.
        backends: The backend of each state, by component and name.
        group: The group that is committed; by default the attempt of each transaction.
        written: The writes of the earlier txids of the group, per txid, to each state.
        repeating: Ids of the components above which all spouts repeat their batches.
    """

    def opener(component: str, name: str) -> StateHandle:
        state = _declared(component, name, states[component])
        earlier = tuple((written or {}).get((component, name), ()))
        backend, repeats = backends[component, name], component in repeating
        return StateHandle(name, state.layout(), backend, group, earlier, repeats=repeats)

    return opener


def _declared(component: str, name: str, states: Mapping[str, State]) -> State:
    if name not in states:
        raise no_such_state(component, name, list(states))
    return states[name]


def no_such_state(component: str, name: str, declared: list[str]) -> StateUsageError:
    """Return the error for a state that ``with_state`` has not declared."""
    return StateUsageError(
        f"bolt {component!r} has no state {name!r}; the declared states are "
        f"{', '.join(sorted(declared)) or 'none'}; add .with_state({name!r}, open_state(…))",
        component=component,
        state=name,
    )
