"""One core for a simulation: a handoff to a thread on another core costs six times as much."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import SimpleQueue

from txtopo.testing.simulation.clock import ThreadHandoff


@contextmanager
def handoff_on_one_core() -> Iterator[ThreadHandoff]:
    """Yield a handoff whose threads stay on one core, as does the caller."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    handoff = ThreadHandoff()
    try:
        yield handoff
    finally:
        handoff.close()
        os.sched_setaffinity(0, set(cores))


def take_core(cores: SimpleQueue[int]) -> None:
    """Keep a process of a pool on a core of its own, as long as there are some."""
    if not cores.empty():
        os.sched_setaffinity(0, {cores.get()})
