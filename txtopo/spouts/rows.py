"""MemorySpout: a list of rows, replayed until each is acked. For tests and examples."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from txtopo.collector import SpoutOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import FieldsError
from txtopo.spouts.reliable import Spout
from txtopo.tuples import Fields


class MemorySpout(Spout):
    """Emits each row of a list with its index as message id, and again when it failed.

    Delivery: at least once. With several tasks, task i of n emits the rows i, i + n, …

    Args:
        rows: The rows.
        fields: Their fields.
        repeat: How many times to go through the list; message ids go on counting.

    Raises:
        FieldsError: A row has another number of values than there are fields.
    """

    def __init__(self, rows: Sequence[Sequence[Any]], fields: Fields, repeat: int = 1) -> None:
        for row in rows:
            if len(row) != len(fields):
                raise FieldsError(
                    f"a row of a MemorySpout does not fit; got {list(row)!r:.200}; expected "
                    f"{len(fields)} values: {', '.join(fields.names)}"
                )
        self.output_fields = fields
        self._rows = [tuple(row) for row in rows]
        self._repeat = repeat

    def open(self, config: Config, context: TaskContext, collector: SpoutOutputCollector) -> None:
        """Begin with the first row of this task."""
        self._collector = collector
        self._next, self._step = context.task_index, context.tasks
        self._again: deque[int] = deque()

    def next_tuple(self) -> None:
        """Emit the row that failed first, else the next one."""
        if self._again:
            at = self._again.popleft()
        elif self._next < len(self._rows) * self._repeat:
            at = self._next
            self._next += self._step
        else:
            return
        self._collector.emit(self._rows[at % len(self._rows)], at)

    def ack(self, message_id: Any) -> None:
        """Nothing is left to be done."""

    def fail(self, message_id: Any) -> None:
        """Emit the row again."""
        self._again.append(message_id)
