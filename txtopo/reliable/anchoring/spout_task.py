"""Spout tasks of at-least-once topologies: call ``ack``, ``fail`` and ``next_tuple`` in turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from txtopo.config import AtLeastOnceConfig
from txtopo.reliable.acking import NONE, Ackers, Column, RootXors
from txtopo.reliable.anchoring.envelope import Complaint, Count, Links
from txtopo.reliable.anchoring.ids import Ids
from txtopo.reliable.anchoring.sending import Sealed, Sending
from txtopo.reliable.collector import SpoutOutputCollector
from txtopo.reliable.spout import Spout
from txtopo.stages.compiled_topology import CompiledTopology, PlannedComponent

# Limits of a turn. Larger envelopes cost less, but the first tuple of a turn waits for the last.
TURN_TUPLES_MAX = 2_000
TURN_S = 0.005


def spout_tasks(compiled: CompiledTopology) -> list[tuple[PlannedComponent, int]]:
    """Return the tasks of all spouts; the one at index *i* of the list is in slot *i mod slots*."""
    spouts = [each for each in compiled.components.values() if each.kind.spout]
    return [(spout, task) for spout in spouts for task in range(spout.tasks)]


def ackers_of(compiled: CompiledTopology) -> Ackers:
    """Return the ackers of a topology."""
    spout_slots = min(len(spout_tasks(compiled)), compiled.slots)
    assert isinstance(compiled.config, AtLeastOnceConfig)
    return Ackers(compiled.slots, spout_slots, compiled.config.ackers)


@dataclass(slots=True)
class EndedMessages:
    """Message ids of ended trees, for ``ack`` and ``fail`` of a spout task."""

    acked: list[Any] = field(default_factory=list)
    failed: list[Any] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.acked or self.failed)


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """How much a spout task may emit in a turn. Beyond it ``next_tuple`` is not called.

    Attributes:
        trees: How many more trees may be pending; None for any number.
        tuples: How many tuples may be emitted.
        settles: Whether to ask a spout that emits nothing if its source may have more.
    """

    trees: int | None = None
    tuples: int = TURN_TUPLES_MAX
    settles: bool = True

    def __bool__(self) -> bool:
        return self.trees != 0 and self.tuples > 0


@dataclass(slots=True)
class Turn:
    """The result of a turn. Begin its trees first, then send its envelopes.

    Attributes:
        sealed: The envelopes.
        begun: The roots of new trees, with the XORs of their edges.
        messages: The message id of each root.
        emitted: Number of emitted tuples.
        idle: Whether the last ``next_tuple`` emitted nothing.
        dry: Whether the last ``next_tuple`` emitted nothing, and the source has no more.
        counts: As in the report of a slot.
        complaints: As in the report of a slot.
    """

    sealed: list[Sealed] = field(default_factory=list)
    begun: RootXors = field(default_factory=RootXors)
    messages: list[Any] = field(default_factory=list)
    emitted: int = 0
    idle: bool = False
    dry: bool = False
    counts: Counter[Count] = field(default_factory=Counter)
    complaints: list[Complaint] = field(default_factory=list)


class ReliableSpoutTask:
    """One task of a spout. All its methods are called on one thread.

    Args:
        compiled: The topology.
        component: The spout.
        task: Index of the task.
        slot: The slot that it lives in.
        seed: Seed of the ids of tuples.
        now: Returns the time in seconds.
    """

    def __init__(
        self,
        compiled: CompiledTopology,
        component: PlannedComponent,
        task: int,
        slot: int,
        seed: int,
        now: Callable[[], float],
    ) -> None:
        self._compiled = compiled
        self._component = component
        self._task = task
        self._slot = slot
        self._now = now
        self._ids = Ids(seed)
        self._sending = Sending(compiled, component, task, slot, self._ids)
        self._spout: Spout = component.prototype.copy()
        self._turn = Turn()
        assert isinstance(compiled.config, AtLeastOnceConfig)
        self._config = compiled.config
        tracked = self._config.ackers != 0
        self._collector = SpoutOutputCollector(
            component.id, component.streams, self._send, None if tracked else self._spout.ack
        )
        self._begun: list[RootXors] = []
        self._active = self._opened = False

    @property
    def name(self) -> tuple[str, int]:
        """The pair (id of the spout, index of the task)."""
        return self._component.id, self._task

    @property
    def pending(self) -> int:
        """Number of the task's trees whose ``ack`` or ``fail`` was not called yet."""
        return self._collector.pending

    @property
    def tends(self) -> bool:
        """Whether the spout wants calls of ``tend`` while it may not emit."""
        return type(self._spout).tend is not Spout.tend

    def open(self) -> None:
        """Open the spout."""
        context = self._compiled.context(self._component, self._task)
        self._spout.open(self._config, context, self._collector)
        self._opened = True

    def turn(self, ends: EndedMessages, *, active: bool, limits: TurnLimits) -> Turn:
        """Activate or deactivate the spout, call its ``ack`` and ``fail``, and let it emit.

        Args:
            ends: The ended trees.
            active: Whether the topology is activated.
            limits: How much it may emit.
        """
        spout, collector = self._spout, self._collector
        if active != self._active:
            self._active = active
            (spout.activate if active else spout.deactivate)()
        collector.pending -= len(ends.acked) + len(ends.failed)
        for message_id in ends.acked:
            spout.ack(message_id)
        for message_id in ends.failed:
            spout.fail(message_id)
        if active and limits:
            self._emit(limits)
        else:
            spout.tend()
        for stream in self._component.streams:
            self._send(stream)
        turn, self._turn = self._turn, Turn()
        if self._begun:
            turn.begun = RootXors(
                *(np.concatenate(each) for each in zip(*self._begun, strict=True))
            )
            self._begun = []
        turn.emitted, collector.tuples = collector.tuples, 0
        turn.counts["emitted", self._component.id] += turn.emitted
        turn.complaints = [Complaint(*self.name, error) for error in collector.errors]
        collector.errors.clear()
        return turn

    def close(self) -> None:
        """Close the spout, if it was opened."""
        if self._opened:
            self._spout.close()

    def _emit(self, limits: TurnLimits) -> None:
        collector, next_tuple = self._collector, self._spout.next_tuple
        pending_max = None if limits.trees is None else collector.pending + limits.trees
        tuples_max = min(TURN_TUPLES_MAX, limits.tuples)
        end_s = self._now() + TURN_S
        while True:
            before = collector.tuples
            next_tuple()
            if collector.tuples == before:
                self._turn.idle = True
                asks = limits.settles or collector.tuples > 0
                self._turn.dry = not (asks and self._spout.may_have_more())
                return
            if pending_max is not None and collector.pending >= pending_max:
                return
            if collector.tuples >= tuples_max or self._now() >= end_s:
                return

    def _send(self, stream: str) -> None:
        emitted = self._collector.emitted[stream]
        if not emitted.rows:
            return
        rows, messages, targets = emitted.rows, emitted.marks, emitted.targets
        emitted.rows, emitted.marks, emitted.targets = [], [], []
        tracked = [message for message in messages if message is not None]
        roots = self._ids.draw_roots(len(tracked), self._slot, self._compiled.slots)
        direct = self._component.streams[stream].direct
        sealed, made = self._sending.seal(
            stream, rows, targets if direct else None, _links(messages, roots)
        )
        turn = self._turn
        turn.sealed += sealed
        turn.messages += tracked
        self._begun.append(RootXors(roots, made))


def _links(messages: list[Any], roots: Column) -> Links:
    if len(roots) == len(messages):
        return Links(roots)
    if not len(roots):
        return Links(NONE)
    tracked = [message is not None for message in messages]
    return Links(roots, starts=np.concatenate(([0], np.cumsum(tracked))))
