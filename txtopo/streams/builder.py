"""StreamBuilder: builds a transactional topology from operators on streams.

:meth:`StreamBuilder.build_topology` turns every operator into ordinary spouts, bolts, committers
and states. No module outside this package depends on operators. So exactly-once relies on the same
mechanisms as in every topology: attempts, ledgers, undo before redo.

Rules
-----
1. Stateless operators (``map``, ``filter`` …) run in the processing phase, unless they are below a
   committer. Operators that read a state (``update``, ``query``, ``changes``) are committers of one
   task. Such a committer reads its state as of the previous txid, with the writes of earlier txids
   in its group and its own writes.
2. Between two batches a bolt keeps nothing except in a state.
3. In a replay an operator may emit only rows that follow from the rows of the batch and the state
   as of the previous txid. So an operator that emits values that it reads takes opaque states only:
   a transactional state that already holds the txid would show the values after it.
4. Ids are made from the names of sources and operators, in the order of the program. Ids, groupings
   and fusion do not depend on a parallelism, since a topology that has run is known by its
   components, and may be started again with another parallelism.

Fusion
------
Consecutive operators without state become one bolt, which has the id of the last of them: rows do
not move between tasks there. A bolt ends where a stream has two readers, and at a branch. A bolt
begins at a merge, below any other kind of component, and where ``parallelism=`` is given.

How a query reads a table
-------------------------
Only one component reads and writes a state. So the rows of a stream that queries a table go to the
component of the table: it first applies the table's own rows of the batch, then answers. A stream
that depends on the table cannot query it again in the same txid: that would be a cycle.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from txtopo.bolts.bolt import Committer
from txtopo.bolts.dead_letters import DeadLetters
from txtopo.builders.transactional import Spout, Topology
from txtopo.durations import Duration
from txtopo.errors import FieldsError, TopologyError, nearest
from txtopo.state.registry import State
from txtopo.streams.checks import EventTime, declared_time
from txtopo.streams.draft import Draft
from txtopo.streams.event_time import TimeColumn
from txtopo.streams.lookup_sources import LookupSource
from txtopo.streams.lookups import Lookup, declared_lookup
from txtopo.streams.nodes import Port, SourceNode
from txtopo.streams.stream import DataStream
from txtopo.topology.component import checked_streams, spout_kind
from txtopo.tuples import DEFAULT_STREAM, Fields

DAY = datetime.timedelta(days=1)
"""How far ahead of the planned time an event time may be by default."""


class StreamBuilder:
    """Builds a transactional topology from operators on streams (Trident's counterpart).

    Delivery: each record of a source counts exactly once in each state, whatever crashes. A mistake
    raises an error at its line in the program, or in :meth:`build_topology`.

    Args:
        id: Id of the topology; its progress is stored under it. See
            ``TransactionalTopologyBuilder``.
        dead_letters: Where to keep records that a spout cannot decode; see
            ``TransactionalTopologyBuilder``. Rows without a usable event time also become dead
            letters, if their source has no ``unusable``. Functions of operators produce none.
        marks: The state of the watermarks, opaque; by default, the table ``<topology>_marks`` in
            the store of the first operator that needs one.

    Raises:
        TopologyError: An argument is wrong; the message says which and how to repair it.

    Example:
        >>> from txtopo import Count, Fields, StreamBuilder, open_state
        >>> from txtopo.spouts import MemoryTransactionalSpout
        >>> spout = MemoryTransactionalSpout({0: [["a b"], ["b"]]}, Fields("line string"), 1)
        >>> builder = StreamBuilder("words")
        >>> lines = builder.source("lines", spout)
        >>> words = lines.flat_map(lambda row: [[w] for w in row["line"].split()], "word string")
        >>> counts = open_state("memory:", table="counts")
        >>> table = words.group_by("word").persistent_aggregate(counts, count=Count())
        >>> builder.build_topology().id
        'words'
    """

    def __init__(
        self,
        id: str,
        *,
        dead_letters: State | Committer | DeadLetters | None = None,
        marks: State | None = None,
    ) -> None:
        self._draft = Draft(id, dead_letters, marks)

    def source(
        self,
        id: str,
        spout: Spout,
        parallelism: int = 1,
        *,
        event_time: str | None = None,
        delay: Duration = datetime.timedelta(0),
        by: str | Sequence[str] = (),
        idle_after: Duration | None = None,
        max_ahead: Duration | None = DAY,
        clock: Duration | None = None,
        unusable: State | None = None,
    ) -> DataStream:
        """Add a spout and return its stream ``default``, optionally with event time.

        Args:
            id: Id of the spout.
            spout: The spout.
            parallelism: The number of tasks of the spout and of the operators downstream.
            event_time: The ``timestamp`` column with the time at which the event of a row happened.
                The watermark is the largest such time so far, minus *delay*; earlier rows are late.
            delay: How much older than the newest row a row may be before it is late.
            by: Columns that identify the parts of the source; the slowest part that has had a row
                determines the watermark.
            idle_after: A part without a row for this long, in planned time, is ignored.
            max_ahead: How far an event time may be ahead of the planned time of its txid; None for
                no limit. By default, a source without planned time has no limit.
            clock: If a part has no row for this long, its watermark is the planned time minus
                *delay*, and txids without rows are planned. An alternative to *idle_after*, for
                rows that arrive as they happen. It has no effect on a source that has never had a
                row.
            unusable: The state that keeps rows without a usable event time, by txid and number. By
                default, such a row becomes a dead letter. Without *dead_letters*, it is kept in the
                table ``<topology>_unusable``, in the store of the first table of the program (or
                ``<marks>_unusable``, beside *marks*). If the program has no table, the row ends the
                run, because only logging it would lose it.

        Raises:
            TopologyError: An argument is wrong, or the topology cannot have this spout.
        """
        with self._draft.all_or_nothing():
            self._draft.take_id(id, "spout")
            node = self._draft.add_source(SourceNode(id, (), parallelism, spout))
            streams = checked_streams(id, spout)
            if DEFAULT_STREAM not in streams:
                got = ", ".join(map(repr, streams))
                told = f"spout {id!r} has no stream 'default'; got {got}; expected output_fields"
                raise TopologyError(f"{told} = Fields(…)", component=id)
            # By default there is a limit if batches have a plan, since a plan has the planned time.
            unlimited = event_time is None or spout_kind(id, spout).unplanned is not None
            max_ahead = None if max_ahead is DAY and unlimited else max_ahead
            given = EventTime(event_time, delay, by, idle_after, clock, max_ahead, unusable)
            return self._timed(node, streams[DEFAULT_STREAM].fields, given)

    def _timed(self, node: SourceNode, fields: Fields, given: EventTime) -> DataStream:
        """Return the stream of a spout, which has event time if it declares it."""
        id, time = node.id, declared_time(node.id, fields, given)
        if time is None:
            return DataStream(self._draft, id, (Port(node),), fields)
        port = self._draft.measure_times(node, time, fields, given.unusable)
        column = TimeColumn(time.column, {id: datetime.timedelta(0)})
        return DataStream(self._draft, id, (port,), fields, column)

    def lookup(
        self,
        id: str,
        source: str | LookupSource,
        *,
        key: str | Sequence[str],
        value: str | Fields,
        refresh: Duration = "5 minutes",
    ) -> Lookup:
        """Declare an external table to join streams with: ``stream.join(lookup, on=…)``.

        Each txid reads one version of the table, which is planned and stored with the txid, so a
        replay reads the same version. Each process holds the rows of a version in memory.

        Args:
            id: Id of the lookup; versions are stored under it.
            source: ``"delta:///folder"``, or a ``DeltaLookup``, ``QueryLookup`` or ``FilesLookup``.
            key: The key columns; no two rows may have the same key. Their types are those of the
                columns they are compared with.
            value: The columns to read, with their types: ``"country string, since date"``.
            refresh: How long a version is used before planning looks for a newer one.

        Raises:
            TopologyError: The id is taken, or an argument is wrong.
        """
        self._draft.take_id(id, "lookup")
        return Lookup(self._draft, declared_lookup(id, source, key, value, refresh))

    def merge(self, *streams: DataStream) -> DataStream:
        """Return one stream with the rows of several streams that have the same fields.

        Rows of different streams are in no particular order.

        Raises:
            TopologyError: A stream is of another builder, occurs twice, or has other fields.
        """
        if not streams:
            raise TopologyError("merge got no streams; expected two or more")
        first, ports = streams[0], list[Port]()
        for stream in streams:
            self._draft.check_own("merge", stream, DataStream)
            if stream.fields != first.fields:
                raise TopologyError(
                    f"merged streams differ in their fields; got {first.fields!r} of "
                    f"{first.name!r} and {stream.fields!r} of {stream.name!r}; expected the same "
                    "names and types in the same order; use select() or map()",
                    stream=stream.name,
                )
            for port in stream.ports:
                if port in ports:
                    raise TopologyError(
                        f"stream {port.name!r} occurs twice in a merge, so its rows would count "
                        "twice; expected distinct streams; remove one",
                        stream=port.name,
                    )
                ports.append(port)
        name, fields = self._draft.free_id("merge"), first.fields
        retracted = _merged_retracted(streams)
        table = next((each.changes_of for each in streams if each.changes_of), None)
        time = merged_time(streams)
        return DataStream(self._draft, name, tuple(ports), fields, time, retracted, table)

    def output(self, id: str, stream: str) -> DataStream:
        """Return a stream other than ``default`` of a spout or bolt that was added.

        Args:
            id: Id of the spout or bolt.
            stream: Name of the stream.

        Raises:
            TopologyError: There is no such component or stream, or its emitter picks the tasks.
        """
        outputs = {each.id: each for each in self._draft.nodes if each.user_object is not None}
        if not isinstance(id, str) or not isinstance(stream, str):
            raise TopologyError(
                f"output takes two strings; got {id!r:.100} and {stream!r:.100}; expected the id "
                "of a spout or bolt and the name of its stream",
                setting="stream" if isinstance(id, str) else "id",
            )
        if id not in outputs:
            raise TopologyError(
                f"there is no spout or bolt {id!r} whose stream {stream!r} could be used; "
                f"{nearest(id, outputs)}",
                component=id,
            )
        node = outputs[id]
        streams = checked_streams(id, node.user_object)
        if stream not in streams or streams[stream].direct:
            usable = [name for name, each in streams.items() if not each.direct]
            raise TopologyError(
                f"{id!r} has no stream {stream!r} that can be used here; {nearest(stream, usable)}",
                component=id,
                stream=stream,
            )
        port = Port(node, stream)
        return DataStream(self._draft, port.name, (port,), streams[stream].fields)

    def build_topology(self) -> Topology:
        """Check everything and return the topology; later changes here do not affect it.

        Raises:
            TopologyError: The topology cannot run; the message says what to repair.
        """
        return self._draft.build_topology()


def _merged_retracted(streams: Sequence[DataStream]) -> str | None:
    """Return the column of merged streams that marks rows which are taken back; None for none.

    Raises:
        FieldsError: They have several such columns.
    """
    first, *more = dict.fromkeys(each.retracted for each in streams if each.retracted) or [None]
    if more:
        raise FieldsError(
            f"merged streams mark rows that are taken back in several columns; got {first!r} and "
            f"{more[0]!r}; expected one; rename it in one of them with select()",
            field=more[0],
        )
    return first


def merged_time(streams: Sequence[DataStream]) -> TimeColumn | None:
    """Return the event time of merged streams, if all have it in the same column."""
    times = [stream.time for stream in streams]
    if times[0] is None or any(
        time is None or (time.column, time.offset) != (times[0].column, times[0].offset)
        for time in times
    ):
        return None
    return times[0].together(*(time for time in times[1:] if time is not None))
