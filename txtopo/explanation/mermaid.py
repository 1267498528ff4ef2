"""mermaid: the graph of a topology as a Mermaid flowchart, which GitHub and many editors render."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txtopo.errors import escaped
from txtopo.explanation.parts import (
    ExplainedComponent,
    ExplainedEdge,
    Shape,
    short_class,
)
from txtopo.tuples import DEFAULT_STREAM

# The Mermaid syntax of each shape. The quoted label goes in between.
_SHAPES: dict[Shape, tuple[str, str]] = {
    "spout": ("([", "])"),
    "bolt": ("[", "]"),
    "committer": ("[[", "]]"),
    "aggregate": ("{{", "}}"),
    "plan": ("[/", "/]"),
}
_PLAIN = frozenset(" ,()/:=×")


def mermaid(components: Sequence[ExplainedComponent], edges: Sequence[ExplainedEdge]) -> str:
    """Return a flowchart from left to right. Ids appear only in labels, so any id is allowed."""
    return "\n".join(_lines(components, edges)) + "\n"


def _lines(
    components: Sequence[ExplainedComponent], edges: Sequence[ExplainedEdge]
) -> Iterator[str]:
    nodes = {each.component: f"c{at}" for at, each in enumerate(components)}
    committing = [each for each in components if each.phase == "commit"]
    yield "flowchart LR"
    for title, phase in (("processing phase", "process"), ("commit phase", "commit")):
        within = [each for each in components if each.phase == phase]
        indent = "  "
        if within and committing:
            yield f'  subgraph {phase}_phase ["{title}"]'
            indent = "    "
        for each in within:
            opened, closed = _SHAPES[each.shape]
            yield f'{indent}{nodes[each.component]}{opened}"{_label(each)}"{closed}'
        if within and committing:
            yield "  end"
    states = [(each, state) for each in components for state in each.states]
    for at, (each, state) in enumerate(states):
        yield f'  s{at}[("{_quoted(state.table)}<br/>{_quoted(state.url)}")]'
        yield f"  {nodes[each.component]} -.-> s{at}"
    for edge in edges:
        stream = "" if edge.stream == DEFAULT_STREAM else f"{_quoted(edge.stream)}: "
        label = f"{stream}{_quoted(edge.grouping)}"
        yield f'  {nodes[edge.source]} -->|"{label}"| {nodes[edge.target]}'


def _label(one: ExplainedComponent) -> str:
    tasks = f" × {one.parallelism}" if one.parallelism > 1 else ""
    return f"{_quoted(one.component)}<br/>{_quoted(short_class(one.class_name))}{tasks}"


def _quoted(text: str) -> str:
    """Return a text for a quoted label; characters special to Mermaid or Markdown become codes."""
    return "".join(
        character if character.isalnum() or character in _PLAIN else f"#{ord(character)};"
        for character in escaped(text)
    )
