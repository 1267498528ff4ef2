"""Observer: is told which tuples tasks in this process receive and emit, and how one fails.

An operator who replays a batch looks at it through one. A run has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.stages.mailboxes import Arrival


class Observer(Protocol):
    """Is called in the thread that runs the stages, before the tuples go on."""

    def received(self, component: str, arrivals: Sequence[Arrival]) -> None:
        """Take the tuples that a task of a bolt received."""

    def emitted(self, component: str, stream: str, batch: pa.RecordBatch) -> None:
        """Take tuples that a task emitted."""

    def failed(self, component: str, error: BaseException) -> None:
        """Take what user code raised, with its traceback."""
