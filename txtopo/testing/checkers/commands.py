"""C11: operators' commands were executed once, in order, by an entitled process, and last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from txtopo.ensemble.memory import Nodes
from txtopo.testing.checkers.evidence import Evidence, Violation, epoch_of, node_of
from txtopo.testing.simulation.history import NodesWrite

CHANGES = {"activate": "running", "deactivate": "deactivated", "kill": "killed"}


@dataclass(slots=True)
class _Commands:
    """What the writes so far have shown.

    Attributes:
        answered: The answer to each command, by number, including deleted ones.
        claimed: The desired status that the current epoch found and that has not changed since.
        planned: The highest txid whose metadata was ever stored.
    """

    answered: dict[int, Any] = field(default_factory=dict)
    claimed: dict[int, str] = field(default_factory=dict)
    planned: int = 0


class Commanded:
    """C11: follows commands, their answers and the desired status from write to write.

    * An answer and the status that it leads to are one write. No answer ever changes, and no number
      is answered twice, even after its node was deleted.
    * The status changes only through answers, to what the command requests, in the order of
      numbers.
    * An epoch that was claimed after a kill writes no batch and commits none; one that was claimed
      after a deactivation plans no new batch: each until another command is answered.
    * The answer that a client received is the one that was stored.
    """

    name = "C11"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield what is wrong with each write, and with the answers that clients received."""
        seen, id = _Commands(), evidence.topology_id
        for write in evidence.history.writes:
            if isinstance(write, NodesWrite):
                for what in [*_answers(id, write, seen), *_lasts(id, write, seen)]:
                    yield Violation(self.name, f"at {write.at_s:.3f} s by {write.writer}: {what}")
        for answer in evidence.history.answers:
            stored = seen.answered.get(answer.number)
            told = {"status": answer.status} if answer.refused is None else {"refused": ...}
            if not isinstance(stored, dict) or (
                told != {"refused": ...} and stored.get("status") != answer.status
            ):
                what = f"command {answer.number} was answered with {answer}; stored is {stored}"
                yield Violation(self.name, what)


def _answers(id: str, write: NodesWrite, seen: _Commands) -> Iterator[str]:
    before, after = _desired(id, write.before), _desired(id, write.after)
    new: list[int] = []
    for number, value in _commands(id, write.after).items():
        answer = value.get("answer")
        known = seen.answered.get(number)
        if answer is None and known is not None and number in _commands(id, write.before):
            yield f"the answer to command {number} was taken back"
        if answer is None or answer == known:
            continue
        done_again = known is not None and "refused" not in answer
        if done_again or (known is not None and number in _commands(id, write.before)):
            yield f"command {number} was answered with {known} and again with {answer}"
        seen.answered.setdefault(number, answer)
        new.append(number)
        wanted = CHANGES.get(str(value.get("verb")), "")
        if "refused" in answer:
            wanted = before["status"]
        if after["status"] != wanted or after["command"] < number:
            yield f"command {number} was answered with {answer}; /desired is {after}"
    if not new and before != after:
        yield f"/desired went from {before} to {after} without an answer"
    if len(new) > 1 or after["command"] < before["command"]:
        yield f"commands {new} were answered in one write; /desired went from {before} to {after}"


def _lasts(id: str, write: NodesWrite, seen: _Commands) -> Iterator[str]:
    epoch, status = epoch_of(id, write.after), _desired(id, write.after)["status"]
    if epoch != epoch_of(id, write.before):
        seen.claimed = {epoch: status}
    elif status != _desired(id, write.before)["status"]:
        seen.claimed.clear()  # what was begun in between may be written after the next change
    batches = _batches(id, write.after)
    planned = max(batches, default=0)
    if seen.claimed.get(epoch) == "killed" == status:
        if batches != _batches(id, write.before):
            yield "a batch was planned or committed of a topology that was killed"
        if node_of(id, "current", write.after) != node_of(id, "current", write.before):
            yield "a txid was committed of a topology that was killed"
    if seen.claimed.get(epoch) == "deactivated" == status and planned > seen.planned:
        yield f"txid {planned} was planned by a leader that found the topology deactivated"
    seen.planned = max(seen.planned, planned)


def _desired(id: str, nodes: Nodes) -> dict[str, Any]:
    return {"status": "running", "command": 0} | (node_of(id, "desired", nodes) or {})


def _commands(id: str, nodes: Nodes) -> dict[int, dict[str, Any]]:
    return _below(f"/{id}/commands/", nodes)


def _batches(id: str, nodes: Nodes) -> dict[int, dict[str, Any]]:
    return _below(f"/{id}/batches/", nodes)


def _below(prefix: str, nodes: Nodes) -> dict[int, dict[str, Any]]:
    names = [path.removeprefix(prefix) for path in nodes if path.startswith(prefix)]
    id, folder, _ = prefix[1:].split("/")
    return {int(name): node_of(id, f"{folder}/{name}", nodes) or {} for name in names}
