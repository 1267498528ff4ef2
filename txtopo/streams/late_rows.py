"""Rows that are set aside: late rows, rows without a usable event time, and their tables."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, Committer
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import EPOCH, TaskContext
from txtopo.durations import MICROSECOND
from txtopo.log_records import logger_of
from txtopo.state.keyed_columns import order_of_all
from txtopo.state.transaction import StateHandle
from txtopo.streams.event_time import WATERMARK
from txtopo.traits import Traits
from txtopo.tuples import Fields, Stream

_logger = logger_of("txtopo.streams")

LATE, UNUSABLE = "late", "unusable"
"""Names of the states of late rows, and of rows without a usable event time."""

LATE_KEY = Fields("batch long, number long")
"""The key of such a row, as for dead letters: its txid, and its number in the batch, from 1."""


class Watermark:
    """W(T - 1) and W(T) as a committer receives them; None while unknown."""

    def __init__(self) -> None:
        self.before: datetime.datetime | None = None
        self.after: datetime.datetime | None = None

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Keep the watermark, if a batch is from its stream: no other stream has its fields.

        Returns:
            Whether the batch was the watermark.
        """
        if batch.schema.names != list(WATERMARK.names):
            return False
        self.before, self.after = (column[0].as_py() for column in batch.columns)
        return True


class LateRows:
    """Writes the rows that a txid sets aside, in an order that depends on these rows alone.

    Args:
        handle: The state.
        attempt: The attempt.
    """

    def __init__(self, handle: StateHandle, attempt: TransactionAttempt) -> None:
        self._handle, self._attempt = handle, attempt

    def keep(self, rows: pa.Table) -> None:
        """Write rows, whose columns are the value columns of the state, into the state."""
        with self._handle.transaction(self._attempt) as values:
            if not rows.num_rows:
                return
            rows = rows.take(order_of_all(rows))
            batches = pa.repeat(pa.scalar(self._attempt.txid, pa.int64()), rows.num_rows)
            numbers = pa.array(range(1, rows.num_rows + 1), pa.int64())
            for at, column in enumerate((batches, numbers)):
                rows = rows.add_column(at, LATE_KEY[at].name, column)
            values.put_columns(rows)


class UnusableRows(ArrowBolt, Committer):
    """Keeps the rows of a source that have no usable event time.

    Delivery: each row is kept exactly once.

    Args:
        fields: The fields of the rows.
    """

    writes_nowhere_else = True
    output_streams: Mapping[str, Stream | Fields] = {}

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self.output_fields = None

    @property
    def traits(self) -> Traits:
        """The traits of the bolt, with the state that keeps the rows."""
        return Traits(operators=(f"rows without a usable time in state {UNUSABLE}",))

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        handle = context.state(UNUSABLE)
        self._rows, self._table = LateRows(handle, attempt), handle.table.name
        self._about = context.topology_id, attempt.txid
        self._batches: list[pa.RecordBatch] = []

    def execute(self, batch: pa.RecordBatch) -> None:
        """Add rows to the batch."""
        self._batches.append(batch)

    def finish_batch(self) -> None:
        """Write the rows of the batch, and log a warning if there are any."""
        rows = pa.Table.from_batches(self._batches, self._fields.arrow_schema())
        if rows.num_rows:
            text = "topology %r: txid %d: %d rows without a usable event time go to state %r"
            _logger.warning(text, *self._about, rows.num_rows, self._table)
        self._rows.keep(rows)


def on_time(
    rows: pa.Table, times: pa.ChunkedArray, before: datetime.datetime | None
) -> tuple[pa.Table, pa.Table]:
    """Divide rows into rows that are on time and rows that are late.

    Args:
        rows: The rows.
        times: Their event times, as :func:`microseconds` returns them.
        before: The watermark of the previous txid; None if unknown, in which case nothing is late.
    """
    if before is None or not rows.num_rows:
        return rows, rows.slice(rows.num_rows)
    late = pc.less(times, microseconds_of(before))
    if not pc.any(late).as_py():
        return rows, rows.slice(rows.num_rows)
    return rows.filter(pc.invert(late)), rows.filter(late)


def microseconds(
    times: pa.ChunkedArray, offset: datetime.timedelta = datetime.timedelta(0)
) -> pa.ChunkedArray:
    """Return event times, with their offset, in microseconds since 1970.

    Creating Python's own datetimes with a zone would take five times as long.
    """
    found = times.cast(pa.int64())
    return found if not offset else pc.add(found, offset // MICROSECOND)


def moment(microseconds: int) -> datetime.datetime:
    """Return the time that is this many microseconds after 1970."""
    return EPOCH + datetime.timedelta(microseconds=microseconds)


def microseconds_of(time: datetime.datetime) -> int:
    """Return the microseconds from 1970 to a time."""
    return (time - EPOCH) // MICROSECOND
