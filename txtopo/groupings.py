"""Groupings: how the tuples of a stream are shared among the tasks of a bolt.

These are Storm's nine, as words. How a grouping picks tasks for a column of tuples is in
:mod:`txtopo.stages.routing`. None depends on chance: shuffle and random groupings are seeded by
(txid, sending task), so that a batch that is computed again is shared in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.tuples import Fields


@dataclass(frozen=True, slots=True)
class ShuffleGrouping:
    """Each task gets the same number of tuples of each sending task, give or take one."""


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
    """You do not care: a task drawn at random for each tuple."""


@dataclass(frozen=True, slots=True)
class LocalOrShuffleGrouping:
    """Tasks in the sender's slot if there are any (nothing travels), else as shuffle."""


@dataclass(frozen=True, slots=True)
class PartialKeyGrouping:
    """As fields, but each key is shared by two tasks, whichever its sender has used less."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DirectGrouping:
    """The emitter picks the task with ``emit_direct``; the stream must be declared direct."""


class CustomStreamGrouping(ABC):
    """A grouping of your own (Storm ``CustomStreamGrouping``).

    A copy is made for each sending task of each batch and used by one thread. It must be picklable.
    For the same calls in the same order it must choose the same tasks, else a batch that is
    computed again differs.
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
    """A grouping of the user's own."""

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
