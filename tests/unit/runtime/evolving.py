"""Topologies that change between two starts, over any store, and the deaths in between."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.harness.dying import RaisingScheduler
from tests.harness.polling import LIMIT_S
from tests.harness.runs import started
from txtopo import (
    BasicBolt,
    Config,
    Count,
    Fields,
    PersistentAggregate,
    Sum,
    TransactionalTopologyBuilder,
)
from txtopo.builders.transactional import Topology
from txtopo.collector import BatchOutputCollector
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import TxtopoError
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from txtopo.state import Aggregate, Ledger, State, open_state
from txtopo.state.backend import StateKind
from txtopo.tuples import Tuple

KEYS = 3
"""Rows of a batch; each has another key."""

COUNT: Mapping[str, Aggregate] = {"count": Count()}
BOTH: Mapping[str, Aggregate] = {"count": Count(), "sum": Sum("amount")}

SETTINGS: dict[str, Any] = {
    "carrier": "local",
    "zookeeper": "memory",
    "max_spout_pending": 3,
    "group_txids_max": 1,
    "backoff_s": 0.01,
    "poll_interval_s": 0.005,
}


class Relay(BasicBolt):
    """Emits what it gets."""

    output_fields = Fields("key string, amount long")

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        collector.emit(tuple.values)


Counted = dict[str, tuple[int, ...]]
"""The values of each key."""


@dataclass(slots=True)
class Evolving:
    """A topology whose program changes, with its store and its ensemble.

    Attributes:
        url: URL of the store of its states.
        kind: Kind of its states.
        opaque: Whether its spout is opaque.
        batches: How many batches the source has.
        elsewhere: Components with a store of their own, so they share no transaction.
        ensemble: What outlives its runs.
    """

    url: str
    kind: StateKind = "opaque"
    opaque: bool = False
    batches: int = 6
    elsewhere: tuple[str, ...] = ()
    ensemble: MemoryEnsemble = field(default_factory=MemoryEnsemble)
    _anchors: list[State] = field(default_factory=list)
    _urls: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.url = self._anchored(self.url)
        self._urls = {name: self._anchored("memory:") for name in self.elsewhere}

    def _anchored(self, url: str) -> str:
        """Return the URL of a store that lives as long as this object."""
        self._anchors.append(open_state(url))
        return self._anchors[-1].url

    def topology(
        self,
        *components: str,
        relay: bool = False,
        table: str | None = None,
        key: str | tuple[str, ...] = "key",
        urls: Mapping[str, str] | None = None,
        **aggregates: Mapping[str, Aggregate],
    ) -> Topology:
        """Return a topology that keeps aggregates in tables.

        Args:
            components: The components that keep them; the tables have their names.
            relay: Whether there is a bolt before them.
            table: Another name for all tables.
            key: The key fields.
            urls: The store of a component, if it is another one.
            aggregates: Those of a component, if they are not :data:`COUNT`.
        """
        rows = [[f"k{n % KEYS}", n] for n in range(self.batches * KEYS)]
        make = OpaqueMemoryTransactionalSpout if self.opaque else MemoryTransactionalSpout
        spout = make({0: rows}, Fields("key string, amount long"), KEYS)
        builder = TransactionalTopologyBuilder("evolving", "spout", spout)
        source = "spout"
        if relay:
            builder.set_bolt("relay", Relay()).shuffle_grouping("spout")
            source = "relay"
        for name in components:
            url = {**self._urls, **(urls or {})}.get(name, self.url)
            state = open_state(url, self.kind, table or name)
            kept = PersistentAggregate(state, key, aggregates.get(name, COUNT))
            builder.set_bolt(name, kept).fields_grouping(source, "key")
        return builder.build_topology()

    def run(self, topology: Topology, **settings: Any) -> None:
        """Run to the end, or to the error that the run ends with."""
        with started(topology, Config(**SETTINGS | settings), self.ensemble) as run:
            run.process_all_available(LIMIT_S)

    def die(self, topology: Topology, step: str, times: int = 1, **settings: Any) -> None:
        """Run until the driver dies at a durable step, reached for the n-th time."""
        run = start_topology(
            topology.graph,
            None,
            Config(**SETTINGS | settings),
            scheduler=RaisingScheduler(step, times),
            ensemble=self.ensemble,
        )
        with pytest.raises((TxtopoError, RuntimeError), match="Died"):
            run.await_termination(LIMIT_S)

    def held(self, table: str) -> Counted:
        """Return what a table holds."""
        with open_state(self._urls.get(table, self.url), table=table).reader() as reader:
            return {
                key: tuple(value.values()) if isinstance(value, dict) else (value,)
                for key, value in reader.items()
            }

    def ledger(self, table: str) -> Ledger:
        with open_state(self._urls.get(table, self.url), table=table).reader() as reader:
            assert reader.ledger is not None
            return reader.ledger

    @property
    def current(self) -> Any:
        """The value of ``/current``."""
        return json.loads(self.ensemble.nodes["/evolving/current"][0])["value"]


def of_batches(first: int, last: int, *, sums: bool = False) -> Counted:
    """Return the counts, perhaps with the sums, of the rows in these batches."""
    rows = range((first - 1) * KEYS, last * KEYS)
    found: Counted = {}
    for key in range(KEYS) if rows else ():
        amounts = [n for n in rows if n % KEYS == key]
        found[f"k{key}"] = (len(amounts), sum(amounts)) if sums else (len(amounts),)
    return found


def since(first: int, last: int) -> Counted:
    """Return counts of all batches to *last*, beside sums of those from *first* on."""
    sums = of_batches(first, last, sums=True)
    return {key: (*count, sums[key][1]) for key, count in of_batches(1, last).items()}
