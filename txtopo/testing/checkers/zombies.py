"""C5: a deposed coordinator changes nothing, neither in a store nor in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.testing.checkers.evidence import Evidence, Violation, epoch_of
from txtopo.testing.simulation.history import StoreWrite


class Zombies:
    """Compares the epoch of each writer with the one that may write."""

    name = "C5"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield every write of a deposed coordinator."""
        epochs: dict[str, int] = {}
        for write in evidence.history.writes:
            if isinstance(write, StoreWrite):
                before, after = write.before.ledger, write.after.ledger
                wrote = after is not None and (before is None or before.writer != after.writer)
                if wrote and after is not None and after.txid and after.writer_epoch != after.epoch:
                    yield Violation(
                        self.name,
                        f"{write.writer} wrote attempt {after.writer} to table {write.table}, "
                        f"which epoch {after.epoch} has claimed",
                    )
                continue
            before_epoch = epoch_of(evidence.topology_id, write.before)
            after_epoch = epoch_of(evidence.topology_id, write.after)
            if after_epoch != before_epoch:
                epochs[write.writer] = after_epoch
            if epochs.get(write.writer, 0) != after_epoch:
                yield Violation(
                    self.name,
                    f"{write.writer} of epoch {epochs.get(write.writer, 0)} wrote to ZooKeeper in "
                    f"epoch {after_epoch}",
                )
