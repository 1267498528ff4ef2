"""svg: the graph of a topology as a picture, from left to right; a dashed line is the handover.

All colours are attributes, most of them ``currentColor``, so the picture needs no style sheet. Its
optional style sheet only follows the reader's light or dark scheme. There is no script, and no
``id`` that could clash with the ``id`` of another picture on a page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from unicodedata import east_asian_width

from txtopo.errors import escaped
from txtopo.explanation.layout import Arc, Node, placed
from txtopo.explanation.parts import (
    ExplainedComponent,
    ExplainedEdge,
    ExplainedState,
    short_class,
)
from txtopo.topology.spout_kinds import short_text
from txtopo.tuples import DEFAULT_STREAM

MARGIN = 20.0
TEXT_WIDTH_MAX = 190.0
LABEL_WIDTH_MAX = 150.0
CURVE = 48.0
HANDOVER = 44.0
HEADING = 36.0
LEGEND = 46.0
PORT = 26.0
# Labels of more inputs than this would be unreadable, and make a bolt very high.
LABELLED_INPUTS_MAX = 24
NAME, SMALL, LABEL = 13.0, 11.0, 10.5

_STYLE = (
    ".txtopo-graph{color:#1f2328;background:#ffffff}"
    "@media (prefers-color-scheme:dark){.txtopo-graph{color:#e6edf3;background:#0d1117}}"
)

# Shapes distinguish the kinds; the colours have a contrast of 3:1 on white and on black.
_COLOURS = {
    "spout": "#3b82c4",
    "bolt": "#7d8590",
    "committer": "#c77700",
    "aggregate": "#c77700",
    "plan": "#7d8590",
    "state": "#2e9e6b",
}
_MEANINGS = {
    "spout": "spout",
    "bolt": "bolt",
    "plan": "DataFrame bolt",
    "committer": "committer",
    "aggregate": "persistent aggregate",
    "state": "state",
}


@dataclass(slots=True)
class _Box:
    """The box of a component or state."""

    shape: str
    names: list[str]
    lines: list[str]
    title: str
    column: int
    x: float = 0.0
    y: float = 0.0
    height: float = 0.0
    inputs: list[int] = field(default_factory=list)

    @property
    def width(self) -> float:
        """The width of the box; shapes with slanted or round sides need more space."""
        texts = [_width(name, NAME * BOLD) for name in self.names]
        texts += [_width(line, SMALL) for line in self.lines]
        return max(84.0, max(texts) + {"bolt": 28.0, "state": 28.0}.get(self.shape, 46.0))


def svg(
    topology: str,
    components: Sequence[ExplainedComponent],
    edges: Sequence[ExplainedEdge],
    *,
    style: bool,
) -> str:
    """Return the picture of a topology."""
    return _Drawing(components, edges).text(topology, style=style)


class _Drawing:
    def __init__(
        self, components: Sequence[ExplainedComponent], edges: Sequence[ExplainedEdge]
    ) -> None:
        self.components, self.edges = components, edges
        self.boxes: dict[Node, _Box] = {}
        self.links: list[Arc] = []
        self.states: list[tuple[Node, ExplainedState]] = []
        for one in components:
            self.boxes[one.component] = _component_box(one)
        for edge in edges:
            self.links.append(Arc(edge.source, edge.target, edge.stream))
        for one in components:
            for state in one.states:
                node = ("state", state.state)
                self.boxes[node] = _state_box(state, one.column + 1)
                self.links.append(Arc(one.component, node, "state"))
                self.states.append((node, state))
        for at, link in enumerate(self.links):
            self.boxes[link.target].inputs.append(at)
        for box in self.boxes.values():
            text = 14 + 17 * len(box.names) + 15 * len(box.lines) + 6
            ports = PORT * min(len(box.inputs), LABELLED_INPUTS_MAX) + 4
            box.height = max(text, ports) + (10 if box.shape == "state" else 0)
        self._place()

    def _place(self) -> None:
        columns = {node: box.column for node, box in self.boxes.items()}
        heights = {node: box.height for node, box in self.boxes.items()}
        found = placed(columns, heights, self.links)
        self.ways = found.ways
        commits = [each.column for each in self.components if each.phase == "commit"]
        self.first_commit = min(commits, default=None)
        top = MARGIN + (HEADING if commits else 0.0)
        self._columns()
        for node, box in self.boxes.items():
            box.x = self.lefts[box.column] + (self.widths[box.column] - box.width) / 2
            box.y = top + found.middle[node]
        self.ways = [[(column, top + y) for column, y in way] for way in found.ways]
        self.height = top + found.height + LEGEND
        shown = {box.shape for box in self.boxes.values()}
        self.shapes = [shape for shape in _MEANINGS if shape in shown]
        right = self.lefts[-1] + self.widths[-1]
        self.width = MARGIN + max(right, sum(_legend_width(each) for each in self.shapes))
        self.ports = self._ports()

    def _columns(self) -> None:
        """Place the columns, with space before each for curves and the labels of its inputs."""
        count = 1 + max(box.column for box in self.boxes.values())
        self.widths = [0.0] * count
        self.rooms = [0.0] * count
        for box in self.boxes.values():
            self.widths[box.column] = max(self.widths[box.column], box.width)
            for at in box.inputs:
                label = _width(self._label(at), LABEL)
                self.rooms[box.column] = max(self.rooms[box.column], label)
        self.lefts: list[float] = []
        right = MARGIN
        for at in range(count):
            if at:
                right += CURVE + self.rooms[at] + 22
            if at == self.first_commit:
                right += HANDOVER
                self.handover_x = right - self.rooms[at] - 22 - CURVE - HANDOVER / 2
            self.lefts.append(right)
            right += self.widths[at]

    def _ports(self) -> dict[int, float]:
        """Return where each edge ends: one below the other, in the order of their height."""
        ports: dict[int, float] = {}
        for box in self.boxes.values():
            came = sorted(box.inputs, key=self._height_before)
            step = min(PORT, (box.height - 4) / max(1, len(came)))
            first = box.y - step * (len(came) - 1) / 2
            ports.update((at, first + step * row) for row, at in enumerate(came))
        return ports

    def _height_before(self, at: int) -> float:
        return self.ways[at][-1][1] if self.ways[at] else self.boxes[self.links[at].source].y

    def _label(self, at: int) -> str:
        if at >= len(self.edges):
            return ""
        edge = self.edges[at]
        if len(self.boxes[edge.target].inputs) > LABELLED_INPUTS_MAX:
            return ""
        stream = "" if edge.stream == DEFAULT_STREAM else f"{escaped(edge.stream)}: "
        return _fitted(f"{stream}{escaped(edge.grouping)}", LABEL, LABEL_WIDTH_MAX)

    def text(self, topology: str, *, style: bool) -> str:
        """Return the picture."""
        width, height = _n(self.width), _n(self.height)
        count = len(self.components)
        title = f"graph of topology {escaped(topology)}, {count} component{'s' * (count != 1)}"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="txtopo-graph" role="img" '
            f'aria-label="{escape(title)}" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" '
            f'font-size="{SMALL:g}" fill="currentColor">',
            f"<title>{escape(title)}</title>",
        ]
        if style:
            parts.append(f"<style>{_STYLE}</style>")
        parts += self._phases()
        for at in range(len(self.links)):
            parts.append(self._edge(at))
        for one in self.components:
            attribute = f'data-component="{escape(one.component)}"'
            parts.append(_box(self.boxes[one.component], attribute))
        for node, state in self.states:
            parts.append(_box(self.boxes[node], f'data-state="{escape(state.state)}"'))
        parts += self._legend()
        return "\n".join([*parts, "</svg>"]) + "\n"

    def _phases(self) -> Iterator[str]:
        if self.first_commit is None:
            return
        x, bottom = self.handover_x, self.height - LEGEND + 8
        yield (
            f'<rect class="commit-phase" x="{_n(x)}" y="0" width="{_n(self.width - x)}" '
            f'height="{_n(bottom)}" fill="currentColor" fill-opacity="0.035"/>'
        )
        yield (
            f'<line class="handover" x1="{_n(x)}" y1="0" x2="{_n(x)}" y2="{_n(bottom)}" '
            'stroke="currentColor" stroke-opacity="0.65" stroke-width="1.5" '
            'stroke-dasharray="7 5"/>'
        )
        yield _text(x - 12, 22, "processing phase", 12, anchor="end", opacity=0.75, weight=600)
        yield _text(x + 12, 22, "commit phase", 12, opacity=0.75, weight=600)

    def _edge(self, at: int) -> str:
        link = self.links[at]
        source, target = self.boxes[link.source], self.boxes[link.target]
        label, y = self._label(at), self.ports[at]
        x, before = source.x + source.width, source.y
        path = [f"M{_n(x)} {_n(before)}"]
        for column, middle in self.ways[at]:
            left, right = self.lefts[column], self.lefts[column] + self.widths[column]
            path.append(_curve(x, before, left, middle))
            path.append(f"H{_n(right)}")
            x, before = right, middle
        straight = target.x - (self.rooms[target.column] + 16 if label else 10)
        path += [_curve(x, before, straight, y), f"H{_n(target.x - 6)}"]
        line = (
            f'<path d="{"".join(path)}" fill="none" stroke="currentColor" stroke-width="1.3" '
            f'stroke-opacity="0.55"{_DOTS if at >= len(self.edges) else ""}/>'
            f'<path d="M{_n(target.x)} {_n(y)}l-7 -3.5v7z" fill-opacity="0.7"/>'
        )
        if at >= len(self.edges):
            return f'<g class="writes">{line}</g>'
        edge = self.edges[at]
        named = escape(json.dumps([edge.source, edge.stream, edge.target], ensure_ascii=False))
        told = f"{edge.source} → {edge.target}, stream {edge.stream}, by {edge.grouping}"
        shown = _text(target.x - 12, y - 5, label, LABEL, "label", "end", 0.8) if label else ""
        return (
            f'<g class="edge" data-edge="{named}"><title>{escape(escaped(told))}</title>'
            f"{line}{shown}</g>"
        )

    def _legend(self) -> Iterator[str]:
        x, y = MARGIN, self.height - 18
        for shape in self.shapes:
            icon = _outline(shape, x, y - 7, 24.0, 14.0)
            word = _text(x + 31, y + 4, _MEANINGS[shape], SMALL, opacity=0.75)
            yield f'<g class="legend">{icon}{word}</g>'
            x += _legend_width(shape)


_DOTS = ' stroke-dasharray="2 3"'


def _component_box(one: ExplainedComponent) -> _Box:
    tasks = f" × {one.parallelism}" if one.parallelism > 1 else ""
    short, role = short_class(one.class_name), f"{short_text(one.role)}{tasks}"
    if one.aggregates:
        short = ", ".join(each.aggregate for each in one.aggregates)
        if _width(short, SMALL) > TEXT_WIDTH_MAX:
            short = f"{len(one.aggregates)} aggregates"
    title = (
        f"{one.component}: {one.role} {one.class_name}{tasks}, level {one.level}; runs {one.runs}"
    )
    names = _two_lines(escaped(one.component))
    lines = [_fitted(short, SMALL, TEXT_WIDTH_MAX), role]
    return _Box(one.shape, names, lines, title, one.column)


def _state_box(state: ExplainedState, column: int) -> _Box:
    place = _fitted(state.url.partition("?")[0], SMALL, TEXT_WIDTH_MAX)
    title = f"state {state.state}: table {state.table} in {state.url}, {state.kind}; {state.holds}"
    log = ", log" if state.mode == "log" else ""
    return _Box("state", _two_lines(state.table), [f"{state.kind}{log}", place], title, column)


def _box(box: _Box, attribute: str) -> str:
    left, top, middle = box.x, box.y - box.height / 2, box.x + box.width / 2
    parts = [_outline(box.shape, left, top, box.width, box.height)]
    tall = 17 * len(box.names) + 15 * len(box.lines)
    y = box.y - tall / 2 + 13 + (4 if box.shape == "state" else 0)
    for name in box.names:
        parts.append(_text(middle, y, name, NAME, "name", "middle", weight=600))
        y += 17
    for line in box.lines:
        parts.append(_text(middle, y - 1, line, SMALL, "", "middle", 0.75))
        y += 15
    title = f"<title>{escape(escaped(box.title))}</title>"
    return f'<g class="{box.shape}" {attribute}>{title}{"".join(parts)}</g>'


def _outline(shape: str, x: float, y: float, width: float, height: float) -> str:
    colour = _COLOURS[shape]
    paint = f'fill="{colour}" fill-opacity="0.13" stroke="{colour}" stroke-width="1.5"'
    right, bottom, slant = x + width, y + height, min(14.0, height / 3)
    if shape == "spout":
        rounded = f'rx="{_n(min(height / 2, 24.0))}"'
        return _rect(x, y, width, height, f"{rounded} {paint}")
    if shape == "bolt":
        return _rect(x, y, width, height, f'rx="{_n(min(6.0, height / 4))}" {paint}')
    if shape == "committer":
        inset = min(7.0, width / 6)
        bars = f"M{_n(x + inset)} {_n(y)}V{_n(bottom)}M{_n(right - inset)} {_n(y)}V{_n(bottom)}"
        return f"{_rect(x, y, width, height, paint)}{_line(bars, colour)}"
    if shape == "aggregate":
        corners = (
            f"M{_n(x + slant)} {_n(y)}H{_n(right - slant)}L{_n(right)} {_n(y + height / 2)}"
            f"L{_n(right - slant)} {_n(bottom)}H{_n(x + slant)}L{_n(x)} {_n(y + height / 2)}Z"
        )
        return f'<path d="{corners}" {paint}/>'
    if shape == "plan":
        corners = f"M{_n(x + slant)} {_n(y)}H{_n(right)}L{_n(right - slant)} {_n(bottom)}H{_n(x)}Z"
        return f'<path d="{corners}" {paint}/>'
    half, cap = width / 2, min(7.0, height / 4)
    body = (
        f"M{_n(x)} {_n(y + cap)}A{_n(half)} {_n(cap)} 0 0 1 {_n(right)} {_n(y + cap)}"
        f"V{_n(bottom - cap)}A{_n(half)} {_n(cap)} 0 0 1 {_n(x)} {_n(bottom - cap)}Z"
    )
    rim = f"M{_n(x)} {_n(y + cap)}A{_n(half)} {_n(cap)} 0 0 0 {_n(right)} {_n(y + cap)}"
    return f'<path d="{body}" {paint}/>{_line(rim, colour)}'


def _line(path: str, colour: str) -> str:
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _legend_width(shape: str) -> float:
    return 53.0 + _width(_MEANINGS[shape], SMALL)


def _rect(x: float, y: float, width: float, height: float, more: str) -> str:
    return f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" {more}/>'


def _text(
    x: float,
    y: float,
    content: str,
    size: float,
    kind: str = "",
    anchor: str = "start",
    opacity: float = 1.0,
    weight: int = 400,
) -> str:
    attributes = [f'x="{_n(x)}" y="{_n(y)}" font-size="{size:g}"']
    if kind:
        attributes.append(f'class="{kind}"')
    if anchor != "start":
        attributes.append(f'text-anchor="{anchor}"')
    if opacity != 1.0:
        attributes.append(f'fill-opacity="{opacity:g}"')
    if weight != 400:
        attributes.append(f'font-weight="{weight}"')
    return f"<text {' '.join(attributes)}>{escape(content)}</text>"


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    half = (x + to_x) / 2
    return f"C{_n(half)} {_n(y)} {_n(half)} {_n(to_y)} {_n(to_x)} {_n(to_y)}"


def _two_lines(text: str) -> list[str]:
    """Return a name in one or two lines, broken after a punctuation mark if there is one."""
    if _width(text, NAME * BOLD) <= TEXT_WIDTH_MAX:
        return [text]
    fits = 1
    while _width(text[: fits + 1], NAME * BOLD) <= TEXT_WIDTH_MAX:
        fits += 1
    marks = [at + 1 for at in range(fits // 2, fits) if text[at] in " -_.:,"]
    cut = marks[-1] if marks else fits
    return [text[:cut], _fitted(text[cut:], NAME * BOLD, TEXT_WIDTH_MAX)]


def _fitted(text: str, size: float, width_max: float) -> str:
    """Return a text that is at most this wide; it is shortened in the middle."""
    if _width(text, size) <= width_max:
        return text
    keep = len(text)
    while keep > 2 and _width(text[:keep], size) + size > width_max:
        keep -= 1
    head = keep - keep // 2
    return f"{text[:head]}…{text[len(text) - keep // 2 :]}"


_NARROW = frozenset("fijlrtI.,:;'|!()[]{} /-")
_WIDE = frozenset("mwMW@%<>=+~#&")
BOLD = 1.1


def _width(text: str, size: float) -> float:
    """Estimate the width of a text; fonts differ, so the estimate is rather too wide."""
    return size * sum(_em(character) for character in text)


def _em(character: str) -> float:
    if character in _NARROW:
        return 0.42
    if character in _WIDE:
        return 0.95
    if east_asian_width(character) in "WF":
        return 1.05
    return 0.7 if character.isupper() else 0.62


def _n(number: float) -> str:
    """Return a coordinate with at most one digit after the point."""
    return f"{number:.1f}".removesuffix(".0")
