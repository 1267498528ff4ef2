"""StageTask: one stage function as Spark calls it, over the records of one Spark partition."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.stages.pickling import dumps, loads
from txtopo.stages.program import Chain, Program, Run
from txtopo.stages.stage import run_stage

if TYPE_CHECKING:
    import pyarrow as pa

# The one state in a module of txtopo: a worker process outlives its tasks, and the program is the
# same for all jobs of a topology. Keyed by its digest, so topologies that share workers do not
# meet. A worker serves few topologies; the limit only keeps a notebook's workers from growing.
_PROGRAMS: dict[str, Program] = {}
_PROGRAMS_MAX = 8


@dataclass(frozen=True, slots=True)
class PackedProgram:
    """A program as it travels to the workers, unpickled once in each of them.

    Attributes:
        digest: What stands for it in the workers' memory.
        pickled: The program, with classes of ``__main__`` and of notebooks by value.
    """

    digest: str
    pickled: bytes

    @staticmethod
    def of(program: Program) -> PackedProgram:
        """Pack a program."""
        pickled = dumps(program)
        return PackedProgram(hashlib.sha256(pickled).hexdigest(), pickled)

    def unpack(self) -> Program:
        """Return the program; equal for all tasks of a worker, so do not change it."""
        program = _PROGRAMS.get(self.digest)
        if program is None:
            if len(_PROGRAMS) >= _PROGRAMS_MAX:
                _PROGRAMS.clear()
            program = _PROGRAMS[self.digest] = loads(self.pickled)
        return program


@dataclass(frozen=True, slots=True)
class StageTask:
    """One stage of one run.

    Attributes:
        chain: Its chain.
        run: The run.
        level: Its level in the chain.
    """

    chain: Chain
    run: Run
    level: int

    def records(
        self,
        packed: PackedProgram,
        slot: int,
        payloads: Iterable[bytes],
        rows: Iterable[pa.RecordBatch] = (),
    ) -> Iterator[tuple[int, bytes]]:
        """Run the stage of a slot in this Spark task; yield (address, payload).

        The stage function reads its records to the end, also where there are none: PySpark uses
        the worker of a task that has not for no other, and a new one costs 300 ms.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task_id = context.taskAttemptId()
        program = packed.unpack()
        return run_stage(
            program, self.chain, self.run, self.level, slot, task_id, payloads, rows=rows
        )
