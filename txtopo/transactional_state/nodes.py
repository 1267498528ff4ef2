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

How a value becomes the bytes of a node: JSON with a schema version and the id of its write.

The id of the write is what tells, after a connection was lost in the middle of a step, whether the
step landed: a node that carries the id was written by that very step.

Topology ids and chroots as paths of nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txtopo.attempt import TransactionAttempt
from txtopo.errors import (
    BatchMetadataTooLarge,
    ConfigError,
    CorruptNodeError,
    EmitError,
    SchemaVersionError,
)
from txtopo.metadata import BatchMetadata, json_flaw, shown
from txtopo.transactional_state.store import CompareAndSet, Json, Node, Put, Step

EPOCH_PATH = "/epoch"

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


def metadata_to_json(metadata: BatchMetadata) -> Json:
    """Return the value under ``"metadata"`` in the node of a batch."""
    return {"planned": metadata.planned, "cut": metadata.cut}


def metadata_from_json(txid: int, value: Json) -> BatchMetadata:
    """Return the metadata that :func:`metadata_to_json` turned into *value*.

    Raises:
        CorruptNodeError: The value has another form. It is never taken as empty.
    """
    if isinstance(value, Mapping) and set(value) == {"planned", "cut"}:
        cut = value["cut"]
        if cut is None or isinstance(cut, dict):
            return BatchMetadata(value["planned"], cut)
    raise CorruptNodeError(
        f"the stored metadata of txid {txid} cannot be read; got {value!r:.200}; expected an "
        "object with 'planned' and 'cut'; put it back with txtopo.operations.repair_node",
        txid=txid,
    )


def check_metadata_size(txid: int, metadata: BatchMetadata) -> None:
    """Check that the metadata of a batch fits into a node, while the batch can still be named.

    Raises:
        BatchMetadataTooLarge: It does not; cut smaller batches.
    """
    size = len(json.dumps([metadata_to_json(metadata), metadata.content]))
    if size > METADATA_BYTES_MAX:
        raise BatchMetadataTooLarge(
            f"the metadata of txid {txid} takes {size} bytes; a znode has room for "
            f"{METADATA_BYTES_MAX}; cut smaller batches, or name ranges instead of records",
            txid=txid,
            bytes=size,
        )


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


SCHEMA = 1

EPOCH_SCHEMA = 2
"""Of ``/epoch``, since it holds the ensemble's token: an earlier txtopo, which would claim an epoch
and drop the token, refuses it instead."""

STEP_BYTES_MAX = 900_000
"""ZooKeeper closes the connection on a packet above 1 MiB (``jute.maxbuffer``), which a client
cannot tell from a network fault and would retry for ever. The rest is room for ACLs."""

STEP_OVERHEAD_BYTES = 128
"""What one operation takes in a packet besides its path and value: headers, ACL, flags."""

METADATA_BYTES_MAX = STEP_BYTES_MAX - 4096
"""Room in a step for the metadata of one batch; the rest is for its path, its attempt and the check
of the epoch."""

BEGIN_ANEW = "to begin anew from txid 1, call txtopo.operations.forget and drop its states' tables"
"""What is left to a person when a node is lost for good."""

INNER_NODE = json.dumps({"schema": SCHEMA}).encode()
"""What a node holds that is only there to have children."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a node holds.

    Attributes:
        value: The value.
        write: Id of the step that wrote it.
    """

    value: Json
    write: str


def encode(path: str, value: Json, write: str) -> bytes:
    """Return the bytes of a node.

    Raises:
        EmitError: The value is not JSON; return plain values from the spout.
    """
    flaw = json_flaw(value)
    if flaw is not None:
        raise EmitError(
            f"metadata for {path} is not JSON; got {shown(value)} ({flaw}); expected None, bool, "
            "int, float, str, list or dict with keys that are strings; return plain values from "
            "the spout",
            path=path,
        )
    schema = EPOCH_SCHEMA if path == EPOCH_PATH else SCHEMA
    record = {"schema": schema, "write": write, "value": value}
    return json.dumps(record, separators=(",", ":")).encode()


def decode(path: str, data: bytes) -> Record | None:
    """Return what a node holds, or None for a node that only has children.

    Raises:
        CorruptNodeError: These bytes were not written by txtopo.
        SchemaVersionError: They were written by a newer txtopo; upgrade this one.
    """
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise corrupt(path, data) from error
    schema = record.get("schema") if isinstance(record, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise corrupt(path, data)
    if schema > EPOCH_SCHEMA:
        raise SchemaVersionError(
            f"node {path} was written by a newer txtopo; got schema {schema}; this one reads up to "
            f"{EPOCH_SCHEMA}; upgrade txtopo; or, {BEGIN_ANEW}",
            path=path,
            schema=schema,
        )
    if "value" not in record and "write" not in record:
        return None
    if "value" not in record or not isinstance(record.get("write"), str):
        raise corrupt(path, data)
    return Record(record["value"], record["write"])


def corrupt(path: str, got: object) -> CorruptNodeError:
    """Return the error for a node that cannot be read."""
    shown = repr(got)
    return CorruptNodeError(
        f"node {path} of the transactional state cannot be read; got "
        f"{shown if len(shown) <= 80 else shown[:80] + '…'}; expected a record of txtopo; "
        "it is not taken as empty; call txtopo.operations.repair_node, which puts back what is "
        "known or what you give it",
        path=path,
    )


def encode_steps(steps: Sequence[Step], write: str) -> list[bytes]:
    """Return the bytes that each step writes; empty for a step that writes none.

    Raises:
        BatchMetadataTooLarge: The steps do not fit into one packet.
        EmitError: A value is not JSON.
    """
    records = [
        encode(step.path, step.value, write) if isinstance(step, Put | CompareAndSet) else b""
        for step in steps
    ]
    sizes = [packet_bytes(step.path, data) for step, data in zip(steps, records, strict=True)]
    if sum(sizes) > STEP_BYTES_MAX:
        largest = max(range(len(steps)), key=sizes.__getitem__)
        raise BatchMetadataTooLarge(
            f"metadata is too large for one step; node {steps[largest].path} takes "
            f"{sizes[largest]} bytes, all of the step {sum(sizes)}; at most {STEP_BYTES_MAX} fit; "
            "cut smaller batches or put less into their metadata",
            path=steps[largest].path,
            bytes=sizes[largest],
            limit=STEP_BYTES_MAX,
        )
    return records


def packet_bytes(path: str, data: bytes) -> int:
    """Return how much of a packet an operation takes."""
    return len(path.encode()) + len(data) + STEP_OVERHEAD_BYTES


ROOT = "/txtopo"
"""Where topologies live when the hosts name no chroot."""

ID_CHARACTERS_MAX = 255

# What ZooKeeper refuses in a path: control characters, surrogates, private use, specials; and what
# is made of surrogates in UTF-16, in which it counts.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff/]")


def check_topology_id(topology_id: str) -> str:
    """Return the id if it can be the name of a node.

    Raises:
        ConfigError: It cannot; choose another id.
    """
    refused = _REFUSED.search(topology_id)
    if (
        refused
        or ".." in topology_id
        or topology_id in ("", ".")
        or len(topology_id) > ID_CHARACTERS_MAX
    ):
        raise ConfigError(
            f"topology id cannot be used as a path; got {topology_id[:80]!r}; expected 1 to "
            f"{ID_CHARACTERS_MAX} characters without '/', '..' and control characters",
            topology_id=topology_id,
        )
    return topology_id


def split_chroot(hosts: str) -> tuple[str, str]:
    """Split ``"host:port,host:port/chroot"`` into servers and chroot, ``/txtopo`` if none.

    Raises:
        ConfigError: The hosts or the chroot cannot be read.
    """
    servers, _, chroot = hosts.partition("/")
    if not servers or not all(server.strip() for server in servers.split(",")):
        raise ConfigError(
            f"zookeeper hosts cannot be read; got {hosts!r}; expected 'host:port,host:port/chroot'"
        )
    names = chroot.strip("/").split("/") if chroot.strip("/") else []
    if any(name in ("", ".", "..") or _REFUSED.search(name) for name in names):
        raise ConfigError(
            f"zookeeper chroot cannot be read; got {'/' + chroot!r}; expected '/name/name'"
        )
    return servers, "".join(f"/{name}" for name in names) or ROOT
