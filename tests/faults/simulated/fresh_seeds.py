"""Seeds that no run has had before, a few in each ``make test``; one that fails prints itself."""

from __future__ import annotations

import random

FRESH = 5
FIRST = 1_000_000
"""Above those that campaigns take."""


def fresh_seeds(count: int = FRESH) -> list[int]:
    """Return other seeds each time, whatever seeded the random numbers of the tests."""
    return [random.SystemRandom().randrange(FIRST, 2**31) for _ in range(count)]
