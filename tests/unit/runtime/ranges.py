"""A transactional spout of twelve ranges, whose quirks are up to the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.runtime.loop_world import BATCHES, Total
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.builders.transactional import Topology
from txtopo.collector import BatchOutputCollector
from txtopo.context import TaskContext
from txtopo.spouts.spout import (
    LastBatch,
    TransactionalCoordinator,
    TransactionalEmitter,
    TransactionalSpout,
)
from txtopo.state import State


class Ranges(TransactionalSpout):
    """Twelve ranges of three amounts; what it does besides is up to the test."""

    output_fields = Fields("amount long")

    def __init__(self, **quirks: Callable[..., Any]) -> None:
        self._quirks = quirks

    def coordinator(self, config: Config, context: TaskContext) -> TransactionalCoordinator:
        return RangesCoordinator(self._quirks)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        return RangesEmitter(self._quirks)


class RangesCoordinator(TransactionalCoordinator):
    def __init__(self, quirks: dict[str, Callable[..., Any]]) -> None:
        self._quirks = quirks

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        quirk = self._quirks.get("is_ready")
        return txid <= BATCHES and (quirk is None or bool(quirk(last)))

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        quirk = self._quirks.get("initialize_transaction")
        return quirk(txid, previous_metadata) if quirk else {"start": (txid - 1) * 3}

    def lag(self, metadata: Any) -> dict[str, int]:
        quirk = self._quirks.get("lag")
        return quirk(metadata) if quirk else {}

    def close(self) -> None:
        if "close" in self._quirks:
            self._quirks["close"]()


class RangesEmitter(TransactionalEmitter):
    def __init__(self, quirks: dict[str, Callable[..., Any]]) -> None:
        self._quirks = quirks

    def emit_batch(self, attempt: Any, metadata: Any, collector: BatchOutputCollector) -> None:
        for amount in range(metadata["start"], metadata["start"] + 3):
            collector.emit([amount])

    def cleanup_before(self, txid: int) -> None:
        if "cleanup_before" in self._quirks:
            self._quirks["cleanup_before"](txid)


def ranges(state: State, **quirks: Callable[..., Any]) -> Topology:
    builder = TransactionalTopologyBuilder("totals", "spout", Ranges(**quirks))
    builder.set_bolt("total", Total()).global_grouping("spout").with_state("totals", state)
    return builder.build_topology()
