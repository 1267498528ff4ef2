"""Ensembles that break a rule: compare-and-set, epochs, reads, sessions, leaders."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from txtopo.ensemble import MemoryEnsemble
from txtopo.metadata import Json
from txtopo.plugins.ensembles import (
    Check,
    CompareAndSet,
    Delete,
    Leadership,
    MemoryTransactionalState,
    Node,
    Put,
    Step,
    VersionConflict,
)


class BrokenEnsemble(MemoryTransactionalState):
    """What a subclass overrides is the rule that it breaks.

    Attributes:
        fails: The test of the suite that has to notice.
        rule: The name of the rule that its failure has to tell.
    """

    fails: ClassVar[str] = ""
    rule: ClassVar[str] = ""

    def __init__(self, topology_id: str, ensemble: MemoryEnsemble) -> None:
        super().__init__(topology_id, ensemble)


class ComparesNothing(BrokenEnsemble):
    fails, rule = "test_compare_and_set_wants_the_version_that_it_names", "COMPARE"

    def apply(self, steps: Sequence[Step]) -> None:
        super().apply([Put(s.path, s.value) if isinstance(s, CompareAndSet) else s for s in steps])


class ComparesAndThenSets(BrokenEnsemble):
    """Reads the version and writes, which are two steps; a client by itself sees no difference."""

    fails, rule = "test_of_clients_at_once_no_increment_is_lost", "COMPARE"

    def apply(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, CompareAndSet):
                node = self.get(step.path)
                if (node.version if node else None) != step.version:
                    raise VersionConflict("another version", path=step.path)
        time.sleep(0.001)
        super().apply([Put(s.path, s.value) if isinstance(s, CompareAndSet) else s for s in steps])


class ChecksNoEpoch(BrokenEnsemble):
    fails, rule = "test_a_deposed_coordinator_writes_nothing", "FENCE"

    def apply(self, steps: Sequence[Step]) -> None:
        super().apply([step for step in steps if not isinstance(step, Check)])


class ChecksWhatItHasRead(BrokenEnsemble):
    """Compares a check with the version that this client saw last."""

    fails, rule = "test_a_write_is_compared_with_what_others_wrote", "COMPARE"

    def __init__(self, topology_id: str, ensemble: MemoryEnsemble) -> None:
        super().__init__(topology_id, ensemble)
        self._seen: dict[str, Node | None] = {}

    def get(self, path: str) -> Node | None:
        self._seen[path] = super().get(path)
        return self._seen[path]

    def apply(self, steps: Sequence[Step]) -> None:
        kept = []
        for step in steps:
            seen = self._seen.get(step.path)
            if not isinstance(step, Check) or seen is None or seen.version != step.version:
                kept.append(step)
        super().apply(kept)


class WritesStepByStep(BrokenEnsemble):
    fails, rule = "test_a_failed_check_undoes_the_whole_write", "ONE_WRITE"

    def apply(self, steps: Sequence[Step]) -> None:
        for step in steps:
            super().apply([step])


class ReadsWhatItReadBefore(BrokenEnsemble):
    """Answers from a follower that lags behind, and takes no notice of synchronize."""

    fails, rule = "test_after_synchronize_a_client_sees_what_others_wrote", "READS"

    def __init__(self, topology_id: str, ensemble: MemoryEnsemble) -> None:
        super().__init__(topology_id, ensemble)
        self._read: dict[str, Node | None] = {}

    def get(self, path: str) -> Node | None:
        if path not in self._read:
            self._read[path] = super().get(path)
        return self._read[path]

    def apply(self, steps: Sequence[Step]) -> None:
        super().apply(steps)
        self._read.clear()


class KeepsItsVersions(BrokenEnsemble):
    """A write of a node leaves its version, as a table without a counter does."""

    fails, rule = "test_each_write_of_a_node_adds_one_to_its_version", "VERSIONS"

    def apply(self, steps: Sequence[Step]) -> None:
        before = dict(self.ensemble.nodes)
        super().apply(steps)
        for path, (data, version) in self.ensemble.nodes.items():
            kept = before[path][1] if path in before else version
            self.ensemble.nodes[path] = (data, kept)


class HasOneTree(BrokenEnsemble):
    fails, rule = "test_topologies_do_not_see_each_other", "APART"

    def __init__(self, topology_id: str, ensemble: MemoryEnsemble) -> None:
        super().__init__("every topology", ensemble)


class LetsEverybodyLead(BrokenEnsemble):
    fails, rule = "test_one_candidate_leads_and_the_next_follows_its_release", "LEADER"

    def lead(
        self, candidate: Json, *, timeout_s: float, on_lost: Callable[[], None]
    ) -> Leadership | None:
        free = MemoryTransactionalState(self._topology_id, MemoryEnsemble())
        return free.lead(candidate, timeout_s=timeout_s, on_lost=on_lost)


class ForgetsPlaces(BrokenEnsemble):
    """A candidate that waits has to join the queue again, at its end."""

    fails, rule = "test_a_candidate_keeps_its_place_from_one_call_to_the_next", "LEADER"

    def lead(
        self, candidate: Json, *, timeout_s: float, on_lost: Callable[[], None]
    ) -> Leadership | None:
        leadership = super().lead(candidate, timeout_s=timeout_s, on_lost=on_lost)
        if leadership is None:
            self._withdraw()
        return leadership


class SessionOutlivesItsClient(BrokenEnsemble):
    """The place of a client that closed stays until a timeout that never comes."""

    fails, rule = "test_a_waiting_candidate_wakes_up_when_the_leader_closes", "SESSION"

    def close(self) -> None:
        self._closed = True


class LosesInSilence(BrokenEnsemble):
    """A leader is not told that its session has expired."""

    fails, rule = "test_a_session_that_expires_tells_its_leader_and_lets_the_next_lead", "SESSION"

    def expire(self) -> None:
        self._withdraw()


class TellsWhoReleased(BrokenEnsemble):
    fails, rule = "test_who_gave_up_the_leadership_is_not_told_that_it_is_lost", "SESSION"

    def close(self) -> None:
        contender = self._contender
        super().close()
        if contender is not None and contender.on_lost is not None:
            contender.on_lost()


class KeepsAnythingAsText(BrokenEnsemble):
    """Takes what JSON has no word for, and returns something else."""

    fails, rule = "test_what_json_would_change_is_refused", "EXACT"

    def apply(self, steps: Sequence[Step]) -> None:
        super().apply([_as_text(step) for step in steps])


def _as_text(step: Step) -> Step:
    if not isinstance(step, Put | CompareAndSet):
        return step
    text = json.dumps(step.value, default=str).replace("NaN", "null")
    return replace(step, value=json.loads(text))


class MissesWhatIsDeleted(BrokenEnsemble):
    """Refuses to delete what is not there, as a file system does."""

    fails, rule = "test_steps_that_were_done_may_be_done_again", "AGAIN"

    def apply(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Delete) and self.get(step.path) is None:
                raise VersionConflict("there is nothing to delete", path=step.path)
        super().apply(steps)


class TellsWhenANodeWasMade(BrokenEnsemble):
    fails, rule = "test_a_node_tells_when_it_was_written_last", "TIMED"

    def apply(self, steps: Sequence[Step]) -> None:
        super().apply(steps)
        for step in steps:
            self._made_s.setdefault(step.path, time.time())

    def written_s(self, path: str) -> float | None:
        return self._made_s.get(path)

    def __init__(self, topology_id: str, ensemble: MemoryEnsemble) -> None:
        super().__init__(topology_id, ensemble)
        self._made_s: dict[str, float] = {}


class LetsEverybodyAnnounce(BrokenEnsemble):
    fails, rule = "test_who_does_not_lead_announces_nothing", "ANNOUNCED"

    def announce(self, summary: Json) -> None:
        first = self.ensemble.first(self._topology_id)
        if first is not None:
            first.announced = summary


class WritesWhenItCloses(BrokenEnsemble):
    """What a client wrote is its own until it closes."""

    fails, rule = "test_what_was_written_is_there_for_who_connects_next", "DURABLE"

    def __init__(self, topology_id: str, ensemble: MemoryEnsemble) -> None:
        own = MemoryEnsemble()
        own.nodes = dict(ensemble.nodes)
        super().__init__(topology_id, own)
        self._shared = ensemble

    def close(self) -> None:
        self._shared.nodes.update(self.ensemble.nodes)
        super().close()
