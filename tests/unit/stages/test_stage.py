"""Stage functions: every task of every bolt, in order, whatever the slots."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.stages.bolts import ArrowPass, Counter, Pass, Recorder
from tests.unit.stages.running import (
    RowsSpout,
    Topology,
    bolt,
    gathered,
    grouped,
    record,
    recording,
    run_of,
    shuffled,
    spout,
    stage_of,
)
from txtopo import ZooKeeper
from txtopo.bolts.bolt import BatchBolt
from txtopo.groupings import AllGrouping, FieldsGrouping
from txtopo.stages import envelopes, mailboxes
from txtopo.stages.compiled_topology import Run
from txtopo.stages.stage import run_stage
from txtopo.topology.bolt_kinds import ARROW_BOLT, BASIC_BOLT
from txtopo.tuples import Fields, Tuple

WORDS = FieldsGrouping(("word",))


def recorded_by(*components: Any, run: Run, slots: int = 1) -> list[Any]:
    topology = Topology(*components, slots=slots)
    with recording() as recorded:
        ran = topology.run(run)
        assert ran.outcome.failure is None
        return list(recorded)


def test_check_18_each_batch_has_a_bolt_of_its_own_that_counts_its_tuples() -> None:
    """Storm's ids 1:1, 1:2 and 2:1 are three batches here."""
    batches = [[[1], [2], [3]], [[4], [5]], [[6]]]
    recorded = recorded_by(
        spout(RowsSpout(batches, "n long")),
        bolt("count", Counter(), shuffled()),
        bolt("record", Recorder(), gathered("count")),
        run=run_of(3),
    )

    assert [row[2:] for row in recorded] == [
        (1, "count", 0, 3),
        (2, "count", 0, 2),
        (3, "count", 0, 1),
    ]


def test_check_19_a_batch_is_finished_once_after_the_tuples_of_all_tasks_above() -> None:
    """Two tasks above, one of which sent nothing."""
    recorded = recorded_by(
        spout(RowsSpout([[[7], [8]]], "n long")),
        bolt("above", Pass("n long"), gathered(), parallelism=2, kind=BASIC_BOLT),
        bolt("count", Counter(), gathered("above")),
        bolt("record", Recorder(), gathered("count")),
        run=run_of(1),
    )

    assert recorded == [("record", 0, 1, "count", 0, 2)]


@pytest.mark.parametrize("tasks", [1, 2], ids=["in driver", "in tasks"])
def test_check_20_a_committer_works_in_the_commit_phase_only(tasks: int) -> None:
    topology = Topology(
        spout(RowsSpout([[[7]]], "n long")),
        bolt("commit", Recorder(), gathered(), committer=True, parallelism=tasks),
    )
    run = run_of(1)

    with recording() as recorded:
        topology.carrier.process(run)
        assert recorded == []
        topology.run(run)
        assert recorded == [("commit", 0, 1, "spout", 0, 7)]


def test_tasks_without_tuples_finish_their_batch_too() -> None:
    recorded = recorded_by(
        spout(RowsSpout([[]], "n long")),
        bolt("count", Counter(), shuffled(), parallelism=3),
        bolt("record", Recorder(), gathered("count")),
        run=run_of(1),
        slots=2,
    )

    assert [row[4:] for row in recorded] == [(0, 0), (1, 0), (2, 0)]


class SelfMutating(BatchBolt):
    """Keeps on itself, and on its class's object, what must not survive the batch."""

    output_fields = Fields("seen long")

    def __init__(self) -> None:
        self.seen: list[int] = []

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector = collector

    def execute(self, tuple: Tuple) -> None:
        self.seen.append(tuple["n"])

    def finish_batch(self) -> None:
        record(len(self.seen))


def test_what_a_bolt_sets_on_itself_is_gone_after_the_batch() -> None:
    """Item 19 of the bad-input list: mutation is harmless, since each batch has a fresh copy."""
    recorded = recorded_by(
        spout(RowsSpout([[[1], [2]], [[3]]], "n long")),
        bolt("seen", SelfMutating(), gathered()),
        run=run_of(2),
    )

    assert recorded == [(2,), (1,)]


class ListReuser(Counter):
    """Fills one list again and again."""

    output_fields = Fields("n long")

    def finish_batch(self) -> None:
        row = [0]
        for n in range(3):
            row[0] = n
            self.collector.emit(row)


def test_a_bolt_may_emit_one_list_again_and_again() -> None:
    recorded = recorded_by(
        spout(RowsSpout([[]], "n long")),
        bolt("reuse", ListReuser(), gathered()),
        bolt("record", Recorder(), gathered("reuse")),
        run=run_of(1),
    )

    assert [row[-1] for row in recorded] == [0, 1, 2]


def diamond(last: str, committers: int = 1) -> list[Any]:
    """Word and length meet again: the spout's own tuples pass two levels on their way."""
    rows = [[[f"w{n % 7}"] for n in range(40)], [["x"]]]
    return [
        spout(RowsSpout(rows, "word string"), 3),
        bolt("a", Pass("word string"), grouped(WORDS), parallelism=4, kind=BASIC_BOLT),
        bolt("b", ArrowPass("word string"), shuffled("a"), parallelism=2, kind=ARROW_BOLT),
        bolt(
            last,
            Recorder("word string"),
            grouped(WORDS),
            grouped(WORDS, "a"),
            grouped(WORDS, "b"),
            parallelism=3,
        ),
        bolt(
            "commit",
            Recorder("word string"),
            grouped(WORDS, last),
            grouped(AllGrouping()),
            parallelism=committers,
            committer=True,
        ),
        bolt(
            "below",
            Recorder(),
            grouped(WORDS, "commit"),
            grouped(WORDS, "a"),
            parallelism=committers,
        ),
    ]


def by_task(recorded: list[Any]) -> dict[Any, list[Any]]:
    tasks: dict[Any, list[Any]] = {}
    for row in recorded:
        tasks.setdefault(row[:3], []).append(row[3:])
    return tasks


@pytest.mark.parametrize("committers", [1, 3])
def test_envelopes_for_later_levels_pass_through(committers: int) -> None:
    recorded = recorded_by(*diamond("last", committers), run=run_of(2), slots=2)

    def words(component: str, txid: int) -> int:
        return sum(row[0] == component and row[2] == txid for row in recorded)

    assert (words("last", 1), words("last", 2)) == (3 * 40, 3)
    assert (words("commit", 1), words("commit", 2)) == (120 + 40 * committers, 3 + committers)
    assert words("below", 1) == 120 + 40 * committers + 40


@pytest.mark.parametrize("committers", [1, 3])
def test_slots_change_neither_the_tuples_of_a_task_nor_their_order(committers: int) -> None:
    by_slots = [
        by_task(recorded_by(*diamond("last", committers), run=run_of(2), slots=slots))
        for slots in (1, 2, 3, 7)
    ]

    assert by_slots[0]
    assert all(tasks == by_slots[0] for tasks in by_slots)


def test_chunks_that_arrive_in_any_order_change_no_order_of_tuples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(envelopes, "CHUNK_BYTES_MAX", 32)
    monkeypatch.setattr(mailboxes, "CHUNK_BYTES_MAX", 32)
    words = [f"w{n:03}" for n in range(100)]
    compiled = Topology(
        spout(RowsSpout([[[word] for word in words]], "word string")),
        bolt("record", Recorder(), gathered()),
    ).compiled
    sent = [record for _, record in run_stage(stage_of(compiled, run_of(1), 0), [])]

    with recording() as recorded:
        arrived = [*sent[1::2], *sent[::-2]]
        list(run_stage(stage_of(compiled, run_of(1), 1, task_id=1), arrived))

        assert len(sent) == len(arrived) > 20
        assert [row[-1] for row in recorded] == words


def test_bolts_a_to_d_of_storms_page_commit_in_one_phase() -> None:
    """A and C process; B commits, and D, a committer below B, needs no second commit phase."""
    topology = Topology(
        spout(RowsSpout([[[1], [2]], [[3]]], "n long"), 2),
        bolt("a", Pass("n long"), shuffled(), parallelism=2, kind=BASIC_BOLT),
        bolt("b", Recorder("n long"), gathered("a"), committer=True),
        bolt("c", Pass("n long"), shuffled("a"), parallelism=2, kind=BASIC_BOLT),
        bolt("d", Recorder(), gathered("b"), gathered("c"), committer=True),
    )

    assert topology.compiled.processing == (("spout",), ("a",), ("c",))
    assert topology.compiled.commit == (("b",), ("d",))
    with recording() as recorded:
        topology.run(run_of(2))
        assert [(row[0], row[2], row[3]) for row in recorded] == [
            *[("b", 1, "a")] * 2,
            *[("d", 1, "b")] * 2,
            *[("d", 1, "c")] * 2,
            ("b", 2, "a"),
            ("d", 2, "b"),
            ("d", 2, "c"),
        ]


def test_secrets_do_not_travel_with_the_program() -> None:
    from txtopo.config import Config
    from txtopo.stages.compiled_topology import compile_topology
    from txtopo.stages.pickling import dumps
    from txtopo.topology.graph import Graph

    graph = Graph.of("test", [spout(RowsSpout([[]], "n long")), bolt("b", Counter(), shuffled())])
    compiled = compile_topology(graph, Config(zookeeper=ZooKeeper(auth="user:secret")), 2)

    assert b"user:secret" not in dumps(compiled)
