"""A run: consecutive attempts that one job processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.metadata import BatchMetadata

if TYPE_CHECKING:
    from txtopo.stages.program import Chain


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive attempts that one job processes, each apart from the others.

    Attributes:
        tag: The job's tag: ``txtopo:<topology>:<epoch>:<first txid>-<last txid>:<job number>``.
        attempts: The attempts, in txid order, without gaps.
        metadata: Their metadata. One with a cut is emitted again as it was (transactional spout).
        previous: Metadata of the txid before the first one, whose cut it starts from.
    """

    tag: str
    attempts: tuple[TransactionAttempt, ...]
    metadata: tuple[BatchMetadata, ...]
    previous: BatchMetadata | None

    def only(self, attempt: TransactionAttempt) -> Run:
        """Return the run of this attempt alone: what its commit phase works on."""
        at = self.attempts.index(attempt)
        return Run(self.tag, (attempt,), (self.metadata[at],), None)

    def tag_of(self, chain: Chain) -> str:
        """Return the tag of the jobs of a chain, which the stamps of its levels name.

        The commit phases of a run's attempts are told apart by it: what one of them sent must not
        stand for what another one lost.
        """
        return self.tag if chain == "processing" else self.commit_tag(self.attempts[0])

    def commit_tag(self, attempt: TransactionAttempt) -> str:
        """Return the tag of the jobs that commit one attempt; its siblings must outlive them."""
        return f"{self.tag}:commit-{attempt.txid}"
