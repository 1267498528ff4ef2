"""Fingerprint: what a topology looks like, so that another one under the same id is noticed. Pure.

It has what the metadata in ZooKeeper and the rows in the stores belong to: the components with what
they are and what they read, and the states with their tables and columns. It does not have what may
change from one start to the next: parallelism, classes, settings, where a store is (its ledger
says whether it is the right one), and nothing secret.
"""

from __future__ import annotations

from txtopo.groupings import Grouping
from txtopo.metadata import Json
from txtopo.state.backend import StateTable
from txtopo.topology.component import Component
from txtopo.topology.graph import Graph


def fingerprint(graph: Graph) -> dict[str, Json]:
    """Return the parts of a topology by name, each as one line of text."""
    parts: dict[str, Json] = {}
    for component in graph.components.values():
        parts[f"component {component.id!r}"] = _component(component)
        for name, state in component.states.items():
            parts[f"state {name!r} of {component.id!r}"] = _state(state.layout(name))
    return parts


def _component(component: Component) -> str:
    inputs = sorted(
        f"{each.source!r}.{each.stream!r} by {_grouping(each.grouping)}"
        for each in component.subscriptions
    )
    return f"a {component.role.value}" + (f" of {', '.join(inputs)}" if inputs else "")


def _state(table: StateTable) -> str:
    key, value = (
        ", ".join(f"{f.name} {f.type}" for f in part) for part in (table.key, table.value)
    )
    combined = "".join(f" {type(each).__name__}" for each in table.aggregates)
    return f"{table.kind} {table.mode} {table.name!r} ({key}) -> ({value}){combined}"


def _grouping(grouping: Grouping) -> str:
    fields = getattr(grouping, "fields", ())
    return type(grouping).__name__ + (f"({', '.join(fields)})" if fields else "")
