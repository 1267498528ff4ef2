"""expire_after: what operators make of that argument: the columns of the state, and the watermark.

The rules are in :mod:`txtopo.streams.expiring_tables` and :mod:`txtopo.streams.expiring_rows`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.bolts.append import Append
from txtopo.bolts.persistent_aggregate import check_expiring_aggregate
from txtopo.durations import Duration, duration
from txtopo.errors import FieldsError
from txtopo.state.lifetimes import SEEN, Lifetime, with_seen
from txtopo.state.registry import State
from txtopo.streams.checks import check_new_columns
from txtopo.streams.draft import readable_state
from txtopo.streams.event_time import WATERMARK
from txtopo.streams.expiring_rows import TimedAppend
from txtopo.streams.expiring_tables import TableExpiry
from txtopo.streams.nodes import Port
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from txtopo.streams.stream import DataStream


def expiring(
    stream: DataStream, operator: str, kept: State, after: Duration
) -> tuple[State, TableExpiry, Port | None]:
    """Return the state of a table with ``seen``, when its values expire, and what says when.

    Args:
        stream: The stream that the table is made of.
        operator: The operator, for messages.
        kept: The state, with the columns of the table.
        after: How long a value counts without a row.

    Raises:
        TopologyError: The state cannot be read, a column is called ``seen``, rows of the stream are
            taken back, or *after* is not a duration.
    """
    lifetime = Lifetime(duration(f"expire_after, of {operator},", after))
    check_expiring_aggregate(operator, kept, stream.retracted)
    readable_state(operator, kept)
    columns = Fields.of([*kept.key, *kept.value])
    check_new_columns(f"the state of {operator}", columns, SEEN)
    state = with_seen(kept)
    if stream.time is None:
        return state, TableExpiry(lifetime), None
    watermark = stream.draft.watermark(stream.time, state, state.table or "")
    return state, TableExpiry(lifetime, stream.time, watermark.output), watermark


def expiring_append(
    stream: DataStream, state: State, after: Duration
) -> tuple[Append, tuple[Port, ...]]:
    """Return the bolt that appends the rows of a stream, and what else it reads.

    Raises:
        TopologyError: An argument is wrong.
    """
    if stream.time is None:
        return Append(state, stream.fields, expire_after=after), ()
    if stream.fields.names == WATERMARK.names:
        raise FieldsError(
            f"append with expire_after takes no rows whose only columns are "
            f"{', '.join(WATERMARK.names)}; watermarks have exactly these; rename one with "
            "select()",
            stream=stream.name,
        )
    bolt = TimedAppend(state, stream.fields, after, stream.time)
    watermark = stream.draft.watermark(stream.time, bolt.state, bolt.state.table or "")
    bolt.watermark = watermark.output
    return bolt, (watermark,)
