"""Sources whose batch differs from its plan, or whose metadata cannot be stored, stop the run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.faults.bad_inputs.evidence import KEPT, ends_at, held, nothing_committed
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import ROWS, Keep, keeping
from tests.harness.runs import Storage, run_to_end
from txtopo import Config, FailedException, Topology, TransactionalTopologyBuilder
from txtopo.context import TaskContext
from txtopo.ensemble import MemoryTransactionalState
from txtopo.errors import (
    EmitError,
    NonRepeatableBatch,
    OffsetRegression,
    SourceDataLost,
    ValueRefusedError,
)
from txtopo.metadata import Json
from txtopo.plugins.spouts import (
    LastBatch,
    OpaquePartitionedTransactionalEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedTransactionalEmitter,
    PartitionedTransactionalSpout,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.spouts import FilesTransactionalSpout, OpaqueMemoryTransactionalSpout

ROWS_BEFORE: list[list[Any]] = [["a", 1], [None, 2], ["c", 3]]
"""The run ends at the second of them, when all three are planned."""


def topology_over(storage: Storage, spout: Any) -> Topology:
    builder = TransactionalTopologyBuilder("keeping", "spout", spout)
    keep = builder.set_bolt("keep", Keep()).global_grouping("spout")
    keep.with_state(KEPT, storage.state(KEPT))
    return builder.build_topology()


@bad_input(70)
def test_a_replay_of_rows_that_are_gone_is_refused() -> None:
    """What is left of them would be another batch under the same txid."""
    storage = Storage.in_memory()
    ends_at(2, keeping(storage, ROWS_BEFORE), storage, ValueRefusedError, "NULL")

    with (
        nothing_committed(storage),
        pytest.raises(
            OffsetRegression,
            match="partition 0 of the memory spout has 1 rows, but a planned batch ends at 2; "
            "expected at least 2 rows; start with the rows that were there before",
        ) as caught,
    ):
        run_to_end(keeping(storage, ROWS_BEFORE[:1]), storage)
    assert caught.value.partition == 0
    assert held(storage).rows == {"a": 1}


@bad_input(70)
@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.row(11)
def test_a_source_that_ends_before_what_is_committed_is_not_taken_as_read(opaque: bool) -> None:
    """It would be passed over in silence until it had grown again."""

    def over(rows: list[list[Any]]) -> Topology:
        if not opaque:
            return keeping(storage, rows)
        return topology_over(storage, OpaqueMemoryTransactionalSpout({0: rows}, ROWS, 1))

    storage = Storage.in_memory()
    run_to_end(over([["a", 1], ["b", 2], ["c", 3]]), storage)

    with (
        nothing_committed(storage),
        pytest.raises(SourceDataLost, match="has 2 rows, but a planned batch ends at 3"),
    ):
        run_to_end(over([["a", 1], ["b", 2]]), storage)
    run_to_end(over([["a", 1], ["b", 2], ["c", 3], ["d", 4]]), storage)
    assert held(storage).rows == {"a": 1, "b": 2, "c": 3, "d": 4}


@bad_input(70, 72)
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ("gone", "is gone"),
        ("longer", r"is changed: \d+ bytes"),
        ("other content", "is changed: .* bytes of"),
    ],
)
@pytest.mark.row(24)
def test_a_planned_file_that_is_not_what_it_was_is_refused(
    tmp_path: Path, change: str, match: str
) -> None:
    storage, file = Storage.in_memory(), tmp_path / "rows.csv"
    file.write_text("key,value\na,1\n,2\nc,3\n")
    spout = FilesTransactionalSpout(tmp_path, ROWS, batch_rows_max=1)
    ends_at(2, topology_over(storage, spout), storage, ValueRefusedError, "NULL")
    written = file.stat().st_mtime_ns
    if change == "gone":
        file.unlink()
    else:
        content = file.read_text().replace("c,3", "c,4") + "d,4\n" * (change == "longer")
        file.write_text(content)
        os.utime(file, ns=(written, written + 1))

    with (
        nothing_committed(storage),
        pytest.raises(
            SourceDataLost, match=f"rows.csv' of a planned batch {match}.*; restore it unchanged"
        ) as caught,
    ):
        run_to_end(topology_over(storage, spout), storage)
    assert caught.value.path == str(file)
    assert held(storage).rows == {"a": 1}


class Failing(Keep):
    """Fails its first attempt in the commit phase, when all that it reads is processed."""

    def finish_batch(self) -> None:
        if self.attempt.attempt == 0:
            raise FailedException("try it again")
        super().finish_batch()


@bad_input(72)
@pytest.mark.row(24)
@pytest.mark.parametrize("kind", ["plain", "partitioned"])
def test_a_replay_with_other_content_is_refused(kind: str) -> None:
    storage = Storage.in_memory()
    spout = Changing() if kind == "plain" else ChangingPartition()
    builder = TransactionalTopologyBuilder("keeping", "spout", spout)
    keep = builder.set_bolt("keep", Failing()).global_grouping("spout")
    keep.with_state(KEPT, storage.state(KEPT))

    with (
        nothing_committed(storage),
        pytest.raises(
            NonRepeatableBatch,
            match="the replay of txid 1 of topology 'keeping' differs from the earlier batch; got "
            r"1 tuples \(digest .*\) from .* 0 of spout 'spout'; expected 1 tuples .*; it is not "
            "committed; restore what the source had and start again; or make the spout ",
        ) as caught,
    ):
        run_to_end(builder.build_topology(), storage)
    assert caught.value.txid == 1
    assert held(storage).rows == {}


class Planning(TransactionalSpout, TransactionalCoordinator, TransactionalEmitter):
    """Plans with metadata that the test gives it; the first batch is fine."""

    output_fields = ROWS

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return self

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return self

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= 3

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        planned: Json = self.metadata if txid == 2 else {"fine": [1]}
        return planned

    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None:
        collector.emit(["a", attempt.txid])

    def close(self) -> None: ...


class Changing(Planning):
    """Brings something else in each attempt."""

    def __init__(self) -> None:
        super().__init__(None)

    def emit_batch(self, attempt: Any, metadata: Any, collector: Any) -> None:
        collector.emit(["a", attempt.attempt])


class ChangingPartition(PartitionedTransactionalSpout, PartitionedTransactionalEmitter):
    """As ``Changing``, in one partition."""

    output_fields = ROWS

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return Ready()

    def emitter(self, config: Config, context: TaskContext) -> PartitionedTransactionalEmitter:
        return self

    def emit_partition_batch_new(
        self, attempt: Any, collector: Any, partition: int, last_metadata: Json
    ) -> Json:
        self.emit_partition_batch(attempt, collector, partition, None)
        return attempt.txid  # type: ignore[no-any-return]

    def emit_partition_batch(
        self, attempt: Any, collector: Any, partition: int, metadata: Json
    ) -> None:
        collector.emit(["a", attempt.attempt])


class Cutting(OpaquePartitionedTransactionalSpout):
    """Cuts with metadata that the test gives it; the first batch is fine."""

    output_fields = ROWS

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata

    def coordinator(self, config: Config, context: TaskContext) -> PartitionedCoordinator:
        return Ready()

    def emitter(
        self, config: Config, context: TaskContext
    ) -> OpaquePartitionedTransactionalEmitter:
        return Cutter(self.metadata)


class Ready(PartitionedCoordinator):
    def is_ready(self, txid: int, last: LastBatch) -> bool:
        return txid <= 3

    def number_of_partitions(self) -> int:
        return 1


class Cutter(OpaquePartitionedTransactionalEmitter):
    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata

    def emit_partition_batch(
        self, attempt: Any, collector: Any, partition: int, last_metadata: Json
    ) -> Json:
        collector.emit(["a", attempt.txid])
        cut: Json = self.metadata if attempt.txid == 2 else [attempt.txid]
        return cut


@bad_input(76)
@pytest.mark.parametrize(
    ("metadata", "flaw"),
    [
        (b"7", "not JSON serializable"),
        ({"at": {1, 2}}, "not JSON serializable"),
        ([float("nan")], "Out of range float values"),
        ({"ends": {0: 5}}, "the key 0 is of type int, not a string"),
        ([{None: 1}], "the key None is of type NoneType, not a string"),
    ],
    ids=["bytes", "a set", "NaN", "a number as key", "None as key"],
)
@pytest.mark.parametrize("spout", [Planning, Cutting])
def test_metadata_that_json_would_not_give_back_is_refused(
    spout: type[Planning | Cutting], metadata: Any, flaw: str
) -> None:
    """A key that is a number would come back as a string, and the spout would begin again."""
    storage = Storage.in_memory()

    ends_at(
        2,
        topology_over(storage, spout(metadata)),
        storage,
        EmitError,
        rf"'spout' .*JSON; got .* \(.*{flaw}.*\); expected numbers, strings, lists and objects",
    )
    assert held(storage).rows == {"a": 1}
    stored = MemoryTransactionalState("keeping", storage.ensemble).children("/batches")
    assert [int(name) for name in stored] == [1]
