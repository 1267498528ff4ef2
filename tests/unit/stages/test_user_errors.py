"""Failures of user code are data: they name their batch and spare those before it."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from tests.unit.stages.bolts import Error, Failing, Misbehaving, Pass, Raiser, Recorder
from tests.unit.stages.running import (
    RowsEmitter,
    RowsSpout,
    Topology,
    bolt,
    gathered,
    grouped,
    recording,
    run_of,
    shuffled,
    spout,
    stage_of,
)
from txtopo.emitted_values import BATCH_TUPLES_MAX
from txtopo.errors import (
    BoltError,
    EmitError,
    FailedException,
    StateUsageError,
    StoreUnavailable,
    TopologyError,
)
from txtopo.groupings import DirectGrouping
from txtopo.stages.stage import run_stage
from txtopo.topology.bolt_kinds import BASIC_BOLT

ROWS = [[[txid]] * 4 for txid in range(1, 11)]


def failing(
    error: Error,
    *,
    place: str = "execute",
    txid: int = 5,
    task: int = 1,
    slots: int = 2,
    committer: bool = False,
) -> Topology:
    return Topology(
        spout(RowsSpout(ROWS, "n long"), 2),
        bolt("fine", Pass("n long"), shuffled(), parallelism=2, kind=BASIC_BOLT),
        bolt(
            "raiser",
            Raiser(place, txid, error, task),
            shuffled("fine"),
            parallelism=2,
            committer=committer,
        ),
        bolt("after", Pass("n long"), shuffled("raiser"), parallelism=2, kind=BASIC_BOLT),
        slots=slots,
    )


@pytest.mark.parametrize("place", ["prepare", "execute", "finish_batch"])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_failure_at_txid_5_of_ten_spares_1_to_4(place: str, slots: int) -> None:
    ran = failing(FailedException("no"), place=place, slots=slots).run(run_of(10))

    assert ran.txids == [1, 2, 3, 4]
    assert ran.outcome.failure is not None
    assert ran.outcome.failure.attempt.txid == 5
    assert ran.outcome.failure.component == "raiser"
    assert type(ran.outcome.failure.error) is FailedException


def test_the_lowest_txid_wins_wherever_it_failed() -> None:
    topology = Topology(
        spout(RowsSpout(ROWS, "n long"), 2),
        bolt("third", Raiser("execute", 3, ValueError(), 0), shuffled(), parallelism=2),
        bolt("fourth", Raiser("execute", 4, ValueError(), 1), shuffled(), parallelism=2),
        bolt("second", Raiser("execute", 2, ValueError(), 1), shuffled("third"), parallelism=2),
        slots=2,
    )

    failure = topology.run(run_of(10)).outcome.failure

    assert failure is not None
    assert (failure.attempt.txid, failure.component) == (2, "second")


@pytest.mark.parametrize("slots", [1, 2])
def test_the_levels_behind_a_failure_do_not_see_its_batch_nor_later_ones(slots: int) -> None:
    """A bolt would work on half a batch, and might well raise because of that."""
    topology = Topology(
        spout(RowsSpout(ROWS, "n long"), 2),
        bolt("raiser", Raiser("finish_batch", 5, ValueError(), 1), shuffled(), parallelism=2),
        bolt("record", Recorder("n long"), gathered("raiser"), parallelism=3),
        bolt("last", Recorder(), shuffled("record"), gathered("raiser")),
        slots=slots,
    )

    with recording() as recorded:
        topology.run(run_of(10))

        assert {row[2] for row in recorded} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    "error",
    [ValueError("bad"), SystemExit(3), KeyboardInterrupt(), RecursionError(), StopIteration()],
    ids=lambda error: type(error).__name__,
)
def test_any_exception_comes_back_as_an_exception_with_the_place_it_was_raised_at(
    error: BaseException,
) -> None:
    failure = failing(error).run(run_of(10)).outcome.failure

    assert failure is not None
    assert isinstance(failure.error, Exception)
    (note,) = failure.error.__notes__
    assert note.startswith("in task 1 of 'raiser' of topology 'test', txid 5, processing phase")
    assert "raise self.error" in note


def test_an_exception_of_a_class_defined_on_the_spot_keeps_its_class() -> None:
    class Local(Exception):
        pass

    failure = failing(Local("here")).run(run_of(10)).outcome.failure

    assert failure is not None
    assert type(failure.error) is Local


def test_an_exception_that_cannot_be_pickled_keeps_its_words_and_its_kind() -> None:
    class Unpicklable(Exception):
        def __init__(self, a: str, b: str) -> None:
            super().__init__(f"{a} and {b}")

    fatal = failing(lambda: Unpicklable("this", "that")).run(run_of(10)).outcome.failure
    replayed = failing(Failing).run(run_of(10)).outcome.failure

    assert fatal is not None
    assert replayed is not None
    assert type(fatal.error) is BoltError
    assert "Unpicklable: this and that" in str(fatal.error)
    assert type(replayed.error) is FailedException
    assert str(replayed.error) == "no disk"


def test_a_store_that_a_bolt_cannot_reach_stays_an_infrastructure_fault() -> None:
    failure = failing(StoreUnavailable("down", host="db")).run(run_of(10)).outcome.failure

    assert failure is not None
    assert type(failure.error) is StoreUnavailable


@pytest.mark.parametrize("tasks", [1, 2], ids=["in driver", "in tasks"])
def test_a_failure_in_the_commit_phase_names_its_batch(tasks: int) -> None:
    topology = Topology(
        spout(RowsSpout(ROWS, "n long"), 2),
        bolt(
            "raiser",
            Raiser("execute", 2, ValueError("no")),
            shuffled(),
            parallelism=tasks,
            committer=True,
        ),
        bolt("below", Pass("n long"), shuffled("raiser"), kind=BASIC_BOLT),
        slots=2,
    )

    ran = topology.run(run_of(3))

    assert [commit.failure is None for commit in ran.commits] == [True, False, True]
    failure = ran.commits[1].failure
    assert failure is not None
    assert (failure.component, failure.attempt.txid) == ("raiser", 2)
    assert "commit phase" in failure.error.__notes__[0]


def test_no_exception_of_user_code_leaves_a_stage_function() -> None:
    """Spark would run the task again."""
    compiled = failing(SystemExit(1), txid=1, task=0, slots=1).compiled
    records: list[bytes] = []
    for level in range(len(compiled.processing)):
        stage = run_stage(stage_of(compiled, run_of(2), level, task_id=level), records)
        records = [record for _, record in stage]

    assert records


def emitting(values: Any, stream: str = "default", task: int | None = None) -> Exception:
    direct = grouped(DirectGrouping(), "bad", "direct")
    topology = Topology(
        spout(RowsSpout([[]], "n long")),
        bolt("bad", Misbehaving(values, stream, task), shuffled()),
        bolt("direct", Pass("n long"), direct, parallelism=2, kind=BASIC_BOLT),
        bolt("next", Pass("n long, word string"), gathered("bad"), kind=BASIC_BOLT),
    )
    failure = topology.run(run_of(1)).outcome.failure
    assert failure is not None
    return failure.error


@pytest.mark.parametrize(
    ("values", "stream", "task", "text"),
    [
        ([1], "default", None, r"emitted 1 value to stream 'default'.*expected 2 \(n, word\)"),
        ({"n": 1, "word": "a"}, "default", None, "emitted a dict .*in this order: n, word"),
        ({1, 2}, "default", None, "emitted a set .*in this order: n, word"),
        ("ab", "default", None, "emitted a string .*got 'ab'; expected a list of values: n, word"),
        (b"ab", "default", None, "emitted a string .*got b'ab'"),
        ({1}, "direct", 0, "emitted a set to stream 'direct'"),
        ([1, "a"], "no", None, "undeclared stream 'no'; the declared streams are default, direct"),
        ([1], "direct", None, r"must use emit_direct\(task, values\) for stream 'direct'"),
        ([1, "a"], "default", 0, r"must use emit\(values\) for stream 'default'"),
        ([1], "direct", 2, "directly to task 2 of bolt 'direct'.*from 0 to 1"),
        (["1", "a"], "default", None, r"column 'n' .*got '1' \(str\); expected long"),
        ([1.5, "a"], "default", None, r"column 'n' .*got 1.5 \(float\); expected long"),
        ([1, b"a"], "default", None, r"column 'word' .*got b'a' \(bytes\); expected string"),
        ([2**63, "a"], "default", None, r"column 'n' .*got 9223372036854775808 \(int\)"),
    ],
)
def test_items_16_17_20_emitting_what_is_not_declared(
    values: Any, stream: str, task: int | None, text: str
) -> None:
    with pytest.raises(EmitError, match=rf"(?s)'bad' .*{text}"):
        raise emitting(values, stream, task)


class LateEmitter(Raiser):
    """Emits when its batch is finished, through a collector that outlived it."""

    kept: Any = None

    def finish_batch(self) -> None:
        if LateEmitter.kept is not None:
            LateEmitter.kept.emit([1])
        LateEmitter.kept = self.collector


def test_item_18_emitting_after_finish_batch() -> None:
    topology = Topology(
        spout(RowsSpout([[], []], "n long")),
        bolt("late", LateEmitter("", 0, ValueError()), gathered()),
    )

    failure = topology.run(run_of(2)).outcome.failure

    assert failure is not None
    assert failure.attempt.txid == 2
    with pytest.raises(EmitError, match="emitted after its batch was finished"):
        raise failure.error


def test_an_emitter_that_is_a_generator_is_refused() -> None:
    """Its batches would be empty, and committed."""

    class Yielding(RowsEmitter):
        def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> Any:
            yield collector.emit([1])

    class Spout(RowsSpout):
        def emitter(self, config: Any, context: Any) -> RowsEmitter:
            return Yielding(self.batches, context)

    failure = Topology(spout(Spout([[]], "n long"))).run(run_of(1)).outcome.failure

    assert failure is not None
    with pytest.raises(
        TopologyError, match="emit_batch of the emitter of spout 'spout' does not r"
    ):
        raise failure.error


def test_an_error_may_be_raised_with_another_one_as_its_message() -> None:
    """It fails the batch, and must not end the run where it was to be tried again."""
    failure = failing(FailedException(OSError("away")), slots=1).run(run_of(10)).outcome.failure  # type: ignore[arg-type]

    assert failure is not None
    assert (type(failure.error), str(failure.error)) == (FailedException, "away")


class Threads(Raiser):
    """Emits all numbers on other threads, and does not look what became of them."""

    def finish_batch(self) -> None:
        with ThreadPoolExecutor(4) as pool:
            for start in range(4):
                pool.submit(self._emit, start)

    def _emit(self, start: int) -> None:
        for number in range(start, BATCH_TUPLES_MAX, 4):
            self.collector.emit([number])


def test_rows_of_several_threads_are_refused_though_the_threads_keep_the_error() -> None:
    """Some of them would be lost, and others come twice."""
    topology = Topology(
        spout(RowsSpout([[]], "n long")),
        bolt("many", Threads("", 0, ValueError()), gathered()),
    )

    failure = topology.run(run_of(1)).outcome.failure

    assert failure is not None
    with pytest.raises(EmitError, match="'many' emitted on several threads"):
        raise failure.error


def test_a_row_may_be_of_another_kind_of_sequence() -> None:
    class Row(NamedTuple):
        n: int
        word: str

    topology = Topology(
        spout(RowsSpout([[]], "n long")),
        bolt("other", Misbehaving(Row(1, "a"), "default", None), shuffled()),
    )

    assert topology.run(run_of(1)).outcome.failure is None


def test_a_state_that_was_not_declared_is_named() -> None:
    class Curious(Raiser):
        def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
            context.state("counts")

    topology = Topology(
        spout(RowsSpout([[]], "n long")),
        bolt("curious", Curious("", 0, ValueError()), gathered(), committer=True, parallelism=2),
    )

    failure = topology.run(run_of(1)).commits[0].failure

    assert failure is not None
    with pytest.raises(StateUsageError, match="'curious' has no state 'counts'"):
        raise failure.error


def test_errors_with_notes_pickle_for_the_driver() -> None:
    failure = failing(ValueError("bad")).run(run_of(10)).outcome.failure

    assert failure is not None
    assert str(pickle.loads(pickle.dumps(failure.error))) == "bad"
