"""Entries expire by cohort, whatever is put and removed in between."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from txtopo.reliable.acking import RotatingMap

KEYS = st.integers(0, 40) | st.integers(0, 2**64 - 1)


def column(*keys: int) -> npt.NDArray[np.uint64]:
    return np.array(keys, dtype=np.uint64)


def keys_of(rotating: RotatingMap) -> list[list[int]]:
    return [sorted(bucket) for bucket in rotating.buckets()]


def expire(rotating: RotatingMap) -> list[int]:
    places = rotating.rotate()
    keys = cast("list[int]", rotating.keys_at(places).tolist())
    rotating.remove(places)
    return sorted(keys)


def test_check_69_a_put_moves_a_key_to_the_newest_bucket() -> None:
    rotating = RotatingMap(3)
    rotating.put(column(7))

    assert (expire(rotating), expire(rotating), expire(rotating)) == ([], [], [7])

    rotating.put(column(7))
    expire(rotating)
    rotating.put(column(7))
    assert keys_of(rotating) == [[7], [], []]
    assert (expire(rotating), expire(rotating), expire(rotating)) == ([], [], [7])


@pytest.mark.parametrize("buckets", [1, 0, -1])
def test_check_69_fewer_than_two_buckets_are_refused(buckets: int) -> None:
    with pytest.raises(ValueError, match="from 2 to"):
        RotatingMap(buckets)


def test_a_new_entry_has_zeros_where_another_had_been() -> None:
    rotating = RotatingMap(2, {"n": np.int64, "what": object})
    for key in range(1000):
        places = rotating.put(column(key))
        assert rotating.column("n")[places].tolist() == [0]
        assert rotating.column("what")[places].tolist() == [None]
        rotating.column("n")[places] = 5
        rotating.column("what")[places] = "x"
        rotating.remove(places)

    assert len(rotating) == 0


class Reference:
    """Storm's: a hash map a bucket."""

    def __init__(self, buckets: int) -> None:
        self.buckets: list[set[int]] = [set() for _ in range(buckets)]

    def put(self, keys: list[int]) -> None:
        self.remove(keys)
        self.buckets[0] |= set(keys)

    def remove(self, keys: list[int]) -> None:
        for bucket in self.buckets:
            bucket.difference_update(keys)

    def rotate(self) -> list[int]:
        dropped = self.buckets.pop()
        self.buckets.insert(0, set())
        return sorted(dropped)


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "rotate"]), st.lists(KEYS, unique=True))
)


@examples(100)
@given(st.integers(2, 4), STEPS)
def test_it_does_what_hash_maps_do(buckets: int, steps: list[tuple[str, list[int]]]) -> None:
    rotating, reference = RotatingMap(buckets), Reference(buckets)
    for step, keys in steps:
        if step == "put":
            rotating.put(column(*keys))
            reference.put(keys)
        elif step == "remove":
            places = rotating.find(column(*keys))
            rotating.remove(places[places >= 0])
            reference.remove(keys)
        else:
            assert expire(rotating) == reference.rotate()
        assert keys_of(rotating) == [sorted(bucket) for bucket in reference.buckets]
        assert len(rotating) == sum(map(len, reference.buckets))


def test_the_columns_follow_their_keys_when_the_table_grows() -> None:
    rotating = RotatingMap(2, {"n": np.int64})
    for start in range(0, 20_000, 500):
        keys = np.arange(start, start + 500, dtype=np.uint64)
        places = rotating.put(keys)
        rotating.column("n")[places] = keys.astype(np.int64)
        rotating.remove(rotating.find(keys[::3]))

    left = np.array(list(rotating), dtype=np.uint64)
    assert len(left) == len(rotating) == 40 * 333
    assert (rotating.column("n")[rotating.find(left)] == left.astype(np.int64)).all()
