"""why_one_by_one: whether a topology may commit several txids together, and what stands against it.

A group is written again as it is after a crash, and each of its txids has to come out as if it had
been committed alone. So it needs states that take groups, and committers that run in the driver,
where a txid reads what those before it have written. And it needs user code that writes to the
states and to nothing else: another database would get the txids of a group again, also those before
the last one that it holds (:mod:`txtopo.topology.elsewhere`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from txtopo.topology.elsewhere import DECLARATION, may_write_elsewhere

if TYPE_CHECKING:
    from txtopo.stages.compiled_topology import CompiledTopology
    from txtopo.state.backend import StateBackend
    from txtopo.topology.graph import Graph


def why_one_by_one(
    graph: Graph,
    compiled: CompiledTopology,
    backends: Mapping[tuple[str, str], StateBackend],
    spouts_elsewhere: Collection[str] = (),
) -> str | None:
    """Return why a topology commits its batches one by one; None if it commits groups.

    Args:
        graph: The topology.
        compiled: The same topology, compiled for the stages.
        backends: Its states, by component and name; those that are not open are not asked.
        spouts_elsewhere: Ids of the spouts whose emitters have a ``commit`` that may write
            elsewhere; none if no emitter is open.
    """
    return next(_reasons(graph, compiled, backends, spouts_elsewhere), None)


def _reasons(
    graph: Graph,
    compiled: CompiledTopology,
    backends: Mapping[tuple[str, str], StateBackend],
    spouts_elsewhere: Collection[str],
) -> Iterator[str]:
    if compiled.engine is not None:
        yield "its spout emits DataFrames"
    if not compiled.commit_in_driver:
        levels = compiled.commit
        several = [id for ids in levels for id in ids if compiled.components[id].tasks > 1]
        yield f"{several[0]!r} has several tasks in the commit phase"
    for id, aggregation in compiled.aggregations.items():
        if aggregation.ordered:
            yield f"the result of aggregate {id!r} depends on the order of its additions"
        if aggregation.by_txid:
            yield f"aggregate {id!r} has a First or Last, which depends on the txid of a row"
    for id, component in graph.components.items():
        if not component.traits.reads_states:
            continue
        for name, state in component.states.items():
            if state.kind == "transactional":
                # In a redo it would be read as it is after the last txid of the group.
                yield f"committer {id!r} may read its state {name!r}, which is transactional"
    elsewhere = may_write_elsewhere(graph)
    for id in (each for each in graph.components if each in elsewhere):
        yield f"bolt {id!r} of the commit phase does not declare {DECLARATION}"
    for id in spouts_elsewhere:
        yield f"the emitter of spout {id!r} has a commit and does not declare {DECLARATION}"
    for (component_id, name), backend in backends.items():
        if not backend.groups:
            where = f"state {name!r} of {component_id!r}"
            yield f"{where} is in a store that does not support groups ({type(backend).__name__})"
