"""Journal: what one coordinator reads and writes in the transactional state.

:mod:`txtopo.transactional_state.nodes` says which nodes there are and what they hold.

Order of durability: the metadata of a txid is stored before its commit begins. ``current`` advances
after the last committer has written. Older metadata is deleted in the same write as ``current``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from txtopo.errors import BatchMetadataTooLarge, FencedError, OperationUnfinished, TopologyChanged
from txtopo.transactional_state.nodes import (
    BATCHES,
    CURRENT,
    EPOCH,
    REWRITES_MAX,
    STEP_BYTES_MAX,
    STEP_OVERHEAD_BYTES,
    StoredBatch,
    batch_of,
    batch_path,
    began_with,
    changed_parts,
    corrupt,
    current_of,
    encode,
    ensemble_of,
    epoch_of,
    only_spout_of,
    operation_of,
    packet_bytes,
    txid_of,
)
from txtopo.transactional_state.store import (
    Check,
    CompareAndSet,
    Delete,
    Json,
    Put,
    Step,
    TransactionalState,
    VersionConflict,
)


class Journal:
    """Reads and writes the nodes of one coordinator, with a check of its epoch in every write.

    Call :meth:`claim_epoch` first, then :meth:`load`. After ``CoordinatorUnavailable`` the same
    call may be repeated. Each term of leadership has its own journal, so that a late write of an
    earlier term still carries the epoch of that term and is refused.

    Args:
        state: The transactional state.
        history_txids: How many txids before the last committed group keep their metadata.

    Attributes:
        ensemble: Token of the ensemble that the claimed epoch comes from.
        began_with: The spout that metadata without ids is of, if the topology has had one spout.
    """

    def __init__(self, state: TransactionalState, history_txids: int = 0) -> None:
        self._state = state
        self._history_txids = history_txids
        self._claim: _Claim | None = None
        self.ensemble = ""
        self.began_with: str | None = None
        self._current = 1
        self._stored: set[int] = set()

    def claim_epoch(
        self,
        candidate: Json,
        *,
        token: str,
        fingerprint: dict[str, Json] | None = None,
        allow_change: bool = False,
        above: int = 0,
    ) -> int:
        """Become the coordinator that may write, and return its epoch.

        Args:
            candidate: The process that claims; a coordinator that it deposes names it.
            token: A random text. It becomes the token of the ensemble if that has none yet.
            fingerprint: Fingerprint of the topology, stored with the epoch; None keeps the stored
                one.
            allow_change: Whether to accept a fingerprint that differs from the stored one.
            above: An epoch that a ledger holds; the new epoch is larger.

        Raises:
            FencedError: Another coordinator claimed at the same time; contend again.
            CorruptNodeError: The epoch cannot be read. It never starts from 1 again.
            TopologyChanged: The fingerprint differs from the stored one; nothing was written.
        """
        self._state.synchronize()
        begun = self._state.get(CURRENT) is not None  # before /epoch: both are written at once
        node = self._state.get(EPOCH)
        if node is None and begun:
            raise corrupt(EPOCH, None)
        epoch = max(1 if node is None else epoch_of(node) + 1, above + 1)
        ensemble = ensemble_of(node) or token
        value: dict[str, Json] = {"epoch": epoch, "leader": candidate, "ensemble": ensemble}
        known = node.value.get("topology") if node and isinstance(node.value, dict) else None
        if fingerprint is not None and not allow_change:
            _check_unchanged(known, fingerprint)
        self.began_with = began_with(node)
        value |= _topology(known if fingerprint is None else fingerprint, self.began_with)
        claim: list[Step] = [CompareAndSet(EPOCH, value, node.version if node else None)]
        # A coordinator of a lost node may still hold its version; a new node must be past it.
        rewrites = min(above, REWRITES_MAX) if node is None else 0
        claim.extend([Put(EPOCH, value)] * rewrites)
        if node is None:
            claim.append(CompareAndSet(CURRENT, {"current": 1}, None))
        try:
            self._state.apply(claim)
        except VersionConflict as conflict:
            raise self._fenced(epoch) from conflict
        self.ensemble = ensemble
        self._claim = _Claim(epoch, Check(EPOCH, node.version + 1 if node else rewrites))
        return epoch

    @property
    def epoch(self) -> int:
        """The claimed epoch."""
        return self._claimed().epoch

    def confirm(self) -> None:
        """Check that nobody else has claimed an epoch until now.

        Raises:
            FencedError: Another coordinator has taken over.
        """
        claim = self._claim
        self._state.synchronize()
        node = self._state.get(EPOCH)
        if claim is not None and (node is None or node.version != claim.fence.version):
            raise self._fenced(claim.epoch)

    def holder(self) -> Json:
        """Return ``{"epoch": …, "leader": candidate}`` of the last claim; None if there is none."""
        node = self._state.get(EPOCH)
        if node is None or not isinstance(node.value, dict):
            return None if node is None else node.value
        return {name: node.value.get(name) for name in ("epoch", "leader")}

    def load(self) -> JournalContents:
        """Read what earlier coordinators stored.

        Raises:
            CorruptNodeError: A node is missing or cannot be read.
            OperationUnfinished: An operator's verb was begun and has not ended.
        """
        contents = self.read()
        if contents.operation is not None:
            raise unfinished(contents.operation)
        return contents

    def read(self) -> JournalContents:
        """Read what is stored, even if an operator's verb has not ended.

        Raises:
            CorruptNodeError: A node is missing or cannot be read.
        """
        node = self._state.get(CURRENT)
        current = current_of(node)
        batches = {}
        for name in self._state.children(BATCHES):
            path = f"{BATCHES}/{name}"
            txid = txid_of(path)
            batches[txid] = batch_of(path, txid, self._state.get(path))
        self._current, self._stored = current, set(batches)
        return JournalContents(current, batches, operation_of(node))

    def write(self, steps: Sequence[Step]) -> None:
        """Apply all steps of an operator's verb, or none.

        Raises:
            FencedError: A coordinator has taken over; nothing was written.
        """
        self._apply(self._claimed(), steps)

    def store_batches(self, batches: Sequence[StoredBatch]) -> None:
        """Make the metadata of batches durable, in order. It takes one write unless they are large.

        Raises:
            FencedError: Another coordinator has taken over; nothing more was written.
            BatchMetadataTooLarge: The metadata of a single batch does not fit into one write.
        """
        claim, stored = self._claimed(), self._stored
        steps = [put_batch(batch) for batch in batches]
        try:
            self._apply(claim, steps)
        except BatchMetadataTooLarge:
            if len(steps) == 1:
                raise
            for group in _groups(steps):
                self._apply(claim, group)
        stored.update(batch.attempt.txid for batch in batches)

    def advance(self, current: int, drop_before: int) -> None:
        """Store that all txids below *current* are committed, and delete old metadata.

        Args:
            current: The lowest txid that is not committed.
            drop_before: Metadata of earlier txids is deleted, except for ``history_txids`` of them
                before the group that is committed now.

        Raises:
            FencedError: Another coordinator has taken over; nothing was written.
        """
        claim, stored = self._claimed(), self._stored
        # No state ever held what is within the group, so nobody goes back to there.
        group = range(self._current, drop_before)
        kept_from = self._current - self._history_txids
        old = sorted(t for t in stored if t in group or t < kept_from)
        drops = [Delete(batch_path(txid)) for txid in old]
        self._apply(claim, [Put(CURRENT, {"current": current}), *drops])
        stored.difference_update(old)
        self._current = current

    def _claimed(self) -> _Claim:
        assert self._claim is not None, "claim_epoch comes before every write"
        return self._claim

    def _apply(self, claim: _Claim, steps: Sequence[Step]) -> None:
        try:
            self._state.apply([claim.fence, *steps])
        except VersionConflict as conflict:
            raise self._fenced(claim.epoch) from conflict

    def _fenced(self, epoch: int) -> FencedError:
        node = self._state.get(EPOCH)
        if node is None:
            return FencedError(
                f"epoch {epoch} of this coordinator was deposed; its node {EPOCH} was deleted; "
                "stop this coordinator and find out who deleted it",
                epoch=epoch,
                successor=None,
                leader=None,
            )
        successor = epoch_of(node)
        leader = node.value.get("leader") if isinstance(node.value, dict) else None
        return FencedError(
            f"epoch {epoch} of this coordinator was deposed; epoch {successor} of {leader} leads "
            "now; stop this coordinator",
            epoch=epoch,
            successor=successor,
            leader=leader,
        )


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What is stored for a coordinator that starts.

    Attributes:
        current: The lowest txid that is not committed.
        batches: The stored batches, by txid.
        operation: The operator's verb that was begun and has not ended, or None.
    """

    current: int
    batches: dict[int, StoredBatch]
    operation: dict[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claimed epoch, with the check of ``/epoch`` that goes with each of its writes."""

    epoch: int
    fence: Check


def put_batch(batch: StoredBatch) -> Put:
    """Return the step that stores a batch."""
    attempt = batch.attempt
    value: dict[str, Json] = {
        "attempt": [attempt.epoch, attempt.attempt],
        "metadata": batch.metadata,
    }
    if batch.content is not None:
        value["content"] = batch.content
    return Put(batch_path(attempt.txid), value)


def unfinished(operation: dict[str, Json]) -> OperationUnfinished:
    """Return the error for an operator's verb that has not ended."""
    verb, arguments = operation.get("verb"), operation.get("arguments")
    return OperationUnfinished(
        f"an operator began {verb} with {arguments!r:.300} and it did not end, so the stores may "
        f"hold a part of it; expected nothing to be under way; call txtopo.operations.{verb} with "
        "the same arguments again: it goes on where it stopped",
        verb=verb,
        arguments=arguments,
    )


def _topology(kept: Json, spout: str | None) -> dict[str, Json]:
    """Return what ``/epoch`` says of the topology: nothing of its spout if it has one."""
    value: dict[str, Json] = {} if kept is None else {"topology": kept}
    if spout is not None and only_spout_of(kept) is None:
        value["spout"] = spout
    return value


def _check_unchanged(known: Json, fingerprint: dict[str, Json]) -> None:
    if not isinstance(known, dict) or known == fingerprint:
        return
    changes = changed_parts(known, fingerprint)
    raise TopologyChanged(
        f"the topology is not the one that ran under this id; {'; '.join(changes)}; expected the "
        "same components, streams and states, since what is planned and stored belongs to them; "
        "start the old one, or give this one another id; if the change is meant, and you know that "
        "what is stored fits it, start once with Config(allow_change=True)",
        changes=tuple(changes),
    )


def _groups(puts: Sequence[Put]) -> Iterator[list[Step]]:
    """Split writes that do not fit into one packet; a crash in between leaves a prefix."""
    room = STEP_BYTES_MAX - 2 * STEP_OVERHEAD_BYTES
    group: list[Step] = []
    group_bytes = 0
    for put in puts:
        # The id of the write is not known yet. It takes less than the overhead that is added.
        put_bytes = packet_bytes(put.path, encode(put.path, put.value, "")) + STEP_OVERHEAD_BYTES
        if group and group_bytes + put_bytes > room:
            yield group
            group, group_bytes = [], 0
        group.append(put)
        group_bytes += put_bytes
    if group:
        yield group
