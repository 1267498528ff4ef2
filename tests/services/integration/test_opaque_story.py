"""The example of Storm's page on opaque spouts with its numbers, and cases that it leaves out."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from tests.harness.runs import LOCAL, Storage, run_to_end
from tests.services.integration.bolts import Gathering, plus
from txtopo import (
    Committer,
    FailedException,
    Fields,
    TransactionalTopologyBuilder,
    TransactionAttempt,
)
from txtopo.builders import Topology
from txtopo.errors import StoreUnavailable, TopologyError
from txtopo.plugins.stores import Writes
from txtopo.spouts import OpaqueMemoryTransactionalSpout, Outage, Recut
from txtopo.state import Ledger, State, open_state, register_backend

OFFSETS = Fields("offset long")
BATCHES = Fields("batch long, times long")


class KeepOffsets(Gathering, Committer):
    """Keeps which txid brought which offsets, and how often; fails some attempts at the end."""

    def __init__(self, fails: dict[int, int]) -> None:
        self.fails = fails

    def finish_batch(self) -> None:
        with self.context.state("offsets").transaction(self.attempt) as state:
            for each in self.tuples:
                state.update(each["offset"], self.once_more)
        with self.context.state("counts").transaction(self.attempt) as state:
            state.update("all", plus(len(self.tuples)))
        if self.attempt.attempt < self.fails.get(self.attempt.txid, 0):
            raise FailedException("not now")

    def once_more(self, before: dict[str, int] | None) -> dict[str, int]:
        times = before["times"] if before else 0
        return {"batch": self.attempt.txid, "times": times + 1}


def story(
    storage: Storage,
    script: list[Outage | Recut],
    fails: dict[int, int],
    take: int = 40,
    partitions: int = 1,
    rows: int = 140,
    counts: State | None = None,
) -> Topology:
    """Return a topology that keeps the offsets of each txid; partition p begins at p * 1000."""
    data = {p: [[p * 1000 + n] for n in range(1, rows + 1)] for p in range(partitions)}
    spout = OpaqueMemoryTransactionalSpout(data, OFFSETS, take, script)
    builder = TransactionalTopologyBuilder("offsets", "spout", spout, partitions)
    committer = builder.set_bolt("keep", KeepOffsets(fails)).global_grouping("spout")
    committer.with_state("offsets", storage.state("offsets", OFFSETS, BATCHES))
    committer.with_state("counts", counts or storage.state("counts"))
    return builder.build_topology()


def ranges(storage: Storage) -> dict[int, list[int]]:
    """Return the offsets of each txid; each must be there once."""
    found: dict[int, list[int]] = {}
    for offset, row in sorted(storage.read("offsets").items()):
        assert row["times"] == 1, offset
        found.setdefault(row["batch"], []).append(offset)
    return found


@pytest.mark.parametrize("max_spout_pending", [3, 30])
@pytest.mark.row(23)
def test_the_numbers_of_storms_page(max_spout_pending: int) -> None:
    """Txid 1 has the offsets 1 to 50 and fails while 2 with 51 to 100 is under way.

    Then 1 comes with 1 to 40. If 2 were not thrown away with it, 41 to 50 would be lost.
    """
    storage = Storage.in_memory()
    config = replace(LOCAL, max_spout_pending=max_spout_pending)

    changes = run_to_end(story(storage, [Recut(1, 1, 40)], {1: 1}, take=50), storage, config)

    assert [each.attempt.txid for each in changes.failures] == [1]
    assert ranges(storage) == {
        1: list(range(1, 41)),
        2: list(range(41, 91)),
        3: list(range(91, 141)),
    }
    assert storage.read("counts") == {"all": 140}


@pytest.mark.parametrize("max_spout_pending", [3, 9])
@pytest.mark.parametrize("fails", [{}, {2: 1}, {1: 1}])
def test_a_partition_that_is_down_keeps_its_position(
    fails: dict[int, int], max_spout_pending: int
) -> None:
    """R5: whether the batch before it is committed, in flight, or replayed."""
    storage = Storage.in_memory()
    config = replace(LOCAL, max_spout_pending=max_spout_pending)

    run_to_end(story(storage, [Outage(0, 2)], fails, take=50, partitions=2), storage, config)

    offsets = ranges(storage)
    assert offsets[1] == [*range(1, 51), *range(1001, 1051)]
    assert offsets[2] == list(range(1051, 1101))
    assert offsets[3] == [*range(51, 101), *range(1101, 1141)]
    assert offsets[4] == list(range(101, 141))


@pytest.mark.row(43)
def test_an_empty_replay_takes_back_what_the_failed_attempt_wrote() -> None:
    """R1: the keys of the first attempt are gone although the second one has none."""
    storage = Storage.in_memory()

    run_to_end(story(storage, [Recut(2, 1, 0)], {2: 1}), storage)

    assert 2 not in ranges(storage)
    assert storage.read("counts") == {"all": 140}
    assert len(storage.read("offsets")) == 140


class DownOnce(MemoryBackend):
    """A store that cannot be reached when the first attempt at txid 2 is written."""

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        if (attempt.txid, attempt.attempt) == (2, 0):
            raise StoreUnavailable("the store is down for a moment")
        return super().commit(attempt, writes)


@pytest.mark.parametrize("take", [0, 7, 90])
@pytest.mark.row(42, 43)
def test_a_state_that_was_written_is_undone_when_another_one_could_not_be(take: int) -> None:
    """Attempt 0 of txid 2 is in the first state when the second one fails; then it is cut again."""
    storage = Storage.in_memory()
    store = MemoryStore()
    register_backend("down-once", lambda url, table: DownOnce(store, table))
    counts = open_state("down-once:", table="counts")

    alone = replace(LOCAL, group_txids_max=1)
    changes = run_to_end(story(storage, [Recut(2, 1, take)], {}, counts=counts), storage, alone)

    assert [each.kind for each in changes.failures] == ["infrastructure"]
    offsets = ranges(storage)
    assert offsets.get(2, []) == list(range(41, 41 + take))
    assert sorted(itertools.chain(*offsets.values())) == list(range(1, 141))
    with counts.reader() as reader:
        assert dict(reader.items()) == {"all": 140}


@pytest.mark.parametrize("seed", range(6))
def test_random_outages_cuts_and_failures_lose_and_double_nothing(
    seed: int, tmp_path: Path
) -> None:
    chance = Random(seed)
    storage = Storage.in_memory() if seed % 2 else Storage.in_sqlite(tmp_path)
    script: list[Outage | Recut] = []
    for txid in range(1, 12):
        script += [Outage(chance.randrange(3), txid, chance.randrange(3)) for _ in range(2)]
        script += [Recut(txid, attempt, chance.randrange(30)) for attempt in range(3)]
    fails = {chance.randrange(1, 10): chance.randrange(1, 4) for _ in range(4)}
    config = replace(
        LOCAL,
        max_spout_pending=chance.choice([1, 2, 3, 6, 30]),
    )

    run_to_end(story(storage, script, fails, 20, partitions=3, rows=100), storage, config)

    wanted = {p * 1000 + n for p in range(3) for n in range(1, 101)}
    assert set(itertools.chain(*ranges(storage).values())) == wanted
    assert storage.read("counts") == {"all": len(wanted)}


def test_an_opaque_spout_with_a_transactional_state_is_refused() -> None:
    with pytest.raises(TopologyError, match="opaque"):
        story(Storage.in_memory("transactional"), [], {})
