"""Contexts: what a spout or bolt is told about itself, and where a committer gets its states."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from txtopo.errors import StateUsageError, TopologyError, nearest
from txtopo.metadata import Json

if TYPE_CHECKING:
    from txtopo.frames.states import FrameStateHandle
    from txtopo.state.transaction import StateHandle


Stamp = Mapping[str, Json] | None
"""What the outside said when a batch was planned (:mod:`txtopo.metadata`); None for nothing."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def no_stamp() -> Stamp:
    """Return None, the stamp of a task without a batch, or of a topology that asks for none."""
    return None


def never() -> bool:
    """Return False: whether an attempt is abandoned is not told here."""
    return False


def no_states(name: str) -> StateHandle:
    """Refuse to open a state: this context has none."""
    raise StateUsageError(
        f"state {name!r} is not open here; only committers have states; give the bolt the marker "
        f"Committer and declare it with .with_state({name!r}, open_state(…))",
        state=name,
    )


def _no_frame_states(name: str) -> FrameStateHandle:
    raise StateUsageError(
        f"state {name!r} is not open here; only committers have states, in their commit phase; "
        "give the bolt the marker Committer, declare the state with "
        f".with_state({name!r}, open_state(…)) and use it in commit()",
        state=name,
    )


@dataclass(frozen=True, slots=True)
class FrameContext:
    """What a ``DataFrameBolt``, which has no tasks, knows about itself.

    Attributes:
        topology_id: Id of the topology.
        component_id: Id of the bolt.
        states: Opens a state by name; use :meth:`state`.
    """

    topology_id: str
    component_id: str
    states: Callable[[str], FrameStateHandle] = field(
        default=_no_frame_states, repr=False, compare=False
    )

    def state(self, name: str) -> FrameStateHandle:
        """Return the state that ``with_state(name, …)`` declared for this bolt.

        Use it only in the commit phase: in the ``prepare`` before ``transform``, the state cannot
        be used.

        Raises:
            StateUsageError: No such state was declared, or the bolt is not a committer.
        """
        return self.states(name)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What a task knows about itself (Storm ``TopologyContext``).

    Attributes:
        topology_id: Id of the topology.
        component_id: Id of the spout or bolt.
        task_index: The number of this task, from 0.
        tasks: The number of tasks of the spout or bolt.
        states: Opens a state by name; use :meth:`state`.
        parallelism: The number of tasks of each component; use :meth:`component_tasks`.
        stamp: Returns the stamp that the batch got when it was planned; use :attr:`planned_time`
            and :attr:`versions`.
        abandoned: Returns whether the attempt is abandoned, so that waiting work may end. Not every
            carrier reports this: Spark ends the worker instead.
    """

    topology_id: str
    component_id: str
    task_index: int
    tasks: int
    states: Callable[[str], StateHandle] = field(default=no_states, repr=False, compare=False)
    parallelism: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    stamp: Callable[[], Stamp] = field(default=no_stamp, repr=False, compare=False)
    abandoned: Callable[[], bool] = field(default=never, repr=False, compare=False)

    @property
    def planned_time(self) -> datetime.datetime:
        """The processing time of the batch, when it was planned, in UTC, to the millisecond.

        It is the same in every attempt at a txid, in all tasks and in both phases, and never
        earlier than that of the previous txid. An emitter may read it while it emits a batch.

        Raises:
            TopologyError: Nothing in the topology needs it; set ``needs_planned_time = True`` in a
                bolt.
        """
        stamp = self.stamp()
        if stamp is None:
            raise TopologyError(
                f"{self.component_id!r} asks for the time when its batch was planned, which is "
                "not stored here; expected a batch of a topology with a bolt that has "
                "needs_planned_time = True; add that to the bolt's class",
                component=self.component_id,
            )
        return EPOCH + datetime.timedelta(milliseconds=int(str(stamp["time"])))

    @property
    def latest_time(self) -> datetime.datetime:
        """When the batch was planned, in UTC, by whichever clock was ahead.

        It is the planned time, unless the clock of the driver had jumped ahead and was not believed
        yet: then it is the time of that clock.

        Raises:
            TopologyError: As for :attr:`planned_time`.
        """
        planned, stamp = self.planned_time, self.stamp() or {}
        if "latest" not in stamp:
            return planned
        return EPOCH + datetime.timedelta(milliseconds=int(str(stamp["latest"])))

    @property
    def versions(self) -> Mapping[str, Json]:
        """The version of each lookup that the batch reads, by the id of the lookup.

        It is the same in every attempt at a txid.

        Raises:
            TopologyError: The topology has no lookups.
        """
        tables = (self.stamp() or {}).get("tables")
        if not isinstance(tables, dict):
            raise TopologyError(
                f"{self.component_id!r} asks for the versions of lookups, but its batch has none; "
                "expected a topology with lookups",
                component=self.component_id,
            )
        return tables

    def component_tasks(self, component: str) -> list[int]:
        """Return the numbers of the tasks of a component, for ``emit_direct`` (Storm's name).

        They count from 0 within the component, as ``task_index`` does; in Storm they are unique in
        the topology.

        Args:
            component: Id of a spout or bolt of this topology.

        Returns:
            The numbers in ascending order; empty for a component without tasks, such as a
            ``PersistentAggregate``, or a DataFrame spout or bolt.

        Raises:
            TopologyError: There is no such component; the message has the nearest name.
        """
        if component not in self.parallelism:
            raise TopologyError(
                f"{self.component_id!r} asks for the tasks of unknown component {component!r}; "
                f"{nearest(component, self.parallelism)}",
                component=component,
            )
        return list(range(self.parallelism[component]))

    def state(self, name: str) -> StateHandle:
        """Return the state that ``with_state(name, …)`` declared for this bolt.

        Raises:
            StateUsageError: No such state was declared, or the bolt is not a committer.
        """
        return self.states(name)
