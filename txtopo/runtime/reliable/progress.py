"""Progress of an at-least-once run: one event a second, and one for each thing that goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ReliableProgress:
    """What is known of an at-least-once run; counts are those since its start.

    Attributes:
        timestamp_s: When, in seconds since 1970.
        emitted: Tuples that the spouts emitted.
        acked: Trees that were processed to the end.
        failed: Trees that a bolt failed.
        timed_out: Trees whose time was up.
        replays: Tuples that a spout emitted under a message id that had failed.
        pending: Trees that have not ended yet.
        backlog: Tuples that slots have still to consume.
        slots_lost: How many times a slot was lost.
        acked_per_second: Trees that were processed to the end since the progress before, a second.
        latency_p50_s: Complete latency, from emit to ack, of the trees acked since the progress
            before: half of them took at most so long. None if there was none.
        latency_p99_s: The same for all but one in a hundred.
        executed: Tuples that each bolt was given.
        emitted_by: Tuples that each component emitted.
        acked_by: Tuples that each bolt acked, ticks among them.
        failed_by: Tuples that each bolt failed.
    """

    timestamp_s: float
    emitted: int
    acked: int
    failed: int
    timed_out: int
    replays: int
    pending: int
    backlog: int
    slots_lost: int
    acked_per_second: float = 0.0
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    executed: Mapping[str, int] = field(default_factory=dict)
    emitted_by: Mapping[str, int] = field(default_factory=dict)
    acked_by: Mapping[str, int] = field(default_factory=dict)
    failed_by: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progressed:
    """About a second has gone by, or the run is at rest or ends."""

    progress: ReliableProgress


@dataclass(frozen=True, slots=True)
class TreesFailed:
    """Trees failed; the spout is told next.

    Attributes:
        component: Id of the spout.
        task: Its task.
        message_ids: Their message ids.
        reason: ``failed`` by a bolt, or ``timed out``.
    """

    component: str
    task: int
    message_ids: tuple[Any, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SlotLost:
    """A slot is gone with its bolts' memory; another will take its place."""

    slot: int
    reason: str


@dataclass(frozen=True, slots=True)
class ErrorReported:
    """A spout or bolt reported an error; nothing else happens."""

    component: str
    task: int
    error: Exception
