"""Jobs: what the driver's end of the slots asks of whoever runs their tasks."""

from __future__ import annotations

from typing import Protocol

from txtopo.runtime.resident.sockets import Keys
from txtopo.stages.program import Program


class Jobs(Protocol):
    """What runs the tasks of slots: :class:`~txtopo.runtime.resident.slot_jobs.SlotJobs`."""

    @property
    def stopped(self) -> bool:
        """Whether no task can be run any more."""
        ...

    @property
    def host(self) -> str:
        """The driver's host as tasks know it."""
        ...

    @property
    def bind_host(self) -> str:
        """The address that the driver listens at."""
        ...

    def start(self, program: Program) -> None:
        """Take the program."""
        ...

    def run(self, slot: int, submission: int, keys: Keys, driver: str) -> None:
        """Run the task of a slot and wait for its end; on a thread of its own.

        Raises:
            RunLostError: The task was lost; run it again.
            TxtopoError: It cannot be run.
        """
        ...

    def cancel(self, slot: int, submission: int) -> None:
        """Cancel the task of a slot, also one that is about to start."""
        ...

    def close(self) -> None:
        """Release what was taken."""
        ...
