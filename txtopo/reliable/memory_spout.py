"""MemorySpout: a spout over a list in memory, at least once, for examples and tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from txtopo.config import AtLeastOnceConfig
from txtopo.context import TaskContext
from txtopo.errors import FieldsError, TopologyError
from txtopo.reliable.collector import SpoutOutputCollector
from txtopo.reliable.spout import Spout
from txtopo.spouts.memory import check_fields, fits
from txtopo.tuples import Fields


class MemorySpout(Spout):
    """Emits each row of a list with its index as message id, and again when it fails.

    Delivery: at least once, within a run. With several tasks, task i of n emits the rows i, i + n,
    … A task that is lost begins its rows again.

    Args:
        rows: The rows.
        fields: Their fields.
        repeat: How many times to go through the list; message ids keep counting.

    Raises:
        FieldsError: A row has another number of values than there are fields.
        TopologyError: *repeat* is not a whole number of at least 1.
    """

    def __init__(self, rows: Iterable[Sequence[Any]], fields: Fields, repeat: int = 1) -> None:
        check_fields(fields)
        if type(repeat) is not int or repeat < 1:
            raise TopologyError(
                f"repeat of a MemorySpout is wrong; got {repeat!r}; expected a whole number of at "
                "least 1",
                setting="repeat",
            )
        rows = list(rows)
        for row in rows:
            if not fits(row, fields):
                raise FieldsError(
                    f"a row of a MemorySpout does not fit; got {row!r:.200}; expected a list of "
                    f"{len(fields)} values: {', '.join(fields.names)}",
                    setting="rows",
                    expected=fields.names,
                )
        self.output_fields = fields
        self._rows = [tuple(row) for row in rows]
        self._repeat = repeat

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        """Begin with the first row of this task."""
        self._collector = collector
        self._next, self._step = context.task_index, context.tasks
        self._again: deque[int] = deque()

    def next_tuple(self) -> None:
        """Emit a row that failed, else the next one."""
        if self._again:
            at = self._again.popleft()
        elif self._next < len(self._rows) * self._repeat:
            at = self._next
            self._next += self._step
        else:
            return
        self._collector.emit(self._rows[at % len(self._rows)], at)

    def ack(self, message_id: Any) -> None:
        """Do nothing: the row will not be emitted again."""

    def fail(self, message_id: Any) -> None:
        """Emit the row again."""
        self._again.append(message_id)
