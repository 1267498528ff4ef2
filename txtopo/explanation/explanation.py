"""Explanation: what a topology is and how it will run, as text, picture, diagram and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from txtopo.config import AnyConfig
from txtopo.explanation import sentences
from txtopo.explanation.mermaid import mermaid
from txtopo.explanation.page import essence, page
from txtopo.explanation.parts import (
    CarrierChoice,
    ExplainedComponent,
    ExplainedEdge,
    ExplainedState,
    explained_components,
    explained_edges,
)
from txtopo.explanation.svg import svg
from txtopo.stages.compiled_topology import compile_topology
from txtopo.topology.graph import Graph


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What a topology is and how it will run; ``topology.explain()`` returns it.

    ``str()`` of it is a page of text. It is computed from the topology, the settings and what is
    known about the session. It connects to no store, ensemble or source, and contains no password.

    Attributes:
        topology: Id of the topology.
        kind: ``transactional`` or ``at-least-once``.
        delivery: The delivery guarantee.
        components: All components, sources before the bolts that subscribe to them.
        edges: The streams between them.
        carrier: What moves the tuples, and in how many slots.
        work: How many batches or trees are in flight, and how they share jobs.
        commit: Where the commit phase runs and why, and how many txids are written together; None
            if there is no commit phase.
        failure: What is repeated, and what is kept, after a failure.
        dead_letters: Where bad records go; None if the topology keeps no dead letters.
        advice: What a user should know before a start.
        window_txids: The maximum number of batches in flight; None if the topology plans no
            batches.
        run_txids: The maximum number of batches that share a job; None if the topology plans no
            batches.
    """

    topology: str
    kind: str
    delivery: str
    components: tuple[ExplainedComponent, ...]
    edges: tuple[ExplainedEdge, ...]
    carrier: CarrierChoice
    work: str
    commit: str | None
    failure: str
    dead_letters: str | None
    advice: tuple[str, ...]
    window_txids: int | None
    run_txids: int | None

    @classmethod
    def of(cls, graph: Graph, config: AnyConfig, choice: CarrierChoice) -> Explanation:
        """Explain a topology.

        Args:
            graph: The topology.
            config: The settings.
            choice: The carrier that it gets.
        """
        compiled = compile_topology(graph, config, choice.slots or 1)
        shared = sentences.sharing(graph, config)
        return cls(
            topology=graph.id,
            kind=sentences.kind_of(graph),
            delivery=sentences.delivery(graph, config),
            components=explained_components(graph, compiled, choice),
            edges=explained_edges(graph),
            carrier=choice,
            work=sentences.work(graph, config, choice),
            commit=sentences.commit(graph, config, compiled, choice),
            failure=sentences.failure(graph, config),
            dead_letters=sentences.dead_letters(graph),
            advice=sentences.advice_on(graph, config, compiled, choice),
            window_txids=None if shared is None else shared.window_txids,
            run_txids=None if shared is None else shared.run_txids,
        )

    @property
    def states(self) -> tuple[ExplainedState, ...]:
        """All states, in the order of their components."""
        return tuple(state for each in self.components for state in each.states)

    @property
    def handover(self) -> tuple[ExplainedEdge, ...]:
        """The edges that lead from the processing phase to the commit phase."""
        phase = {each.component: each.phase for each in self.components}
        return tuple(e for e in self.edges if phase[e.source] != phase[e.target])

    def essence(self) -> str:
        """Return five lines: the source, the work, what is computed and stored, and failures.

        What is advised follows. ``str()`` returns everything.
        """
        return essence(self)

    def mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart, from left to right."""
        return mermaid(self.components, self.edges)

    def svg(self, *, style: bool = True) -> str:
        """Return the graph as an SVG picture, from left to right; a dashed line is the handover.

        Each component is a group with the attribute ``data-component`` (its id), each edge one
        with ``data-edge`` (source, stream and target as a JSON list), so that a page can write
        figures next to them. It contains no script.

        Args:
            style: Whether it has its own colours for light and dark. If False, it has no style
                sheet and takes the colour of the surrounding text, as a page with a strict
                Content-Security-Policy requires.
        """
        return svg(self.topology, self.components, self.edges, style=style)

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as plain JSON values."""
        told: dict[str, Any] = asdict(self)
        parts: list[Mapping[str, Any]] = []
        for each in told["components"]:
            streams = {
                stream["name"]: {"fields": _typed(stream["fields"]), "direct": stream["direct"]}
                for stream in each["streams"]
            }
            states = [
                {**state, "key": _typed(state["key"]), "value": _typed(state["value"])}
                for state in each["states"]
            ]
            named = {"class": each["class_name"], "streams": streams, "states": states}
            left_out = ("class_name", "column", "shape")
            parts.append({k: v for k, v in {**each, **named}.items() if k not in left_out})
        handover = [asdict(edge) for edge in self.handover]
        plain: dict[str, Any] = json.loads(
            json.dumps({**told, "components": parts, "handover": handover})
        )
        return plain

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg()}</div>'

    def __str__(self) -> str:
        return page(self)

    def __repr__(self) -> str:
        return f"Explanation({self.topology!r}, {self.kind}, {len(self.components)} components)"


def _typed(fields: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "type": kind} for name, kind in fields]
