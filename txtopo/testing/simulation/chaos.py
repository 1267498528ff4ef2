"""Chaos: decides from the seed when which fault happens, until the simulation heals."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from txtopo.testing.simulation.faults import Faults

if TYPE_CHECKING:
    from txtopo.testing.simulation.process import SimulatedProcess

LATENCY_S = 0.004
SLOW_S = (0.5, 30.0)
FROZEN_S = (0.5, 20.0)
AWAY_S = (0.1, 5.0)
CLOCK_JUMP_S = 3600.0
ONCE_A_TERM_TIMES = 10
"""A takeover passes a handful of places, the transactions after it some hundreds."""


class Chaos:
    """Draws every fault and every delay of one simulation from one generator.

    Args:
        chance: The generator.
        faults: How often each kind happens.
        tell: Told of each fault that happens.

    Attributes:
        counts: How often each kind has happened.
        healed: Whether nothing goes wrong any more.
        crash_at: Places where a process is killed, whatever the chance: (name of the place, how
            often it has to be passed first). Each happens once.
    """

    def __init__(self, chance: random.Random, faults: Faults, tell: Callable[[str], None]) -> None:
        self.counts: Counter[str] = Counter()
        self.healed = False
        self.crash_at: list[tuple[str, int]] = []
        self._chance = chance
        self._tell = tell
        self._rates = {kind: rate for kind, rate in asdict(faults).items() if rate}
        self._passed: Counter[str] = Counter()

    def happens(self, kind: str, times: int = 1) -> bool:
        """Draw whether a fault happens now, *times* as probable as usual, and count it."""
        rate = self._rates.get(kind)
        if rate is None or self.healed or self._chance.random() >= rate * times:
            return False
        self.counts[kind] += 1
        self._tell(kind)
        return True

    def latency_s(self) -> float:
        """Draw how long something takes."""
        if self.happens("slow"):
            return self._chance.uniform(*SLOW_S)
        return self._chance.expovariate(1 / LATENCY_S)

    def between(self, low: float, high: float) -> float:
        """Draw a number."""
        return self._chance.uniform(low, high)

    def below(self, limit: int) -> int:
        """Draw a whole number from 0 to *limit* - 1."""
        return self._chance.randrange(limit)

    def passes(self, place: str) -> bool:
        """Count that a place is passed; return whether a crash was ordered for this time."""
        self._passed[place] += 1
        return (place, self._passed[place]) in self.crash_at

    def at(self, process: SimulatedProcess, place: str) -> float | None:
        """Do what happens to a process at a checkpoint.

        Returns:
            How long its work has to wait there; None if it may go on at once.
        """
        times = ONCE_A_TERM_TIMES if place.startswith("P0") else 1
        if self.passes(place) or self.happens("crash", times):
            process.kill()
            return None
        if self.happens("clock"):
            process.clock_error_s += self.between(-CLOCK_JUMP_S, CLOCK_JUMP_S)
        if self.happens("expire", times):
            process.world.ensemble.expire(process)
        if self.happens("freeze", times):
            process.freeze(self.between(*FROZEN_S))
            return 0.0
        if self.happens("stop"):
            process.ask_to_stop()
        if self.happens("pause"):
            process.pause(self.between(*AWAY_S))
        return self.latency_s() if self.happens("switch") else None
