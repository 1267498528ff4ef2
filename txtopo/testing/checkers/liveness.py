"""C8: after the faults stop everything is processed in bounded time, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.testing.checkers.evidence import Evidence, Violation


class Liveness:
    """Looks at how runs ended and at what is still there."""

    name = "C8"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield what is stuck, what is left, and runs that ended for no good reason."""
        for what in evidence.leftovers:
            yield Violation(self.name, what)
        for ended in evidence.history.endings:
            if ended.error is not None and not isinstance(ended.error, evidence.expected):
                yield Violation(
                    self.name,
                    f"the run of {ended.process} ended at {ended.at_s:.3f} s with {ended.error!r}",
                )
