"""BatchPlanner: asks the spout's coordinator part what a batch consists of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.coordinator.protocol import NotReady, PlanBatch, Planned
from txtopo.errors import EmitError
from txtopo.metadata import BatchMetadata, Json, json_flaw, shown
from txtopo.runtime.journaling import check_size
from txtopo.spouts.spout import LastBatch
from txtopo.stages.pickling import dumps, loads
from txtopo.topology.component import Component


class BatchPlanner:
    """The driver's side of a spout. All calls block.

    Each of the spout's two parts is called by one thread at a time, in turn, also when a call of an
    abandoned attempt or of an earlier term has not returned. Only ``lag`` and ``lost`` do not wait.
    """

    def __init__(self, topology_id: str, spout: Component, config: Config) -> None:
        self._spout_id = spout.id
        self._generic = spout.role.plans_batches
        context = TaskContext(topology_id, spout.id, 0, spout.parallelism)
        # A copy, so that starts of one topology, at a time or one after the other, share nothing.
        prototype: Any = loads(dumps(spout.prototype))
        self._coordinator = prototype.coordinator(config, context)
        # A DataFrame spout has no part that emits.
        self._make_emitter: Callable[[], Any] = lambda: (
            None if spout.role.frame else prototype.emitter(config, context)
        )
        self._emitter: Any = None
        self._cleaned_before = 0
        self.cleanup_failures = 0
        """How often in a row the emitter could not clean up."""
        self._coordinator_turn, self._emitter_turn = _turn(), _turn()

    def plan(self, action: PlanBatch, pending: int = 0) -> Planned | NotReady:
        """Answer a ``PlanBatch``, with *pending* batches in flight.

        Raises:
            EmitError: The metadata is not JSON.
            BatchMetadataTooLarge: It does not fit into a znode.
        """
        txid = action.attempt.txid
        # A copy, as everything that goes in or out: the spout may change what it gets.
        last = LastBatch(action.last_txid, self._plain(self._metadata(action.last)), pending)
        with _taking(self._coordinator_turn):
            if not self._coordinator.is_ready(txid, last):
                return NotReady(action.attempt)
            if self._generic:
                planned = self._coordinator.initialize_transaction(txid, last.metadata)
            else:
                planned = self._coordinator.number_of_partitions()
        planned = self._plain(planned)
        check_size(txid, BatchMetadata(planned))
        return Planned(action.attempt, planned)

    def lag(self, metadata: BatchMetadata) -> Mapping[str, int]:
        """Return the records behind a batch, by partition, where the spout knows it."""
        return dict(self._coordinator.lag(self._plain(self._metadata(metadata)) or {}))

    def lost(self, metadata: BatchMetadata) -> Mapping[str, str]:
        """Return what the source lost before a batch could read it, by partition."""
        return dict(self._coordinator.lost(self._plain(self._metadata(metadata)) or {}))

    def commit(self, attempt: TransactionAttempt) -> None:
        """Call the emitter's ``commit``."""
        with _taking(self._emitter_turn):
            if (emitter := self._opened_emitter()) is not None:
                emitter.commit(attempt)

    def cleanup_before(self, txid: int) -> None:
        """Call the emitter's ``cleanup_before``, unless it was called for a later txid."""
        with _taking(self._emitter_turn):
            emitter = self._opened_emitter()
            if emitter is not None and txid > self._cleaned_before:
                self.cleanup_failures += 1
                emitter.cleanup_before(txid)
                self._cleaned_before, self.cleanup_failures = txid, 0

    def close(self) -> None:
        """Close both parts."""
        with _taking(self._coordinator_turn):
            self._coordinator.close()
        with _taking(self._emitter_turn):
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
            self._emitter = self._make_emitter()
        return self._emitter


def _turn() -> SimpleQueue[None]:
    turn: SimpleQueue[None] = SimpleQueue()
    turn.put(None)
    return turn


@contextmanager
def _taking(turn: SimpleQueue[None]) -> Iterator[None]:
    turn.get()
    try:
        yield
    finally:
        turn.put(None)
