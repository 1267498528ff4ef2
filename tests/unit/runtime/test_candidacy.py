"""A candidacy: what each event leads to, and what changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.harness.diagrams import drawn
from tests.unit.runtime.by_hand import ByHand
from txtopo import Config
from txtopo.ensemble import Journal, MemoryEnsemble, MemoryTransactionalState
from txtopo.ensemble.store import Leadership
from txtopo.errors import CoordinatorUnavailable, FencedError
from txtopo.metadata import Json
from txtopo.runtime import candidacy
from txtopo.runtime.candidacy import (
    AFTER,
    WITH_PLACE,
    Candidacy,
    CandidacyEvent,
    CandidacyPhase,
    Hooks,
)
from txtopo.runtime.progress import Standby, Started, TopologyEvent
from txtopo.runtime.scheduler import Scheduler

CONFIG = Config(carrier="local", zookeeper="memory", backoff_s=0.7)
AWAY = CoordinatorUnavailable("zookeeper is away")
CLAIMED_BY_ANOTHER = FencedError("another process has claimed an epoch")
TAKEN = "what the claim has opened"


class Electing(MemoryTransactionalState):
    """Keeps what is called when the session is lost, so that a test can call it at any time."""

    def lead(
        self, candidate: Json, *, timeout_s: float, on_lost: Callable[[], None]
    ) -> Leadership | None:
        self.on_lost = on_lost
        return super().lead(candidate, timeout_s=timeout_s, on_lost=on_lost)


# What the work of a phase ends with.
OUTCOMES: dict[CandidacyEvent, Any] = {
    CandidacyEvent.REFUSED: None,
    CandidacyEvent.REFUSED_AGAIN: None,
    CandidacyEvent.LOOKED: {"epoch": 1, "leader": "another"},
    CandidacyEvent.FENCED: CLAIMED_BY_ANOTHER,
    CandidacyEvent.LEFT: None,
    CandidacyEvent.CONFIRMED: None,
    CandidacyEvent.FAILED: AWAY,
}

# The work of each phase that has some, by what it may end with.
WORK: dict[CandidacyPhase, set[CandidacyEvent]] = {
    CandidacyPhase.ASKING: {
        CandidacyEvent.GRANTED,
        CandidacyEvent.REFUSED,
        CandidacyEvent.REFUSED_AGAIN,
        CandidacyEvent.FAILED,
    },
    CandidacyPhase.REQUEST_VOID: {
        CandidacyEvent.REFUSED,
        CandidacyEvent.REFUSED_AGAIN,
        CandidacyEvent.FAILED,
    },
    CandidacyPhase.LOOKING: {CandidacyEvent.LOOKED},
    CandidacyPhase.ASK_PAUSE: {CandidacyEvent.PAUSE_ENDED},
    CandidacyPhase.CLAIMING: {
        CandidacyEvent.CLAIMED,
        CandidacyEvent.FENCED,
        CandidacyEvent.FAILED,
    },
    CandidacyPhase.CLAIM_VOID: {
        CandidacyEvent.CLAIMED,
        CandidacyEvent.FENCED,
        CandidacyEvent.FAILED,
    },
    CandidacyPhase.CLAIM_PAUSE: {CandidacyEvent.PAUSE_ENDED},
    CandidacyPhase.LEAVING: {CandidacyEvent.LEFT},
    CandidacyPhase.CONFIRMING: {CandidacyEvent.CONFIRMED, CandidacyEvent.FAILED},
    CandidacyPhase.CONFIRM_PAUSE: {CandidacyEvent.PAUSE_ENDED},
}

# What may happen at any time.
ALWAYS = {
    CandidacyEvent.SESSION_LOST,
    CandidacyEvent.TERM_CLOSED,
    CandidacyEvent.TERM_NOT_OPENED,
    CandidacyEvent.ENDED,
}

ASKED = (CandidacyEvent.BEGUN,)
GRANTED = (*ASKED, CandidacyEvent.GRANTED)
LED = (*GRANTED, CandidacyEvent.CLAIMED)
LOST = (*LED, CandidacyEvent.SESSION_LOST)
WAYS: dict[CandidacyPhase, tuple[CandidacyEvent, ...]] = {
    CandidacyPhase.NEW: (),
    CandidacyPhase.ASKING: ASKED,
    CandidacyPhase.REQUEST_VOID: (*ASKED, CandidacyEvent.SESSION_LOST),
    CandidacyPhase.LOOKING: (*ASKED, CandidacyEvent.REFUSED),
    CandidacyPhase.ASK_PAUSE: (*ASKED, CandidacyEvent.FAILED),
    CandidacyPhase.CLAIMING: GRANTED,
    CandidacyPhase.CLAIM_VOID: (*GRANTED, CandidacyEvent.SESSION_LOST),
    CandidacyPhase.CLAIM_PAUSE: (*GRANTED, CandidacyEvent.FAILED),
    CandidacyPhase.LEAVING: (*GRANTED, CandidacyEvent.FENCED),
    CandidacyPhase.LEADING: LED,
    CandidacyPhase.LOST: LOST,
    CandidacyPhase.CONFIRMING: (*LOST, CandidacyEvent.TERM_NOT_OPENED),
    CandidacyPhase.CONFIRM_PAUSE: (*LOST, CandidacyEvent.TERM_CLOSED),
    CandidacyPhase.OVER: (CandidacyEvent.ENDED,),
}


class Candidate:
    """A candidacy on a loop that the test drives, and a list of what its driver has heard."""

    def __init__(self, *events: CandidacyEvent) -> None:
        self.loop, self.ensemble = ByHand(), MemoryEnsemble()
        self.state = Electing("totals", self.ensemble)
        self.heard: list[object] = []
        self.journals: list[Journal] = []
        hooks: Hooks[str] = Hooks(
            tell=self.heard.append,
            claim=self.claim,
            lead=lambda taken: self.heard.append(("lead", taken)),
            drop=lambda taken: self.heard.append(("drop", taken)),
            wait=lambda: self.heard.append("wait"),
            lost=lambda: self.heard.append("lost"),
            fail=lambda error: self.heard.append(("fail", type(error))),
        )
        scheduler = cast("Scheduler", self.loop)
        self.candidacy = Candidacy("totals", CONFIG, self.state, {"pid": 1}, scheduler, hooks)
        self.happen(*events)

    def claim(self, journal: Journal) -> str:
        journal.claim_epoch({"pid": 1}, token="ensemble")
        self.journals.append(journal)
        return TAKEN

    def happen(self, *events: CandidacyEvent) -> None:
        """Let events happen, each at the end of the work that was submitted last."""
        for event in events:
            if self.phase is CandidacyPhase.ASKING:
                self.loop.works[-1][0]()  # from now on its session may be lost
            if event is CandidacyEvent.BEGUN:
                self.candidacy.begin()
            elif event in (CandidacyEvent.GRANTED, CandidacyEvent.CLAIMED):
                self.loop.work()
            elif event is CandidacyEvent.SESSION_LOST:
                self.state.on_lost()
            elif event is CandidacyEvent.PAUSE_ENDED:
                self.loop.pass_time()
            elif event is CandidacyEvent.TERM_CLOSED:
                self.candidacy.term_closed()
            elif event is CandidacyEvent.TERM_NOT_OPENED:
                self.candidacy.term_not_opened()
            elif event is CandidacyEvent.ENDED:
                self.candidacy.end()
            else:
                if event is CandidacyEvent.REFUSED_AGAIN:
                    self.candidacy.status = "standby"
                self.loop.tell(OUTCOMES[event])

    @property
    def phase(self) -> CandidacyPhase:
        return self.candidacy.phase


def in_phase(phase: CandidacyPhase) -> Candidate:
    """Return a candidacy in a phase."""
    one = Candidate(*WAYS[phase])
    assert one.phase is phase
    return one


def possible(phase: CandidacyPhase) -> set[CandidacyEvent]:
    """Return the events that may happen in a phase, whether its table has them or not."""
    if phase is CandidacyPhase.NEW:
        return {CandidacyEvent.BEGUN, *ALWAYS} - {CandidacyEvent.SESSION_LOST}
    lost = set() if phase is CandidacyPhase.OVER else {CandidacyEvent.SESSION_LOST}
    return WORK.get(phase, set()) | ALWAYS - {CandidacyEvent.SESSION_LOST} | lost


def test_the_diagram_in_the_header_is_the_table() -> None:
    diagram = drawn(AFTER)

    assert diagram in (candidacy.__doc__ or ""), f"put this into the header:\n{diagram}"


def test_the_invariants_are_checked_after_each_event() -> None:
    one = in_phase(CandidacyPhase.CLAIM_PAUSE)
    one.candidacy.leadership = None

    with pytest.raises(AssertionError, match="who has a place in the election"):
        one.happen(CandidacyEvent.PAUSE_ENDED)


@pytest.mark.rule("txtopo.runtime.candidacy", "Rules", 1)
def test_a_candidacy_moves_as_the_table_says_and_in_no_other_way() -> None:
    seen: dict[tuple[CandidacyPhase, CandidacyEvent], CandidacyPhase] = {}
    for phase in CandidacyPhase:
        for event in possible(phase):
            one = in_phase(phase)
            heard, works, timers = list(one.heard), list(one.loop.works), list(one.loop.timers)

            one.happen(event)

            if one.phase is not phase or event is CandidacyEvent.REFUSED_AGAIN:
                seen[phase, event] = one.phase
            else:
                assert (one.heard, one.loop.works, one.loop.timers) == (heard, works, timers)
    assert seen == AFTER


@pytest.mark.parametrize("phase", WAYS, ids=lambda phase: phase.name)
def test_a_run_can_end_in_every_phase_and_the_driver_gives_up_the_place(
    phase: CandidacyPhase,
) -> None:
    one = in_phase(phase)
    heard, place = list(one.heard), one.candidacy.leadership

    one.happen(CandidacyEvent.ENDED)

    assert one.candidacy.over
    assert one.heard == heard
    assert one.candidacy.leadership is place
    assert (place is not None) == (phase in WITH_PLACE)


@pytest.mark.parametrize("phase", WORK, ids=lambda phase: phase.name)
@pytest.mark.rule("txtopo.runtime.candidacy", "Rules", 1)
def test_after_the_end_of_the_run_nothing_is_requested_and_nobody_hears_of_an_answer(
    phase: CandidacyPhase,
) -> None:
    """Only what a claim has opened is dropped."""
    for event in WORK[phase]:
        one = in_phase(phase)
        heard = list(one.heard)

        one.happen(CandidacyEvent.ENDED, event)

        dropped = [("drop", TAKEN)] if event is CandidacyEvent.CLAIMED else []
        assert one.heard == heard + dropped
        assert one.loop.idle
        assert one.candidacy.over


@pytest.mark.parametrize("phase", WORK, ids=lambda phase: phase.name)
def test_a_failure_of_anything_but_the_infrastructure_ends_the_run(phase: CandidacyPhase) -> None:
    if CandidacyEvent.FAILED in WORK[phase]:
        one = in_phase(phase)

        one.loop.tell(ZeroDivisionError())

        assert one.heard[-1] == ("fail", ZeroDivisionError)
        assert one.loop.idle


@pytest.mark.rule("txtopo.runtime.candidacy", "Rules", 2)
def test_nothing_is_claimed_while_another_process_leads_and_listeners_are_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidacy, "LEAD_TIMEOUT_S", 0.0)
    one = Candidate()
    other = MemoryTransactionalState("totals", one.ensemble)
    leads = other.lead({"pid": 2}, timeout_s=0.0, on_lost=lambda: None)
    Journal(other).claim_epoch({"pid": 2}, token="ensemble")
    one.candidacy.begin()

    for _ in range(4):  # it asks, looks who leads, and asks twice more
        one.loop.work()
    assert one.candidacy.status == "standby"
    told = [each for each in one.heard if isinstance(each, TopologyEvent)]
    holder: Json = {"epoch": 1, "leader": {"pid": 2}}
    assert told == [Started("totals"), Standby("totals", holder)]
    assert one.journals == []
    assert leads is not None
    leads.release()
    one.loop.work()
    one.loop.work()

    assert one.heard[-1] == ("lead", TAKEN)
    assert one.candidacy.status == "starting"


@pytest.mark.rule("txtopo.runtime.candidacy", "Rules", 3)
def test_each_claim_has_a_new_journal() -> None:
    one = in_phase(CandidacyPhase.CONFIRMING)

    one.happen(CandidacyEvent.CONFIRMED, CandidacyEvent.GRANTED, CandidacyEvent.CLAIMED)

    first, second = one.journals
    assert one.candidacy.journal is second
    assert second is not first
    with pytest.raises(FencedError):
        first.confirm()


@pytest.mark.rule("txtopo.runtime.candidacy", "Rules", 4)
def test_a_claim_whose_session_was_lost_begins_no_term_and_is_dropped() -> None:
    one = in_phase(CandidacyPhase.CLAIM_VOID)

    one.happen(CandidacyEvent.CLAIMED)

    assert one.heard[-1] == ("drop", TAKEN)
    assert ("lead", TAKEN) not in one.heard
    assert one.phase is CandidacyPhase.CONFIRMING


@pytest.mark.parametrize(
    "phase", [each for each in CandidacyPhase if each in WITH_PLACE], ids=lambda phase: phase.name
)
def test_who_has_lost_its_place_in_the_election_says_so(phase: CandidacyPhase) -> None:
    one = in_phase(phase)
    one.candidacy.status = "standby"

    one.happen(CandidacyEvent.SESSION_LOST)

    assert one.candidacy.status == "leadership lost"


def test_a_claim_is_not_repeated_after_its_session_was_lost() -> None:
    one = in_phase(CandidacyPhase.CLAIM_PAUSE)

    one.happen(CandidacyEvent.SESSION_LOST, CandidacyEvent.PAUSE_ENDED)

    assert one.candidacy.leadership is None
    assert one.phase is CandidacyPhase.ASKING


def test_a_leadership_whose_session_was_lost_before_the_answer_is_not_taken() -> None:
    one = in_phase(CandidacyPhase.REQUEST_VOID)

    one.happen(CandidacyEvent.GRANTED)

    assert one.heard[-1] == "wait"
    assert one.candidacy.leadership is None
    assert one.phase is CandidacyPhase.ASKING


def test_the_loss_of_an_earlier_session_changes_nothing() -> None:
    one = in_phase(CandidacyPhase.REQUEST_VOID)
    earlier = one.state.on_lost
    one.happen(CandidacyEvent.REFUSED, CandidacyEvent.GRANTED, CandidacyEvent.CLAIMED)

    earlier()

    assert one.phase is CandidacyPhase.LEADING
    assert one.candidacy.leadership is not None


@pytest.mark.rule("txtopo.runtime.candidacy", "Rules", 5)
def test_who_has_led_and_was_succeeded_does_not_ask_again() -> None:
    one = in_phase(CandidacyPhase.LOST)
    assert (one.heard[-1], one.candidacy.status) == ("lost", "leadership lost")
    other = MemoryTransactionalState("totals", one.ensemble)
    Journal(other).claim_epoch({"pid": 2}, token="ensemble")
    one.happen(CandidacyEvent.TERM_CLOSED)
    assert one.loop.works == []

    one.happen(CandidacyEvent.PAUSE_ENDED)
    one.loop.work()

    assert one.heard[-1] == ("fail", FencedError)
    assert one.loop.idle


def test_pauses_grow_until_a_term_makes_progress() -> None:
    one = Candidate(*ASKED)

    for _ in range(3):
        one.happen(CandidacyEvent.FAILED, CandidacyEvent.PAUSE_ENDED)
    one.candidacy.forget_failures()
    one.happen(CandidacyEvent.FAILED)

    first, second, third, last = one.loop.pauses_s
    assert first < second < third
    assert last == first
