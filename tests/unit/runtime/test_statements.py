"""Statements of users in a run: wherever the driver dies, in groups, refused, and taken back.

Each SQL database by itself: ``tests/unit/state_backends/test_statements.py``.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.harness.dying import Died, RaisingScheduler, dies_at, raise_died
from tests.harness.polling import LIMIT_S
from tests.harness.runs import started
from txtopo import (
    BatchBolt,
    Committer,
    Config,
    Fields,
    TransactionalTopologyBuilder,
    TransactionAttempt,
)
from txtopo.builders.transactional import Topology
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import StatementFailed, StateUsageError, TxtopoError
from txtopo.operations import Access, quarantine, rewind
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.state import open_state
from txtopo.tuples import Tuple

pytestmark = pytest.mark.integration
BATCHES, ROWS = 9, 2
ALONE: dict[str, Any] = {"group_txids_max": 1}
GROUPS: dict[str, Any] = {"group_txids_max": 3, "max_spout_pending": 9, "poll_interval_s": 20}
"""Each commit is a group of three txids, as in ``test_shared_transactions.py``."""
INSERT = "INSERT INTO notes VALUES (:txid, :epoch, :attempt, :component, :task, :rows)"
UNDO = "DELETE FROM notes WHERE txid = :txid AND component = :component AND task = :task"


class Notes(BatchBolt, Committer):
    """Counts the rows of a batch, and writes them down in a table of its own."""

    writes_nowhere_else = True

    def __init__(self, undo: str | None, fails: int) -> None:
        self.undo, self.fails = undo, fails

    def prepare(
        self,
        config: Any,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.attempt, self.context, self.rows = attempt, context, 0

    def execute(self, tuple: Tuple) -> None:
        self.rows += 1

    def finish_batch(self) -> None:
        component, task = self.context.component_id, self.context.task_index
        given = {"component": component, "task": task, "rows": self.rows}
        with self.context.state("seen").transaction(self.attempt) as seen:
            seen.update(f"rows {task}", lambda rows: (rows or 0) + self.rows)
            seen.execute(INSERT, given, undo=self.undo)
            if self.attempt.txid == self.fails:
                seen.execute("INSERT INTO nowhere VALUES (1)", undo=self.undo and "SELECT 1")


@dataclass
class World:
    """A topology of committers with statements, each in a file, which they may share.

    Attributes:
        folder: Where the files are.
        opaque: Whether the spout is opaque, so that statements have an undo.
        files: The file of each component.
        undo: Whether statements have an undo.
        fails: The txid in which the last component executes a statement that the database refuses.
        tasks: How many tasks each component has.
    """

    folder: Path
    opaque: bool = False
    files: dict[str, str] = field(default_factory=lambda: {"a": "one", "b": "one"})
    undo: bool = True
    fails: int = 0
    tasks: int = 1
    ensemble: MemoryEnsemble = field(default_factory=MemoryEnsemble)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        for name in set(self.files.values()):
            columns = "txid, epoch, attempt, component, task, rows"
            self.ask(name, f"CREATE TABLE notes ({columns})")

    def ask(self, file: str, query: str) -> list[tuple[Any, ...]]:
        """Execute a statement without txtopo."""
        with closing(sqlite3.connect(self.folder / f"{file}.db", isolation_level=None)) as database:
            return database.execute(query).fetchall()

    def notes(self, file: str = "one") -> list[tuple[Any, ...]]:
        """Return what statements have written, in the order in which it was."""
        return self.ask(file, "SELECT txid, component, task, rows FROM notes ORDER BY rowid")

    def txids(self, file: str = "one") -> list[int]:
        """Return the txids of the ledgers."""
        return [txid for (txid,) in self.ask(file, "SELECT txid FROM txtopo_ledger ORDER BY state")]

    def topology(self) -> Topology:
        rows = [[at] for at in range(BATCHES * ROWS)]
        kind = OpaqueMemoryTransactionalSpout if self.opaque else MemoryTransactionalSpout
        spout = kind({0: rows}, Fields("row long"), ROWS)
        builder = TransactionalTopologyBuilder("notes", "spout", spout)
        for name, file in self.files.items():
            fails = self.fails if name == max(self.files) else 0
            bolt = Notes(UNDO if self.undo else None, fails)
            builder.set_bolt(name, bolt, self.tasks).shuffle_grouping("spout").with_state(
                "seen", open_state(f"sqlite:///{self.folder}/{file}.db", table=f"seen_{name}")
            )
        return builder.build_topology()

    def config(self, **settings: Any) -> Config:
        quick = {"carrier": "local", "zookeeper": "memory", "backoff_s": 0.01}
        return Config(**{**quick, "poll_interval_s": 0.005, **settings})

    def run(self, **settings: Any) -> None:
        """Run to the end, or to the error that the run ends with."""
        with started(self.topology(), self.config(**settings), self.ensemble) as run:
            run.process_all_available(LIMIT_S)

    def die(self, step: str, times: int, **settings: Any) -> None:
        """Run until the driver dies at a durable step, reached for the n-th time."""
        run = start_topology(
            self.topology().graph,
            None,
            self.config(**settings),
            scheduler=RaisingScheduler(step, times),
            ensemble=self.ensemble,
        )
        with pytest.raises((TxtopoError, RuntimeError), match="Died"):
            run.await_termination(LIMIT_S)


def once_each(last: int, *components: str) -> list[tuple[Any, ...]]:
    """Return the notes of each txid up to the last, each once, in order."""
    return [(txid, name, 0, ROWS) for txid in range(1, last + 1) for name in components]


STEPS = ("begin.after:b.seen", "rows.after:a.seen", "write.before:b.seen", "write.after:a.seen")


@pytest.mark.rule("txtopo.state.statements", "Rules", 1)
@pytest.mark.parametrize("opaque", [False, True], ids=["repeats", "opaque"])
@pytest.mark.parametrize("step", [*STEPS, "advance.before"])
def test_statements_count_once_wherever_the_driver_dies(
    step: str, opaque: bool, tmp_path: Path
) -> None:
    world = World(tmp_path, opaque)
    world.die(step, 2, **GROUPS)
    held = 6 if step in ("write.after:a.seen", "advance.before") else 3
    assert world.notes() == once_each(held, "a", "b")
    assert world.txids() == [held, held]
    world.run(**GROUPS)
    assert sorted(world.notes()) == once_each(BATCHES, "a", "b")


@pytest.mark.rule("txtopo.state.statements", "Rules", 2)
def test_statements_of_tasks_are_in_the_order_of_components_and_tasks(tmp_path: Path) -> None:
    world = World(tmp_path, tasks=2)
    world.run(slots=2, **GROUPS)
    found = [(txid, component, task) for txid, component, task, _ in world.notes()]
    assert found == sorted(found)
    assert len(found) == BATCHES * 4


def test_a_statement_that_fails_ends_the_run_behind_what_is_before_it(tmp_path: Path) -> None:
    world = World(tmp_path, fails=6)
    with pytest.raises(StatementFailed, match=r"txid 6: no such table: nowhere") as caught:
        world.run(**GROUPS)
    assert (caught.value.txid, caught.value.component) == (6, "b")
    assert world.notes() == once_each(5, "a", "b")
    world.fails = 0
    world.run(**GROUPS)
    assert world.notes() == once_each(BATCHES, "a", "b")


def test_a_database_with_statements_is_written_first(tmp_path: Path) -> None:
    """So a statement that fails leaves nothing behind in another database."""
    world = World(tmp_path, files={"b": "one"}, fails=3)
    other = open_state(f"sqlite:///{tmp_path}/two.db", table="plain")

    class Plain(Notes):
        def finish_batch(self) -> None:
            with self.context.state("seen").transaction(self.attempt) as seen:
                seen.put("rows", self.rows)

    def topology() -> Topology:
        spout = MemoryTransactionalSpout({0: [[at] for at in range(6)]}, Fields("row long"), ROWS)
        builder = TransactionalTopologyBuilder("notes", "spout", spout)
        for name, bolt, state in (
            ("a", Plain(None, 0), other),
            ("b", Notes(None, 3), open_state(f"sqlite:///{tmp_path}/one.db", table="seen_b")),
        ):
            builder.set_bolt(name, bolt).global_grouping("spout").with_state("seen", state)
        return builder.build_topology()

    with (
        pytest.raises(StatementFailed, match="txid 3"),
        started(topology(), world.config(**ALONE), world.ensemble) as run,
    ):
        run.process_all_available(LIMIT_S)
    assert world.txids("one") == world.txids("two") == [2]


def held_apart(folder: Path, *, opaque: bool, undo: bool = True) -> World:
    """Return a topology of which one database holds txid 1, and the other does not."""
    world = World(folder, opaque, {"a": "one", "b": "two"}, undo)
    world.die("write.after:a.seen", 1, **ALONE)
    assert (world.txids("one"), world.txids("two")) == ([1], [0])
    assert (len(world.notes("one")), len(world.notes("two"))) == (1, 0)
    return world


def access(world: World, die: str = "") -> Access:
    point = dies_at(f"operator.{die}", die=raise_died) if die else (lambda step: None)
    return Access(ensemble=world.ensemble, point=point)


@pytest.mark.rule("txtopo.state.statements", "Rules", 5)
@pytest.mark.parametrize("death", ["", "after:1"])
@pytest.mark.parametrize("opaque", [False, True], ids=["repeats", "opaque"])
def test_quarantine_takes_the_statements_of_its_batch_back(
    opaque: bool, death: str, tmp_path: Path
) -> None:
    world = held_apart(tmp_path, opaque=opaque)
    if death:
        with pytest.raises(Died):
            quarantine(world.topology(), 1, world.config(), access=access(world, death)).apply()
    quarantine(world.topology(), 1, world.config(), access=access(world)).apply()
    assert world.notes("one") == world.notes("two") == []
    world.run(**ALONE)
    assert [row[0] for row in world.notes("one")] == list(range(2, BATCHES + 1))
    assert [row[0] for row in world.notes("two")] == list(range(2, BATCHES + 1))


@pytest.mark.rule("txtopo.state.statements", "Rules", 5)
def test_rewind_takes_the_statements_of_the_last_group_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run(**GROUPS)
    rewind(world.topology(), 6, world.config(), access=access(world)).apply()
    assert world.notes() == once_each(6, "a", "b")
    world.run(**GROUPS)
    assert [row[3] for row in world.notes()] == [ROWS] * BATCHES * 2
    with pytest.raises(StateUsageError, match="keeps no history"):
        rewind(world.topology(), 3, world.config(), access=access(world))


@pytest.mark.rule("txtopo.state.statements", "Rules", 5)
def test_statements_without_an_undo_are_not_taken_back(tmp_path: Path) -> None:
    world = World(tmp_path, undo=False)
    world.run(**ALONE)
    with pytest.raises(StateUsageError, match="txid 9 has executed statements without undo="):
        rewind(world.topology(), BATCHES - 1, world.config(), access=access(world))

    other = held_apart(tmp_path / "other", opaque=False, undo=False)
    with pytest.raises(StateUsageError, match="cannot undo it: txid 1 has executed"):
        quarantine(other.topology(), 1, other.config(), access=access(other))
    other.run(**ALONE)
    assert [row[0] for row in other.notes("one")] == list(range(1, BATCHES + 1))
