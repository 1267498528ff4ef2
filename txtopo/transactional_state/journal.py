"""Journal: what the coordinator stores, as steps on the transactional state.

Layout
------
``/epoch``
    ``{"epoch": n, "leader": candidate}``: who may write. Its version is the fence: every other
    write is one step with a check of it, so a deposed coordinator writes nothing.
``/current``
    ``{"current": txid}``: the lowest txid that is not committed. Written together with the first
    epoch, so that its absence later is damage and never "nothing committed yet".
``/batches/<txid as 20 digits>``
    ``{"attempt": [epoch, attempt], "metadata": …}``: how to emit the batch of the txid again, and
    which attempt that belongs to.

Order of durability: the metadata of a txid before its commit begins; ``current`` after its last
committer has written; older metadata goes in the same step as ``current``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from txtopo.attempt import TransactionAttempt
from txtopo.errors import FencedError
from txtopo.transactional_state.records import (
    STEP_BYTES_MAX,
    STEP_OVERHEAD_BYTES,
    corrupt,
    encode,
    packet_bytes,
)
from txtopo.transactional_state.store import (
    Check,
    CompareAndSet,
    Delete,
    Json,
    Node,
    Put,
    Step,
    TransactionalState,
    VersionConflict,
)

EPOCH = "/epoch"
CURRENT = "/current"
BATCHES = "/batches"


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """How to emit the batch of a txid again.

    Attributes:
        attempt: The attempt that the metadata belongs to.
        metadata: What the spout needs.
    """

    attempt: TransactionAttempt
    metadata: Json


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What a coordinator finds when it starts.

    Attributes:
        current: The lowest txid that is not committed.
        batches: What is stored, by txid.
    """

    current: int
    batches: dict[int, StoredBatch]


@dataclass(frozen=True, slots=True)
class _Claim:
    """An epoch, and the check of its node that goes with each of its writes."""

    epoch: int
    fence: Check


class Journal:
    """What one coordinator reads and writes in the transactional state.

    Call :meth:`claim_epoch` first, then :meth:`load`. After ``CoordinatorUnavailable`` the same
    call may be made again. Each term of leadership has a journal of its own: a write of an earlier
    term that comes late then finds the epoch that it belongs to, and is refused.
    """

    def __init__(self, state: TransactionalState) -> None:
        self._state = state
        self._claim: _Claim | None = None
        self._stored: set[int] = set()

    def claim_epoch(self, candidate: Json) -> int:
        """Become the coordinator that may write, and return its epoch.

        Args:
            candidate: Who claims, shown to whoever is deposed by it.

        Raises:
            FencedError: Another coordinator claimed at the same time; contend again.
            CorruptNodeError: The epoch cannot be read; it is never started anew.
        """
        self._state.synchronize()
        # In this order: both are written at once, perhaps by somebody else in between.
        begun = self._state.get(CURRENT) is not None
        node = self._state.get(EPOCH)
        if node is None and begun:
            raise corrupt(EPOCH, None)
        epoch = 1 if node is None else _epoch_of(node) + 1
        claim: list[Step] = [
            CompareAndSet(
                EPOCH, {"epoch": epoch, "leader": candidate}, node.version if node else None
            )
        ]
        if node is None:
            claim.append(CompareAndSet(CURRENT, {"current": 1}, None))
        try:
            self._state.apply(claim)
        except VersionConflict as conflict:
            raise self._fenced(epoch) from conflict
        self._claim = _Claim(epoch, Check(EPOCH, node.version + 1 if node else 0))
        return epoch

    def confirm(self) -> None:
        """Check that nobody else has claimed since; says nothing about a moment later.

        Raises:
            FencedError: Another coordinator has taken over.
        """
        claim = self._claim
        self._state.synchronize()
        node = self._state.get(EPOCH)
        if claim is not None and (node is None or node.version != claim.fence.version):
            raise self._fenced(claim.epoch)

    def holder(self) -> Json:
        """Return who claimed last, as ``{"epoch": …, "leader": candidate}``; None if nobody has."""
        node = self._state.get(EPOCH)
        return None if node is None else node.value

    def load(self) -> JournalContents:
        """Read what earlier coordinators stored.

        Raises:
            CorruptNodeError: A node is missing or cannot be read.
        """
        current = _current_of(self._state.get(CURRENT))
        batches = {}
        for name in self._state.children(BATCHES):
            path = f"{BATCHES}/{name}"
            if len(name) != 20 or not name.isascii() or not name.isdigit():
                raise corrupt(path, name)
            batches[int(name)] = _batch_of(path, int(name), self._state.get(path))
        self._stored = set(batches)
        return JournalContents(current, batches)

    def store_batches(self, batches: Sequence[StoredBatch]) -> None:
        """Make the metadata of batches durable, in order; one write unless they are large.

        Raises:
            FencedError: Another coordinator has taken over; nothing more was written.
            BatchMetadataTooLarge: One batch alone does not fit.
        """
        claim, stored = self._claimed(), self._stored
        for group in _groups([_put(batch) for batch in batches]):
            self._apply(claim, group)
        stored.update(batch.attempt.txid for batch in batches)

    def advance(self, current: int, drop_before: int) -> None:
        """Say that all txids below *current* are committed, and forget those before *drop_before*.

        Raises:
            FencedError: Another coordinator has taken over; nothing was written.
        """
        claim, stored = self._claimed(), self._stored
        old = sorted(txid for txid in stored if txid < drop_before)
        drops = [Delete(batch_path(txid)) for txid in old]
        self._apply(claim, [Put(CURRENT, {"current": current}), *drops])
        stored.difference_update(old)

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
        successor = _epoch_of(node)
        leader = node.value.get("leader") if isinstance(node.value, dict) else None
        return FencedError(
            f"epoch {epoch} of this coordinator was deposed; epoch {successor} of {leader} leads "
            "now; stop this coordinator",
            epoch=epoch,
            successor=successor,
            leader=leader,
        )


def batch_path(txid: int) -> str:
    """Return the path of a batch; 20 digits, so that names sort as numbers do."""
    return f"{BATCHES}/{txid:020d}"


def _put(batch: StoredBatch) -> Put:
    attempt = batch.attempt
    return Put(
        batch_path(attempt.txid),
        {"attempt": [attempt.epoch, attempt.attempt], "metadata": batch.metadata},
    )


def _groups(puts: Sequence[Put]) -> Iterator[list[Step]]:
    """Cut a run whose metadata does not fit into one packet; a crash in between leaves a prefix."""
    room = STEP_BYTES_MAX - 2 * STEP_OVERHEAD_BYTES
    group: list[Step] = []
    group_bytes = 0
    for put in puts:
        # The id of the write is not known here; it takes less than the overhead allowed for.
        put_bytes = packet_bytes(put.path, encode(put.path, put.value, "")) + STEP_OVERHEAD_BYTES
        if group and group_bytes + put_bytes > room:
            yield group
            group, group_bytes = [], 0
        group.append(put)
        group_bytes += put_bytes
    if group:
        yield group


def _epoch_of(node: Node) -> int:
    epoch = node.value.get("epoch") if isinstance(node.value, dict) else None
    if not _is_count(epoch):
        raise corrupt(EPOCH, node.value)
    return epoch  # type: ignore[return-value]


def _current_of(node: Node | None) -> int:
    current = node.value.get("current") if node and isinstance(node.value, dict) else None
    if not _is_count(current):
        raise corrupt(CURRENT, node and node.value)
    return current  # type: ignore[return-value]


def _batch_of(path: str, txid: int, node: Node | None) -> StoredBatch:
    match node.value if node else None:
        case {"attempt": [int(epoch), int(attempt)], "metadata": metadata}:
            return StoredBatch(TransactionAttempt(txid, attempt, epoch), metadata)
        case other:
            raise corrupt(path, other)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
