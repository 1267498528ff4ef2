"""The memory spouts cut their lists as Storm's do, and follow their script."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.unit.sources.driving import Partitioned
from txtopo import Fields
from txtopo.errors import TopologyError
from txtopo.spouts import (
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    Outage,
    Recut,
)

NUMBER = Fields("number long")


def rows(*numbers: int) -> list[tuple[int]]:
    return [(number,) for number in numbers]


def spout(take: int, *partitions: range) -> MemoryTransactionalSpout:
    return MemoryTransactionalSpout(
        {at: rows(*numbers) for at, numbers in enumerate(partitions)}, NUMBER, take
    )


def opaque(
    take: int, *partitions: range, script: list[Outage | Recut]
) -> OpaqueMemoryTransactionalSpout:
    listed = {at: rows(*numbers) for at, numbers in enumerate(partitions)}
    return OpaqueMemoryTransactionalSpout(listed, NUMBER, take, script)


def test_a_batch_takes_the_same_number_from_each_partition() -> None:
    run = Partitioned(spout(2, range(5), range(10, 13)))

    assert run.attempt(1) == rows(0, 1, 10, 11)
    assert run.attempt(2) == rows(2, 3, 12)
    assert run.attempt(3) == rows(4)
    assert run.cuts[2] == {"0": [2, 2], "1": [2, 1]}


def test_a_replay_brings_the_same_batch() -> None:
    run = Partitioned(spout(2, range(5), range(10, 13)))
    first = [run.attempt(txid) for txid in (1, 2, 3)]

    assert [run.replay(txid, run.cuts[txid]) for txid in (1, 2, 3)] == first


def test_it_is_ready_for_as_many_batches_as_the_longest_partition_fills() -> None:
    run = Partitioned(spout(2, range(5), range(1)))

    assert [run.ready(txid, 0) for txid in (1, 2, 3, 4)] == [True, True, True, False]
    run.attempt(1)
    assert [run.ready(txid, 1) for txid in (2, 3, 4)] == [True, True, False]


def test_an_empty_spout_is_never_ready() -> None:
    assert not Partitioned(spout(2, range(0))).ready(1, 0)
    assert not Partitioned(spout(2)).ready(1, 0)


def test_the_lag_is_what_each_partition_has_left() -> None:
    run = Partitioned(spout(2, range(5), range(3)))
    run.attempt(1)

    assert run.coordinator.lag({}) == {"0": 5, "1": 3}
    assert run.coordinator.lag(run.cuts[1]) == {"0": 3, "1": 1}


def test_an_outage_keeps_the_position() -> None:
    """Storm commits the missing metadata and starts the partition at its beginning again."""
    run = Partitioned(opaque(2, range(4), range(10, 14), script=[Outage(1, 2)]))

    assert run.attempt(1) == rows(0, 1, 10, 11)
    assert run.attempt(2) == rows(2, 3)
    assert run.attempt(3) == rows(12, 13)


def test_after_an_outage_it_is_ready_for_what_was_left_behind() -> None:
    run = Partitioned(opaque(2, range(4), script=[Outage(0, 1), Outage(0, 2)]))
    ready_ahead = [run.ready(txid, 0) for txid in (1, 2, 3)]
    run.attempt(1)
    run.attempt(2)

    assert ready_ahead == [True, True, False]
    assert [run.ready(txid, 2) for txid in (3, 4, 5)] == [True, True, False]


def test_an_outage_of_one_attempt_is_over_with_the_next() -> None:
    run = Partitioned(opaque(2, range(4), script=[Outage(0, 1, attempt=0)]))

    assert run.attempt(1) == []
    assert run.attempt(1, attempt=1) == rows(0, 1)


def test_a_recut_attempt_takes_another_number_of_rows() -> None:
    script: list[Outage | Recut] = [Recut(2, 1, 1), Recut(2, 2, 3, partition=0)]
    run = Partitioned(opaque(2, range(6), range(10, 16), script=script))
    run.attempt(1)

    assert run.attempt(2) == rows(2, 3, 12, 13)
    assert run.attempt(2, attempt=1) == rows(2, 12)
    assert run.attempt(2, attempt=2) == rows(2, 3, 4, 12, 13)
    assert run.attempt(3) == rows(5, 14, 15)


def test_the_opaque_story_of_storm_with_its_own_numbers() -> None:
    """Offsets 1 to 50; a replay takes 41 to 90 where 51 to 100 was; then 91 to 140."""
    script = [Recut(1, 1, 40)]
    run = Partitioned(opaque(50, range(1, 201), script=list(script)))

    assert run.attempt(1) == rows(*range(1, 51))
    assert run.attempt(2) == rows(*range(51, 101))
    assert run.attempt(1, attempt=1) == rows(*range(1, 41))
    assert run.attempt(2, attempt=1) == rows(*range(41, 91))
    assert run.attempt(3) == rows(*range(91, 141))


@pytest.mark.parametrize("take", [1, 2, 3, 7])
def test_all_batches_together_are_the_input_once(take: int) -> None:
    run = Partitioned(
        opaque(
            take,
            range(10),
            range(100, 117),
            script=[Outage(1, 2), Outage(0, 3), Recut(4, 0, 5), Recut(5, 0, 0)],
        )
    )
    txid = 1
    while run.ready(txid, txid - 1):
        run.attempt(txid)
        txid += 1

    seen = [row for batch in run.rows.values() for row in batch]
    assert sorted(seen) == rows(*range(10), *range(100, 117))


def test_rows_of_a_generator_are_kept() -> None:
    """They were looked at once and gone."""
    made = MemoryTransactionalSpout({0: (row for row in [[1], [2]])}, NUMBER, 1)  # type: ignore[dict-item]

    assert made._partitions == (((1,), (2,)),)


def test_the_spouts_can_be_pickled() -> None:
    made = opaque(2, range(4), script=[Outage(0, 1), Recut(1, 0, 1)])

    assert Partitioned(pickle.loads(pickle.dumps(made))).attempt(1) == []
    assert Partitioned(pickle.loads(pickle.dumps(spout(2, range(4))))).attempt(1) == rows(0, 1)


@pytest.mark.parametrize(
    ("partitions", "take", "message"),
    [
        ({1: []}, 1, r"got \[1\]; expected a mapping with the keys 0, 1, 2"),
        ([[1]], 1, "expected a mapping with the keys 0, 1, 2"),
        ({0: [(1, 2)]}, 1, r"row 0 of partition 0 does not fit the fields; got \(1, 2\)"),
        ({0: ["a"]}, 1, "row 0 of partition 0 .*; got 'a'; expected a list of 1 values: n"),
        ({0: [{"n": 1}]}, 1, "row 0 of partition 0 .*; got {'n': 1}; expected a list of 1 values"),
        ({}, 0, "batch_rows_max of a memory spout is wrong; got 0"),
        ({}, True, "batch_rows_max of a memory spout is wrong; got True"),
    ],
)
def test_wrong_arguments_are_refused(partitions: Any, take: Any, message: str) -> None:
    for kind in (MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout):
        with pytest.raises(TopologyError, match=message):
            kind(partitions, NUMBER, take)
