"""BatchPlanner calls only those hooks of an emitter that it has."""

from __future__ import annotations

from typing import Any

from txtopo import Config, Fields, TaskContext, TransactionAttempt
from txtopo.plugins.spouts import TransactionalCoordinator, TransactionalSpout
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.topology.component import Component, Role

ATTEMPT = TransactionAttempt(1, 0, 1)


class NeverReady(TransactionalCoordinator):
    """Has no batch."""

    def is_ready(self, txid: int, last: object) -> bool:
        return False

    def initialize_transaction(self, txid: int, previous_metadata: object) -> None:
        return None


class PlainEmitter:
    """Is derived from nothing, and has what each emitter must have."""

    def emit_batch(self, attempt: TransactionAttempt, metadata: Any, collector: Any) -> None:
        collector.emit(["word"])

    def close(self) -> None:
        """Close nothing."""


class PlainSpout(TransactionalSpout):
    """Has an emitter that is not derived from ours."""

    output_fields = Fields("word string")

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return NeverReady()

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return PlainEmitter()


def test_an_emitter_that_is_not_derived_from_ours_needs_no_hooks() -> None:
    spout = Component("spout", Role.TRANSACTIONAL_SPOUT, PlainSpout(), 1, {})
    plain = BatchPlanner("plain", spout, Config())

    plain.commit(ATTEMPT)
    plain.cleanup_before(2)

    assert plain.cleanup_failures == 0
    plain.close()
