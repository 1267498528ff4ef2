"""StoredHistory: the metadata that ZooKeeper has of the txids of a topology.

A verb that computes txids again reads it when it needs it: a leader may delete some meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.attempt import ranges_text
from txtopo.ensemble.nodes import (
    BATCHES,
    CURRENT,
    StoredBatch,
    batch_of,
    batch_path,
    current_of,
    txid_of,
)
from txtopo.errors import StateUsageError

if TYPE_CHECKING:
    from txtopo.metadata import BatchMetadata
    from txtopo.operations.session import OperatorSession


class StoredHistory:
    """The metadata that ZooKeeper has of the txids of a topology.

    Args:
        session: The session of the verb.

    Attributes:
        current: The lowest txid that is not committed.
    """

    def __init__(self, session: OperatorSession) -> None:
        self._session = session
        self._next: StoredBatch | None = None
        self.current = current_of(session.state.get(CURRENT)) if session.known else 1

    def batch(self, txid: int) -> StoredBatch | None:
        """Return what is stored of a txid, or planned for the next one; None if nothing is."""
        path = batch_path(txid)
        node = self._session.state.get(path)
        if node is not None:
            return batch_of(path, txid, node)
        if txid == self.current and self._next is None:
            from txtopo.operations.next_batch import planned_batch  # it needs pyarrow

            self._next = planned_batch(self._session, txid - 1, self.metadata(txid - 1))
        return self._next if txid == self.current else None

    def txids(self) -> list[int]:
        """Return the txids of which metadata is stored."""
        return sorted(
            txid_of(f"{BATCHES}/{name}") for name in self._session.state.children(BATCHES)
        )

    def check(self, txid: int) -> StoredBatch:
        """Return what is stored of a txid.

        Raises:
            StateUsageError: Nothing is.
        """
        found = self.batch(txid)
        if found is not None:
            return found
        there, kept = ranges_text(self.txids()), self._session.config.history_txids
        if txid < 1 or txid >= self.current:
            why = "it was not planned yet" if txid >= 1 else "txids begin at 1"
        else:
            why = (
                f"it was deleted: history_txids={kept} keeps {kept} before the last group; a run "
                "with a larger Config(history_txids=…) keeps more from then on"
            )
        raise StateUsageError(
            f"txid {txid} of topology {self._session.graph.id!r} cannot be replayed; {why}; "
            f"ZooKeeper has {there}; expected one of those",
            txid=txid,
        )

    def processed(self, txid: int) -> StoredBatch:
        """Return what is stored of a txid that has a batch.

        Raises:
            StateUsageError: Nothing is stored, or a verb of an operator wrote the txid.
        """
        found = self.check(txid)
        if found.verb is not None:
            raise StateUsageError(
                f"txid {txid} of topology {self._session.graph.id!r} cannot be replayed; it has "
                f"no batch, because {found.verb} wrote it without a record of the sources; "
                "expected a txid that was processed",
                txid=txid,
                verb=found.verb,
            )
        return found

    def begins(self, txid: int) -> int:
        """Return the txid to compute first, so that it is known where *txid* begins.

        Of txids in flight only the plan may be stored, and not yet where they end.
        """
        while txid > 1 and not (self.is_cut(txid) or self.is_cut(txid - 1)):
            txid -= 1
        return txid

    def is_cut(self, txid: int) -> bool:
        """Return whether it is stored where a txid ends."""
        return self.metadata(txid).is_cut(self._session.cutting)

    def metadata(self, txid: int) -> BatchMetadata:
        """Return the metadata of a txid, as the topology reads it; raises as :meth:`check`."""
        if not txid:
            return self._session.beginning
        return self._session.metadata_of(txid, self.check(txid).metadata)


def check_driven(session: OperatorSession) -> None:
    """Check that the batches of a topology are in ZooKeeper.

    Raises:
        StateUsageError: A streaming query drives it.
    """
    spout = session.graph.spout
    if spout.spout_kind.driven_by == "query":
        raise StateUsageError(
            f"topology {session.graph.id!r} is driven by a streaming query, so its batches are in "
            f"the checkpoint of Spark, not in ZooKeeper; got {spout.spout_kind.text} {spout.id!r}; "
            "expected a spout that the coordinator plans",
            component=spout.id,
        )
