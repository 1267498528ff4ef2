"""Append: the ready-made committer that appends its rows to a table, such as an outbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import BatchBolt, Committer
from txtopo.bolts.dead_letters import KEY
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.durations import Duration, duration, shown
from txtopo.errors import FieldsError, TopologyError
from txtopo.state.lifetimes import OTHER_TIMES, SEEN, Lifetime
from txtopo.state.registry import State, checked_state
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Fields, Tuple

BY_PLANNED_TIME = Meaning("rows that expire by planned time", OTHER_TIMES)
"""What the times in the key mean."""


class Append(BatchBolt, Committer):
    """Appends each tuple to a state, as a row that never changes. It emits nothing.

    Delivery: exactly once. The key of a row is ``batch``, the txid of its batch, and ``number``,
    which counts from 1 within the batch. If a batch is committed again, its rows are written again,
    and those of the earlier attempt are undone. In a group of txids, each batch keeps its own txid.

    Numbers are unique within a batch. They are in no order, and with several tasks some are
    skipped. You may delete rows that you no longer need. ``txtopo.outbox.Publisher`` reads the rows
    that no attempt can change any more.

    With *expire_after* it keeps recent rows only. Such a table cannot be an outbox, because rows
    might expire before they are published. Its key begins with ``seen``, the time by which rows
    expire.

    Args:
        state: The state that keeps the rows; its columns are set here. Unless its table is named,
            the table is named after the component.
        fields: The fields of the tuples, which become the value columns.
        expire_after: The minimum time for which a row is kept after its batch was planned. By
            default, rows are kept forever.

    Raises:
        TopologyError: An argument is wrong, or a field cannot be a column; rename it.

    Example:
        >>> mails = Append(open_state("sqlite:///shop.db"), Fields("to string, text string"))
    """

    writes_nowhere_else = True

    def __init__(
        self, state: State, fields: Fields, *, expire_after: Duration | None = None
    ) -> None:
        checked_state("Append", state)
        if state.mode != "table":
            raise TopologyError(
                f"the state of an Append must not be in mode {state.mode!r}, which is for "
                "aggregates; expected mode='table'; remove mode= from open_state(…)",
                setting="mode",
                got=state.mode,
                expected="table",
            )
        if not isinstance(fields, Fields):
            raise TopologyError(
                f"the fields of Append are of the wrong type; got {fields!r:.200}; expected e.g. "
                "Fields('order long, text string')",
                setting="fields",
                got=f"{fields!r:.200}",
            )
        self.fields = fields
        self.lifetime: Lifetime | None = None
        key, by = KEY, "batch"
        if expire_after is not None:
            self.lifetime = Lifetime(duration("expire_after, of Append,", expire_after))
            # By the first column of the key, a store finds the rows of a range without an index.
            key, by = Fields.of([*SEEN, *KEY]), SEEN.names[0]
        self.needs_planned_time = self.lifetime is not None
        self.state = replace(state.with_columns(key, fields).ranged(by), prunable=True)

    @property
    def traits(self) -> Traits:
        """The state, which no code in the topology reads, and what its input must be."""
        held = "rows that are only appended, by txid and number"
        if self.lifetime is not None:
            held += f", and expire {shown(self.lifetime.after)} later"
        return replace(
            super().traits,
            state=self.state,
            reads_states=False,
            check_input=self._check_input,
            holds=held,
            rows=None if self.lifetime is None else BY_PLANNED_TIME,
            expires=self.lifetime is not None,
        )

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._context, self._attempt = context, attempt
        self._rows: list[Any] = []

    def execute(self, tuple: Tuple) -> None:
        """Keep a row until the end of the batch."""
        self._rows.append(tuple.values if len(self.fields) > 1 else tuple.values[0])

    def finish_batch(self) -> None:
        """Write the rows, and let earlier ones expire."""
        if self.lifetime is None:
            if self._rows:
                self._write(self._numbers)
            return
        now = self._context.planned_time
        self._write([(now, *key) for key in self._numbers], self.lifetime.bound(now))

    @property
    def _numbers(self) -> list[tuple[Any, ...]]:
        """Txid and number of each row. A task has what its own index leaves as a remainder."""
        first, step = 1 + self._context.task_index, self._context.tasks
        numbers = range(first, 1 + step * len(self._rows), step)
        return [(self._attempt.txid, number) for number in numbers]

    def _write(self, keys: Sequence[tuple[Any, ...]], expired: Any = None) -> None:
        """Write the rows with these keys; rows expire that were seen at *expired* or before."""
        context = self._context
        with context.state(context.component_id).transaction(self._attempt) as state:
            state.put_all(zip(keys, self._rows, strict=True))
            if expired is not None:
                state.expire(expired)

    def _check_input(self, fields: Fields) -> None:
        if fields != self.fields:
            raise FieldsError(
                f"the rows of Append have other fields; got {fields}; expected {self.fields}; "
                "change its fields, or the bolt above",
                got=str(fields),
                expected=str(self.fields),
            )
