"""How each grouping shares tuples among tasks."""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from txtopo.errors import EmitError
from txtopo.groupings import (
    AllGrouping,
    CustomStreamGrouping,
    DirectGrouping,
    FieldsGrouping,
    GlobalGrouping,
    Grouping,
    LocalOrShuffleGrouping,
    NoneGrouping,
    PartialKeyGrouping,
    ShuffleGrouping,
)
from txtopo.stages.compiled_topology import PlannedEdge
from txtopo.stages.pickling import Prototype
from txtopo.stages.routing import EveryTask, OneTask, Route, hash_rows, make_router, mix, seed
from txtopo.tuples import Fields

FIELDS = Fields("word string, n long")
WORDS = FieldsGrouping(("word",))
PINNED = [10768010882876986578, 9326107301388726474, 15001572257793317098]


class Mirror(CustomStreamGrouping):
    """The tasks that the number names, digit by digit."""

    def prepare(self, fields: Fields, tasks: int) -> None:
        assert fields.names == ("word", "n")
        self.tasks = tasks

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        return [int(digit) for digit in str(values[1])] if values[1] >= 0 else []


def edge(grouping: Grouping | Prototype[CustomStreamGrouping], tasks: int) -> PlannedEdge:
    return PlannedEdge(
        0, "a", "default", "b", FIELDS, grouping, tasks, "processing", 1, FIELDS.arrow_schema()
    )


def batch(words: Sequence[str | None], numbers: Sequence[int] | None = None) -> pa.RecordBatch:
    columns = [pa.array(words, pa.string()), pa.array(numbers or range(len(words)), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=FIELDS.arrow_schema())


def chosen(route: Route, tuples: int, tasks: int) -> list[list[int]]:
    """Return the receiving tasks of each tuple."""
    if isinstance(route, OneTask):
        return [[route.task]] * tuples
    if isinstance(route, EveryTask):
        return [list(range(tasks))] * tuples
    rows = range(tuples) if route.rows is None else route.rows.tolist()
    receivers: list[list[int]] = [[] for _ in range(tuples)]
    for row, task in zip(rows, route.tasks.tolist(), strict=True):
        receivers[row].append(task)
    return receivers


def routed(
    grouping: Grouping | Prototype[CustomStreamGrouping],
    tasks: int,
    words: Sequence[str | None],
    *,
    numbers: Sequence[int] | None = None,
    targets: list[int] | None = None,
    txid: int = 1,
    task: int = 0,
    slot: int = 0,
    slots: int = 1,
    portions: int = 1,
) -> list[list[int]]:
    """Route words in portions, and return the receiving tasks of each."""
    router = make_router(edge(grouping, tasks), txid=txid, task=task, slot=slot, slots=slots)
    whole, receivers = batch(words, numbers), []
    size = max(1, math.ceil(len(words) / portions))
    for start in range(0, len(words), size):
        part = whole.slice(start, size)
        some = targets[start : start + size] if targets is not None else None
        receivers += chosen(router.route(part, some), part.num_rows, tasks)
    return receivers


def flat(receivers: list[list[int]]) -> list[int]:
    return [task for tasks in receivers for task in tasks]


def test_check_60_all_grouping_gives_one_tuple_to_each_of_six_tasks_once() -> None:
    assert routed(AllGrouping(), 6, ["a"]) == [[0, 1, 2, 3, 4, 5]]


def test_check_68_shuffle_over_two_tasks_is_even_over_100_000_tuples() -> None:
    tally = Tally(flat(routed(ShuffleGrouping(), 2, ["a"] * 100_000, portions=11)))

    assert tally == {0: 50_000, 1: 50_000}


def test_check_68_fields_grouping_hashes_by_content() -> None:
    first = routed(WORDS, 7, ["a", "b", "c"] * 10, numbers=list(range(30)))
    again = routed(WORDS, 7, ["c", "a", "b"], task=3, txid=9, slot=1, slots=2)

    assert first[:3] * 10 == first
    assert [first[2], first[0], first[1]] == again


def test_check_68_partial_key_sends_one_key_to_at_most_two_tasks() -> None:
    words = [f"w{n % 50}" for n in range(5_000)]
    tasks: dict[str, set[int]] = {}
    for word, (task,) in zip(words, routed(PartialKeyGrouping(("word",)), 9, words), strict=True):
        tasks.setdefault(word, set()).add(task)

    assert max(len(some) for some in tasks.values()) == 2


def test_partial_key_grouping_evens_out_a_single_hot_key() -> None:
    tally = Tally(flat(routed(PartialKeyGrouping(("word",)), 9, ["hot"] * 1_000, portions=3)))

    assert sorted(tally.values()) == [500, 500]


def test_partial_key_grouping_has_two_different_tasks_for_each_key() -> None:
    pairs = [routed(PartialKeyGrouping(("word",)), 3, [f"w{n}"] * 2) for n in range(30)]

    assert all(first != second for first, second in pairs)


def test_global_grouping_takes_the_lowest_task() -> None:
    assert routed(GlobalGrouping(), 5, ["a", "b"]) == [[0], [0]]


def test_none_grouping_reaches_all_tasks_and_repeats_itself() -> None:
    words = ["a"] * 1_000

    first = routed(NoneGrouping(), 4, words, portions=3)

    assert first == routed(NoneGrouping(), 4, words, portions=7)
    assert first != routed(NoneGrouping(), 4, words, txid=2)
    assert all(200 < count < 300 for count in Tally(flat(first)).values())


def test_shuffles_of_different_txids_and_tasks_do_not_all_start_at_the_same_task() -> None:
    """Batches of one tuple would otherwise all go to task 0."""
    starts = [
        routed(ShuffleGrouping(), 4, ["a"], txid=txid, task=task)[0][0]
        for txid in range(1, 11)
        for task in range(10)
    ]

    assert all(10 < count < 40 for count in Tally(starts).values())


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=3))
def test_a_sequence_of_tasks_begins_where_it_always_began(numbers: list[int]) -> None:
    """It was computed with arrays of one value. A replay has to route as the attempt before."""
    state = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        state = mix(state ^ np.array([number], dtype=np.uint64))

    assert seed(*numbers) == state[0]


def test_local_or_shuffle_takes_the_tasks_in_the_slot_of_the_sender() -> None:
    tally = Tally(flat(routed(LocalOrShuffleGrouping(), 5, ["a"] * 90, slot=1, slots=2)))

    assert tally == {1: 45, 3: 45}


def test_local_or_shuffle_to_the_only_task_in_the_slot_copies_nothing() -> None:
    for tasks in (2, 3):
        router = make_router(edge(LocalOrShuffleGrouping(), tasks), txid=1, task=0, slot=1, slots=2)

        assert router.route(batch(["a"] * 90), None) == OneTask(1)


def test_local_or_shuffle_shuffles_where_the_slot_has_none() -> None:
    tally = Tally(flat(routed(LocalOrShuffleGrouping(), 2, ["a"] * 90, slot=3, slots=4)))

    assert tally == {0: 45, 1: 45}


def test_direct_grouping_takes_the_tasks_that_the_emitter_picked() -> None:
    assert routed(DirectGrouping(), 3, ["a", "b"], targets=[2, 0]) == [[2], [0]]


@pytest.mark.parametrize("target", [3, -1, True, 1.0, None])
def test_a_direct_task_that_the_bolt_does_not_have_is_refused(target: Any) -> None:
    with pytest.raises(EmitError, match=r"directly to task .* of bolt 'b' .* from 0 to 2"):
        routed(DirectGrouping(), 3, ["a"], targets=[target])


def test_custom_grouping_chooses_any_number_of_tasks_for_each_tuple() -> None:
    receivers = routed(Prototype(Mirror()), 3, ["a", "b", "c", "d"], numbers=[1, 20, -1, 222])

    assert receivers == [[1], [2, 0], [], [2, 2, 2]]


def test_a_custom_grouping_that_chooses_no_task_of_the_bolt_is_refused() -> None:
    with pytest.raises(EmitError, match=r"'?Mirror'? chose task 7 of bolt 'b'"):
        routed(Prototype(Mirror()), 3, ["a"], numbers=[7])


@examples(25)
@given(
    words=st.lists(st.none() | st.text("ab", max_size=3), max_size=40),
    tasks=st.integers(1, 6),
    portions=st.integers(1, 4),
)
def test_groupings_do_what_their_plain_models_do(
    words: list[str | None], tasks: int, portions: int
) -> None:
    by_fields = routed(WORDS, tasks, words, portions=portions)
    model = {word: routed(WORDS, tasks, [word])[0] for word in words}
    assert by_fields == [model[word] for word in words]

    shuffled = flat(routed(ShuffleGrouping(), tasks, words, portions=portions))
    start = shuffled[0] if shuffled else 0
    assert shuffled == [(start + n) % tasks for n in range(len(words))]

    everywhere = routed(AllGrouping(), tasks, words, portions=portions)
    assert everywhere == [list(range(tasks))] * len(words)


@pytest.mark.parametrize(
    "equal",
    [
        [pa.array([1], pa.int64()), pa.array([1], pa.int8()), pa.array([1.0], pa.float64())],
        [pa.array([1.0]), pa.array([Decimal("1.00")]), pa.array([True])],
        [pa.array([-0.0]), pa.array([0.0]), pa.array([0], pa.int32())],
        [pa.array([0.5]), pa.array([Decimal("0.500")]), pa.array([0.5], pa.float32())],
        [pa.array([math.nan]), pa.array([-math.nan]), pa.array([math.nan], pa.float32())],
        [pa.array([None], pa.string()), pa.array([None], pa.int64()), pa.array([None])],
        [pa.array(["é"]), pa.array(["é", None]).slice(0, 1), pa.array(["ü", "é"]).slice(1)],
    ],
    ids=["one", "decimal", "zero", "half", "nan", "null", "text"],
)
def test_equal_values_of_different_types_have_equal_hashes(equal: list[pa.Array]) -> None:
    """Else a bolt that joins two streams would find their tuples in different tasks."""
    hashes = {
        int(hash_rows(pa.RecordBatch.from_arrays([column], ["c"]), [0])[0]) for column in equal
    }

    assert len(hashes) == 1


def test_hashes_are_the_same_in_every_process() -> None:
    """The numbers of another process, written down; ``PYTHONHASHSEED`` changes with each."""
    columns = [pa.array(["a", None, "é"]), pa.array([1.5, math.nan, None])]

    hashes = hash_rows(pa.record_batch(columns, ["a", "b"]), [0, 1])

    assert hashes.tolist() == PINNED
