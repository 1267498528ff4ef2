"""layout: places the nodes of a layered graph, from left to right, with few crossing edges.

The column of each node is given. An edge that skips columns gets a waypoint in each of them; edges
of one bundle (a stream) share their waypoints. Barycentre sweeps determine the order within
columns: each node moves to the mean position of its neighbours, alternately in the previous and in
the next column. Then nodes move towards their neighbours as far as the order and the gaps allow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# Enough for the order to settle; more sweeps change almost nothing.
SWEEPS = 8
# A picture with more waypoints would take seconds and megabytes; then all edges are straight.
WAYPOINTS_MAX = 20_000
GAP = 22.0
WAYPOINT_HEIGHT = 10.0

Node = Hashable


@dataclass(frozen=True, slots=True)
class Arc:
    """An edge to be placed.

    Attributes:
        source: The node where it starts.
        target: The node where it ends, in a later column.
        bundle: Edges with the same source and bundle share their path.
    """

    source: Node
    target: Node
    bundle: Hashable


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """The position of everything.

    Attributes:
        middle: The vertical centre of each node, measured from the top.
        ways: The waypoints of each edge, as (column, middle), in order.
        height: The total height.
    """

    middle: Mapping[Node, float]
    ways: Sequence[Sequence[tuple[int, float]]]
    height: float


def placed(
    columns: Mapping[Node, int], heights: Mapping[Node, float], links: Sequence[Arc]
) -> GraphLayout:
    """Place nodes within their columns.

    Args:
        columns: The column of each node, in their initial order.
        heights: The height of each node.
        links: The edges; each leads to a later column.
    """
    columns, heights = dict(columns), dict(heights)
    ways = _waypoints(columns, heights, links)
    above: dict[Node, list[Node]] = defaultdict(list)
    below: dict[Node, list[Node]] = defaultdict(list)
    steps = {
        step
        for link, way in zip(links, ways, strict=True)
        for step in zip((link.source, *way), (*way, link.target), strict=True)
    }
    # The order depends only on the graph.
    first = {node: at for at, node in enumerate(columns)}
    for source, target in sorted(steps, key=lambda step: (first[step[0]], first[step[1]])):
        above[target].append(source)
        below[source].append(target)
    rows = _rows(columns)
    _order(rows, above, below)
    middle = _spread(rows, heights, above, below)
    height = max((middle[node] + heights[node] / 2 for node in middle), default=0.0)
    shown = [[(columns[node], middle[node]) for node in way] for way in ways]
    return GraphLayout(middle, shown, height)


def _waypoints(
    columns: dict[Node, int], heights: dict[Node, float], links: Sequence[Arc]
) -> list[tuple[Node, ...]]:
    """Return the waypoints of each edge, and add them to columns and heights."""
    if sum(columns[link.target] - columns[link.source] - 1 for link in links) > WAYPOINTS_MAX:
        return [() for _ in links]
    ways: list[tuple[Node, ...]] = []
    added: dict[Node, int] = {}
    for link in links:
        between = range(columns[link.source] + 1, columns[link.target])
        way = tuple(("way", link.source, link.bundle, column) for column in between)
        added.update(zip(way, between, strict=True))
        ways.append(way)
    columns.update(added)
    heights.update(dict.fromkeys(added, WAYPOINT_HEIGHT))
    return ways


def _rows(columns: Mapping[Node, int]) -> list[list[Node]]:
    rows: list[list[Node]] = [[] for _ in range(1 + max(columns.values(), default=-1))]
    for node, column in columns.items():
        rows[column].append(node)
    return rows


def _order(
    rows: list[list[Node]],
    above: Mapping[Node, Sequence[Node]],
    below: Mapping[Node, Sequence[Node]],
) -> None:
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        forward = sweep % 2 == 0
        turn = rows[1:] if forward else rows[-2::-1]
        neighbours = above if forward else below
        place = {node: float(at) for row in rows for at, node in enumerate(row)}
        for row in turn:
            means = {node: _mean([place[n] for n in neighbours.get(node, ())]) for node in row}
            row.sort(key=lambda node, means=means: _known(means[node], place[node]))  # type: ignore[misc]
            place.update((node, float(at)) for at, node in enumerate(row))
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    rows[:] = best


def _crossings(rows: Sequence[Sequence[Node]], below: Mapping[Node, Sequence[Node]]) -> int:
    """Return how many pairs of edges cross, counted column by column with a Fenwick tree."""
    total = 0
    for row, following in pairwise(rows):
        place = {node: at for at, node in enumerate(following)}
        ends = [sorted(place[n] for n in below.get(node, ()) if n in place) for node in row]
        tree = [0] * (len(following) + 1)
        seen = 0
        for targets in ends:
            for target in targets:
                at, less = target + 1, 0
                while at:
                    less += tree[at]
                    at -= at & -at
                total += seen - less
            for target in targets:
                at = target + 1
                while at <= len(following):
                    tree[at] += 1
                    at += at & -at
                seen += 1
    return total


def _spread(
    rows: Sequence[Sequence[Node]],
    heights: Mapping[Node, float],
    above: Mapping[Node, Sequence[Node]],
    below: Mapping[Node, Sequence[Node]],
) -> dict[Node, float]:
    """Return the middle of each node: as close to its neighbours as the other nodes allow."""
    middle: dict[Node, float] = {}
    for row in rows:
        edge = 0.0
        for node in row:
            middle[node] = edge + heights[node] / 2
            edge += heights[node] + GAP
    for sweep in range(2 * SWEEPS):
        forward = sweep % 2 == 0
        neighbours = above if forward else below
        for row in rows if forward else list(reversed(rows)):
            wanted = [
                _known(_mean([middle[n] for n in neighbours.get(node, ())]), middle[node])
                for node in row
            ]
            middle.update(zip(row, _apart(wanted, [heights[n] for n in row]), strict=True))
    top = min((middle[node] - heights[node] / 2 for node in middle), default=0.0)
    return {node: at - top for node, at in middle.items()}


def _apart(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Return the positions in this order, with gaps, that are closest to the wanted ones.

    Neighbours that would overlap become a block, placed at the mean of its members' wanted places.
    """
    offsets: list[float] = []
    blocks: list[tuple[float, int]] = []  # sum of (wanted - offset), members
    offset = 0.0
    for at, height in enumerate(heights):
        if at:
            offset += (heights[at - 1] + height) / 2 + GAP
        offsets.append(offset)
        total, members = wanted[at] - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / members:
            before, more = blocks.pop()
            total, members = total + before, members + more
        blocks.append((total, members))
    found: list[float] = []
    for total, members in blocks:
        begin = len(found)
        found += [total / members + offsets[at] for at in range(begin, begin + members)]
    return found


def _mean(places: Sequence[float]) -> float | None:
    return sum(places) / len(places) if places else None


def _known(mean: float | None, otherwise: float) -> float:
    return otherwise if mean is None else mean
