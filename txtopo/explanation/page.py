"""page and essence: an explanation as plain text for a terminal, whole or in five lines."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from txtopo.dead_letters import STREAM
from txtopo.errors import escaped
from txtopo.explanation.parts import (
    ExplainedComponent,
    ExplainedEdge,
    ExplainedState,
    fields_text,
    short_class,
)
from txtopo.tuples import DEFAULT_STREAM

if TYPE_CHECKING:
    from txtopo.explanation.explanation import Explanation

WIDTH = 96
SHOWN_MAX = 3
"""The most components or states that the five lines name."""
_INDENT = "      "
_LABEL = 13


def page(told: Explanation) -> str:
    """Return an explanation as text, in lines of at most 96 characters unless a name is longer."""
    return escaped("\n".join(_lines(told)) + "\n", kept="\n")


def essence(told: Explanation) -> str:
    """Return the essence of an explanation in five lines; longer ones are wrapped. Then advice."""
    heading = f"topology {told.topology!r}: {told.delivery.partition(':')[0]}"
    return escaped("\n".join([heading, *_labelled(_essence(told)), *_advice(told)]), kept="\n")


def _essence(told: Explanation) -> Iterator[tuple[str, str]]:
    sources = {each.target for each in told.edges}
    spouts = [each for each in told.components if each.component not in sources]
    bolts = [each for each in told.components if each.component in sources]
    yield "source", _some([f"{each.component}{_tasks(each)}: {_kind(each)}" for each in spouts])
    count = told.carrier.slots
    slots = "" if count is None else f" with {count:,} slot{'s' * (count != 1)}"
    yield "work", f"{told.work.partition(';')[0]}; carrier {told.carrier.carrier}{slots}"
    yield "computed", _some([_computes(each) for each in bolts]) or "nothing"
    stored = [f"{each.state}: table {each.table} in {each.url}" for each in told.states]
    yield "stored", _some(stored) or "nothing"
    yield "failure", told.failure.partition(";")[0]


def _some(texts: list[str]) -> str:
    more = [f"{len(texts) - SHOWN_MAX:,} more"] if len(texts) > SHOWN_MAX else []
    return "; ".join([*texts[:SHOWN_MAX], *more])


def _computes(one: ExplainedComponent) -> str:
    by = f" by {', '.join(one.key)}" if one.key else ""
    what = [f"{each.column} = {each.aggregate}{by}" for each in one.aggregates]
    return f"{one.component}{_tasks(one)}: {', '.join(what or one.operators or [_kind(one)])}"


def _lines(told: Explanation) -> Iterator[str]:
    yield f"topology {told.topology!r}: {_counts(told)}"
    yield from _wrapped(told.delivery, "  ")
    inputs: dict[str, list[ExplainedEdge]] = defaultdict(list)
    for edge in told.edges:
        inputs[edge.target].append(edge)
    phases = ("process", "commit") if told.kind == "transactional" else ("process",)
    for phase in phases:
        within = [each for each in told.components if each.phase == phase]
        if not within:
            continue
        yield ""
        if phase == "commit":
            yield f"─ ─ the handover {'─ ' * ((WIDTH - 17) // 2)}".rstrip()
            yield ""
        if told.kind == "transactional":
            yield _HEADINGS[phase]
        for each in sorted(within, key=lambda one: one.column):
            yield from _component(each, inputs[each.component])
    yield ""
    yield from _labelled(_summary(told))
    yield from _advice(told)


def _labelled(sentences: Iterator[tuple[str, str]]) -> Iterator[str]:
    for label, sentence in sentences:
        yield from _wrapped(sentence, " " * _LABEL, f"{label:<{_LABEL}}")


def _advice(told: Explanation) -> Iterator[str]:
    for sentence in told.advice:
        yield ""
        yield from _wrapped(sentence, "  ", "! ")


_HEADINGS = {
    "process": "processing phase: batches in parallel",
    "commit": "commit phase: in the order of txids",
}


def _counts(told: Explanation) -> str:
    levels = 1 + max(each.level for each in told.components)
    parts = [(len(told.components), "component"), (levels, "level"), (len(told.states), "state")]
    return f"{told.kind}, " + ", ".join(
        f"{count:,} {word}{'s' * (count != 1)}" for count, word in parts if count
    )


def _summary(told: Explanation) -> Iterator[tuple[str, str]]:
    carrier = told.carrier
    yield "carrier", f"{carrier.carrier}: {carrier.why}"
    count = "not known yet" if carrier.slots is None else f"{carrier.slots:,}"
    yield "slots", f"{count}: {carrier.slots_why}"
    yield "work", told.work
    if told.commit is not None:
        yield "commit", told.commit
    yield "failure", told.failure
    if told.dead_letters is not None:
        yield "dead letters", told.dead_letters


def _component(one: ExplainedComponent, inputs: list[ExplainedEdge]) -> Iterator[str]:
    yield f"  {one.level:>2}  {one.component}{_tasks(one)}"
    what = "committer, " if one.committer and not one.aggregates else ""
    yield from _wrapped(f"{what}{_kind(one)}; runs {one.runs}", _INDENT)
    for edge in inputs:
        stream = "" if edge.stream == DEFAULT_STREAM else f", stream {edge.stream}"
        yield from _wrapped(f"{edge.source}{stream}, by {edge.grouping}", f"{_INDENT}  ", "← ")
    for declared in one.streams:
        if one.dead_letters and declared.name == STREAM:
            yield f"{_INDENT}→ {STREAM}: records that cannot be processed"
            continue
        name = "" if declared.name == DEFAULT_STREAM else f"{declared.name}: "
        direct = " (direct)" if declared.direct else ""
        yield from _wrapped(f"{name}{fields_text(declared.fields)}{direct}", f"{_INDENT}  ", "→ ")
    if one.operators:
        yield from _wrapped(" → ".join(one.operators), f"{_INDENT}  ", "ƒ ")
    for column in one.aggregates:
        by = f" by {', '.join(one.key)}" if one.key else " over everything"
        how = {
            "columns": "in columns, by Arrow",
            "Python": "in Python, key by key",
            "Spark": "by Spark",
        }[column.combined]
        line = f"{column.column} = {column.aggregate}{by}, combined {how}"
        yield from _wrapped(line, f"{_INDENT}  ", "Σ ")
    for state in one.states:
        yield from _wrapped(_state(state), f"{_INDENT}  ", "▤ ")


def _tasks(one: ExplainedComponent) -> str:
    return f" × {one.parallelism}" if one.parallelism > 1 else ""


def _kind(one: ExplainedComponent) -> str:
    return one.role if one.aggregates else f"{one.role} {short_class(one.class_name)}"


def _state(state: ExplainedState) -> str:
    log = ", mode log" if state.mode == "log" else ""
    return (
        f"state {state.state}: table {state.table} in {state.url}, {state.kind}{log}; "
        f"{fields_text(state.key)} ⇒ {fields_text(state.value)}; {state.holds}"
    )


def _wrapped(text: str, indent: str, first: str | None = None) -> list[str]:
    """Return lines; *first* replaces the end of the indentation of the first line."""
    begin = indent if first is None else f"{indent[: max(0, len(indent) - len(first))]}{first}"
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=begin,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
