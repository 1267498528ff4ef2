"""A position that another spout has stored under the same id is refused, never read."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.harness.dying import RaisingScheduler
from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, started
from tests.unit.sources.data_sources import LinesSource
from tests.unit.sources.driving import Emitted, Planner, context, emit
from txtopo import (
    Config,
    Count,
    Fields,
    PersistentAggregate,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    open_state,
)
from txtopo.builders.transactional import Topology
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import SchemaVersionError, TopologyChanged, TxtopoError
from txtopo.kafka.offsets import from_json
from txtopo.metadata import Json
from txtopo.plugins.spouts import LastBatch
from txtopo.runtime.start import start_topology
from txtopo.spouts import (
    ClockTransactionalSpout,
    DataSourceSpout,
    DeltaTransactionalSpout,
    FilesTransactionalSpout,
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    QueryTransactionalSpout,
)
from txtopo.state import State

FIELDS = Fields("id long, word string")
REFUSED = r"the stored position was not planned by .*; got .*; .* give this one another id"

OF_ROWS: Json = {"key": "id", "query": "rows"}

POSITIONS: dict[str, Json] = {
    "delta": {"start": [0, 0], "end": [1, 1]},
    "source": {"start": {"a": 0}, "end": {"a": 2}},
    "files": {
        "version": 1,
        "root": "/in/",
        "shares": [[["0.csv", 16, 1, 0, 16]]],
        "cursor": {"recent": "PSB1BP9V"},
    },
    "query": {"after": None, "upto": 2, "cuts": [[2, 2]], "newest": 2, "source": OF_ROWS},
    "days": {
        "after": None,
        "upto": "2026-01-02",
        "cuts": [],
        "newest": "2026-01-02",
        "source": OF_ROWS,
    },
    "kafka": {"version": 1, "topics": {}},
    "memory": [0, 2],
}
"""What the spouts plan."""


def spout_over(folder: Path, kind: str) -> Any:
    """Make a source with two rows, and a spout that reads one in a batch."""
    source = folder / kind
    source.mkdir(exist_ok=True)
    match kind:
        case "delta":
            for n in range(2):
                rows = pa.table({"id": [n], "word": [f"w{n}"]})
                write_deltalake(str(source), rows, mode="append")
            return DeltaTransactionalSpout(source, FIELDS, batch_files_max=1)
        case "source":
            return DataSourceSpout(LinesSource, {"path": str(source)})
        case "files":
            for n in range(2):
                (source / f"{n}.csv").write_text(f"id,word\n{n},w{n}\n")
            return FilesTransactionalSpout(str(source), FIELDS, "csv", batch_files_max=1)
        case "query":
            with sqlite3.connect(source / "words.db") as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS words (id INTEGER, word TEXT)")
                connection.execute("DELETE FROM words")
                connection.execute("INSERT INTO words VALUES (0, 'w0'), (1, 'w1')")
            connection.close()
            url = f"sqlite:///{source}/words.db"
            return QueryTransactionalSpout(url, "words", "id", FIELDS, settle_s=0, batch_rows_max=1)
    return ClockTransactionalSpout("1 minute")


@pytest.mark.parametrize("stored", POSITIONS)
@pytest.mark.parametrize("kind", ["clock", "delta", "source", "files", "query"])
def test_a_spout_whose_batches_are_planned_refuses_it_in_the_plan_and_in_the_replay(
    tmp_path: Path, kind: str, stored: str
) -> None:
    if stored == kind or (kind, stored) == ("source", "delta"):
        return  # the offsets of a source may be anything
    spout = spout_over(tmp_path, kind)

    with pytest.raises(TopologyChanged, match=REFUSED):
        Planner(spout, stored=POSITIONS[stored]).plan()
    with pytest.raises(TopologyChanged, match=REFUSED):
        emit(spout, POSITIONS[stored])


@pytest.mark.parametrize("stored", [each for each in POSITIONS if each != "memory"])
@pytest.mark.parametrize("opaque", [False, True])
def test_a_memory_spout_refuses_it_in_the_plan_and_in_its_tasks(stored: str, opaque: bool) -> None:
    make = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    spout = make({0: [[0, "w0"]]}, FIELDS, 1)
    emitter: Any = spout.emitter(Config(), context())
    emits = [emitter.emit_partition_batch]
    emits += [] if opaque else [emitter.emit_partition_batch_new]

    with pytest.raises(TopologyChanged, match=REFUSED):
        spout.coordinator(Config(), context()).is_ready(2, LastBatch(1, {"0": POSITIONS[stored]}))
    for each in emits:
        with pytest.raises(TopologyChanged, match=REFUSED):
            each(TransactionAttempt(2), Emitted(spout).collector, 0, POSITIONS[stored])


@pytest.mark.parametrize("stored", [each for each in POSITIONS if each != "kafka"])
def test_a_kafka_spout_refuses_it(stored: str) -> None:
    with pytest.raises(TopologyChanged, match=REFUSED):
        from_json(POSITIONS[stored])


def newer(kind: str) -> Any:
    """Return a position as a newer txtopo may have stored it."""
    position: Any = POSITIONS[kind]
    return position | {"version": 2}


def test_a_position_of_a_newer_version_asks_for_an_upgrade(tmp_path: Path) -> None:
    spout = spout_over(tmp_path, "files")

    with pytest.raises(SchemaVersionError, match=r"version 2; expected 1; upgrade"):
        Planner(spout, stored=newer("files")).plan()
    with pytest.raises(SchemaVersionError, match=r"version 2; expected 1; upgrade"):
        emit(spout, newer("files"))
    with pytest.raises(SchemaVersionError, match=r"version 2; expected 1; upgrade"):
        from_json(newer("kafka"))


def counting(state: State, spout: Any) -> Topology:
    builder = TransactionalTopologyBuilder("words", "words", spout)
    kept = PersistentAggregate(state, "word", {"times": Count()})
    builder.set_bolt("count", kept).fields_grouping("words", "word")
    return builder.build_topology()


@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize(("before", "after"), [("files", "query"), ("query", "files")])
def test_a_run_with_another_source_under_the_same_id_ends_before_anything_is_emitted(
    tmp_path: Path, before: str, after: str, idle: bool
) -> None:
    state, ensemble = open_state("memory:"), MemoryEnsemble()
    old, new = (counting(state, spout_over(tmp_path, kind)) for kind in (before, after))
    if idle:
        with started(old, LOCAL, ensemble) as run:
            run.process_all_available(LIMIT_S)
    else:
        scheduler = RaisingScheduler("begin.before:count.count")
        run = start_topology(old.graph, None, LOCAL, scheduler=scheduler, ensemble=ensemble)
        with pytest.raises((TxtopoError, RuntimeError), match="Died"):
            run.await_termination(LIMIT_S)

    with (
        started(new, LOCAL, ensemble) as run,
        pytest.raises(TopologyChanged, match=REFUSED),
    ):
        run.process_all_available(LIMIT_S)

    with started(old, LOCAL, ensemble) as run:
        run.process_all_available(LIMIT_S)
    with state.named("count").reader() as reader:
        assert dict(reader.items()) == {"w0": 1, "w1": 1}
