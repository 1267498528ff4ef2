"""The work of a Spark task: unpack the program and run one stage on its records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.stages.pickling import dumps, loads
from txtopo.stages.program import Program
from txtopo.stages.stage import run_stage
from txtopo.stages.stage_context import Record, RunLevel

if TYPE_CHECKING:
    import pyarrow as pa

# A worker process outlives its tasks, and all jobs of a topology have the same program, so a worker
# unpickles it once. Programs are stored by digest, because several topologies may share a worker.
# Without the limit the workers of a notebook would grow.
_PROGRAMS: dict[str, Program] = {}
_PROGRAMS_MAX = 8


@dataclass(frozen=True, slots=True)
class PackedProgram:
    """A pickled program for the workers. Each worker unpickles it once.

    Attributes:
        digest: Identifies the program in the memory of the workers.
        pickled: The program. Classes of ``__main__`` and of notebooks are pickled by value.
    """

    digest: str
    pickled: bytes

    @staticmethod
    def of(program: Program) -> PackedProgram:
        """Pack a program."""
        pickled = dumps(program)
        return PackedProgram(hashlib.sha256(pickled).hexdigest(), pickled)

    def unpack(self) -> Program:
        """Return the program. All tasks of a worker share it, so do not change it."""
        program = _PROGRAMS.get(self.digest)
        if program is None:
            if len(_PROGRAMS) >= _PROGRAMS_MAX:
                _PROGRAMS.clear()
            program = _PROGRAMS[self.digest] = loads(self.pickled)
        return program


def run_in_task(
    level: RunLevel,
    packed: PackedProgram,
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
