"""The work of a Spark task: unpack the topology and run one stage on its records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.stages.pickling import dumps, loads
from txtopo.stages.stage import run_stage
from txtopo.stages.stage_context import Record, RunLevel

if TYPE_CHECKING:
    import pyarrow as pa

# A worker process outlives its tasks, and all jobs of a run have the same compiled topology, so
# a worker unpickles it once. It is stored by its digest, because several topologies may share a
# worker. Without the limit the workers of a notebook would grow.
_COMPILED: dict[str, CompiledTopology] = {}
_COMPILED_MAX = 8


@dataclass(frozen=True, slots=True)
class PackedTopology:
    """A pickled compiled topology for the workers. Each worker unpickles it once.

    Attributes:
        digest: Identifies the topology in the memory of the workers.
        pickled: The topology. Classes of ``__main__`` and of notebooks are pickled by value.
    """

    digest: str
    pickled: bytes

    @staticmethod
    def of(compiled: CompiledTopology) -> PackedTopology:
        """Pack a compiled topology."""
        pickled = dumps(compiled)
        return PackedTopology(hashlib.sha256(pickled).hexdigest(), pickled)

    def unpack(self) -> CompiledTopology:
        """Return the topology. All tasks of a worker share it, so do not change it."""
        compiled = _COMPILED.get(self.digest)
        if compiled is None:
            if len(_COMPILED) >= _COMPILED_MAX:
                _COMPILED.clear()
            compiled = _COMPILED[self.digest] = loads(self.pickled)
        return compiled


def run_in_task(
    level: RunLevel,
    packed: PackedTopology,
    slot: int,
    records: Iterable[bytes],
    rows: Iterable[pa.RecordBatch] = (),
) -> Iterator[Record]:
    """Run one stage in this Spark task; see :func:`~txtopo.stages.stage.run_stage`.

    The stage always reads its records to the end. PySpark does not reuse a worker whose task left
    input unread, and a new worker costs 300 ms.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    stage = level.in_slot(packed.unpack(), slot, context.taskAttemptId())
    return run_stage(stage, records, rows=rows)
