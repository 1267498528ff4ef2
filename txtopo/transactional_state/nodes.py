"""Which nodes the transactional state of a topology has, and what they hold.

``/epoch``
    ``{"epoch": n, "leader": candidate, "topology": fingerprint, "ensemble": token}``: who may
    write, for which topology, and which ensemble this is: a random token, drawn once, which every
    ledger names as well. Its version is the fence: every other write is one step with a check of
    it, so a deposed coordinator writes nothing.
``/current``
    ``{"current": txid}``: the lowest txid that is not committed. Written together with the first
    epoch, so that its absence later is damage and never "nothing committed yet". While an
    operator's verb is under way also ``"operation": {"verb": …, "arguments": …}``: no coordinator
    begins before the verb has ended.
``/batches/<txid as 20 digits>``
    ``{"attempt": [epoch, attempt], "metadata": …}``: how to emit the batch of the txid again, and
    which attempt that belongs to. Once it was processed perhaps also ``"content": {part: …}``:
    what it brought, to compare replays with; a record without it is as good.
``/quarantine/<txid as 20 digits>``
    ``{"attempt": …, "metadata": …, "reason": text}``: the batch that an operator took out of the
    order; its place was taken by an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txtopo.attempt import TransactionAttempt
from txtopo.transactional_state.records import EPOCH_PATH, corrupt
from txtopo.transactional_state.store import Json, Node

EPOCH = EPOCH_PATH
CURRENT = "/current"
BATCHES = "/batches"
QUARANTINE = "/quarantine"

EPOCH_ROOM = 100
"""How far an epoch that replaces a lost one is above those that are known: coordinators that
claimed one in ZooKeeper and were stopped before they claimed a ledger have left no trace of it."""

REWRITES_MAX = 1_000
"""How many writes of one small node fit into one step."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """How to emit the batch of a txid again.

    Attributes:
        attempt: The attempt that the metadata belongs to.
        metadata: What the spout needs.
        content: What it brought, by part; None if that is not known.
    """

    attempt: TransactionAttempt
    metadata: Json
    content: dict[str, Json] | None = None


def batch_path(txid: int, parent: str = BATCHES) -> str:
    """Return the path of a batch; 20 digits, so that names sort as numbers do."""
    return f"{parent}/{txid:020d}"


def txid_of(path: str) -> int:
    """Return the txid of the path of a batch.

    Raises:
        CorruptNodeError: The name is none of ours.
    """
    name = path.rpartition("/")[2]
    if len(name) != 20 or not name.isascii() or not name.isdigit():
        raise corrupt(path, name)
    return int(name)


def epoch_of(node: Node) -> int:
    """Return the epoch that ``/epoch`` holds.

    Raises:
        CorruptNodeError: It holds something else.
    """
    epoch = node.value.get("epoch") if isinstance(node.value, dict) else None
    if not is_count(epoch):
        raise corrupt(EPOCH, node.value)
    return epoch  # type: ignore[return-value]


def ensemble_of(node: Node | None) -> str:
    """Return the token that ``/epoch`` holds; empty if there is none.

    Raises:
        CorruptNodeError: It holds something else.
    """
    token = node.value.get("ensemble", "") if node and isinstance(node.value, dict) else ""
    if not isinstance(token, str):
        raise corrupt(EPOCH, node and node.value)
    return token


def current_of(node: Node | None) -> int:
    """Return the txid that ``/current`` holds.

    Raises:
        CorruptNodeError: It is missing, or holds something else.
    """
    current = node.value.get("current") if node and isinstance(node.value, dict) else None
    if not is_count(current):
        raise corrupt(CURRENT, node and node.value)
    return current  # type: ignore[return-value]


def operation_of(node: Node | None) -> dict[str, Json] | None:
    """Return the verb that ``/current`` says is under way.

    Raises:
        CorruptNodeError: It says something that cannot be read.
    """
    operation = node.value.get("operation") if node and isinstance(node.value, dict) else None
    if operation is not None and not isinstance(operation, dict):
        raise corrupt(CURRENT, operation)
    return operation


def batch_of(path: str, txid: int, node: Node | None) -> StoredBatch:
    """Return the batch that a node holds.

    Raises:
        CorruptNodeError: It is missing, or holds something else.
    """
    match node.value if node else None:
        case {"attempt": [int(epoch), int(attempt)], "metadata": metadata, **rest}:
            content = rest.get("content")
            if content is None or isinstance(content, dict):
                return StoredBatch(TransactionAttempt(txid, attempt, epoch), metadata, content)
    raise corrupt(path, node and node.value)


def changed_parts(known: Mapping[str, Json], now: Mapping[str, Json]) -> list[str]:
    """Return in words how one fingerprint differs from another."""
    gone = [f"{name} is gone" for name in known if name not in now]
    new = [f"{name} is new" for name in now if name not in known]
    other = [
        f"{name} was {known[name]} and is {now[name]}"
        for name in known
        if name in now and known[name] != now[name]
    ]
    return [*gone, *new, *other]


def is_count(value: object) -> bool:
    """Whether a value is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
