"""C15: a sequence of spouts switched once, after all before it was committed, and for good."""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.metadata import Json
from txtopo.testing.checkers.evidence import (
    Evidence,
    Violation,
    current_of,
    stored_attempts,
    stored_plan,
)
from txtopo.testing.simulation.history import NodesWrite


class Switched:
    """C15: follows the plans of sequences from the switch on."""

    name = "C15"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield switches before the end of the first part, and places that change afterwards."""
        for spout in evidence.spouts:
            yield from self._spout(evidence, spout)

    def _spout(self, evidence: Evidence, spout: str) -> Iterator[Violation]:
        known: tuple[Json, Json] | None = None
        for write in evidence.history.writes:
            if not isinstance(write, NodesWrite):
                continue
            for attempt in sorted(stored_attempts(evidence.topology_id, write)):
                plan = stored_plan(evidence.topology_id, write.after, attempt.txid, spout)
                if not isinstance(plan, dict) or plan.get("part") != "then":
                    continue
                found = plan.get("switch"), plan.get("begins")
                before = stored_plan(evidence.topology_id, write.before, attempt.txid, spout)
                again = isinstance(before, dict) and before.get("switch") == attempt.txid
                if found[0] == attempt.txid and found != known and not again:
                    current = current_of(evidence.topology_id, write.before)
                    if current < attempt.txid:
                        what = f"txid {attempt.txid} switched spout {spout!r}"
                        yield Violation(self.name, f"{what} while {current} was not committed")
                    known = found
                elif found != known:
                    what = f"the switch of spout {spout!r} was {known}"
                    yield Violation(self.name, f"{what}; txid {attempt.txid} made it {found}")
                    known = found
