"""The transactional state and the stores contradict each other: the run stops, nothing changes."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from time import time
from typing import Any

import pytest

from tests.faults.bad_inputs.evidence import KEPT, ends_at, held, nothing_committed, untouched
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import ROWS, Keep, keeping
from tests.harness.polling import wait_until
from tests.harness.runs import LOCAL, Changes, Storage, run_to_end, running
from txtopo import Config, TransactionalTopologyBuilder
from txtopo.context import TaskContext
from txtopo.ensemble import (
    Delete,
    Journal,
    MemoryTransactionalState,
    Put,
    this_process,
)
from txtopo.errors import (
    BatchMetadataTooLarge,
    CorruptNodeError,
    FencedError,
    LedgerGapError,
    SchemaVersionError,
    StaleBatchError,
    StoreAheadOfCoordinator,
    StoreBehindCoordinator,
    ValueRefusedError,
)
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.runtime.progress import BatchCommitted, Standby
from txtopo.testing.conformance.driver import StateDriver

FOUR = [["a", 1], ["b", 2], ["c", 3], ["d", 4]]


def client(storage: Storage) -> MemoryTransactionalState:
    """Return another client of the topology's nodes."""
    return MemoryTransactionalState("keeping", storage.ensemble)


def refused(storage: Storage, error: type[Exception], match: str) -> Any:
    """Start the topology again, which must end at once and change no row and no txid."""
    with nothing_committed(storage), pytest.raises(error, match=match) as caught:
        run_to_end(keeping(storage, FOUR), storage)
    return caught.value


@bad_input(40)
@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (
            b'{"schema":1,"wri',
            CorruptNodeError,
            "cannot be read; got .*; .*repair_node",
        ),
        (
            b"\x80\x04\x95",
            CorruptNodeError,
            "cannot be read; got .*; .*repair_node",
        ),
        (b'{"schema":2}', SchemaVersionError, "newer txtopo; got schema 2; .* upgrade txtopo"),
    ],
)
@pytest.mark.parametrize("node", ["epoch", "current"])
def test_a_node_that_cannot_be_read_is_never_taken_as_empty(
    node: str, data: bytes, error: type[Exception], match: str
) -> None:
    storage = Storage.in_memory()
    run_to_end(keeping(storage, FOUR), storage)
    path = f"/keeping/{node}"
    storage.ensemble.nodes[path] = (data, storage.ensemble.nodes[path][1])

    refused(storage, error, f"node {path} .*{match}")
    assert storage.ensemble.nodes[path][0] == data


@bad_input(41)
def test_a_txid_that_goes_back_in_zookeeper_is_told_from_the_ledger() -> None:
    storage = Storage.in_memory()
    run_to_end(keeping(storage, FOUR), storage, replace(LOCAL, group_txids_max=1))
    client(storage).apply([Put("/current", {"current": 2})])

    error = refused(
        storage,
        StoreAheadOfCoordinator,
        "state 'keep.kept' holds txid 4, but in ZooKeeper txid 1 is the last .* was ZooKeeper",
    )
    assert (error.ledger_txid, error.committed_txid) == (4, 1)


@bad_input(41)
@pytest.mark.integration
def test_a_txid_that_goes_back_in_a_store_is_told_from_zookeeper(tmp_path: Path) -> None:
    storage = Storage.in_sqlite(tmp_path)
    run_to_end(keeping(storage, FOUR[:1]), storage)
    shutil.copy(tmp_path / "states.db", tmp_path / "backup.db")
    run_to_end(keeping(storage, FOUR), storage)
    shutil.copy(tmp_path / "backup.db", tmp_path / "states.db")

    error = refused(
        storage,
        StoreBehindCoordinator,
        "state 'keep.kept' holds txid 1, but in ZooKeeper txid 4 is the last .* was the "
        "store restored from a backup",
    )
    assert (error.ledger_txid, error.committed_txid) == (1, 4)


@bad_input(41, 42, 43)
@pytest.mark.parametrize(
    ("txid", "attempt", "error", "match"),
    [
        (1, 9, StaleBatchError, "batch of txid 1 is behind the stored txid 2; commits must reach"),
        (2, 0, FencedError, "attempt 2:0@1 is older than 2:1@1, which the state holds"),
        (4, 0, LedgerGapError, "txid 4 does not follow the stored txid 2; expected txid 3"),
    ],
    ids=["41 txid back", "42 attempt back", "43 gap"],
)
def test_a_commit_out_of_order_writes_nothing(
    storage: Storage, txid: int, attempt: int, error: type[Exception], match: str
) -> None:
    store = StateDriver(storage.state(KEPT))
    store.puts(1, {"a": 1})
    store.puts(2, {"a": 2}, attempt=1)

    with untouched(storage), pytest.raises(error, match=match):
        store.puts(txid, {"a": 9, "new": 9}, attempt=attempt)


@bad_input(42)
def test_an_epoch_that_goes_back_in_zookeeper_is_told_from_the_ledger() -> None:
    """Its attempts would be older than those that the store holds."""
    storage = Storage.in_memory()
    for _ in range(3):
        run_to_end(keeping(storage, FOUR), storage)
    newest = client(storage).get("/epoch")
    assert newest is not None
    assert isinstance(newest.value, dict)
    token = newest.value["ensemble"]
    older: Json = {"epoch": 1, "term": "t", "terms": [], "leader": None, "ensemble": token}
    client(storage).apply([Put("/epoch", older)])

    refused(
        storage,
        StoreAheadOfCoordinator,
        "which ZooKeeper does not know; it knows epoch 1 is the newest",
    )


@bad_input(43)
def test_a_gap_in_what_zookeeper_holds_is_not_planned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batch behind the gap begins where the lost one ended, which nobody knows."""
    storage, finish = Storage.in_memory(), Keep.finish_batch

    def finish_later(keep: Keep) -> None:
        """Fail with txid 2 when txid 3 is planned."""
        wait_until(
            lambda: keep.attempt.txid != 2 or len(client(storage).children("/batches")) == 3,
            "txid 3 is planned",
        )
        finish(keep)

    monkeypatch.setattr(Keep, "finish_batch", finish_later)
    ends_at(
        2, keeping(storage, [["a", 1], [None, 2], ["c", 3]]), storage, ValueRefusedError, "NULL"
    )
    nodes = client(storage).children("/batches")
    assert [int(name) for name in nodes] == [1, 2, 3]
    client(storage).apply([Delete(f"/batches/{nodes[1]}")])

    refused(
        storage,
        CorruptNodeError,
        r"metadata of txid 2 is missing .*; got txids \[1, 3\]; expected one for each batch from 1",
    )


@bad_input(44)
def test_a_second_coordinator_waits_and_shows_who_leads(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("txtopo.runtime.candidacy.LEAD_TIMEOUT_S", 0.05)
    caplog.set_level(logging.INFO, "txtopo")
    storage, changes = Storage.in_memory(), Changes()
    other, candidate = client(storage), this_process()
    assert other.lead(candidate, timeout_s=1, on_lost=lambda: None) is not None
    Journal(other).claim_epoch(candidate, token="ensemble")

    with (
        untouched(storage),
        running(keeping(storage, FOUR), storage, listeners=[changes]) as run,
    ):
        changes.wait_for(Standby)
        with pytest.raises(TimeoutError, match="its status is standby"):
            run.process_all_available(0.1)

    (waiting,) = changes.of(Standby)
    assert waiting.holder == {"epoch": 1, "leader": candidate}
    who = f"process {candidate['pid']} on {candidate['host']}"
    assert f"{who} leads (epoch 1); this one stands by" in caplog.text


class Chatty(TransactionalSpout, TransactionalCoordinator, TransactionalEmitter):
    """Puts its batches themselves into their metadata; the third one is a megabyte."""

    output_fields = ROWS

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return self

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return self

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= 4

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        return [f"row {txid}", "x" * (1_000_000 if txid == 3 else 1)]

    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None:
        collector.emit([metadata[0], attempt.txid])

    def close(self) -> None: ...


@bad_input(45)
@pytest.mark.row(17)
def test_metadata_that_no_node_has_room_for_names_its_batch_and_size() -> None:
    storage = Storage.in_memory()
    builder = TransactionalTopologyBuilder("keeping", "spout", Chatty())
    keep = builder.set_bolt("keep", Keep()).global_grouping("spout")
    keep.with_state(KEPT, storage.state(KEPT))

    error: Any = ends_at(
        3,
        builder.build_topology(),
        storage,
        BatchMetadataTooLarge,
        r"the metadata of txid 3 takes 10000\d\d bytes; a znode holds at most \d+; cut smaller",
    )
    assert error.txid == 3
    assert held(storage).rows == {"row 1": 1, "row 2": 2}
    assert client(storage).children("/batches")[-1].endswith("2")


@bad_input(47)
@pytest.mark.row(25)
def test_a_clock_that_jumps_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time limits are measured on a clock that only goes forward; the other one is only shown."""
    hours = cycle([3600, -3600, 0])
    monkeypatch.setattr("time.time", lambda: time() + next(hours))
    storage = Storage.in_memory()
    rows = [[str(at), at] for at in range(30)]

    changes = run_to_end(keeping(storage, rows), storage, replace(LOCAL, batch_timeout_s=60.0))

    assert changes.committed == list(range(1, 31))
    assert changes.failures == []
    assert held(storage).rows == {str(at): at for at in range(30)}
    shown = [change.progress.timestamp_s for change in changes.of(BatchCommitted)]
    assert shown != sorted(shown)
