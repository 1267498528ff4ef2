"""Before user code writes to a database of its own, the leader makes sure that it still leads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from tests.faults.storm.programs import (
    RECORDS,
    ROWS,
    BatchCount,
    Database,
    UpdateGlobalCount,
    global_count,
)
from tests.harness.metadata import of_one
from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import LOCAL, Changes
from tests.unit.runtime.loop_world import running
from tests.unit.topology import frame_parts
from txtopo import (
    Committer,
    Config,
    Count,
    DataFrameBolt,
    Fields,
    PersistentAggregate,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.attempt import TransactionAttempt
from txtopo.carriers.spark_jobs import SparkJobs
from txtopo.collector import BatchOutputCollector
from txtopo.context import FrameContext, TaskContext
from txtopo.ensemble.journal import Journal
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import CoordinatorUnavailable, FencedError, RunLostError
from txtopo.frames.committing import run_frame_committers
from txtopo.metadata import Json, SpoutShare
from txtopo.plugins.spouts import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.plugins.stores import Writes
from txtopo.runtime.commit_permit import CommitPermit, CommitTurns
from txtopo.runtime.progress import BatchFailed, Leading, Stopped
from txtopo.runtime.spout_planner import SpoutPlanner
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.stages.compiled_topology import Run, compile_topology
from txtopo.stages.permits import NotPermitted, ask_for
from txtopo.state import Ledger, register_backend
from txtopo.topology.component import Component
from txtopo.topology.spout_kinds import TransactionalKind
from txtopo.tuples import Tuple

ATTEMPT = TransactionAttempt(15)
SESSION_S = 6.0
TASKS_ABOVE = 5


class Answers:
    """Stands for a journal: what ``confirm`` does, and how long it takes by a clock of its own."""

    def __init__(self, *took_s: float, error: Exception | None = None) -> None:
        self.session_s: float | None = SESSION_S
        self.now_s = 100.0
        self.asked = 0
        self.wanted, self.backs = True, 0
        self._took_s, self._error = list(took_s), error

    def confirm(self) -> None:
        self.asked += 1
        self.now_s += self._took_s.pop(0) if self._took_s else 0.0
        if self._error is not None:
            raise self._error

    def back(self) -> None:
        self.backs += 1

    def permit(self) -> CommitPermit:
        journal = cast("Journal", self)
        return CommitPermit(ATTEMPT, journal, lambda: self.now_s, lambda: self.wanted, self.back)


@pytest.mark.rule("txtopo.runtime.commit_permit", "Rules", 2)
def test_an_answer_counts_for_a_third_of_the_session() -> None:
    answers = Answers()
    permit = answers.permit()

    permit.ask()
    answers.now_s += 1.9
    permit.look()
    permit.check()
    assert answers.asked == 1

    answers.now_s += 0.2
    with pytest.raises(NotPermitted) as refused:
        permit.check()
    assert isinstance(refused.value.error, CoordinatorUnavailable)
    permit.look()
    assert answers.asked == 2


@pytest.mark.rule("txtopo.runtime.commit_permit", "Rules", 1)
def test_an_answer_counts_from_its_question_on() -> None:
    """When the answer comes, the session may have little time left."""
    answers = Answers(2.5, 1.9)
    permit = answers.permit()

    permit.ask()

    assert answers.asked == 2  # the first answer was too old when it came
    answers.now_s += 0.2
    with pytest.raises(NotPermitted):
        permit.check()


def test_a_leader_that_hears_each_answer_too_late_gives_up() -> None:
    answers = Answers(3.0, 3.0, 3.0, 0.0)

    with pytest.raises(NotPermitted) as refused:
        answers.permit().ask()

    assert isinstance(refused.value.error, CoordinatorUnavailable)
    assert answers.asked == 3


def test_an_ensemble_that_does_not_tell_its_sessions_is_asked_after_a_second() -> None:
    answers = Answers()
    answers.session_s = None
    permit = answers.permit()

    permit.ask()
    answers.now_s += 0.9
    permit.look()
    answers.now_s += 0.2
    permit.look()

    assert answers.asked == 2


@pytest.mark.parametrize(
    "error",
    [
        FencedError("deposed", epoch=1, successor=2, leader=None),
        CoordinatorUnavailable("zookeeper does not answer"),
    ],
)
def test_the_reason_of_a_refusal_is_told(error: Exception) -> None:
    with pytest.raises(NotPermitted) as refused:
        Answers(error=error).permit().ask()

    assert refused.value.error is error


def test_an_attempt_that_was_given_up_is_refused_without_a_question() -> None:
    answers = Answers()
    permit = answers.permit()
    permit.ask()
    answers.wanted = False

    for question in (permit.ask, permit.look, permit.check):
        with pytest.raises(NotPermitted) as refused:
            question()
        assert isinstance(refused.value.error, RunLostError)
    assert answers.asked == 1


def test_a_permit_is_given_back_once() -> None:
    answers = Answers()
    permit = answers.permit()

    permit.give_back()
    permit.give_back()

    assert answers.backs == 1


@pytest.mark.rule("txtopo.runtime.commit_permit", "Rules", 3)
def test_of_the_commits_that_wait_for_their_turn_the_last_one_begins() -> None:
    turns, begun = CommitTurns(), list[str]()

    for name in ("first", "given up", "last"):
        turns.take(lambda name=name: begun.append(name))  # type: ignore[misc]
    assert begun == ["first"]
    turns.leave()
    assert begun == ["first", "last"]
    turns.leave()
    turns.take(lambda: begun.append("later"))
    assert begun == ["first", "last", "later"]


class Held(UpdateGlobalCount):
    """Waits in the commit phase of one attempt until it is let go, with its last tuple or after."""

    place: ClassVar[str]
    inside: ClassVar[threading.Event]
    go_on: ClassVar[threading.Event]
    begun: ClassVar[list[TransactionAttempt]]
    finished: ClassVar[list[TransactionAttempt]]

    def execute(self, tuple: Tuple) -> None:
        if not Held.begun or Held.begun[-1] != self.attempt:
            Held.begun.append(self.attempt)
            self.tuples = 0
        super().execute(tuple)
        self.tuples += 1
        if self.tuples == TASKS_ABOVE:
            self._wait("execute")

    def finish_batch(self) -> None:
        self._wait("finish_batch")
        super().finish_batch()
        Held.finished.append(self.attempt)

    def _wait(self, place: str) -> None:
        if (place, self.attempt.txid) == (Held.place, 15) and not Held.inside.is_set():
            Held.inside.set()
            assert Held.go_on.wait(LIMIT_S)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    Held.place, Held.begun, Held.finished = "finish_batch", [], []
    Held.inside, Held.go_on = threading.Event(), threading.Event()
    yield Database.new(tmp_path)
    Held.go_on.set()


def attempts(txid: int, of: list[TransactionAttempt]) -> int:
    return sum(each.txid == txid for each in of)


@pytest.mark.rule("txtopo.runtime.term", "Rules", 2)
def test_the_next_term_commits_when_user_code_of_the_last_one_has_returned(
    database: Database,
) -> None:
    """As when ZooKeeper pauses for longer than a session, and nobody dies."""
    changes, ensemble = Changes(), MemoryEnsemble()
    topology = global_count(database, committer=Held(database))

    with running(topology, ensemble, changes) as run:
        wait_until(Held.inside.is_set, "txid 15 is being committed")
        ensemble.expire_leader(topology.id)
        wait_until(lambda: len(changes.of(Leading)) == 2, "it leads again")
        run.deactivate()  # a request that the new term has answered
        run.activate()
        assert attempts(15, Held.begun) == 1
        Held.go_on.set()
        run.process_all_available(LIMIT_S)

    assert attempts(15, Held.begun) == 2
    assert database.counts() == {"global": RECORDS}


def test_a_committer_that_hangs_beyond_its_time_is_not_overtaken_by_its_next_attempt(
    database: Database,
) -> None:
    changes = Changes()
    topology = global_count(database, committer=Held(database))

    with running(
        topology, MemoryEnsemble(), changes, batch_timeout_s=0.2, attempts_max=None
    ) as run:
        wait_until(lambda: len(changes.of(BatchFailed)) == 2, "its time was over, twice")
        assert attempts(15, Held.begun) == 1
        Held.go_on.set()
        run.process_all_available(LIMIT_S)

    assert database.counts() == {"global": RECORDS}


def test_a_leader_that_was_deposed_during_a_commit_calls_nothing_more(database: Database) -> None:
    """The call that was under way is all that it still does; it finishes no batch any more."""
    Held.place, ensemble = "execute", MemoryEnsemble()
    topology = global_count(database, committer=Held(database))
    changes = Changes()
    with running(topology, ensemble) as deposed:
        wait_until(Held.inside.is_set, "txid 15 is being committed")
        successor = start_topology(topology.graph, None, LOCAL, [changes], ensemble=ensemble)
        wait_until(lambda: len(ensemble.candidates(topology.id)) == 2, "another one waits")
        ensemble.expire_leader(topology.id)
        changes.wait_for(Leading)
        successor.process_all_available(LIMIT_S)
        done = len(Held.finished)

        Held.go_on.set()
        with suppress(FencedError):  # perhaps it only stands by
            deposed.stop(LIMIT_S)
        successor.stop(LIMIT_S)

    assert len(Held.finished) == done
    assert database.counts() == {"global": RECORDS}


def test_a_run_ends_when_user_code_of_its_last_commit_has_returned(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a run that takes its place in this process does not overtake that."""
    monkeypatch.setattr("txtopo.runtime.driver.CLOSE_TIMEOUT_S", LIMIT_S)
    changes, ensemble = Changes(), MemoryEnsemble()
    topology = global_count(database, committer=Held(database))
    with running(topology, ensemble, changes) as run:
        wait_until(Held.inside.is_set, "txid 15 is being committed")
        ensemble.expire_leader(topology.id)
        ensemble.reachable = False  # so that it is not elected again
        wait_until(lambda: run.status == "leadership lost", "its session is lost")
        stopping = threading.Thread(target=run.stop, args=[LIMIT_S])
        stopping.start()
        wait_until(lambda: run.status == "stopping", "it ends")
        assert not changes.of(Stopped)

        Held.go_on.set()
        stopping.join(LIMIT_S)
        assert changes.of(Stopped)


class Refusal:
    """A permit that is refused when it is asked for the n-th time."""

    def __init__(self, after: int = 0) -> None:
        self.asked, self.after = 0, after

    def ask(self) -> None:
        self.asked += 1
        if self.asked > self.after:
            raise NotPermitted(FencedError("deposed", epoch=1, successor=2, leader=None))

    look = check = ask

    def give_back(self) -> None:
        """Do nothing."""


class Committing(TransactionalSpout):
    """Notes the commits of its emitter."""

    output_fields = Fields("word string")
    committed: ClassVar[list[int]]

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return Nothing()

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return CommittingEmitter()


class Nothing(TransactionalCoordinator):
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return False

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        return None


class CommittingEmitter(TransactionalEmitter):
    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None: ...

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        Committing.committed.append(attempt.txid)


@pytest.mark.parametrize("answers", [0, 1])
def test_an_emitter_is_not_told_to_commit_without_a_permit(answers: int) -> None:
    """It is asked for before the emitter is waited for, and its time is looked at after that."""
    Committing.committed = []
    component = Component("spout", TransactionalKind(), Committing(), 1, {})
    planner, permit = SpoutPlanner("told", component, Config()), Refusal(after=answers)
    assert planner.may_write_elsewhere

    with pytest.raises(NotPermitted):
        planner.commit(ATTEMPT, SpoutShare(1), permit)
    assert Committing.committed == []
    planner.commit(ATTEMPT, SpoutShare(1), Refusal(after=2))
    assert Committing.committed == [ATTEMPT.txid]


def test_a_refusal_between_the_jobs_of_a_commit_is_not_taken_for_an_error_of_the_job() -> None:
    labels: Any = SimpleNamespace(
        put_on=lambda *_: None, take_off=lambda _: None, cancel=lambda _: None, stopped=False
    )
    run = Run("run", (ATTEMPT,), (of_one(1),), None)
    jobs = SparkJobs(labels, "totals")

    with pytest.raises(NotPermitted), jobs.labelled(run, "commit"):
        ask_for(["above", "sum"], lambda component: Refusal() if component == "sum" else None)


class Unmade(Committing):
    """Its emitter cannot be made."""

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        raise RuntimeError("no connection")


def test_an_emitter_that_cannot_be_made_yet_may_write_elsewhere() -> None:
    component = Component("spout", TransactionalKind(), Unmade(), 1, {})

    assert SpoutPlanner("told", component, Config()).may_write_elsewhere


class Calls(DataFrameBolt, Committer):
    """Notes what is called."""

    calls: ClassVar[list[str]]

    def prepare(self, config: Config, context: FrameContext) -> None:
        Calls.calls.append("prepare")

    def commit(self, frame: Any, attempt: TransactionAttempt) -> None:
        Calls.calls.append("commit")


@pytest.mark.parametrize(
    ("answers", "calls"), [(0, []), (1, ["prepare"]), (2, ["prepare", "commit"])]
)
def test_a_dataframe_committer_is_not_called_without_a_permit(
    answers: int, calls: list[str]
) -> None:
    Calls.calls, permit = [], Refusal(after=answers)
    builder = TransactionalTopologyBuilder("frames", "words", frame_parts.spout())
    builder.set_bolt("calls", Calls()).shuffle_grouping("words")
    graph = builder.build_topology().graph
    config = Config()
    compiled = compile_topology(graph, config, 1)
    states = {id: each.states for id, each in graph.components.items()}
    frames: Any = SimpleNamespace(waiting={"calls": None}, aggregated={})

    with nullcontext() if answers == 2 else pytest.raises(NotPermitted):
        run_frame_committers(compiled, frames, ATTEMPT, states, lambda component: permit)

    assert Calls.calls == calls


class Stuck(MemoryBackend):
    """Does not answer the first write of a txid until it may continue."""

    inside: ClassVar[threading.Event]

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        if attempt.txid == 5 and not Stuck.inside.is_set():
            Stuck.inside.set()
            assert Held.go_on.wait(LIMIT_S)
        return super().commit(attempt, writes)


@pytest.mark.rule("txtopo.runtime.commit_permit", "Rules", 3)
def test_a_store_that_does_not_answer_keeps_no_attempt_waiting(database: Database) -> None:
    """Its ledger refuses what comes late; the code of the user's has returned."""
    store, Stuck.inside = MemoryStore(), threading.Event()
    register_backend("stuck", lambda url, table: Stuck(store, table))
    spout = MemoryTransactionalSpout({0: ROWS}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("global-count", "spout", spout)
    builder.set_bolt("partial-count", BatchCount()).shuffle_grouping("spout")
    builder.set_bolt("sum", UpdateGlobalCount(database)).global_grouping("partial-count")
    counts = PersistentAggregate(open_state("stuck:"), (), Count())
    builder.set_bolt("counts", counts).global_grouping("spout")
    topology = builder.build_topology()

    with running(topology, MemoryEnsemble(), batch_timeout_s=0.5, attempts_max=None) as run:
        run.process_all_available(LIMIT_S)
        assert not Held.go_on.is_set()
        assert Stuck.inside.is_set()

    assert database.counts() == {"global": RECORDS}
