"""Append: the ready-made committer that appends its rows to a table, such as an outbox."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import BatchBolt, Committer
from txtopo.bolts.dead_letters import KEY
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import FieldsError, TopologyError
from txtopo.state.registry import State, checked_state
from txtopo.traits import Traits
from txtopo.tuples import Fields, Tuple


class Append(BatchBolt, Committer):
    """Appends each of its tuples to a state, as a row that nobody changes. It emits nothing.

    Delivery: exactly once. The key of a row is the txid of its batch, ``batch``, and a ``number``
    in it, from 1. A batch that is committed again brings its rows again, and those of the earlier
    attempt are undone. In a group of txids each batch keeps its own txid.

    Numbers are unique within a batch. They follow no order, and with several tasks some are left
    out. You may delete rows that you no longer need. ``txtopo.outbox.Publisher`` reads those that
    no attempt can change any more.

    Args:
        state: The state that keeps the rows; its columns are set here. Its table is named after the
            component, unless it has a name.
        fields: The fields of the tuples, which become the value columns.

    Raises:
        TopologyError: An argument is wrong, or a field cannot be a column; rename it.

    Example:
        >>> mails = Append(open_state("sqlite:///shop.db"), Fields("to string, text string"))
    """

    writes_nowhere_else = True

    def __init__(self, state: State, fields: Fields) -> None:
        checked_state("Append", state)
        if state.mode != "table":
            raise TopologyError(
                f"the state of Append is in mode {state.mode!r}, which is for aggregates; expected "
                "mode='table'; leave mode= out of open_state(…)",
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
        self.state = replace(state.with_columns(KEY, fields).ranged("batch"), prunable=True)

    @property
    def traits(self) -> Traits:
        """The state, which no code in the topology reads, and what its input must be."""
        return replace(
            super().traits,
            state=self.state,
            reads_states=False,
            check_input=self._check_input,
            holds="rows that are only appended, by txid and number",
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
        """Write the rows. Each task has the numbers that its own index leaves as a remainder."""
        if not self._rows:
            return
        txid, context = self._attempt.txid, self._context
        numbers = range(1 + context.task_index, 1 + context.tasks * len(self._rows), context.tasks)
        keyed = zip(((txid, number) for number in numbers), self._rows, strict=True)
        with context.state(context.component_id).transaction(self._attempt) as state:
            state.put_all(keyed)

    def _check_input(self, fields: Fields) -> None:
        if fields != self.fields:
            raise FieldsError(
                f"the rows of Append have other fields; got {fields}; expected {self.fields}; "
                "change its fields, or the bolt above",
                got=str(fields),
                expected=str(self.fields),
            )
