"""A spout that calls itself transactional and brings other tuples on a replay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.harness.runs import LOCAL, Changes, Storage, run_to_end
from tests.unit.runtime.cheating import (
    BAD,
    CHANGES,
    PARTS,
    SUM,
    TXIDS,
    Opaque,
    Partitioned,
    Plain,
    Unlike,
)
from tests.unit.runtime.loop_world import Total
from txtopo import Config, FailedException, Fields, Topology, TransactionalTopologyBuilder
from txtopo.ensemble import MemoryTransactionalState
from txtopo.errors import NonRepeatableBatch
from txtopo.spouts import FilesTransactionalSpout


class FailsOnce(Total):
    """Fails the first attempt of a batch in its commit phase, with an error or to have it again."""

    def __init__(self, error: type[Exception], txid: int = BAD) -> None:
        self.error, self.txid = error, txid

    def finish_batch(self) -> None:
        attempt = self.attempt
        if (attempt.txid, attempt.attempt, attempt.epoch) == (self.txid, 0, 1):
            raise self.error("the first attempt fails in its commit phase")
        super().finish_batch()


def topology(
    storage: Storage, spout: Any, bolt: Total | None = None, tasks: int = PARTS
) -> Topology:
    builder = TransactionalTopologyBuilder("replays", "spout", spout, tasks)
    total = builder.set_bolt("total", bolt or Total()).global_grouping("spout")
    total.with_state("totals", storage.state("totals"))
    return builder.build_topology()


def settings(**changes: Any) -> Config:
    names = ("carrier", "zookeeper", "slots", "poll_interval_s", "backoff_s")
    return Config(**{name: getattr(LOCAL, name) for name in names} | changes)


def held(storage: Storage) -> tuple[int, dict[Any, Any]]:
    return storage.ledger("totals").txid, storage.read("totals")


def stopped_in_its_commit_phase(storage: Storage, spout: Any, **changes: Any) -> None:
    """Start once; the bad txid is processed and its content known, but it is not committed."""
    with pytest.raises(LookupError, match="the first attempt fails"):
        run_to_end(topology(storage, spout, FailsOnce(LookupError)), storage, settings(**changes))
    assert held(storage) == (BAD - 1, {"total": (BAD - 1) * SUM})


def nodes(storage: Storage) -> dict[str, Any]:
    state = MemoryTransactionalState("replays", storage.ensemble)
    found = {}
    for name in state.children("/batches"):
        node = state.get(f"/batches/{name}")
        assert node is not None
        found[name] = node.value
    return found


@pytest.mark.row(24)
@pytest.mark.parametrize("kind", [Plain, Partitioned])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.rule("txtopo.stages.replays", "Rules", 4)
def test_a_replay_that_is_another_batch_is_never_committed(kind: Any, change: str) -> None:
    storage = Storage.in_memory()
    again = topology(storage, kind(change), FailsOnce(FailedException))

    part = f"{'task' if kind is Plain else 'partition'} 1 of spout 'spout'"
    with pytest.raises(
        NonRepeatableBatch,
        match=rf"the replay of txid 3 of topology 'replays' .*got {len(CHANGES[change])} tuples "
        rf"\(digest \w+\) from {part}; expected 4 tuples \(digest \w+\).*opaque.*quarantine",
    ) as caught:
        run_to_end(again, storage)
    assert (caught.value.txid, caught.value.part) == (BAD, 1)
    assert held(storage) == (BAD - 1, {"total": (BAD - 1) * SUM})


@pytest.mark.row(24)
@pytest.mark.parametrize("max_spout_pending", [3, 30])
@pytest.mark.parametrize("kind", [Plain, Partitioned])
def test_a_restart_remembers_what_was_brought_before(kind: Any, max_spout_pending: int) -> None:
    """It is durable before commit work starts, whatever became of that work."""
    storage = Storage.in_memory()
    stopped_in_its_commit_phase(storage, kind("another value"), max_spout_pending=max_spout_pending)

    for _ in range(2):
        with pytest.raises(NonRepeatableBatch):
            run_to_end(topology(storage, kind("another value")), storage)
    assert held(storage) == (BAD - 1, {"total": (BAD - 1) * SUM})


@pytest.mark.parametrize("kind", [Plain, Partitioned])
def test_a_source_that_brings_the_batch_back_goes_on(kind: Any) -> None:
    storage = Storage.in_memory()
    stopped_in_its_commit_phase(storage, kind("one less"))
    with pytest.raises(NonRepeatableBatch):
        run_to_end(topology(storage, kind("one less")), storage)

    run_to_end(topology(storage, kind("")), storage)
    assert held(storage) == (TXIDS, {"total": TXIDS * SUM})


@pytest.mark.parametrize("kind", [Plain, Partitioned])
@pytest.mark.parametrize("changes", [{"slots": 1}, {"slots": 3}, {"max_spout_pending": 3}])
def test_slots_and_runs_change_no_content(kind: Any, changes: dict[str, Any]) -> None:
    storage = Storage.in_memory()
    stopped_in_its_commit_phase(storage, kind(""))

    changed = run_to_end(topology(storage, kind("")), storage, settings(**changes))
    assert changed.failures == []
    assert held(storage) == (TXIDS, {"total": TXIDS * SUM})


@pytest.mark.rule("txtopo.stages.replays", "Rules", 1)
def test_partitions_are_compared_whatever_the_parallelism() -> None:
    storage = Storage.in_memory()
    stopped_in_its_commit_phase(storage, Partitioned("another value"))

    with pytest.raises(NonRepeatableBatch, match="partition 1 "):
        run_to_end(topology(storage, Partitioned("another value"), tasks=2), storage)


@pytest.mark.rule("txtopo.stages.replays", "Rules", 1)
def test_another_parallelism_of_a_plain_spout_is_no_other_batch() -> None:
    """Its tasks share the batch in another way then."""
    storage = Storage.in_memory()
    stopped_in_its_commit_phase(storage, Plain(""))

    run_to_end(topology(storage, Plain(""), tasks=2), storage)
    assert held(storage) == (TXIDS, {"total": TXIDS * SUM})


@pytest.mark.parametrize("spout", [Opaque("another value"), Unlike("another value")])
def test_an_opaque_spout_may_bring_another_batch(spout: Any) -> None:
    storage = Storage.in_memory()
    run_to_end(topology(storage, spout, FailsOnce(FailedException)), storage)

    assert held(storage) == (TXIDS, {"total": TXIDS * SUM + 1})
    assert all("content" not in node for node in nodes(storage).values())


@pytest.mark.parametrize("kind", [Plain, Partitioned])
def test_a_change_that_is_meant_passes(kind: Any) -> None:
    """The spout's code was repaired, say, or its fields are others now."""
    storage = Storage.in_memory()
    stopped_in_its_commit_phase(storage, kind("another value"))

    with pytest.raises(NonRepeatableBatch, match=r"check_replays=False"):
        run_to_end(topology(storage, kind("another value")), storage, settings(allow_change=True))
    repaired = settings(check_replays=False)
    run_to_end(topology(storage, kind("another value")), storage, repaired)
    assert held(storage) == (TXIDS, {"total": TXIDS * SUM + 1})


def test_nothing_is_compared_or_kept_when_it_is_off() -> None:
    storage = Storage.in_memory()
    again = topology(storage, Partitioned("one more"), FailsOnce(FailedException))

    run_to_end(again, storage, settings(check_replays=False))
    assert held(storage)[0] == TXIDS
    assert all("content" not in node for node in nodes(storage).values())


@pytest.mark.parametrize("kind", [Plain, Partitioned])
def test_a_batch_of_a_start_that_kept_no_content_is_read(kind: Any) -> None:
    """Nobody knows what it brought, so the replay is believed, and the one after it compared."""
    storage = Storage.in_memory()
    stopped_in_its_commit_phase(storage, kind("another value"), check_replays=False)
    assert all("content" not in node for node in nodes(storage).values())

    changed: Changes = run_to_end(topology(storage, kind("another value")), storage)
    assert changed.committed == [3, 4, 5]
    assert list(nodes(storage)["0" * 19 + "5"]["content"]["spout"]) == ["0", "1", "2"]


@pytest.mark.parametrize("kind", [Plain, Partitioned])
@pytest.mark.rule("txtopo.stages.replays", "Rules", 3)
def test_what_was_brought_is_durable_before_the_commit(kind: Any) -> None:
    """Else a commit that was half done could be finished by another batch."""
    storage = Storage.in_memory()
    stopped_in_its_commit_phase(storage, kind(""))

    content = nodes(storage)[f"{BAD:020d}"]["content"]["spout"]
    assert list(content) == ["0", "1", "2"]
    assert content["0"] == content["1"] == content["2"]
    assert content["0"][0] == 4


def test_a_file_that_was_replaced_by_one_of_equal_size_and_time_is_told_by_its_records(
    tmp_path: Path,
) -> None:
    """As ``cp -p`` replaces it: name, size and time are those of the plan."""
    storage, path = Storage.in_memory(), tmp_path / "amounts.csv"
    path.write_text("amount\n" + "1\n" * 9)
    spout = FilesTransactionalSpout(path, Fields("amount long"), batch_rows_max=3)
    with pytest.raises(LookupError, match="the first attempt fails"):
        run_to_end(topology(storage, spout, FailsOnce(LookupError, 2)), storage, settings())
    before = path.stat()
    path.write_text("amount\n" + "2\n" * 9)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(NonRepeatableBatch):
        run_to_end(topology(storage, spout), storage, settings())

    assert held(storage) == (1, {"total": 3})
