"""Routing: which tasks get a tuple, for a whole column of tuples at once.

A router belongs to one edge, one sending task and one attempt, so it may count. Nothing here
depends on chance or on the number of slots (but ``local_or_shuffle``, whose meaning is a slot):
what starts somewhere starts at a number made of txid, sending task and edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.errors import EmitError
from txtopo.groupings import (
    AllGrouping,
    CustomStreamGrouping,
    DirectGrouping,
    FieldsGrouping,
    GlobalGrouping,
    LocalOrShuffleGrouping,
    NoneGrouping,
    PartialKeyGrouping,
    ShuffleGrouping,
)
from txtopo.stages.hashing import hash_rows, mix, seed
from txtopo.stages.pickling import loads
from txtopo.stages.program import PlannedEdge

Tasks = npt.NDArray[np.int64]


class OneTask(NamedTuple):
    """All tuples go to one task."""

    task: int


class EveryTask(NamedTuple):
    """All tuples go to every task."""


class TaskEach(NamedTuple):
    """A task for each tuple; with *rows*, for each of these tuples: one may come several times."""

    tasks: Tasks
    rows: Tasks | None = None


Route = OneTask | EveryTask | TaskEach


class Router(Protocol):
    """Chooses the receiving tasks of the tuples that one task sends along one edge."""

    def route(self, batch: pa.RecordBatch, targets: Sequence[int] | None) -> Route:
        """Choose the tasks for the tuples of a batch.

        Args:
            batch: The tuples.
            targets: The tasks that the emitter picked, on a direct stream.
        """
        ...


def make_router(edge: PlannedEdge, *, txid: int, task: int, slot: int, slots: int) -> Router:
    """Return a router for what *task* in *slot* sends along *edge* in this batch."""
    grouping, tasks = edge.grouping, edge.tasks
    start = seed(txid, task, edge.index)
    match grouping:
        case bytes():
            return _Custom(edge, task)
        case DirectGrouping():
            return _Direct(edge)
        case AllGrouping():
            return _Fixed(EveryTask())
        case _ if tasks == 1 or isinstance(grouping, GlobalGrouping):
            return _Fixed(OneTask(0))
        case FieldsGrouping(fields):
            return _Hashed([edge.fields.index[name] for name in fields], tasks)
        case PartialKeyGrouping(fields):
            return _PartialKey([edge.fields.index[name] for name in fields], tasks)
        case NoneGrouping():
            return _Random(tasks, start)
        case LocalOrShuffleGrouping():
            local = [each for each in range(tasks) if each % slots == slot]
            return _RoundRobin(local or range(tasks), start)
        case ShuffleGrouping():
            return _RoundRobin(range(tasks), start)
        case _:
            raise AssertionError(f"unknown grouping {grouping!r}")


@dataclass(frozen=True, slots=True)
class _Fixed:
    answer: Route

    def route(self, batch: pa.RecordBatch, targets: Sequence[int] | None) -> Route:
        return self.answer


class _RoundRobin:
    """Goes round a ring of tasks, over all batches of one attempt: exactly even."""

    def __init__(self, ring: Sequence[int], start: int) -> None:
        self._ring = np.asarray(ring, dtype=np.int64)
        self._next = start % len(self._ring)

    def route(self, batch: pa.RecordBatch, targets: Sequence[int] | None) -> Route:
        steps = np.arange(self._next, self._next + batch.num_rows)
        self._next = (self._next + batch.num_rows) % len(self._ring)
        return TaskEach(self._ring[steps % len(self._ring)])


class _Random:
    def __init__(self, tasks: int, start: int) -> None:
        self._tasks = np.uint64(tasks)
        self._next = start >> 1

    def route(self, batch: pa.RecordBatch, targets: Sequence[int] | None) -> Route:
        steps = np.arange(batch.num_rows, dtype=np.uint64) + np.uint64(self._next)
        self._next += batch.num_rows
        return TaskEach((mix(steps) % self._tasks).astype(np.int64))


class _Hashed:
    def __init__(self, columns: Sequence[int], tasks: int) -> None:
        self._columns = columns
        self._tasks = np.uint64(tasks)

    def route(self, batch: pa.RecordBatch, targets: Sequence[int] | None) -> Route:
        return TaskEach((hash_rows(batch, self._columns) % self._tasks).astype(np.int64))


class _PartialKey:
    """Each key has two tasks; a tuple goes to the one that this sender has used less."""

    def __init__(self, columns: Sequence[int], tasks: int) -> None:
        self._columns = columns
        self._tasks = tasks
        self._used = [0] * tasks

    def route(self, batch: pa.RecordBatch, targets: Sequence[int] | None) -> Route:
        hashes = hash_rows(batch, self._columns)
        tasks = np.uint64(self._tasks)
        first = hashes % tasks
        # From 1 to tasks - 1, so that the two differ.
        step = mix(hashes) % (tasks - np.uint64(1)) + np.uint64(1)
        second = (first + step) % tasks
        used, chosen = self._used, []
        for one, other in zip(first.tolist(), second.tolist(), strict=True):
            task = one if used[one] <= used[other] else other
            used[task] += 1
            chosen.append(task)
        return TaskEach(np.asarray(chosen, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class _Direct:
    edge: PlannedEdge

    def route(self, batch: pa.RecordBatch, targets: Sequence[int] | None) -> Route:
        assert targets is not None
        what = f"{self.edge.source!r} emitted directly to task"
        return TaskEach(_checked(targets, self.edge, what))


class _Custom:
    def __init__(self, edge: PlannedEdge, task: int) -> None:
        self._edge = edge
        self._task = task
        self._grouping = cast("CustomStreamGrouping", loads(cast("bytes", edge.grouping)))
        self._grouping.prepare(edge.fields, edge.tasks)

    def route(self, batch: pa.RecordBatch, targets: Sequence[int] | None) -> Route:
        columns = [column.to_pylist() for column in batch.columns]
        tuples = zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)
        chosen = [self._grouping.choose_tasks(self._task, values) for values in tuples]
        rows = np.repeat(np.arange(len(chosen)), [len(tasks) for tasks in chosen])
        flat = [task for tasks in chosen for task in tasks]
        what = f"custom grouping {type(self._grouping).__name__} chose task"
        return TaskEach(_checked(flat, self._edge, what), rows)


def _checked(targets: Sequence[int], edge: PlannedEdge, what: str) -> Tasks:
    """Return the tasks as an array.

    Raises:
        EmitError: One of them is no task of the bolt; mend whoever chose it.
    """
    for task in set(targets):
        whole = type(task) is int or isinstance(task, np.integer)
        if not whole or not 0 <= task < edge.tasks:
            raise EmitError(
                f"{what} {task!r} of bolt {edge.target!r} on stream {edge.stream!r}; expected a "
                f"whole number from 0 to {edge.tasks - 1}",
                component=edge.target,
                task=task,
            )
    return np.asarray(targets, dtype=np.int64)
