"""Content: what a batch of a transactional spout brought, in a few bytes, to compare replays by.

Rules
-----
1. The *content* of a batch is a number of tuples and a digest for each *part*: a partition of a
   partitioned spout, else a task. Parts do not depend on slots, carriers or Spark's tasks.
2. The order of the tuples within a stream of a part counts, since tuples are dealt out by their
   place (shuffle grouping) and bolts may look at it. What does not count is how the tuples were
   shared among record batches, or in which order the streams were emitted.
3. The content of the first attempt that was processed is kept with the metadata of its txid,
   durable before commit work starts. Whatever a committer ever wrote for the txid came from it.
4. A later attempt is compared when its run is judged, so before it is processed for the
   coordinator; one that differs fails with ``NonRepeatableBatch``, which ends the run once what is
   before it is committed. It is never committed itself.

Not compared: opaque spouts, whose replays may differ; parts of another number of tasks (a plain
spout whose parallelism was changed); records of a version that kept no content; what was planned
before a start with ``check_replays=False`` or ``allow_change=True``.

Cost: each column goes through SHA-1 (no secret is at stake; it is the fastest digest that Python
has) as it lies in Arrow's buffers: 100,000 words take below a millisecond.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from txtopo.errors import NonRepeatableBatch
from txtopo.metadata import Json
from txtopo.topology.component import Role

if TYPE_CHECKING:
    from txtopo.attempt import TransactionAttempt
    from txtopo.stages.program import Program

DIGEST_CHARACTERS = 16
"""64 bits: by chance two contents agree once in 10^19 replays."""


class Digest:
    """The content of one part while it is emitted.

    Values, lengths and places of NULL go through a digest of their own for each column: a chain of
    bytes does not show where one record batch ended and the next one began.
    """

    def __init__(self) -> None:
        self._hashes: dict[str, hashlib._Hash] = {}
        self._tuples: Counter[str] = Counter()

    def add(self, stream: str, batch: pa.RecordBatch, targets: Sequence[int] | None) -> None:
        """Take the next tuples of a stream; *targets* are the tasks of a direct stream."""
        if not batch.num_rows:
            return
        for at, column in enumerate(batch.columns):
            self._add(f"{at} {stream}", column, self._tuples[stream])
        if targets is not None:
            self._feed(f"targets {stream}", np.asarray(targets, dtype=np.int64).data)
        self._tuples[stream] += batch.num_rows

    def take(self) -> Json:
        """Return the content as ``[tuples, digest]``, and begin with the next part."""
        whole = hashlib.sha1(usedforsecurity=False)
        for name in sorted(self._tuples):
            whole.update(f"{name!r} {self._tuples[name]}\n".encode())
        for name in sorted(self._hashes):
            whole.update(f"{name!r} {self._hashes[name].hexdigest()}\n".encode())
        content: Json = [self._tuples.total(), whole.hexdigest()[:DIGEST_CHARACTERS]]
        self._hashes, self._tuples = {}, Counter()
        return content

    def _add(self, name: str, column: pa.Array, before: int) -> None:
        if column.null_count:
            places = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            self._feed(f"null {name}", (places.astype(np.int64) + before).data)
            column = column.drop_null()
        if not len(column):
            return
        start, count = column.offset, len(column)
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            _, ends, data = column.buffers()
            offsets = np.frombuffer(ends, dtype=np.int32)[start : start + count + 1]
            self._feed(f"length {name}", np.diff(offsets).data)
            if data is not None:
                self._feed(f"value {name}", memoryview(data)[offsets[0] : offsets[-1]])
        elif pa.types.is_boolean(column.type):
            self._add(name, column.cast(pa.uint8()), before)
        else:
            width = column.type.bit_width // 8
            values = memoryview(column.buffers()[1])
            self._feed(f"value {name}", values[start * width : (start + count) * width])

    def _feed(self, name: str, data: memoryview) -> None:
        if name not in self._hashes:
            self._hashes[name] = hashlib.sha1(usedforsecurity=False)
        self._hashes[name].update(data)


def check_replay(
    program: Program,
    attempt: TransactionAttempt,
    known: Mapping[str, Json] | None,
    brought: Mapping[str, Json],
) -> None:
    """Compare what an attempt brought with what is known of its txid.

    Raises:
        NonRepeatableBatch: It is not the same; the attempt must not be committed.
    """
    if known is None:
        return
    spout = program.components[program.spout_id]
    by_task = spout.role is Role.TRANSACTIONAL_SPOUT
    if by_task and known.keys() != brought.keys():
        return  # Its parallelism was changed, and with it what each task has to emit.
    for part in sorted(known.keys() & brought.keys(), key=int):
        if known[part] != brought[part]:
            where = f"{'task' if by_task else 'partition'} {part} of spout {spout.id!r}"
            raise NonRepeatableBatch(
                f"the replay of txid {attempt.txid} of topology {program.topology_id!r} is another "
                f"batch than before; got {_told(brought[part])} from {where}; expected "
                f"{_told(known[part])}, as the first attempt that was processed; it is not "
                "committed; bring back what the source had and start again; or make the spout an "
                "opaque one; if the change is meant, start once with Config(check_replays=False), "
                "or take the batch out of the order with txtopo.operations.quarantine",
                topology=program.topology_id,
                txid=attempt.txid,
                part=int(part),
                expected=known[part],
                got=brought[part],
            )


def _told(content: Json) -> str:
    match content:
        case [int(tuples), str(digest)]:
            return f"{tuples} tuples (digest {digest})"
        case other:
            return f"{other!r:.100}"
