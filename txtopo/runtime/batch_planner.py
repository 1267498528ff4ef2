"""BatchPlanner: asks the spout's coordinator part what a batch consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.coordinator.actions import PlanBatch
from txtopo.coordinator.events import NotReady, Planned
from txtopo.metadata import BatchMetadata, Json
from txtopo.spouts.transactional import LastBatch
from txtopo.topology.component import Component, Role


class BatchPlanner:
    """The driver's side of a spout. All calls block and are made one at a time."""

    def __init__(self, topology_id: str, spout: Component, config: Config) -> None:
        self._generic = spout.role is Role.TRANSACTIONAL_SPOUT
        context = TaskContext(topology_id, spout.id, 0, spout.parallelism)
        prototype: Any = spout.prototype
        self._coordinator = prototype.coordinator(config, context)
        self._make_emitter: Callable[[], Any] = lambda: prototype.emitter(config, context)
        self._emitter: Any = None

    def plan(self, action: PlanBatch) -> Planned | NotReady:
        """Answer a ``PlanBatch``."""
        txid = action.attempt.txid
        last = LastBatch(action.last_txid, self._metadata(action.last))
        if not self._coordinator.is_ready(txid, last):
            return NotReady(action.attempt)
        if self._generic:
            planned = self._coordinator.initialize_transaction(txid, last.metadata)
        else:
            planned = self._coordinator.number_of_partitions()
        return Planned(action.attempt, planned)

    def lag(self, metadata: BatchMetadata) -> Mapping[str, int]:
        """Return the records behind a batch, by partition, where the spout knows it."""
        return dict(self._coordinator.lag(self._metadata(metadata) or {}))

    def commit(self, attempt: TransactionAttempt) -> None:
        """Tell an emitter that takes part in the commit phase."""
        commit = getattr(self._driver_emitter(), "commit", None)
        if commit is not None:
            commit(attempt)

    def cleanup_before(self, txid: int) -> None:
        """Tell an emitter that wants to know which txids are done."""
        cleanup = getattr(self._driver_emitter(), "cleanup_before", None)
        if cleanup is not None:
            cleanup(txid)

    def close(self) -> None:
        """Close both parts."""
        self._coordinator.close()
        if self._emitter is not None:
            self._emitter.close()

    def _metadata(self, batch: BatchMetadata | None) -> Json:
        if batch is None:
            return None
        return batch.planned if self._generic else (batch.cut or {})

    def _driver_emitter(self) -> Any:
        if self._emitter is None:
            self._emitter = self._make_emitter()
        return self._emitter
