"""Journal: what one coordinator reads and writes in the transactional state.

:mod:`txtopo.ensemble.nodes` lists the nodes and their contents.

Order of durability
-------------------
:mod:`txtopo.coordinator.machine` decides what is written when. The rules here are:

1. Every write checks the epoch. So a deposed coordinator writes nothing.
2. The first claim writes ``/epoch`` and ``/current`` at once. So one without the other is damage.
3. Older metadata is deleted in the same write in which ``current`` advances.
4. A start that changes the topology stores its epoch, its fingerprint, and in ``/current`` the
   states that it adds, in one write, before it claims a ledger. So there are two cases after a
   crash: nothing of the change is stored, and the old topology continues; or all of it is, and the
   next leader with the new topology continues the change, allowed or not. A coordinator of the old
   topology is deposed by the epoch, and refused by the fingerprint if it starts later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from txtopo.attempt import TransactionAttempt
from txtopo.ensemble.nodes import (
    BATCHES,
    CURRENT,
    EPOCH,
    REWRITES_MAX,
    STEP_BYTES_MAX,
    STEP_OVERHEAD_BYTES,
    StoredBatch,
    added_of,
    attempt_to_json,
    batch_of,
    batch_path,
    claimed_terms,
    corrupt,
    current_of,
    encode,
    ensemble_of,
    epoch_of,
    fingerprint_of,
    operation_of,
    packet_bytes,
    terms_of,
    txid_of,
)
from txtopo.ensemble.store import (
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
from txtopo.errors import BatchMetadataTooLarge, FencedError, OperationUnfinished, escaped
from txtopo.fingerprint import (
    Fingerprint,
    StateName,
    another_topology,
    differences,
)

DELETES_MAX = 1_000
"""How many old batches one advance deletes; later ones delete the rest. A start with a shorter
history would otherwise delete more than one request holds."""


class Journal:
    """Reads and writes the nodes of one coordinator, with a check of its epoch in every write.

    Call :meth:`claim_epoch` first, then :meth:`load`. After ``CoordinatorUnavailable`` the same
    call may be repeated. Each term of leadership has its own journal, so that a late write of an
    earlier term still carries the epoch of that term and is refused.

    Args:
        state: The transactional state.
        history_txids: How many txids before the group that was committed last keep their metadata.

    Attributes:
        ensemble: Token of the ensemble that the claimed epoch comes from.
        is_known: Whether the stored fingerprint is that of the topology that has claimed.
        current: ``current``, as it was last read or advanced to; known once the journal is loaded,
            or if states were added.
        added: The states that were added at ``current``, see
            :mod:`~txtopo.ensemble.nodes`.
    """

    def __init__(self, state: TransactionalState, history_txids: int = 0) -> None:
        self._state = state
        self._history_txids = history_txids
        self._claim: _Claim | None = None
        self.ensemble = ""
        self.is_known = False
        self.added: tuple[StateName, ...] = ()
        self.current = 1
        self._stored: set[int] = set()

    def claim_epoch(
        self,
        candidate: Json,
        *,
        token: str,
        fingerprint: Fingerprint | None = None,
        change: Callable[[Fingerprint], Sequence[StateName]] | None = None,
        above: int = 0,
        check: Callable[[str, Mapping[int, str]], None] | None = None,
        operation: Mapping[str, Json] | None = None,
    ) -> int:
        """Become the coordinator that may write, and return its epoch.

        Args:
            candidate: The process that claims; a coordinator that it deposes names it.
            token: A random text, the term id. It becomes the token of the ensemble if that has
                none yet.
            fingerprint: Fingerprint of the topology, stored with the epoch; None keeps the stored
                one.
            change: Called with the stored fingerprint if it differs; returns the states that begin
                now, or raises ``TopologyChanged``. None allows no change.
            above: An epoch that a ledger holds; the new epoch is larger.
            check: Called with the stored token of the ensemble, and the stored term ids by epoch.
                If it raises, nothing is written.
            operation: The verb of an operator that makes the topology, named in ``/current`` from
                its first write on; not written if the topology has nodes.

        Raises:
            FencedError: Another coordinator claimed at the same time; contend again.
            CorruptNodeError: The epoch cannot be read. It never starts from 1 again.
            TopologyChanged: The fingerprint differs from the stored one; nothing was written.
            OperationUnfinished: States would be added while an operator's verb has not ended;
                nothing was written.
        """
        claim = _Claiming(candidate, token, fingerprint, change, above, check, operation)
        while (epoch := self._claimed_epoch(claim)) is None:
            pass  # Our predecessor has advanced meanwhile, so the states begin one txid later.
        return epoch

    def _claimed_epoch(self, claiming: _Claiming) -> int | None:
        fingerprint, above = claiming.fingerprint, claiming.above
        self._state.synchronize()
        current = self._state.get(CURRENT)  # before /epoch: both are written at once
        node = self._state.get(EPOCH)
        if node is None and current is not None:
            raise corrupt(EPOCH, None)
        if claiming.check is not None:
            claiming.check(ensemble_of(node), terms_of(node))
        epoch = max(1 if node is None else epoch_of(node) + 1, above + 1)
        ensemble = ensemble_of(node) or claiming.token
        value: dict[str, Json] = {"epoch": epoch, **claimed_terms(node, claiming.token)}
        value |= {"leader": claiming.candidate, "ensemble": ensemble}
        known = fingerprint_of(node)
        self.is_known = known is not None and fingerprint is not None
        noted: list[Step] = []
        if known is not None and fingerprint is not None and known != fingerprint:
            if claiming.change is None:
                raise another_topology(differences(known, fingerprint))
            noted = _noted(current, fingerprint, claiming.change(known))
        if (topology := known if fingerprint is None else fingerprint) is not None:
            value["topology"] = topology.to_json()
        claim: list[Step] = [CompareAndSet(EPOCH, value, node.version if node else None)]
        # A coordinator may still hold the version of a lost node; a new node's must be higher.
        rewrites = min(above, REWRITES_MAX) if node is None else 0
        claim.extend(rewritten(value, rewrites))
        if node is None:
            begun: dict[str, Json] = {"current": 1}
            if claiming.operation is not None:
                begun["operation"] = {**claiming.operation}
            claim.append(CompareAndSet(CURRENT, begun, None))
        try:
            self._state.apply([*claim, *noted])
        except VersionConflict as conflict:
            if noted and self._state.get(EPOCH) == node:
                return None
            raise self._fenced(epoch) from conflict
        self.ensemble = ensemble
        self._claim = _Claim(
            epoch, claiming.token, Check(EPOCH, node.version + 1 if node else rewrites)
        )
        if noted or added_of(current):
            self._look_at_current()
        return epoch

    def check_unchanged(self, fingerprint: Fingerprint) -> None:
        """Check that a topology is the one that ran, if any ran.

        Raises:
            TopologyChanged: It is another topology.
        """
        known = fingerprint_of(self._state.get(EPOCH))
        if known is not None and known != fingerprint:
            raise another_topology(differences(known, fingerprint))

    @property
    def epoch(self) -> int:
        """The claimed epoch."""
        return self._claimed().epoch

    @property
    def term(self) -> str:
        """The term id of the claimed epoch."""
        return self._claimed().term

    @property
    def session_s(self) -> float | None:
        """How long nobody else is elected after the last answer; None if unknown."""
        return self._state.session_s

    def confirm(self) -> None:
        """Check that nobody else has claimed an epoch so far. It may run during a write.

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

    def planned(self, last: int) -> tuple[int, dict[int, TransactionAttempt]]:
        """Read ``current``, and the attempts of the metadata from there to txid *last*.

        Before the claim, a predecessor may change both meanwhile.

        Raises:
            CorruptNodeError: A node cannot be read.
        """
        self._state.synchronize()
        node = self._state.get(CURRENT)
        if node is None:
            return 1, {}
        current, found = current_of(node), {}
        for txid in range(current, last + 1):
            path = batch_path(txid)
            if (stored := self._state.get(path)) is not None:
                found[txid] = batch_of(path, txid, stored).attempt
        return current, found

    def load(self) -> JournalContents:
        """Read what a coordinator needs: the metadata from ``current`` - 1 on, without history.

        Raises:
            CorruptNodeError: A node is missing or cannot be read.
            OperationUnfinished: An operator's verb was begun and has not ended.
        """
        contents = self._read(history=False)
        if contents.operation is not None:
            raise unfinished(contents.operation)
        return contents

    def read(self) -> JournalContents:
        """Read all that is stored, even if an operator's verb is unfinished.

        Raises:
            CorruptNodeError: A node is missing or cannot be read.
        """
        return self._read(history=True)

    def _read(self, *, history: bool) -> JournalContents:
        node = self._state.get(CURRENT)
        current = current_of(node)
        paths = {txid_of(path): path for path in self._paths()}
        batches = {
            txid: batch_of(path, txid, self._state.get(path))
            for txid, path in paths.items()
            if history or txid >= current - 1
        }
        self.current, self._stored = current, set(paths)
        return JournalContents(current, batches, operation_of(node))

    def _paths(self) -> list[str]:
        return [f"{BATCHES}/{name}" for name in self._state.children(BATCHES)]

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

    def advance(self, current: int) -> None:
        """Store that all txids below *current* are committed, and delete old metadata.

        That of the group which is now committed stays, and of ``history_txids`` before it.

        Args:
            current: The lowest txid that is not committed.

        Raises:
            FencedError: Another coordinator has taken over; nothing was written.
        """
        claim, stored = self._claimed(), self._stored
        kept_from = self.current - self._history_txids
        old = sorted(txid for txid in stored if txid < kept_from)[:DELETES_MAX]
        drops = [Delete(batch_path(txid)) for txid in old]
        self._apply(claim, [Put(CURRENT, {"current": current}), *drops])
        stored.difference_update(old)
        self.current = current

    def _look_at_current(self) -> None:
        """Read the note again, once nobody else can advance."""
        node = self._state.get(CURRENT)
        self.current, self.added = current_of(node), added_of(node)

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
                f"this process is no longer the leader (epoch {epoch}): its node {EPOCH} was "
                "deleted; stop it and find out what deleted the node",
                epoch=epoch,
                successor=None,
                leader=None,
            )
        successor = epoch_of(node)
        leader = node.value.get("leader") if isinstance(node.value, dict) else None
        return FencedError(
            f"this process is no longer the leader (epoch {epoch}): {process_text(leader)} took "
            f"over (epoch {successor}); start this one again to make it the standby",
            epoch=epoch,
            successor=successor,
            leader=leader,
        )


def process_text(leader: Json) -> str:
    """Return which process a leader is, as its record in the election says."""
    match leader:
        case {"host": host, "pid": pid}:
            return escaped(f"process {pid} on {host}")
    return "another process"


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What is stored of a topology.

    Attributes:
        current: The lowest txid that is not committed.
        batches: The stored batches, by txid; for a coordinator that starts those from *current* - 1
            on.
        operation: The unfinished verb of an operator, or None.
    """

    current: int
    batches: dict[int, StoredBatch]
    operation: dict[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claimed epoch, with the check of ``/epoch`` that goes with each of its writes."""

    epoch: int
    term: str
    fence: Check


@dataclass(frozen=True, slots=True)
class _Claiming:
    """The arguments of a claim, see ``Journal.claim_epoch``."""

    candidate: Json
    token: str
    fingerprint: Fingerprint | None
    change: Callable[[Fingerprint], Sequence[StateName]] | None
    above: int
    check: Callable[[str, Mapping[int, str]], None] | None
    operation: Mapping[str, Json] | None


def rewritten(value: dict[str, Json], times: int) -> list[Step]:
    """Return steps that write ``/epoch`` this many times in one request, ending with *value*.

    Only the last one has the whole value, so that the request stays small.
    """
    short = {"epoch": value["epoch"]}
    return [*([Put(EPOCH, short)] * (times - 1)), *([Put(EPOCH, value)] * bool(times))]


def put_batch(batch: StoredBatch) -> Put:
    """Return the step that stores a batch."""
    attempt = batch.attempt
    value: dict[str, Json] = {
        "attempt": attempt_to_json(attempt),
        "metadata": batch.metadata,
    }
    if batch.content is not None:
        value["content"] = {**batch.content}
    if batch.verb is not None:
        value["verb"] = batch.verb
    return Put(batch_path(attempt.txid), value)


def unfinished(operation: dict[str, Json]) -> OperationUnfinished:
    """Return the error for an operator's verb that is unfinished."""
    verb, arguments = operation.get("verb"), operation.get("arguments")
    return OperationUnfinished(
        f"an operator began {verb} with {arguments!r:.300} and it did not finish, so the stores "
        f"may hold part of it; expected no unfinished operation; call txtopo.operations.{verb} "
        "with the same arguments again: it resumes where it stopped",
        verb=verb,
        arguments=arguments,
    )


def _noted(node: Node | None, fingerprint: Fingerprint, added: Sequence[StateName]) -> list[Step]:
    """Return the step that notes in ``/current`` which states are new; none if nothing changes.

    A state that is still noted from before has not received a txid since.
    """
    current, before = current_of(node), added_of(node)
    assert node is not None
    assert isinstance(node.value, dict)
    now = tuple(dict.fromkeys([*(each for each in before if each in fingerprint.states), *added]))
    if current == 1 or now == before:
        return []
    if (operation := operation_of(node)) is not None:
        raise unfinished(operation)
    value: dict[str, Json] = {"current": current}
    if now:
        value["added"] = [list(each) for each in now]
    return [CompareAndSet(CURRENT, value, node.version)]


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
