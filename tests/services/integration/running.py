"""How a test runs a topology to its end and looks at what its states hold."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txtopo import Config, Topology
from txtopo.config import Carrier
from txtopo.runtime.progress import BatchCommitted, BatchFailed, TopologyEvent, TopologyListener
from txtopo.runtime.start import TopologyRun, start_topology
from txtopo.state import Fields, Ledger, State, open_state
from txtopo.state.backend import StateKind
from txtopo.transactional_state import MemoryEnsemble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Far above what anything here takes, also on a busy machine: reached only by what hangs.
LIMIT_S = 120.0
LOCAL = Config(carrier="local", zookeeper="memory", slots=2, poll_interval_s=0.01, backoff_s=0.01)
Contents = dict[str, dict[Any, Any]]
"""What states hold, by table."""


@dataclass(slots=True)
class Place:
    """Where a topology keeps its states, and its progress from one start to the next.

    Attributes:
        url: Of the store.
        kind: Of all its states.
        ensemble: What ``zookeeper="memory"`` keeps between two starts.
    """

    url: str
    kind: StateKind = "opaque"
    ensemble: MemoryEnsemble = field(default_factory=MemoryEnsemble)
    _anchor: object = None

    def __post_init__(self) -> None:
        # A store in memory lives as long as somebody holds it.
        self._anchor = open_state(self.url)

    @classmethod
    def in_memory(cls, kind: StateKind = "opaque") -> Place:
        """Return a place in this process."""
        anchor = open_state("memory:")
        return cls(anchor.url, kind)

    @classmethod
    def in_sqlite(cls, folder: Path, kind: StateKind = "opaque") -> Place:
        """Return a place in a file."""
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
        """Return what a state holds."""
        with open_state(self.url, table=table).reader() as reader:
            return dict(reader.items())

    def ledger(self, table: str) -> Ledger:
        """Return the ledger of a state."""
        with open_state(self.url, table=table).reader() as reader:
            assert reader.ledger is not None
            return reader.ledger


class Changes(TopologyListener):
    """Keeps what happened in a run."""

    def __init__(self) -> None:
        self.all: list[TopologyEvent] = []
        self._changed = threading.Condition()

    def on_change(self, change: TopologyEvent) -> None:
        with self._changed:
            self.all.append(change)
            self._changed.notify_all()

    def wait_for(self, kind: type[TopologyEvent]) -> None:
        """Wait until a change of a kind was told."""
        with self._changed:
            told = self._changed.wait_for(
                lambda: any(isinstance(each, kind) for each in self.all), LIMIT_S
            )
        assert told, f"there was no {kind.__name__}"

    @property
    def committed(self) -> list[int]:
        """Txids in the order of their commits."""
        return [each.progress.txid for each in self.all if isinstance(each, BatchCommitted)]

    @property
    def failures(self) -> list[BatchFailed]:
        """What failed."""
        return [each for each in self.all if isinstance(each, BatchFailed)]


@contextlib.contextmanager
def running(
    topology: Topology,
    place: Place,
    config: Config = LOCAL,
    spark: SparkSession | None = None,
    listeners: Sequence[TopologyListener] = (),
) -> Iterator[TopologyRun]:
    """Start a topology, and stop it at the end."""
    run = start_topology(topology, spark, config, listeners, ensemble=place.ensemble)
    try:
        yield run
    finally:
        run.stop(LIMIT_S)


def run_to_end(
    topology: Topology,
    place: Place,
    config: Config = LOCAL,
    spark: SparkSession | None = None,
) -> Changes:
    """Process all there is; raises what the run ends with."""
    changes = Changes()
    with running(topology, place, config, spark, [changes]) as run:
        run.process_all_available(LIMIT_S)
    return changes


def on(carrier: Carrier, config: Config = LOCAL) -> Config:
    """Return the same settings for a carrier of Spark."""
    return replace(config, carrier=carrier)
