"""BatchPlanner: calls the spout in the driver, above all to ask what the next batch consists of."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.coordinator.protocol import NotReady, PlanBatch, Planned
from txtopo.errors import EmitError
from txtopo.metadata import BatchMetadata, Json, json_flaw, shown
from txtopo.spouts.spout import LastBatch, check_commit
from txtopo.stages.pickling import dumps, loads
from txtopo.topology.component import Component
from txtopo.transactional_state.nodes import check_metadata_size


class BatchPlanner:
    """Calls the coordinator and the emitter of a spout in the driver. All methods block.

    Each of the two is called by one thread at a time. A call waits while an earlier one has not
    returned, be it of an abandoned attempt or of an earlier term. Only ``lag`` and ``lost`` do not
    wait.
    """

    def __init__(
        self,
        topology_id: str,
        spout: Component,
        config: Config,
        parallelism: Mapping[str, int] | None = None,
    ) -> None:
        self._spout_id = spout.id
        self._generic = spout.role.plans_batches
        context = TaskContext(
            topology_id, spout.id, 0, spout.parallelism, parallelism=parallelism or {}
        )
        # A copy, so that several runs of one topology share nothing.
        prototype: Any = loads(dumps(spout.prototype))
        self._coordinator = prototype.coordinator(config, context)
        # A DataFrame spout has no emitter.
        self._make_emitter: Callable[[], Any] = lambda: (
            None if spout.role.frame else prototype.emitter(config, context)
        )
        self._emitter: Any = None
        self._cleaned_before = 0
        self.cleanup_failures = 0
        """How often in a row the emitter could not clean up."""
        # Held across calls of user code, which may block: that is what they are for. No durable
        # step is marked while they are held.
        self._coordinator_lock, self._emitter_lock = threading.Lock(), threading.Lock()

    def plan(self, action: PlanBatch, pending: int = 0) -> Planned | NotReady:
        """Answer a ``PlanBatch``, with *pending* batches in flight.

        Raises:
            EmitError: The metadata is not JSON.
            BatchMetadataTooLarge: The metadata does not fit into a znode.
        """
        txid = action.attempt.txid
        # Metadata is copied on its way in and out, because the spout may change the object.
        last = LastBatch(action.last_txid, self._plain(self._metadata(action.last)), pending)
        with self._coordinator_lock:
            if not self._coordinator.is_ready(txid, last):
                return NotReady(action.attempt)
            if self._generic:
                planned = self._coordinator.initialize_transaction(txid, last.metadata)
            else:
                planned = self._coordinator.number_of_partitions()
        planned = self._plain(planned)
        check_metadata_size(txid, BatchMetadata(planned))
        return Planned(action.attempt, planned)

    def lag(self, metadata: BatchMetadata) -> Mapping[str, int]:
        """Return how many records are behind a batch, by partition, where the spout knows it."""
        lag = self._coordinator.lag(self._plain(self._metadata(metadata)) or {})
        return {str(partition): int(records) for partition, records in dict(lag).items()}

    def lost(self, metadata: BatchMetadata) -> Mapping[str, str]:
        """Return what the source lost before a batch could read it, by partition."""
        lost = self._coordinator.lost(self._plain(self._metadata(metadata)) or {})
        return {str(partition): str(what) for partition, what in dict(lost).items()}

    def commit(self, attempt: TransactionAttempt, metadata: BatchMetadata) -> None:
        """Call the emitter's ``commit``, if it has one.

        Raises:
            TopologyError: It takes other arguments; mend the emitter.
        """
        with self._emitter_lock:
            # An emitter of a user need not be derived from ours, and then may lack the hooks.
            if commit := getattr(self._opened_emitter(), "commit", None):
                commit(attempt, self._plain(self._metadata(metadata)))

    def cleanup_before(self, txid: int) -> None:
        """Call the emitter's ``cleanup_before``, if any, unless it was called for a later txid."""
        with self._emitter_lock:
            cleanup = getattr(self._opened_emitter(), "cleanup_before", None)
            if cleanup and txid > self._cleaned_before:
                self.cleanup_failures += 1
                cleanup(txid)
                self._cleaned_before, self.cleanup_failures = txid, 0

    def close(self) -> None:
        """Close the coordinator and the emitter."""
        with self._coordinator_lock:
            self._coordinator.close()
        with self._emitter_lock:
            if self._emitter is not None:
                self._emitter.close()

    def _metadata(self, batch: BatchMetadata | None) -> Json:
        if batch is None:
            return None
        return batch.planned if self._generic else (batch.cut or {})

    def _plain(self, metadata: Json) -> Any:
        flaw = json_flaw(metadata)
        if flaw is not None:
            raise EmitError(
                f"the metadata of spout {self._spout_id!r} is not JSON; got {shown(metadata)} "
                f"({flaw}); expected numbers, strings, lists and objects with string keys"
            )
        return json.loads(json.dumps(metadata))

    def _opened_emitter(self) -> Any:
        if self._emitter is None:
            emitter = self._make_emitter()
            if (commit := getattr(emitter, "commit", None)) is not None:
                check_commit(commit, type(emitter).__qualname__, 2)
            self._emitter = emitter
        return self._emitter
