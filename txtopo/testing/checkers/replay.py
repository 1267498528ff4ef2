"""C10: a seed that runs again does the same things at the same virtual times."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from txtopo.testing.checkers.evidence import Violation
from txtopo.testing.simulation.history import History


class TraceReplay:
    """Compares the traces of two runs of one scenario."""

    name = "C10"

    def compare(self, first: History, again: History) -> Iterator[Violation]:
        """Yield the first line that differs."""
        for number, (one, other) in enumerate(zip_longest(first.lines(), again.lines())):
            if one != other:
                what = f"line {number} of the trace was {one!r}; run again it is {other!r}"
                yield Violation(self.name, what)
                return
