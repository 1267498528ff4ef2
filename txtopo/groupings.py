"""Groupings: how the tuples of a stream are shared among the tasks of a bolt.

These classes only name Storm's nine groupings; :mod:`txtopo.stages.routing` picks the tasks. No
grouping depends on chance: shuffle and random groupings are seeded by (txid, sending task), so a
replayed batch is shared in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.tuples import Fields


@dataclass(frozen=True, slots=True)
class ShuffleGrouping:
    """Each task gets the same number of tuples from each sending task, give or take one."""


@dataclass(frozen=True, slots=True)
class FieldsGrouping:
    """Equal values of the named fields go to the same task."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GlobalGrouping:
    """Every tuple goes to the task with the lowest index."""


@dataclass(frozen=True, slots=True)
class AllGrouping:
    """Every tuple goes to every task."""


@dataclass(frozen=True, slots=True)
class NoneGrouping:
    """Each tuple goes to a task drawn at random."""


@dataclass(frozen=True, slots=True)
class LocalOrShuffleGrouping:
    """As shuffle, but only among tasks in the sender's slot if there are any."""


@dataclass(frozen=True, slots=True)
class PartialKeyGrouping:
    """As fields, but each key has two tasks; a tuple goes to the one that its sender used less."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DirectGrouping:
    """The emitter picks the task with ``emit_direct``; the stream must be declared direct."""


class CustomStreamGrouping(ABC):
    """A grouping of your own (Storm ``CustomStreamGrouping``).

    Who calls it: the framework, in the sending task, on one thread: ``prepare`` once, then
    ``choose_tasks`` for each tuple. Each sending task of each batch has a copy, so it must be
    picklable. For the same calls in the same order it must choose the same tasks; otherwise a
    replayed batch differs.
    """

    def prepare(self, fields: Fields, tasks: int) -> None:  # noqa: B027 - optional hook
        """Get ready for one batch.

        Args:
            fields: Declared fields of the stream.
            tasks: How many tasks the receiving bolt has.
        """

    @abstractmethod
    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        """Return the indices of the tasks that get this tuple; may be empty.

        Args:
            task: Index of the sending task.
            values: The tuple.
        """


@dataclass(frozen=True, slots=True)
class CustomGrouping:
    """Tasks are chosen by the user's own grouping."""

    grouping: CustomStreamGrouping


Grouping = (
    ShuffleGrouping
    | FieldsGrouping
    | GlobalGrouping
    | AllGrouping
    | NoneGrouping
    | LocalOrShuffleGrouping
    | PartialKeyGrouping
    | DirectGrouping
    | CustomGrouping
)
