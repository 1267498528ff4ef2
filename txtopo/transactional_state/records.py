"""How a value becomes the bytes of a node: JSON with a schema version and the id of its write.

The id of the write is what tells, after a connection was lost in the middle of a step, whether the
step landed: a node that carries the id was written by that very step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from txtopo.errors import (
    BatchMetadataTooLarge,
    CorruptNodeError,
    EmitError,
    SchemaVersionError,
)
from txtopo.metadata import json_flaw, shown
from txtopo.transactional_state.store import CompareAndSet, Json, Put, Step

SCHEMA = 1
EPOCH_SCHEMA = 2
"""Of ``/epoch``, since it holds the ensemble's token: an earlier txtopo, which would claim an epoch
and drop the token, refuses it instead."""
EPOCH_PATH = "/epoch"

STEP_BYTES_MAX = 900_000
"""ZooKeeper closes the connection on a packet above 1 MiB (``jute.maxbuffer``), which a client
cannot tell from a network fault and would retry for ever. The rest is room for ACLs."""

STEP_OVERHEAD_BYTES = 128
"""What one operation takes in a packet besides its path and value: headers, ACL, flags."""

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
