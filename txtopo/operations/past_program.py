"""PastProgram: a program that computes txids of the past into states in memory, and is timed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from txtopo.clock import now
from txtopo.errors import StateUsageError
from txtopo.topology.component import cutting, repeating

if TYPE_CHECKING:
    from txtopo.config import Config
    from txtopo.ensemble.nodes import StoredBatch
    from txtopo.fingerprint import StateName
    from txtopo.metadata import BatchMetadata, Json
    from txtopo.operations.overlay import OverlayState
    from txtopo.operations.rerun import RerunOutcome
    from txtopo.operations.rerun_carrier import Place
    from txtopo.topology.graph import Graph


class PastProgram:
    """A program, ready to compute txids.

    Args:
        graph: The program.
        config: Its settings.
        states: Its states.
        spark: The session; None for the active one, or a new one.
        stack: Closes what is opened.
        on: Where it runs.

    Attributes:
        graph: The program.
        times_s: How long each txid took, in seconds.
        recording: The tuples of the last txid, and what user code raised.
    """

    def __init__(
        self,
        graph: Graph,
        config: Config,
        states: Mapping[StateName, OverlayState],
        spark: object | None,
        stack: ExitStack,
        on: Place = "local",
    ) -> None:
        # They need pyarrow, which may be missing where the verbs are only imported.
        from txtopo.operations.recording import Recording
        from txtopo.operations.rerun import Rerun
        from txtopo.operations.rerun_carrier import open_carrier

        self.graph = graph
        self.times_s: list[float] = []
        self._last: BatchMetadata | None = None
        self.recording = Recording()
        self._spouts = [each.id for each in graph.spouts]
        self._cutting = cutting(graph.spouts)
        self._cut_again = self._cutting - set(repeating(graph.spouts))
        carrier, config = open_carrier(graph, config, spark, self.recording, on)
        stack.callback(carrier.close)
        self._rerun = Rerun(graph, config, carrier, states, self.recording)

    def metadata(self, txid: int, stored: Mapping[int, BatchMetadata]) -> BatchMetadata:
        """Return the metadata of a txid as the program reads it."""
        return stored[txid].read_for(self._spouts)

    def needs_previous(self, metadata: BatchMetadata) -> bool:
        """Return whether a txid needs the metadata of the one before."""
        return bool(self._cut_again) or not metadata.is_cut(self._cutting)

    def run(self, batch: StoredBatch, stored: Mapping[int, BatchMetadata]) -> RerunOutcome:
        """Compute a txid.

        Args:
            batch: What is stored of it.
            stored: The metadata of it, and of the one before if it needs that.
        """
        txid = batch.attempt.txid
        metadata = self.metadata(txid, stored)
        previous = None
        if self.needs_previous(metadata):
            previous = self.metadata(txid - 1, stored)
            if self._last is not None and not previous.is_cut(self._cutting):
                previous = self._last  # of a txid in flight only the plan is stored
        self.recording.clear()
        began = now()
        outcome = self._rerun.run(batch.attempt, metadata, previous)
        self.times_s.append(now() - began)
        self._last = None if outcome.batch is None else outcome.batch.metadata
        return outcome


def check_stamp(graph: Graph, txid: int, stamp: Mapping[str, Json] | None) -> None:
    """Check that a txid was planned with what a program asks for.

    Raises:
        StateUsageError: It was not.
    """
    tables = {} if stamp is None else stamp.get("tables", {})
    missing = [id for id in graph.lookups if not isinstance(tables, dict) or id not in tables]
    if graph.needs_planned_time and (stamp is None or "time" not in stamp):
        missing.append("the planned time")
    if missing:
        raise StateUsageError(
            f"txid {txid} was planned without what the program needs; it lacks "
            f"{', '.join(map(str, missing))}; expected a txid that a program with it has planned",
            txid=txid,
        )
