"""Replays: checks that a replayed batch of a transactional spout has the same tuples as before.

Rules
-----
1. The *content* of a batch is a number of tuples and a digest for each *part* of it. A part is a
   partition of a partitioned spout, or a task of any other spout. Parts do not depend on slots,
   carriers or Spark's tasks. Several spouts are compared one by one, each as its kind is.
2. The order of the tuples within a stream of a part counts, because a shuffle grouping deals tuples
   out in this order, and bolts may rely on it. How the tuples were divided into record batches does
   not count, nor does the order in which the streams were emitted.
3. The content of the first attempt that was processed is stored with the metadata of its txid,
   before commit work starts. Everything that a committer ever wrote for the txid came from it.
4. The content of a later attempt is compared when its run is judged, so before the coordinator
   learns that it was processed. If it differs, the attempt fails with ``NonRepeatableBatch`` and is
   never committed. The topology stops after all earlier txids were committed.
5. What a bolt was answered outside is content too, if all spouts above repeat their batches. Each
   answer is taken together with the row that it is for, and all tasks are one part, whose order
   does not count: which task gets a row depends on slots. So answers that two equal rows of a batch
   have exchanged are not told.

These are not compared: batches of opaque spouts, whose replays may differ; batches of a plain spout
whose parallelism has changed; batches planned before a start with ``check_replays=False``.

Cost: SHA-1 is computed over the Arrow buffers of each column, which takes less than a millisecond
for 100,000 words. It is the fastest digest in Python, and no secret depends on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from txtopo.errors import NonRepeatableBatch
from txtopo.metadata import Json

if TYPE_CHECKING:
    from txtopo.attempt import TransactionAttempt
    from txtopo.stages.compiled_topology import CompiledTopology

DIGEST_CHARACTERS = 16
"""64 bits. Two different contents have the same digest by chance once in 10^19 replays."""

ALL_TASKS = "0"
"""The only part of the content of a bolt."""

_TEXT = (pa.string().id, pa.binary().id)


class Digest:
    """Computes the content of one part while it is emitted.

    The values, the lengths and the positions of NULL of each column have a digest of their own. So
    the result does not depend on where one record batch ended and the next one began.
    """

    def __init__(self) -> None:
        self._hashes: dict[str, hashlib._Hash] = {}
        self._tuples: dict[str, int] = {}

    def add(self, stream: str, batch: pa.RecordBatch, targets: Sequence[int] | None) -> None:
        """Add the next tuples of a stream; *targets* are the tasks chosen on a direct stream."""
        if not batch.num_rows:
            return
        for at, column in enumerate(batch.columns):
            self._add(f"{at} {stream}", column, self._tuples.get(stream, 0))
        if targets is not None:
            self._feed(f"targets {stream}", np.asarray(targets, dtype=np.int64).data)
        self._tuples[stream] = self._tuples.get(stream, 0) + batch.num_rows

    def take(self) -> Json:
        """Return the content as ``[tuples, digest]``, and begin the next part."""
        lines = [f"{name!r} {self._tuples[name]}\n" for name in sorted(self._tuples)]
        hashes = self._hashes
        lines += [f"{name!r} {hashes[name].hexdigest()}\n" for name in sorted(hashes)]
        whole = hashlib.sha1("".join(lines).encode(), usedforsecurity=False)
        content: Json = [sum(self._tuples.values()), whole.hexdigest()[:DIGEST_CHARACTERS]]
        self._hashes, self._tuples = {}, {}
        return content

    def _add(self, name: str, column: pa.Array, before: int) -> None:
        if column.null_count:
            places = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            self._feed(f"null {name}", (places.astype(np.int64) + before).data)
            column = column.drop_null()
        if not len(column):
            return
        start, count = column.offset, len(column)
        kind = column.type
        if kind.id in _TEXT:
            _, ends, data = column.buffers()
            offsets = np.frombuffer(ends, dtype=np.int32)[start : start + count + 1]
            self._feed(f"length {name}", np.diff(offsets).data)
            if data is not None:
                self._feed(f"value {name}", memoryview(data)[offsets[0] : offsets[-1]])
        elif kind.id == pa.bool_().id:
            self._add(name, column.cast(pa.uint8()), before)
        else:
            width = kind.bit_width // 8
            values = memoryview(column.buffers()[1])
            self._feed(f"value {name}", values[start * width : (start + count) * width])

    def _feed(self, name: str, data: memoryview) -> None:
        if name in self._hashes:
            self._hashes[name].update(data)
        else:
            self._hashes[name] = hashlib.sha1(data, usedforsecurity=False)


class HasContent(Protocol):
    """A bolt whose answers are compared in a replay."""

    @property
    def content(self) -> Json:
        """The content of the task, once its batch is finished."""


class AnswersDigest:
    """Computes the content of the answers that a task got for its rows, in any order."""

    def __init__(self) -> None:
        self._count = self._sum = 0

    def add(self, row: Sequence[Any], answer: Sequence[Any] | None) -> None:
        """Add the answer for a row; None if the row was set aside."""
        text = repr((tuple(row), answer if answer is None else tuple(answer)))
        digest = hashlib.sha1(text.encode(errors="surrogatepass"), usedforsecurity=False)
        self._count += 1
        self._sum += int(digest.hexdigest()[:DIGEST_CHARACTERS], 16)

    @property
    def content(self) -> Json:
        """The content as ``[answers, digest]``."""
        return [self._count, f"{self._sum % 16**DIGEST_CHARACTERS:0{DIGEST_CHARACTERS}x}"]

    @staticmethod
    def sum(contents: Iterable[Json]) -> Json:
        """Return the content of several tasks together."""
        total = AnswersDigest()
        for each in contents:
            match each:
                case [int(count), str(digest)]:
                    total._count += count
                    total._sum += int(digest, 16)
        return total.content


def check_replay(
    compiled: CompiledTopology,
    attempt: TransactionAttempt,
    known: Mapping[str, Mapping[str, Json]] | None,
    brought: Mapping[str, Mapping[str, Json]],
) -> None:
    """Compare the content of an attempt with the stored content of its txid.

    Args:
        compiled: The topology.
        attempt: The attempt.
        known: The stored content, by spout and part; None if there is none.
        brought: The content of the attempt.

    Raises:
        NonRepeatableBatch: They differ; the attempt must not be committed.
    """
    if known is None:
        return
    for id in compiled.spouts:
        _check_spout(compiled, id, attempt, known.get(id, {}), brought.get(id, {}))
    for id in compiled.answering:
        _check_answers(compiled, id, attempt, known.get(id, {}), brought.get(id, {}))


def _check_spout(
    compiled: CompiledTopology,
    id: str,
    attempt: TransactionAttempt,
    known: Mapping[str, Json],
    brought: Mapping[str, Json],
) -> None:
    kind = compiled.components[id].spout_kind
    part = kind.differing(known, brought)
    if part is not None:
        raise NonRepeatableBatch(
            f"the replay of txid {attempt.txid} of topology {compiled.topology_id!r} differs from "
            f"the earlier batch; got {_told(brought[part])} from {kind.part} {part} of spout "
            f"{id!r}; expected {_told(known[part])}, as the first attempt that was processed; it "
            "is not committed; restore what the source had and start again; or make the spout "
            "opaque; if the change is intended, start once with Config(check_replays=False), or "
            "remove the batch with txtopo.operations.quarantine",
            topology=compiled.topology_id,
            component=id,
            txid=attempt.txid,
            part=int(part),
            expected=known[part],
            got=brought[part],
        )


def _check_answers(
    compiled: CompiledTopology,
    id: str,
    attempt: TransactionAttempt,
    known: Mapping[str, Json],
    brought: Mapping[str, Json],
) -> None:
    if ALL_TASKS in known and known[ALL_TASKS] != brought.get(ALL_TASKS):
        raise NonRepeatableBatch(
            f"the replay of txid {attempt.txid} of topology {compiled.topology_id!r} was answered "
            f"differently than before; got {_told(brought.get(ALL_TASKS))} in bolt {id!r}; "
            f"expected {_told(known[ALL_TASKS])}, as the first attempt that was processed; it is "
            "not committed; let the service give equal answers to equal calls, or make the spout "
            "and the states opaque; if the change is intended, start once with "
            "Config(check_replays=False)",
            topology=compiled.topology_id,
            component=id,
            txid=attempt.txid,
            expected=known[ALL_TASKS],
            got=brought.get(ALL_TASKS),
        )


def _told(content: Json) -> str:
    match content:
        case [int(tuples), str(digest)]:
            return f"{tuples} tuples (digest {digest})"
        case other:
            return f"{other!r:.100}"
