"""Batches and partials that are empty, too large or wrong."""

from __future__ import annotations

import random
import string
from dataclasses import replace

import pytest

from tests.faults.bad_inputs.evidence import KEPT, ends_at, held, nothing_committed
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import ROWS, Keep, keeping
from tests.harness.runs import LOCAL, Storage, run_to_end
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.errors import DriverMemoryError, ValueRefusedError
from txtopo.spouts import OpaqueMemoryTransactionalSpout, Outage
from txtopo.state import Count, Sum
from txtopo.testing.conformance.driver import StateDriver


@bad_input(32)
def test_a_key_that_stands_twice_in_one_partial_is_refused(storage: Storage) -> None:
    """One store would keep the last of the two, another take the first for the value before."""
    state = storage.state(KEPT).with_columns(Fields("key string"), Fields("n long"), (Count(),))
    store = StateDriver(state)
    store.merge(1, [("a", 1), ("b", 1)])

    with (
        nothing_committed(storage),
        pytest.raises(
            ValueRefusedError, match=r"'kept' contain a key twice; got \('b',\)"
        ) as caught,
    ):
        store.merge(2, [("b", 1), ("a", 1), ("b", 2)])
    assert caught.value.key == ("b",)
    assert store.merge(2, [("b", 2)]).txid == 2


@bad_input(32)
def test_a_key_of_several_fields_may_have_one_of_them_twice(storage: Storage) -> None:
    state = storage.state(KEPT).with_columns(
        Fields("word string, hour int"), Fields("n long"), (Sum("n"),)
    )
    store = StateDriver(state)
    store.merge(1, [("a", 2, 1), ("a", 1, 1), ("b", 1, 1)])

    assert len(store.contents()) == 3
    with pytest.raises(ValueRefusedError, match=r"got \('a', 1\)"):
        store.merge(2, [("a", 1, 1), ("a", 2, 1), ("a", 1, 1)])


@bad_input(33)
def test_a_key_that_no_index_has_room_for_is_refused_and_not_tried_again(storage: Storage) -> None:
    long = "".join(random.Random(33).choices(string.ascii_letters + string.digits, k=10_000))
    topology = keeping(storage, [["a", 1], [long, 2]])

    if storage.url.startswith("postgresql"):
        ends_at(
            2,
            topology,
            storage,
            ValueRefusedError,
            "cannot store a value exactly: index row requires .* nothing of its batch was written",
        )
        assert held(storage).rows == {"a": 1}
    elif storage.url.startswith("mariadb"):
        ends_at(2, topology, storage, ValueRefusedError, "a key of these columns holds at most 768")
        assert held(storage).rows == {"a": 1}
    else:
        run_to_end(topology, storage)
        assert held(storage).rows == {"a": 1, long: 2}


@bad_input(34)
def test_an_empty_batch_is_committed_like_any_other(storage: Storage) -> None:
    outage = [Outage(0, txid=2)]
    spout = OpaqueMemoryTransactionalSpout({0: [["a", 1], ["a", 2]]}, ROWS, 1, outage)
    builder = TransactionalTopologyBuilder("empty", "spout", spout)
    keep = builder.set_bolt("keep", Keep()).global_grouping("spout")
    keep.with_state(KEPT, storage.state(KEPT))

    changes = run_to_end(builder.build_topology(), storage)

    assert changes.committed == [1, 2, 3]
    assert held(storage).writer.txid == 3
    assert held(storage).rows == {"a": 2}


@bad_input(35)
def test_more_than_the_driver_may_hold_ends_the_run_and_names_the_stream() -> None:
    storage = Storage.in_memory()
    topology = keeping(storage, [["a", 1], ["x" * 100_000, 2]])

    error = ends_at(
        2,
        topology,
        storage,
        DriverMemoryError,
        r"tuples that wait .* take \d+ bytes in the driver; driver_bytes_max is 50000; most are of "
        "stream 'spout/default' .*; aggregate before the committer",
        replace(LOCAL, driver_bytes_max=50_000, max_spout_pending=1),
    )
    assert held(storage).rows == {"a": 1}
    assert isinstance(error, DriverMemoryError)
    assert error.stream == "spout/default"
