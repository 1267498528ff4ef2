"""Run a topology in this process, to its end or while a test looks on, and keep what happened."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.harness.polling import LIMIT_S, wait_until
from txtopo import BatchBolt, Committer, Config, Fields, Topology
from txtopo.config import Carrier
from txtopo.ensemble import MemoryEnsemble
from txtopo.runtime.progress import BatchCommitted, BatchFailed, TopologyEvent, TopologyListener
from txtopo.runtime.start import TopologyRun, start_topology
from txtopo.state import Ledger, State, open_state
from txtopo.state.backend import StateKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = Config(carrier="local", zookeeper="memory", slots=2, poll_interval_s=0.01, backoff_s=0.01)
Contents = dict[str, dict[Any, Any]]
"""The contents of states, by table."""


@contextlib.contextmanager
def started(
    topology: Topology,
    config: Config,
    ensemble: MemoryEnsemble,
    listeners: Sequence[TopologyListener] = (),
    spark: SparkSession | None = None,
) -> Iterator[TopologyRun]:
    """Start a topology, and stop it at the end of the block.

    Args:
        topology: The topology.
        config: Its settings.
        ensemble: What ``zookeeper="memory"`` stands for.
        listeners: Listeners of the run.
        spark: The session, for a carrier of Spark.
    """
    run = start_topology(topology.graph, spark, config, listeners, ensemble=ensemble)
    try:
        yield run
    finally:
        run.stop(LIMIT_S)


@contextlib.contextmanager
def running(
    topology: Topology,
    storage: Storage,
    config: Config = LOCAL,
    spark: SparkSession | None = None,
    listeners: Sequence[TopologyListener] = (),
) -> Iterator[TopologyRun]:
    """Start a topology on a storage, and stop it at the end of the block."""
    with started(topology, config, storage.ensemble, listeners, spark) as run:
        yield run


def run_to_end(
    topology: Topology,
    storage: Storage,
    config: Config = LOCAL,
    spark: SparkSession | None = None,
) -> Changes:
    """Process all that there is, and return what happened; raises what the run ends with."""
    changes = Changes()
    with running(topology, storage, config, spark, [changes]) as run:
        run.process_all_available(LIMIT_S)
    return changes


def on(carrier: Carrier, config: Config = LOCAL) -> Config:
    """Return the same settings for another carrier."""
    return replace(config, carrier=carrier)


def write_states_apart() -> None:
    """Give each state of a database transactions of its own, for as long as this process lives."""
    from state_backends.sql.backend import SqlBackend  # SQLAlchemy, which few of the tests need

    SqlBackend.database = lambda backend: None  # type: ignore[assignment,method-assign]


class Changes(TopologyListener):
    """Keeps every change of a run, and calls a hook on each.

    Attributes:
        seen: The changes so far.
    """

    def __init__(self, hook: Callable[[TopologyEvent], None] = lambda change: None) -> None:
        self.seen: list[TopologyEvent] = []
        self._hook = hook

    def on_change(self, change: TopologyEvent) -> None:
        self.seen.append(change)
        self._hook(change)

    def of(self, kind: type) -> list[Any]:
        """Return the changes of one kind."""
        return [change for change in self.seen if isinstance(change, kind)]

    def wait_for(self, kind: type[TopologyEvent]) -> None:
        """Wait until there is a change of one kind."""
        wait_until(lambda: self.of(kind), f"there is a {kind.__name__}")

    @property
    def committed(self) -> list[int]:
        """Txids in the order of their commits."""
        return [change.progress.txid for change in self.of(BatchCommitted)]

    @property
    def failures(self) -> list[BatchFailed]:
        """The failures of batches."""
        return self.of(BatchFailed)


class WaitsForFile(BatchBolt, Committer):
    """Ends its commits when a file is there."""

    def __init__(self, go: Path) -> None:
        self.go = go

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        pass

    def execute(self, tuple: Any) -> None:
        pass

    def finish_batch(self) -> None:
        wait_until(self.go.exists, "it may continue")


@dataclass(slots=True)
class Storage:
    """The store of a topology's states, and an ensemble that keeps its progress between two starts.

    Attributes:
        url: URL of the store.
        kind: Kind of all its states.
        ensemble: What ``zookeeper="memory"`` stands for.
    """

    url: str
    kind: StateKind = "opaque"
    ensemble: MemoryEnsemble = field(default_factory=MemoryEnsemble)
    _anchor: object = None

    def __post_init__(self) -> None:
        # A store in memory lives as long as somebody holds it.
        self._anchor = open_state(self.url)

    @classmethod
    def in_memory(cls, kind: StateKind = "opaque") -> Storage:
        """Return a storage in the memory of this process."""
        anchor = open_state("memory:")
        return cls(anchor.url, kind)

    @classmethod
    def in_sqlite(cls, folder: Path, kind: StateKind = "opaque") -> Storage:
        """Return a storage in an SQLite file."""
        return cls(f"sqlite:///{folder / 'states.db'}", kind)

    def state(
        self,
        table: str,
        key: Fields = Fields("key string"),  # noqa: B008 - never changed
        value: Fields = Fields("value long"),  # noqa: B008 - never changed
    ) -> State:
        """Return a state for a topology."""
        return open_state(self.url, self.kind, table, key, value)

    def read(self, table: str) -> dict[Any, Any]:
        """Return the contents of a state."""
        with open_state(self.url, table=table).reader() as reader:
            return dict(reader.items())

    def ledger(self, table: str) -> Ledger:
        """Return the ledger of a state."""
        with open_state(self.url, table=table).reader() as reader:
            assert reader.ledger is not None
            return reader.ledger
