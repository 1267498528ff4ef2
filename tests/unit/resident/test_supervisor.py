"""The supervisor of resident slots: what each event leads to, and what changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from tests.harness.diagrams import drawn
from txtopo.errors import RunLostError, TxtopoError
from txtopo.resident import supervisor
from txtopo.resident.supervisor import (
    AFTER,
    WITH_JOB,
    Action,
    CancelJob,
    Close,
    ConnectionLost,
    CutOffTask,
    EndRequested,
    EndTask,
    Event,
    JobFailed,
    JobLost,
    JobRetried,
    LifeLost,
    PingTasks,
    RestartRequested,
    SlotFailed,
    SlotMissing,
    SlotReady,
    SlotSaid,
    SlotsMoved,
    SlotStatus,
    SlotSupervisor,
    SubmitJob,
    SupervisorSettings,
    TaskGreeted,
    TaskReady,
    TaskSaid,
    TimePassed,
    WelcomeTask,
)

DIED = RunLostError("a python worker died", counted=True, cancelled=False)
FIRST, COPY, STRANGER = b"first", b"copy", b"stranger"
MISSING_S = 100.0


class Supervised:
    """A supervisor with a clock that the test moves."""

    def __init__(self, slots: int = 1) -> None:
        settings = SupervisorSettings(
            slots, pause_s=lambda failures: 10.0 * failures, missing_s=MISSING_S
        )
        self.supervisor = SlotSupervisor(settings)
        self.now_s = 0.0
        self.first = self.supervisor.start(self.now_s)

    def tell(self, event: Event, after_s: float = 0.0) -> list[Action]:
        self.now_s += after_s
        return self.supervisor.handle(event, self.now_s)

    def greet(self, task: bytes = FIRST, submission: int = 1, slot: int = 0) -> list[Action]:
        return self.tell(TaskGreeted(slot, task, submission, f"tcp://{task.decode()}"))

    def bring(self, status: SlotStatus) -> None:
        """Bring the first slot, whose last job is starting, into a status."""
        job = self.job
        greeted = TaskGreeted(0, FIRST, job, "")
        steps: dict[SlotStatus, list[tuple[Event, float]]] = {
            SlotStatus.STARTING: [],
            SlotStatus.PREPARING: [(greeted, 0.0)],
            SlotStatus.READY: [(greeted, 0.0), (TaskReady(0, FIRST, job), 0.0)],
            SlotStatus.SILENT: [(greeted, 0.0), (ConnectionLost(FIRST), 0.0)],
            SlotStatus.CANCELLED: [
                (greeted, 0.0),
                (ConnectionLost(FIRST), 0.0),
                (TimePassed(), 12.0),
            ],
            SlotStatus.PAUSED: [
                (JobLost(0, job, DIED), 0.0),
                (JobLost(0, job + 1, DIED), 0.0),
            ],
            SlotStatus.FAILED: [(JobFailed(0, job, TxtopoError("no")), 0.0)],
            SlotStatus.ENDING: [(EndRequested(), 0.0)],
            SlotStatus.ENDED: [(EndRequested(), 0.0), (JobLost(0, job, DIED), 0.0)],
        }
        for event, after_s in steps[status]:
            self.tell(event, after_s)
        assert self.status is status

    @property
    def status(self) -> SlotStatus:
        return self.supervisor.slots[0].status

    @property
    def job(self) -> int:
        return self.supervisor.slots[0].submission


@pytest.fixture
def one() -> Supervised:
    return Supervised()


def test_the_diagram_in_the_header_is_the_table() -> None:
    diagram = drawn(AFTER)

    assert diagram in (supervisor.__doc__ or ""), f"put this into the header:\n{diagram}"


# What tells a slot each event of the table, and lets each action of the table become due.
CAUSES: dict[type, Callable[[Supervised], list[Action]]] = {
    TaskGreeted: lambda one: one.greet(COPY, one.job),
    TaskReady: lambda one: one.tell(TaskReady(0, FIRST, one.job)),
    ConnectionLost: lambda one: one.tell(ConnectionLost(FIRST)),
    JobLost: lambda one: one.tell(JobLost(0, one.job, DIED)),
    JobFailed: lambda one: one.tell(JobFailed(0, one.job, TxtopoError("no"))),
    EndRequested: lambda one: one.tell(EndRequested()),
    SubmitJob: lambda one: one.tell(TimePassed(), 12.0),
    CancelJob: lambda one: one.tell(TimePassed(), 12.0),
}


@pytest.mark.rule("txtopo.resident.supervisor", "Rules", 1)
def test_a_slot_moves_as_the_table_says_and_in_no_other_way() -> None:
    """An earlier job has died, so the next one that dies is followed by a pause."""
    seen: dict[tuple[SlotStatus, type], SlotStatus] = {}
    for status, (cause, happens) in product(SlotStatus, CAUSES.items()):
        one = Supervised()
        one.tell(JobLost(0, 1, DIED))
        one.bring(status)
        before = one.supervisor.slots[0]

        actions = happens(one)

        due = cause in (SubmitJob, CancelJob)
        told = not due or cause in map(type, actions)
        if told and one.supervisor.slots[0] != before:
            seen[status, cause] = one.status
    assert seen == AFTER


def test_the_invariants_are_checked_after_each_event(one: Supervised) -> None:
    slots = one.supervisor._slots
    slots[0] = replace(slots[0], life=99)

    with pytest.raises(AssertionError, match="a life has been numbered"):
        one.greet()


@pytest.mark.rule("txtopo.resident.supervisor", "Rules", 4)
def test_each_slot_is_given_a_job_at_once() -> None:
    assert Supervised(2).first == [SubmitJob(0, 1), SubmitJob(1, 1)]


def test_a_task_is_told_its_life_and_then_given_work(one: Supervised) -> None:
    assert one.greet() == [WelcomeTask(FIRST, 1), SlotsMoved(), PingTasks(frozenset({FIRST}))]
    assert one.tell(TaskReady(0, FIRST, 1)) == [SlotReady(0), SlotsMoved()]
    assert one.tell(TaskSaid(0, FIRST, 1, (b"done",))) == [SlotSaid(0, 1, (b"done",))]


def test_a_dormant_task_is_pinged_until_its_connection_is_lost(one: Supervised) -> None:
    one.bring(SlotStatus.READY)

    assert PingTasks(frozenset({FIRST, COPY})) in one.greet(COPY)
    assert one.tell(ConnectionLost(FIRST)) == [PingTasks(frozenset({COPY}))]


@pytest.mark.rule("txtopo.resident.supervisor", "Rules", 3)
def test_the_newest_task_has_the_slot_and_the_other_one_stays(one: Supervised) -> None:
    one.bring(SlotStatus.READY)

    told = one.greet(COPY)

    lost = next(each for each in told if isinstance(each, LifeLost))
    assert told[0] == CutOffTask(FIRST, dormant=True)
    assert (lost.ended, str(lost.error)) == (1, "another copy of its task took its place")
    assert WelcomeTask(COPY, 2) in told
    assert one.tell(TaskSaid(0, FIRST, 1, ())) == [CutOffTask(FIRST, dormant=True)]
    assert one.greet(FIRST) == [CutOffTask(FIRST, dormant=True)]


@pytest.mark.rule("txtopo.resident.supervisor", "Rules", 3)
def test_a_task_of_an_earlier_job_is_sent_home(one: Supervised) -> None:
    one.bring(SlotStatus.READY)

    for event in (
        TaskGreeted(0, STRANGER, 0, ""),
        TaskReady(0, STRANGER, 0),
        TaskSaid(0, STRANGER, 0, ()),
    ):
        assert one.tell(event) == [CutOffTask(STRANGER, dormant=False)]


def test_a_lost_connection_is_told_again_with_the_reason(one: Supervised) -> None:
    one.bring(SlotStatus.READY)

    first = one.tell(ConnectionLost(FIRST))[0]
    second = one.tell(JobLost(0, 1, DIED))[0]

    assert isinstance(first, LifeLost)
    assert isinstance(second, LifeLost)
    assert (first.ended, first.job_ended) == (1, False)
    assert (second.ended, second.job_ended, second.error) == (2, True, DIED)


def test_a_job_whose_task_stays_silent_is_cancelled(one: Supervised) -> None:
    one.bring(SlotStatus.READY)
    one.tell(ConnectionLost(FIRST))

    assert one.tell(TimePassed(), 11.9) == []
    assert one.tell(TimePassed(), 0.2) == [CancelJob(0, 1)]
    assert one.tell(TimePassed(), 1.0) == []


def test_a_task_that_comes_in_time_saves_the_job(one: Supervised) -> None:
    one.bring(SlotStatus.SILENT)
    one.greet(COPY)

    assert one.tell(TimePassed(), 13.0) == []


def test_pauses_grow_until_a_task_says_something_of_its_work(one: Supervised) -> None:
    pauses = []
    for submission in range(1, 4):
        one.greet(FIRST, submission)
        one.tell(TaskReady(0, FIRST, submission))
        retried = [
            each for each in one.tell(JobLost(0, submission, DIED)) if isinstance(each, JobRetried)
        ]
        pauses += [each.pause_s for each in retried]
        one.tell(TimePassed(), pauses[-1])
    one.greet(FIRST, 4)
    one.tell(TaskSaid(0, FIRST, 4, ()))

    assert pauses == [0.0, 10.0, 20.0]
    assert SubmitJob(0, 5) in one.tell(JobLost(0, 4, DIED))


def test_news_of_spouts_do_not_end_the_growth_of_pauses(one: Supervised) -> None:
    one.tell(JobLost(0, 1, DIED))
    one.greet(FIRST, 2)
    one.tell(TaskReady(0, FIRST, 2))
    one.tell(TaskSaid(0, FIRST, 2, (), works=False))

    lost = one.tell(JobLost(0, 2, DIED))

    assert [each.pause_s for each in lost if isinstance(each, JobRetried)] == [10.0]


def test_a_job_that_no_other_one_could_mend_is_the_last(one: Supervised) -> None:
    error = TxtopoError("no module there")

    assert one.tell(JobFailed(0, 1, error)) == [SlotFailed(0, error)]
    assert one.tell(TimePassed(), 10 * MISSING_S) == []


def test_a_missing_slot_is_told_after_half_of_the_time_after_all_and_again(
    one: Supervised,
) -> None:
    told = [
        each
        for after_s in (50.0, 40.0, 10.0, 90.0, 10.0)
        for each in one.tell(TimePassed(), after_s)
    ]

    assert told == [
        SlotMissing(0, 1, 50.0, overdue=False),
        SlotMissing(0, 1, 100.0, overdue=True),
        SlotMissing(0, 1, 200.0, overdue=True),
    ]


def test_what_was_lost_is_missing_from_the_first_loss_on(one: Supervised) -> None:
    one.bring(SlotStatus.READY)
    one.tell(ConnectionLost(FIRST), 1000.0)
    one.tell(JobLost(0, 1, DIED), 49.0)

    missing = [each for each in one.tell(TimePassed(), 1.0) if isinstance(each, SlotMissing)]
    assert missing == [SlotMissing(0, 2, 50.0, overdue=False)]


def test_a_slot_that_is_back_is_not_missing(one: Supervised) -> None:
    one.tell(TimePassed(), 99.0)
    one.bring(SlotStatus.READY)

    assert one.tell(TimePassed(), 1000.0) == []
    assert one.supervisor.due_s == float("inf")


def test_the_end_tells_tasks_and_cancels_jobs_without_one() -> None:
    two = Supervised(2)
    two.greet()

    assert two.tell(EndRequested()) == [EndTask(FIRST), CancelJob(1, 1)]
    assert two.tell(JobLost(0, 1, DIED)) == []
    assert two.tell(JobLost(1, 1, DIED)) == [Close()]
    assert two.tell(TimePassed(), 1000.0) == []


def test_what_does_not_end_is_cancelled_and_then_left(one: Supervised) -> None:
    one.bring(SlotStatus.READY)
    one.tell(EndRequested())

    assert one.tell(TimePassed(), 10.0) == [CancelJob(0, 1)]
    assert one.tell(TimePassed(), 9.0) == []
    assert one.tell(TimePassed(), 1.0) == [Close()]


def test_a_goodbye_is_heard_and_answered_after_the_end_began(one: Supervised) -> None:
    one.bring(SlotStatus.READY)
    one.tell(EndRequested())

    said = one.tell(TaskSaid(0, FIRST, 1, (b"cleaned up",), leaves=True))
    assert said == [EndTask(FIRST), SlotSaid(0, 1, (b"cleaned up",))]
    assert one.greet(COPY) == [EndTask(COPY)]


# All events that are about the first slot, its first job and the task that had it.
EVENTS: tuple[Event, ...] = (
    TaskGreeted(0, FIRST, 1, ""),
    TaskReady(0, FIRST, 1),
    ConnectionLost(FIRST),
    JobLost(0, 1, DIED),
    JobFailed(0, 1, TxtopoError("no")),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("status", SlotStatus)
@pytest.mark.rule("txtopo.resident.supervisor", "Rules", 1)
def test_what_the_table_does_not_have_changes_nothing(status: SlotStatus, event: Event) -> None:
    """Also what a task says twice: the owner is not its own second copy."""
    one = Supervised()
    one.bring(status)
    before = one.supervisor.slots[0]
    later = status is SlotStatus.PAUSED  # its first job is not its last one
    known = (status, type(event)) in AFTER and not later
    own = isinstance(event, TaskGreeted) and before.owner == FIRST

    actions = one.tell(event)

    if own or not known:
        assert one.supervisor.slots[0] == before
        assert all(isinstance(each, CutOffTask | EndTask) for each in actions), actions
    elif status is not SlotStatus.ENDING:
        assert one.status is not status or actions


@pytest.mark.parametrize("status", [each for each in SlotStatus if each in WITH_JOB])
def test_a_job_can_end_in_every_status_that_has_one(status: SlotStatus) -> None:
    """An earlier job has died, so the next one that dies is followed by a pause."""
    lost, failed = Supervised(), Supervised()
    for each in (lost, failed):
        each.tell(JobLost(0, 1, DIED))
        each.bring(status)

    lost.tell(JobLost(0, 2, DIED))
    failed.tell(JobFailed(0, 2, TxtopoError("no")))

    ended = SlotStatus.ENDED if status is SlotStatus.ENDING else None
    assert lost.status is (ended or SlotStatus.PAUSED)
    assert failed.status is (ended or SlotStatus.FAILED)


@pytest.mark.parametrize("status", [SlotStatus.SILENT, SlotStatus.CANCELLED])
def test_a_silent_slot_is_given_to_a_task_that_says_hello(status: SlotStatus) -> None:
    one = Supervised()
    one.bring(status)

    actions = one.greet(COPY)

    assert actions[0] == WelcomeTask(COPY, one.supervisor.slots[0].life)
    assert one.status is SlotStatus.PREPARING


@pytest.mark.parametrize("status", [each for each in SlotStatus if each is not SlotStatus.ENDED])
def test_a_restart_cancels_a_job_where_there_is_one(status: SlotStatus) -> None:
    one = Supervised()
    one.bring(status)
    before = one.supervisor.slots[0]

    cancelled = one.tell(RestartRequested(0))

    assert cancelled == ([CancelJob(0, before.submission)] if status in WITH_JOB else [])
    assert one.supervisor.slots[0] == before


@pytest.mark.parametrize("status", [each for each in SlotStatus if each is not SlotStatus.ENDED])
@pytest.mark.parametrize("end", [JobLost(0, 1, DIED), JobFailed(0, 1, TxtopoError("no"))])
def test_a_run_can_end_in_every_status(status: SlotStatus, end: JobLost | JobFailed) -> None:
    one = Supervised()
    one.bring(status)
    job = one.supervisor.slots[0].submission

    actions = one.tell(EndRequested())
    if status not in (SlotStatus.PAUSED, SlotStatus.FAILED):
        assert one.status is SlotStatus.ENDING
        actions = one.tell(replace(end, submission=job))

    assert one.status is SlotStatus.ENDED
    assert actions[-1] == Close()


@pytest.mark.rule("txtopo.resident.supervisor", "Rules", 2)
def test_equal_events_give_equal_actions() -> None:
    def story() -> list[Action]:
        one = Supervised(2)
        return [
            *one.first,
            *one.greet(),
            *one.tell(TaskReady(0, FIRST, 1)),
            *one.greet(COPY),
            *one.tell(ConnectionLost(COPY)),
            *one.tell(TimePassed(), 60.0),
            *one.tell(EndRequested()),
        ]

    assert repr(story()) == repr(story())  # no two errors are equal
