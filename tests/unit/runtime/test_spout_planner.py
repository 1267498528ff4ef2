"""SpoutPlanner calls only those hooks of an emitter that it has."""

from __future__ import annotations

from typing import Any

import pytest

from txtopo import Config, Fields, TaskContext, TransactionAttempt
from txtopo.errors import TopologyError
from txtopo.metadata import SpoutShare
from txtopo.plugins.spouts import (
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.runtime.spout_planner import SpoutPlanner
from txtopo.topology.component import Component
from txtopo.topology.spout_kinds import TransactionalKind

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
    spout = Component("spout", TransactionalKind(), PlainSpout(), 1, {})
    plain = SpoutPlanner("plain", spout, Config())

    plain.commit(ATTEMPT, SpoutShare(1))
    plain.cleanup_before(2)

    assert plain.cleanup_failures == 0
    plain.close()


def test_a_coordinator_whose_method_would_not_run_is_refused() -> None:
    """A coroutine is true, so the spout would be ready for ever."""

    class Async(NeverReady):
        async def is_ready(self, txid: int, last: object) -> bool:  # type: ignore[override]
            return False

    class Spout(PlainSpout):
        def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
            return Async()

    spout = Component("spout", TransactionalKind(), Spout(), 1, {})
    with pytest.raises(
        TopologyError, match="is_ready of the coordinator of spout 'spout' does not"
    ):
        SpoutPlanner("async", spout, Config())


OLD_COMMIT = (
    r"takes other arguments; got commit\((self, )?attempt: .*\) -> .*; "
    r"expected commit\(self, attempt, metadata\)"
)


class OldPlainEmitter(PlainEmitter):
    """Has a commit with other arguments."""

    def commit(self, attempt: TransactionAttempt) -> None:
        """Never called."""


class OldPlainSpout(PlainSpout):
    """Has an emitter that is not derived from ours and has an old commit."""

    def emitter(self, config: Config, context: TaskContext) -> Any:
        return OldPlainEmitter()


def test_an_emitter_with_another_commit_is_refused_when_its_class_is_made() -> None:
    with pytest.raises(TopologyError, match=f"emitter .*OldEmitter {OLD_COMMIT}"):

        class OldEmitter(TransactionalEmitter):
            def emit_batch(self, *arguments: Any) -> None:
                """Emit nothing."""

            def commit(self, attempt: TransactionAttempt) -> None:  # type: ignore[override]
                """Never called."""


def test_an_old_commit_of_a_mixin_is_refused_too() -> None:
    with pytest.raises(TopologyError, match=f"emitter .*Mixed {OLD_COMMIT}"):

        class Mixed(OldPlainEmitter, TransactionalEmitter):  # type: ignore[misc]
            """Has its commit from another base."""


def test_a_commit_with_more_arguments_that_need_not_be_given_is_taken() -> None:
    class Generous(TransactionalEmitter):
        def emit_batch(self, *arguments: Any) -> None:
            """Emit nothing."""

        def commit(self, *arguments: Any, note: str = "") -> None:
            """Take anything."""

    assert Generous().commit(ATTEMPT, None) is None  # type: ignore[func-returns-value]


def test_an_old_commit_of_an_emitter_that_is_not_derived_from_ours_is_refused_by_name() -> None:
    spout = Component("spout", TransactionalKind(), OldPlainSpout(), 1, {})
    planner = SpoutPlanner("plain", spout, Config())

    with pytest.raises(TopologyError, match=f"emitter OldPlainEmitter {OLD_COMMIT}"):
        planner.commit(ATTEMPT, SpoutShare(1))
