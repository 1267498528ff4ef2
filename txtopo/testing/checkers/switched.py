"""C15: a sequence of spouts switched once, after all before it was committed, and for good."""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.metadata import Json
from txtopo.spouts.sequence import is_switch
from txtopo.testing.checkers.evidence import (
    Evidence,
    Violation,
    current_of,
    stored_attempts,
    stored_plan,
    takes_part,
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
        id, places = evidence.topology_id, list[Json]()
        writes = [each for each in evidence.history.writes if isinstance(each, NodesWrite)]
        if evidence.base:  # a fork may begin behind the switch of its original
            begun = stored_plan(id, writes[0].before, len(evidence.base), spout)
            if isinstance(begun, dict) and begun.get("part") == "then":
                places.append(begun.get("begins"))
        for write in writes:
            for attempt in sorted(stored_attempts(id, write)):
                txid = attempt.txid
                plan = stored_plan(id, write.after, txid, spout)
                if not isinstance(plan, dict) or plan.get("part") != "then":
                    continue
                place, before = plan.get("begins"), stored_plan(id, write.before, txid, spout)
                what = f"the plan of spout {spout!r} in txid {txid} begins at {place}"
                if not is_switch(plan):
                    if place not in places:
                        yield Violation(self.name, f"{what}; its switch at one of {places}")
                elif is_switch(before):
                    if before.get("begins") != place:
                        yield Violation(self.name, f"{what}; before it was {before}")
                else:
                    places.append(place)
                    current = current_of(id, write.before)
                    for at in range(current, txid):
                        if takes_part(id, write.after, at, spout):
                            yield Violation(self.name, f"{what}; {at} was not committed")
