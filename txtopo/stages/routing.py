"""Routing: chooses the tasks that get a tuple, for a whole record batch at once.

A router belongs to one edge, one sending task and one attempt, so it may count. Nothing here is
random or depends on the number of slots, except ``local_or_shuffle``, which is about slots. Where a
sequence of tasks begins follows from the txid, the sending task and the edge.

Columns are hashed by content, so equal values go to the same task, in every process and on replay.
Python's ``hash`` of a string differs between processes (``PYTHONHASHSEED``), so it is not used for
text. Its hash of a number is the same in all processes, and is equal for equal numbers of different
types (``1 == 1.0 == Decimal("1.00")``), as a bolt that joins two streams needs it. NULL equals
NULL, and NaN equals NaN.

Each distinct value is hashed once. That takes 7 ms for 100,000 words of which 25,000 are distinct.
A hash in numpy over all bytes took 17 ms.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

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
from txtopo.stages.compiled_topology import PlannedEdge
from txtopo.stages.pickling import Prototype

Tasks = npt.NDArray[np.int64]


class OneTask(NamedTuple):
    """Sends all tuples to one task."""

    task: int


class EveryTask(NamedTuple):
    """Sends all tuples to every task."""


class TaskEach(NamedTuple):
    """Sends each tuple to a task of its own choice.

    Attributes:
        tasks: The task of each tuple; with *rows* the task of each of these tuples.
        rows: Indices of tuples. A tuple may be there several times, or not at all. None for all
            tuples in their order.
    """

    tasks: Tasks
    rows: Tasks | None = None


Route = OneTask | EveryTask | TaskEach


class Router(Protocol):
    """Chooses the receiving tasks of the tuples that one task sends along one edge."""

    def route(self, batch: pa.RecordBatch, targets: Sequence[int] | None) -> Route:
        """Choose the tasks for the tuples of a batch.

        Args:
            batch: The tuples.
            targets: On a direct stream, the tasks that the emitter chose.
        """
        ...


def make_router(edge: PlannedEdge, *, txid: int, task: int, slot: int, slots: int) -> Router:
    """Return a router for the tuples that *task* in *slot* sends along *edge* in this batch."""
    grouping, tasks = edge.grouping, edge.tasks
    match grouping:
        case Prototype():
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
            return _Random(tasks, seed(txid, task, edge.index))
        case LocalOrShuffleGrouping():
            local = range(slot, tasks, slots) or range(tasks)
            if len(local) == 1:  # dealing out to one task would copy all tuples
                return _Fixed(OneTask(local[0]))
            return _RoundRobin(local, seed(txid, task, edge.index))
        case ShuffleGrouping():
            return _RoundRobin(range(tasks), seed(txid, task, edge.index))
        case _:
            raise AssertionError(f"unknown grouping {grouping!r}")


@dataclass(frozen=True, slots=True)
class _Fixed:
    answer: Route

    def route(self, batch: pa.RecordBatch, targets: Sequence[int] | None) -> Route:
        return self.answer


class _RoundRobin:
    """Deals tuples out to tasks in turn, over all record batches of an attempt: exactly even."""

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
    """Each key has two tasks. A tuple goes to the one that this sender has used less."""

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
        self._grouping = cast("Prototype[CustomStreamGrouping]", edge.grouping).copy()
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
        EmitError: One of them is not a task of the bolt; repair the code that chose it.
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


Hashes = npt.NDArray[np.uint64]

_NULL = 0x6E756C6C

_NAN = 0x6E616E

_COLUMN = np.uint64(0x100000001B3)

_BITS = 0xFFFFFFFFFFFFFFFF


def mix(values: Hashes) -> Hashes:
    """Spread values over all 64 bits (the finalizer of splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def seed(*numbers: int) -> int:
    """Return a 64-bit number that depends on all of *numbers*."""
    state = 0
    for number in numbers:
        state = _mixed(state ^ (number & _BITS))
    return state


def _mixed(value: int) -> int:
    """Return :func:`mix` of one value. An array of one value takes ten times as long."""
    value = (value + 0x9E3779B97F4A7C15) & _BITS
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _BITS
    return value ^ (value >> 31)


def hash_rows(batch: pa.RecordBatch, columns: Sequence[int]) -> Hashes:
    """Return a hash of the values in these columns, for each row."""
    hashes: Hashes = np.zeros(batch.num_rows, dtype=np.uint64)
    for column in columns:
        hashes = mix(hashes * _COLUMN + _hash_column(batch.column(column)))
    return hashes


def _hash_column(column: pa.Array) -> Hashes:
    encoded = column.dictionary_encode(null_encoding="encode")
    dictionary = encoded.dictionary
    if pa.types.is_temporal(dictionary.type):
        # Hash days or microseconds; Python objects would need a time zone to be compared.
        wide = pa.int64() if dictionary.type.bit_width == 64 else pa.int32()
        dictionary = dictionary.cast(wide)
    elif pa.types.is_string(dictionary.type):
        # Hash the bytes, so that they are not decoded and encoded again.
        dictionary = dictionary.view(pa.binary())
    plain = pa.types.is_binary(dictionary.type) and not dictionary.null_count
    hash_value = zlib.crc32 if plain else _hash_value
    distinct = np.fromiter(map(hash_value, dictionary.to_pylist()), np.int64, len(dictionary))
    hashes: Hashes = distinct.view(np.uint64)[encoded.indices.to_numpy(zero_copy_only=False)]
    return hashes


def _hash_value(value: Any) -> int:
    if type(value) is bytes:
        return zlib.crc32(value)
    if type(value) is str:
        return zlib.crc32(value.encode())
    if value is None:
        return _NULL
    return hash(value) if value == value else _NAN
