"""The nodes of a topology in the transactional state: paths, contents and format.

``/epoch``
    ``{"epoch": n, "term": id, "terms": [[epoch, id], …], "leader": candidate, "topology":
    fingerprint, "ensemble": token}``: which coordinator may write, for which topology, and which
    ensemble this is. The term id is random, drawn with the epoch. Those of the previous
    :data:`TERMS_MAX` epochs are kept, so that a ledger with the epoch of another history is
    recognised. The token is random, drawn once, and every ledger names it. The version of this node
    is the fence: every other write is checked against it, so a deposed coordinator writes nothing.
``/current``
    ``{"current": txid}``: the lowest txid that is not committed. It is written together with the
    first epoch, so a missing node is damage and never means "nothing committed yet". While an
    operator's verb is unfinished it also has ``"operation": {"verb": …, "arguments": …}``, and no
    coordinator starts. ``"added": [[component, state], …]`` names the states that the topology has
    had from this txid on. It is written in one write with the epoch of the start that added them,
    and its fingerprint, so that the next leader knows it too. It is removed with the first advance,
    since each state has the txid then. Only a state that is named may have an empty ledger.
    ``"forked": {"topology": id, "at": txid, "to": {state: url}, "txid": n}`` says which fork made
    the topology (:mod:`txtopo.operations.fork`), also until the first advance.
``/batches/<txid as 20 digits>``
    ``{"attempt": [epoch, attempt, term], "metadata": …}``: how to emit the batch of the txid again,
    and the attempt that the metadata belongs to. After processing it may also have
    ``"content": {spout: {part: …}}``, with which replays are compared. With ``"verb": name`` the
    txid has no batch of its own: a verb of an operator wrote it. The metadata
    (:mod:`txtopo.metadata`) is ``{"spouts": {id: share}}``. The share of a spout is
    ``{"planned": …, "cut": {partition: …}}``, or ``"absent"`` with its newest plan in place of
    ``"planned"``; it has no ``"cut"`` while that is unknown, and of a spout that plans whole
    batches. The metadata may also have ``"pace": {"rows_max": {id: …}, …}``, and
    ``"stamp": {"time": ms, "latest": ms, "tables": {id: version}}``; ``latest`` is there if the
    clock was in doubt.
``/quarantine/<txid as 20 digits>``
    ``{"attempt": …, "metadata": …, "reason": text}``: a batch that an operator took out of the
    order. An empty batch was committed in its place.
``/desired``
    ``{"status": "running" | "deactivated" | "killed", "command": n, "by": …, "at_s": …}``: what an
    operator wants of the topology, and the number of the last command that was answered. It is
    written together with that answer. Without the node nobody ever asked: it is to run.
``/commands/<number as 20 digits>``
    ``{"verb": …, "arguments": …, "by": …, "at_s": …, "id": …}``: what was asked for, and, once it
    was answered, ``"answer": …``. The rules are in
    :mod:`~txtopo.ensemble.commands`. Clients write these nodes without an epoch; all
    else below them is written by whoever has claimed one.
``/published/<state>&<publisher>``
    ``{"state": "component.state", "publisher": name, "published_up_to": txid,
    "begun_up_to": txid, "token": text}``: how far a publisher has published the rows of a state
    (:mod:`txtopo.outbox`). It writes the node without an epoch.

A node is JSON: the value, its schema (1), and the id of the write. After a lost connection the id
shows whether a write was done: if so, its nodes carry the id. The place of a candidate in the
election is an ephemeral node of the same form, below ``/leader`` in ZooKeeper; that of the leader
also carries ``"announced"``, a summary of its run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from txtopo.attempt import TransactionAttempt
from txtopo.ensemble.store import CompareAndSet, Json, Node, Put, Step
from txtopo.errors import (
    BatchMetadataTooLarge,
    ConfigError,
    CorruptNodeError,
    EmitError,
    SchemaVersionError,
)
from txtopo.fingerprint import Fingerprint, StateName
from txtopo.metadata import BatchMetadata, SpoutShare, json_text, shown
from txtopo.pacing import limits_of

EPOCH = "/epoch"

CURRENT = "/current"

BATCHES = "/batches"

QUARANTINE = "/quarantine"

DESIRED = "/desired"

COMMANDS = "/commands"

PUBLISHED = "/published"

EPOCH_ROOM = 100
"""Distance between an epoch that replaces a lost one and the highest known epoch. A coordinator
that claimed an epoch in ZooKeeper and ended before it claimed a ledger leaves no trace of it."""

TERMS_MAX = 30
"""How many earlier terms ``/epoch`` names: they take less than 1 kB."""

REWRITES_MAX = 1_000
"""How many writes of one small node fit into one request."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """The contents of a node below ``/batches``: how to emit a batch again.

    Attributes:
        attempt: The attempt that the metadata belongs to.
        metadata: What the spouts need to emit it.
        content: Count and digest of its tuples, by spout and part; None if not known.
        verb: The verb of an operator that wrote the txid, which has no batch then; None for none.
    """

    attempt: TransactionAttempt
    metadata: Json
    content: dict[str, dict[str, Json]] | None = None
    verb: str | None = None


def batch_path(txid: int, parent: str = BATCHES) -> str:
    """Return the path of a batch, with 20 digits, so that names sort like numbers."""
    return f"{parent}/{txid:020d}"


def txid_of(path: str) -> int:
    """Return the txid that the path of a batch ends with.

    Raises:
        CorruptNodeError: It does not end with 20 digits.
    """
    name = path.rpartition("/")[2]
    if len(name) != 20 or not name.isascii() or not name.isdigit():
        raise corrupt(path, name)
    return int(name)


def epoch_of(node: Node) -> int:
    """Return the epoch in the node ``/epoch``.

    Raises:
        CorruptNodeError: The node has no valid epoch.
    """
    epoch = node.value.get("epoch") if isinstance(node.value, dict) else None
    if not is_count(epoch):
        raise corrupt(EPOCH, node.value)
    return epoch  # type: ignore[return-value]


def terms_of(node: Node | None) -> dict[int, str]:
    """Return the term ids in the node ``/epoch`` by their epoch; the newest is the last.

    Raises:
        CorruptNodeError: They cannot be read.
    """
    if node is None:
        return {}
    value = node.value if isinstance(node.value, dict) else {}
    match value:
        case {"term": str(term), "terms": list(earlier)}:
            pairs = [each for each in earlier if isinstance(each, list)]
            if len(pairs) == len(earlier) and all(_is_term(*each) for each in pairs):
                return {int(str(e)): str(id) for e, id in pairs} | {epoch_of(node): term}
    raise corrupt(EPOCH, node.value)


def _is_term(*pair: Json) -> bool:
    return len(pair) == 2 and is_count(pair[0]) and isinstance(pair[1], str)


def claimed_terms(node: Node | None, term: str) -> dict[str, Json]:
    """Return the part of ``/epoch`` that names the term of a new epoch.

    Args:
        node: The previous node.
        term: The term id of the new epoch.
    """
    known = list(terms_of(node).items())[-TERMS_MAX:]
    return {"term": term, "terms": [[epoch, each] for epoch, each in known]}


def ensemble_of(node: Node | None) -> str:
    """Return the token of the ensemble in the node ``/epoch``; empty if it has none.

    Raises:
        CorruptNodeError: The token is not a string.
    """
    token = node.value.get("ensemble", "") if node and isinstance(node.value, dict) else ""
    if not isinstance(token, str):
        raise corrupt(EPOCH, node and node.value)
    return token


def current_of(node: Node | None) -> int:
    """Return the txid in the node ``/current``.

    Raises:
        CorruptNodeError: The node is missing, or has no valid txid.
    """
    current = node.value.get("current") if node and isinstance(node.value, dict) else None
    if not is_count(current):
        raise corrupt(CURRENT, node and node.value)
    return current  # type: ignore[return-value]


def operation_of(node: Node | None) -> dict[str, Json] | None:
    """Return the unfinished verb of an operator that ``/current`` names, or None.

    Raises:
        CorruptNodeError: It cannot be read.
    """
    operation = node.value.get("operation") if node and isinstance(node.value, dict) else None
    if operation is not None and not isinstance(operation, dict):
        raise corrupt(CURRENT, operation)
    return operation


def fingerprint_of(node: Node | None) -> Fingerprint | None:
    """Return the fingerprint that ``/epoch`` holds; None if it has none.

    Raises:
        CorruptNodeError: It cannot be read.
    """
    stored = node.value.get("topology") if node and isinstance(node.value, dict) else None
    if stored is None:
        return None
    try:
        return Fingerprint.from_json(stored)
    except ValueError as error:
        raise corrupt(EPOCH, stored) from error


def added_of(node: Node | None) -> tuple[StateName, ...]:
    """Return the states that ``/current`` names as added.

    Raises:
        CorruptNodeError: They cannot be read.
    """
    added = node.value.get("added", []) if node and isinstance(node.value, dict) else []
    names: list[StateName] = []
    for each in added if isinstance(added, list) else [added]:
        match each:
            case [str(component), str(state)]:
                names.append((component, state))
            case _:
                raise corrupt(CURRENT, added)
    return tuple(names)


def batch_of(path: str, txid: int, node: Node | None) -> StoredBatch:
    """Return the batch in a node below ``/batches``.

    Raises:
        CorruptNodeError: The node is missing, or holds something else.
    """
    match node.value if node else None:
        case {"attempt": [int(epoch), int(number), str(term)], "metadata": metadata, **rest}:
            content, verb = rest.get("content"), rest.get("verb")
            if _is_content(content) and isinstance(verb, str | None):
                attempt = TransactionAttempt(txid, number, epoch, term=term)
                return StoredBatch(attempt, metadata, content, verb)
    raise corrupt(path, node and node.value)


def _is_content(content: object) -> TypeGuard[dict[str, dict[str, Json]] | None]:
    if not isinstance(content, dict):
        return content is None
    return all(isinstance(parts, dict) for parts in content.values())


def attempt_to_json(attempt: TransactionAttempt) -> Json:
    """Return the value under ``"attempt"`` in the node of a batch."""
    return [attempt.epoch, attempt.attempt, attempt.term]


def metadata_to_json(metadata: BatchMetadata) -> Json:
    """Return the value under ``"metadata"`` in the node of a batch."""
    spouts: dict[str, Json] = {}
    for spout, share in metadata.spouts.items():
        own: dict[str, Json] = {"absent" if share.absent else "planned": share.planned}
        if share.cut is not None:
            own["cut"] = share.cut
        spouts[spout] = own
    value: dict[str, Json] = {"spouts": spouts}
    if metadata.pace is not None:
        value["pace"] = metadata.pace
    if metadata.stamp is not None:
        value["stamp"] = metadata.stamp
    return value


def metadata_from_json(txid: int, value: Json) -> BatchMetadata:
    """Return the metadata that :func:`metadata_to_json` turned into *value*.

    Raises:
        CorruptNodeError: The value has another form. It is never taken as empty.
    """
    match value:
        case {"spouts": dict() as spouts, **rest} if {*rest} <= {
            "pace",
            "stamp",
        } and None not in rest.values():
            pace, stamp = rest.get("pace"), rest.get("stamp")
            shares = {id: share for id, each in spouts.items() if (share := _share_of(each))}
            if len(shares) == len(spouts) and _is_pace(pace) and _is_stamp(stamp):
                return BatchMetadata(shares, pace=pace, stamp=stamp)
    raise CorruptNodeError(
        f"the stored metadata of txid {txid} cannot be read; got {value!r:.200}; expected an "
        "object with 'spouts', which has 'planned' or 'absent' for each spout, and perhaps "
        "'cut', and perhaps with 'pace' and 'stamp'; restore it with "
        "txtopo.operations.repair_node",
        txid=txid,
    )


def _share_of(value: object) -> SpoutShare | None:
    """Return the share of a spout in stored metadata; None if it cannot be read."""
    if not isinstance(value, dict):
        return None
    names, cut = {*value} - {"cut"}, value.get("cut")
    if names not in ({"planned"}, {"absent"}) or not isinstance(cut, dict | None):
        return None
    (name,) = names
    return SpoutShare(value[name], cut, absent=name == "absent")


def _is_pace(pace: object) -> TypeGuard[dict[str, Json] | None]:
    return pace is None or limits_of(pace) is not None


def _is_stamp(stamp: object) -> TypeGuard[dict[str, Json] | None]:
    match stamp:
        case None:
            return True
        case {"time": int(time_ms), **rest} if not isinstance(time_ms, bool) and time_ms >= 0:
            latest_ms = rest.pop("latest", time_ms)
            known = {*rest} <= {"tables"} and isinstance(rest.get("tables", {}), dict)
            return known and type(latest_ms) is int and latest_ms >= time_ms
    return False


def check_metadata_size(txid: int, metadata: BatchMetadata) -> None:
    """Check that the metadata of a batch fits into a node, while the batch can still be named.

    Raises:
        BatchMetadataTooLarge: It does not fit; cut smaller batches.
    """
    size = len(json.dumps([metadata_to_json(metadata), metadata.content]))
    if size > METADATA_BYTES_MAX:
        raise BatchMetadataTooLarge(
            f"the metadata of txid {txid} takes {size} bytes; a znode holds at most "
            f"{METADATA_BYTES_MAX}; cut smaller batches, or store ranges instead of records",
            txid=txid,
            bytes=size,
        )


def is_count(value: object) -> bool:
    """Return whether a value is an integer of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


SCHEMA = 1
"""The version of the stored form of all nodes."""

STEP_BYTES_MAX = 900_000
"""ZooKeeper closes the connection when a packet is above 1 MiB (``jute.maxbuffer``). A client
cannot tell that from a network fault and would retry forever. The rest is for ACLs."""

STEP_OVERHEAD_BYTES = 128
"""Bytes of one operation in a packet in addition to path and value: headers, ACL, flags."""

METADATA_BYTES_MAX = STEP_BYTES_MAX - 4096
"""Room in a step for the metadata of one batch; the rest is for its path, its attempt and the check
of the epoch."""

BEGIN_ANEW = "to start over from txid 1, call txtopo.operations.forget and drop its states' tables"
"""The last resort when a node is lost for good."""

INNER_NODE = json.dumps({"schema": SCHEMA}).encode()
"""Bytes of a node that exists only to have children."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node, decoded.

    Attributes:
        value: The value.
        write: Id of the write that wrote it.
        announced: What a leader announces with it; None for every other node.
    """

    value: Json
    write: str
    announced: Json = None


def encode(path: str, value: Json, write: str, announced: Json = None) -> bytes:
    """Return the bytes of a node.

    Raises:
        EmitError: The value is not JSON; return plain values from the spout.
    """
    try:
        text = json_text(value)
    except ValueError as error:
        raise EmitError(
            f"metadata for {path} is not JSON; got {shown(value)} ({error}); expected None, bool, "
            "int, float, str, list or dict with keys that are strings; return plain values from "
            "the spout",
            path=path,
        ) from error
    more = ""
    if announced is not None:
        more = f',"announced":{json.dumps(announced, separators=(",", ":"))}'
    return f'{{"schema":{SCHEMA},"write":{json.dumps(write)},"value":{text}{more}}}'.encode()


def decode(path: str, data: bytes) -> NodeRecord | None:
    """Decode the bytes of a node; None for a node that exists only to have children.

    Raises:
        CorruptNodeError: txtopo did not write these bytes.
        SchemaVersionError: A newer txtopo wrote them; upgrade this one.
    """
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise corrupt(path, data) from error
    schema = record.get("schema") if isinstance(record, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise corrupt(path, data)
    if schema > SCHEMA:
        raise SchemaVersionError(
            f"node {path} was written by a newer txtopo; got schema {schema}; this version reads "
            f"up to {SCHEMA}; upgrade txtopo; or, {BEGIN_ANEW}",
            path=path,
            schema=schema,
        )
    if "value" not in record and "write" not in record:
        return None
    if "value" not in record or not isinstance(record.get("write"), str):
        raise corrupt(path, data)
    return NodeRecord(record["value"], record["write"], record.get("announced"))


def corrupt(path: str, got: object) -> CorruptNodeError:
    """Return the error for a node that cannot be read."""
    shown = repr(got)
    return CorruptNodeError(
        f"node {path} of the transactional state cannot be read; got "
        f"{shown if len(shown) <= 80 else shown[:80] + '…'}; expected a record of txtopo; it is "
        "not treated as empty; call txtopo.operations.repair_node, which restores it from the "
        "other nodes or from a value that you pass",
        path=path,
    )


def encode_steps(steps: Sequence[Step], write: str) -> list[bytes]:
    """Return the bytes that each step writes; empty for a step that writes no value.

    Raises:
        BatchMetadataTooLarge: Together they do not fit into one packet.
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
            f"{sizes[largest]} bytes, and the whole step {sum(sizes)}; at most {STEP_BYTES_MAX} "
            "fit; cut smaller batches or put less into their metadata",
            path=steps[largest].path,
            bytes=sizes[largest],
            limit=STEP_BYTES_MAX,
        )
    return records


def packet_bytes(path: str, data: bytes) -> int:
    """Return the size of one operation in a packet."""
    return len(path.encode()) + len(data) + STEP_OVERHEAD_BYTES


ROOT = "/txtopo"
"""The chroot if the hosts name none."""

ID_CHARACTERS_MAX = 255

# ZooKeeper refuses these in a path: control characters, surrogates, private use and specials; and
# characters that are two surrogates in UTF-16, which it uses.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff/]")


def check_topology_id(topology_id: str) -> str:
    """Return *topology_id* if it can be the name of a node.

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
            topology=topology_id,
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
            f"zookeeper hosts cannot be read; got {hosts!r}; expected 'host:port,host:port/chroot'",
            hosts=hosts,
        )
    names = chroot.strip("/").split("/") if chroot.strip("/") else []
    if any(name in ("", ".", "..") or _REFUSED.search(name) for name in names):
        raise ConfigError(
            f"zookeeper chroot cannot be read; got {'/' + chroot!r}; expected '/name/name'",
            hosts=hosts,
            got="/" + chroot,
        )
    return servers, "".join(f"/{name}" for name in names) or ROOT
