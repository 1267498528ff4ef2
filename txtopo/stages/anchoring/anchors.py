"""Anchors: from the inputs that emitted rows hang on to the links of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from txtopo.acking import Column, Rows
from txtopo.collector import InputTuple
from txtopo.errors import EmitError
from txtopo.stages.anchoring.links import Links, TreeInputs
from txtopo.tuples import Tuple

_inputs = attrgetter("inputs")
_row = attrgetter("row")


class _Part(NamedTuple):
    """Anchors that came together: links *link* of *inputs* are those from *start* on."""

    inputs: TreeInputs
    link: Rows
    start: int


class Hanging:
    """What some emitted rows hang on.

    A row whose anchors share a tree hangs on the first of them there: one edge is enough to keep
    the tree open, and doubled anchors would double from bolt to bolt.

    Raises:
        EmitError: An anchor is no tuple.
    """

    def __init__(self, component: str, marks: Sequence[Any]) -> None:
        self._parts: list[_Part] = []
        self._kept: Rows | None = None
        if set(map(type, marks)) == {InputTuple}:
            anchors, rows = marks, None
        else:
            anchors, rows = _flat(component, marks)
        self.links = self._link(anchors, rows, len(marks))

    def hang(self, made: Column) -> None:
        """XOR the ids that were drawn for the links into the inputs."""
        if self._kept is not None:
            whole: Column = np.zeros(sum(len(part.link) for part in self._parts), dtype=np.uint64)
            whole[self._kept] = made
            made = whole
        for inputs, link, start in self._parts:
            np.bitwise_xor.at(inputs.links.ids, link, made[start : start + len(link)])

    def _link(self, anchors: Sequence[InputTuple], rows: Rows | None, tuples: int) -> Links:
        positions, start, first, one_each = [], 0, 0, rows is None
        for inputs, group in groupby(anchors, _inputs):
            wanted = np.fromiter(map(_row, group), np.int64)
            position, link = inputs.links.of(wanted)
            if position is None:
                position = np.arange(len(wanted))
            else:
                one_each = False
            if len(link):
                self._parts.append(_Part(inputs, link, start))
                positions.append(position + first)
            start += len(link)
            first += len(wanted)
        if not self._parts:
            return Links()
        roots = np.concatenate([part.inputs.links.roots[part.link] for part in self._parts])
        if one_each:
            return Links(roots)
        position = np.concatenate(positions)
        row = position if rows is None else rows[position]
        # The first link of each (row, root); they stay in the order of the rows.
        order = np.lexsort((roots, row))
        same = (row[order][1:] == row[order][:-1]) & (roots[order][1:] == roots[order][:-1])
        self._kept = order[np.concatenate(([True], ~same))]
        counts = np.bincount(row[self._kept], minlength=tuples)
        return Links(roots[self._kept], starts=np.concatenate(([0], np.cumsum(counts))))


def _flat(component: str, marks: Sequence[Any]) -> tuple[list[InputTuple], Rows]:
    """Return all anchors one after the other, and the row that each belongs to."""
    anchors: list[InputTuple] = []
    rows: list[int] = []
    for row, mark in enumerate(marks):
        for anchor in (mark,) if isinstance(mark, Tuple) else mark or ():
            if not isinstance(anchor, Tuple):
                raise EmitError(
                    f"{component!r} emitted with an anchor that is no tuple; got {mark!r:.100}; "
                    "expected an input, or a list of inputs; a stream is given as stream=…",
                    component=component,
                )
            if isinstance(anchor, InputTuple):
                anchors.append(anchor)
                rows.append(row)
    return anchors, np.array(rows, dtype=np.int64)
