"""StampPlanner: gives each batch a stamp when it is planned, if the topology asks for one.

The stamp is the time of the txid, and the version of each table that a lookup reads.

Rules
-----
1. The time of a txid is the wall clock, as far as :mod:`txtopo.runtime.plan_clock` believes it, but
   never earlier than the time of the previous txid. The metadata of the previous txid is always
   stored, so the rule holds across takeovers, restarts and clocks that are set back. When planned
   time stands still because of it, a warning is logged.
2. A lookup keeps the table version of the previous txid until its ``refresh_s`` has passed and a
   newer version is found. It also keeps its version if the table is out of reach, or if the newest
   version cannot be used: the loaded version still works. An unusable version is never stored.
3. What a stamp has never changes. Only a batch whose stamp lacks something, for example because it
   was planned before a lookup was added, gets the missing part at a takeover. It is stored before
   any commit work.
4. A version belongs to the table with which it was planned. If another table is declared under the
   same id, the start fails while a batch of the old table is uncommitted; a new batch looks up the
   version of the new table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from txtopo.errors import (
    ConfigError,
    EmitError,
    InfrastructureError,
    SourceDataLost,
    TopologyChanged,
)
from txtopo.log_records import logger_of, one_line
from txtopo.metadata import BatchMetadata, Json
from txtopo.retries import LOGGER
from txtopo.runtime.plan_clock import JUMP_S, ahead_by

if TYPE_CHECKING:
    from txtopo.topology.graph import Graph

_logger = logger_of(LOGGER)


class PlanningClocks(Protocol):
    """The two clocks of a ``Scheduler``."""

    def now(self) -> float:
        """Return seconds on a clock that only goes forward."""
        ...

    def wall_clock(self) -> float:
        """Return seconds since 1970."""
        ...


class StampPlanner:
    """Makes the stamps of a topology's batches. Its methods may block.

    Args:
        graph: The topology, which declares what it needs of a stamp.
        times: The clocks; None if nothing is planned.

    Raises:
        ConfigError: A lookup cannot be read; repair it or its table.
        InfrastructureError: A lookup is out of reach.
    """

    def __init__(self, graph: Graph, times: PlanningClocks | None) -> None:
        self._topology_id, self._times = graph.id, times
        self._asks, self._lookups = graph.asks, graph.lookups
        self._looked_s: dict[str, float] = {}
        self._lost: set[str] = set()
        self._waits = False
        for lookup in self._lookups.values() if times is not None else ():
            lookup.check()

    def planned(self, txid: int, before: BatchMetadata | None) -> dict[str, Json] | None:
        """Return the stamp of a new batch; None if the topology asks for nothing.

        Args:
            txid: The txid of the batch, for the log.
            before: The metadata of the previous txid; None for the first one.

        Raises:
            ConfigError: A table cannot be used, and no earlier version of it is known.
            EmitError: A row of such a table cannot be read.
            SourceDataLost: Such a table changed while it was read.
            InfrastructureError: Such a table is out of reach.
        """
        if not self._asks or self._times is None:
            return None
        known = before.stamp if before is not None and before.stamp is not None else {}
        now_ms = self._now_ms(txid, time_of(known))
        stamp: dict[str, Json] = {"time": max(now_ms, time_of(known))}
        if ahead_s := ahead_by(self._times):
            stamp["latest"] = max(now_ms + int(ahead_s * 1000), time_of(stamp))
        tables = known.get("tables")
        if self._lookups:
            held = tables if isinstance(tables, dict) else {}
            stamp["tables"] = {
                id: self._version(id, held.get(id), txid, time_of(stamp)) for id in self._lookups
            }
        return stamp

    def completed(
        self, stored: Mapping[int, BatchMetadata], current: int
    ) -> dict[int, BatchMetadata]:
        """Return the stored metadata, and complete the stamps of uncommitted batches.

        Raises:
            TopologyChanged: A batch was planned with another table under the id of a lookup.
        """
        found = dict(stored)
        for txid in sorted(stored):
            batch = found[txid]
            if txid >= current:
                self._check_known(txid, batch.stamp)
            if txid >= current and not self._has_all(batch.stamp):
                made = self.planned(txid, found.get(txid - 1)) or {}
                found[txid] = replace(batch, stamp=_joined(made, batch.stamp))
        return found

    def _check_known(self, txid: int, stamp: Mapping[str, Json] | None) -> None:
        versions = _tables_of(stamp or {})
        for id, lookup in self._lookups.items():
            if id in versions and not lookup.knows(versions[id]):
                raise TopologyChanged(
                    f"the source of lookup {id!r} has changed, but txid {txid} was planned with "
                    f"the old one and is not committed; got version {versions[id]!r:.300} of the "
                    "old source; expected a version of the declared source; start with the old "
                    "lookup until the txid is committed, then change it; or remove the batch "
                    "with txtopo.operations.quarantine",
                    changes=(f"source of lookup {id!r}",),
                )

    def _has_all(self, stamp: Mapping[str, Json] | None) -> bool:
        if stamp is None:
            return not self._asks
        return self._lookups.keys() <= _tables_of(stamp).keys()

    def _now_ms(self, txid: int, before_ms: int) -> int:
        """Return the wall clock; warn when planned time begins to stand still to wait for it."""
        assert self._times is not None
        now_ms = int(self._times.wall_clock() * 1000)
        waits = before_ms - now_ms > JUMP_S * 1000
        if waits and not self._waits:
            text = (
                "topology %r: planned time does not advance from txid %d on until the clock of "
                "this driver catches up, which is %.1f s behind; an earlier txid was planned by "
                "a clock that was ahead, or this clock is behind; synchronize the clocks of the "
                "drivers by NTP"
            )
            told = self._topology_id, txid, (before_ms - now_ms) / 1000
            _logger.warning(text, *told, extra={"topology": self._topology_id, "txid": txid})
        self._waits = waits
        return now_ms

    def _version(self, id: str, held: Json, txid: int, time_ms: int) -> Json:
        assert self._times is not None
        lookup, now_s = self._lookups[id], self._times.now()
        looked_s = self._looked_s.get(id)
        if held is not None and not lookup.knows(held):
            held = None
        if held is not None and looked_s is not None and now_s - looked_s < lookup.refresh_s:
            return held
        try:
            newest = lookup.newest(held, time_ms)
        except (InfrastructureError, ConfigError, EmitError, SourceDataLost) as error:
            if held is None:
                raise
            if id not in self._lost:
                text = (
                    "topology %r: lookup %r found no newer version that it can use, and keeps "
                    "version %r from txid %d on until it finds one; got %s; check its table"
                )
                told = self._topology_id, id, held, txid, one_line(error)
                _logger.warning(text, *told, extra={"topology": self._topology_id, "txid": txid})
            self._lost.add(id)
            newest = held
        else:
            self._lost.discard(id)
        self._looked_s[id] = now_s
        return newest


def time_of(stamp: Mapping[str, Json]) -> int:
    """Return the time in a stamp, in milliseconds since 1970; 0 if it has none."""
    time_ms = stamp.get("time", 0)
    assert isinstance(time_ms, int), "it was checked when it was read"
    return time_ms


def _tables_of(stamp: Mapping[str, Json]) -> dict[str, Json]:
    tables = stamp.get("tables", {})
    assert isinstance(tables, dict), "it was checked when it was read"
    return tables


def _joined(made: dict[str, Json], known: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return a new stamp, with everything that the earlier one has already."""
    if known is None:
        return made
    return {**made, **known, "tables": {**_tables_of(made), **_tables_of(known)}}
