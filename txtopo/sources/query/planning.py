"""Plans the batches of a query, in the driver.

Rows
----
1. A row whose key is a future time is treated as absent: it is not the newest key, and no batch
   reads up to it. So one row of a writer whose clock is ahead does not move the position past all
   present rows. The row is reported, and read when its time has come. The time of a date has come
   when the day is over, since rows of that day are inserted until then.
2. Numbers have no such bound. A row whose number is far ahead, for example one typed by hand, is
   read, and moves the position with it. The rows that follow then have keys in the gap before it,
   and count as read. So the largest gaps are kept, and a row that appears in one ends the run. All
   numbers before the first row are also a gap.
3. A row that is added with the last key that was read counts as read. So the rows of that key are
   counted, and an additional one ends the run. This happens if keys are times of whole hours, or
   numbers of files, and ``settle_s`` is shorter than the time in which rows with one key are
   inserted.
"""

from __future__ import annotations

import datetime
import math
import os
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from txtopo import clock
from txtopo.context import TaskContext
from txtopo.errors import (
    ConfigError,
    EmitError,
    InfrastructureError,
    OffsetRegression,
    SourceDataLost,
)
from txtopo.log_records import logger_of
from txtopo.metadata import Json
from txtopo.sources.query.keys import Gap, Key, PlannedKeys, comparable
from txtopo.sources.query.source import QuerySource
from txtopo.spouts.spout import LastBatch, TransactionalCoordinator

if TYPE_CHECKING:
    from sqlalchemy import Connection

_logger = logger_of("txtopo.spouts")

# The newest key is noted this many times while it settles.
_NOTES_MAX = 100

_MICROSECOND = datetime.timedelta(microseconds=1)

# The clocks of some databases tick in seconds.
_TICK_S = 1.0

# The largest gap is the one before a number typed by hand, but some gaps may be natural, and one is
# before the first number.
_GAPS_MAX = 5

# Up to this number, rows of the last key that was read are counted at every look; beyond it, only
# before a batch is planned.
_COUNTED_MAX = 1_000


class QueryCoordinator(TransactionalCoordinator):
    """Plans the batches of a query in the driver."""

    def __init__(
        self,
        source: QuerySource,
        start_after: Key | None,
        settle_s: float,
        batch_rows_max: int,
        context: TaskContext,
        *,
        may_change: bool = False,
        max_ahead_s: float | None = None,
    ) -> None:
        self._source = source
        self._max_ahead_s = None if source.counts else max_ahead_s
        self._ahead: Key | None = None
        self._first = start_after
        self._settled_keys = SettledKeys(settle_s)
        self._batch_rows_max = batch_rows_max
        self._tasks = context.tasks
        self._about = {"topology": context.topology_id, "component": context.component_id}
        self._may_change = may_change
        self._engine = source.engine()
        self._rows = source.selectable()
        self._upto: Key | None = None
        self._newest: Key | None = None
        self._was_empty = self._warned = self._replaced = False
        self._file: tuple[int, int] | None = None

    def check(self) -> None:
        """Check that the query can be read.

        Raises:
            ConfigError: It cannot be read, or a key is NULL or of another type; repair the query.
            InfrastructureError: The database cannot be reached; try again.
        """
        from sqlalchemy import func, select
        from sqlalchemy.exc import DataError, DBAPIError

        source, key = self._source, self._rows.c[self._source.key]
        with source.connected(self._engine) as connection:
            pass  # an unreachable database is not a mistake in the query
        try:
            with self._engine.connect() as connection:
                connection.execute(select(self._rows).limit(0)).all()  # values do not matter
                self._check_null(connection, ConfigError)
                source.check_order(connection, select(key))
                source.checked(connection.scalar(select(func.min(key))))
        except DataError as error:
            raise ConfigError(source.unreadable(error), query=source.query) from error
        except DBAPIError as error:
            if error.connection_invalidated:
                raise InfrastructureError(
                    f"cannot read {source.query!r:.100}: {error.orig}", query=source.query
                ) from error
            raise ConfigError(
                f"the query cannot be run: {error.orig}; got {source.query!r:.200}; expected a "
                f"table, or a SELECT in parentheses, with {', '.join(source.fields.names)}",
                query=source.query,
            ) from error

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether a key after the last batch has settled, or enough of them.

        Raises:
            SourceDataLost: Unread rows are gone.
            OffsetRegression: The table was emptied, and was filled again with keys before the
                position.
            TopologyChanged: The last batch was planned by another query or key.
            EmitError: A key cannot be read, or compared; repair its row.
        """
        with self._source.connected(self._engine) as connection:
            now, self._newest = self._look(connection)
            position = self._position(last.metadata)
            self._check_lost(position, last.metadata)
            self._check_filled_again(position, last.metadata)
            self._upto = self._settled_keys.settled(now, clock.now(), self._newest)
            waits = self._upto is None or (
                position is not None and comparable(self._upto) <= comparable(position)
            )
            self._check_late(connection, last.metadata, also_many=not waits)
        if waits:
            return False
        if last.worth_a_batch(1, full=2):  # however few there are, so they need not be counted
            return True
        return last.worth_a_batch(self.unread(last)[self._source.key], self._batch_rows_max)

    def ended(self, last: LastBatch) -> bool:
        """Return whether the last look found no key after the batch, settled or not."""
        if self._ahead is not None:
            return False
        position, newest = self._position(last.metadata), self._newest
        return newest is None or (
            position is not None and comparable(newest) <= comparable(position)
        )

    def unread(self, last: LastBatch) -> Mapping[str, int]:
        """Return how many rows have settled, counted up to the limit of a batch."""
        from sqlalchemy import func, literal, select

        source, upto = self._source, self._upto
        assert upto is not None, "is_ready said so"
        within = source.between(self._rows, self._position(last.metadata), upto)
        few = select(literal(1)).select_from(self._rows).where(within)
        counted = select(func.count()).select_from(few.limit(self._batch_rows_max).subquery("few"))
        with source.connected(self._engine) as connection:
            return {source.key: connection.scalar(counted) or 0}

    def initialize_transaction(
        self, txid: int, previous_metadata: Json, *, rows_max: int | None = None
    ) -> Json:
        """Return the range of keys of the batch, divided into cuts.

        With *rows_max* it has no more rows, except to keep rows of equal keys together.

        Raises:
            SourceDataLost: Rows that were just seen have vanished.
            EmitError: A key is NULL, or cannot be compared; repair its row.
        """
        kept, upto = self._source.to_json, self._upto
        end = upto
        start = after = self._position(previous_metadata)
        assert upto is not None, "is_ready said so"
        cuts: list[tuple[Key, int]] = []
        with self._source.connected(self._engine) as connection:
            left = self._batch_rows_max if rows_max is None else min(rows_max, self._batch_rows_max)
            each = -(-left // self._tasks)
            self._check_null(connection, EmitError)
            while left > 0:
                cut = self._cut(connection, after, upto, min(left, each))
                if cut is None:
                    break
                cuts.append(cut)
                after, left = cut[0], left - cut[1]
            if rows_max == 0 and self._cut(connection, start, upto, 1) is not None:
                end = start  # there are rows, but they are for the next batch
            gaps = self._gaps_upto(connection, previous_metadata, start, after)
            last = cuts[-1][0] if cuts else end
            at_upto = self._planned_here(previous_metadata).at_upto
            if last is not None and last != start:
                at_upto = self._count_at(connection, last)
        return {
            "after": kept(start),
            "upto": kept(last),
            "cuts": [[kept(key), rows] for key, rows in cuts],
            "newest": kept(self._newest),
            **({} if at_upto is None else {"at_upto": at_upto}),
            **({"gaps": [[*gap] for gap in gaps]} if gaps else {}),
            "source": {**self._source.identity},
        }

    def planned_rows(self, metadata: Json) -> int:
        """Return how many rows a planned batch has."""
        return sum(rows for _, rows in self._source.planned(metadata).cuts)

    def lag(self, metadata: Json) -> Mapping[str, int]:
        """Return how far the newest key is ahead of a batch, as of the last look at the table.

        That is ``keys`` if they are numbers, which may have gaps, else ``seconds``. No query is
        made for it.
        """
        newest, planned = self._newest, self._planned_here(metadata)
        if newest is None or planned.upto is None:
            return {}
        distance: Any = comparable(newest) - comparable(planned.upto)
        if self._source.counts:
            return {"keys": max(0, distance)}
        return {"seconds": max(0, math.ceil(distance.total_seconds()))}

    def held_back(self) -> str | None:
        """Return which rows wait until their time has come."""
        if self._ahead is None:
            return None
        source = self._source
        come = "is over" if source.kind == "date" else "has come"
        return (
            f"rows of {source.query!r:.100} are ahead of the clock of the database, up to "
            f"{self._ahead}, and are read when the {source.key!r} of each {come}"
        )

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()

    def _cut(
        self, connection: Any, after: Key | None, upto: Key, rows_max: int
    ) -> tuple[Key, int] | None:
        from sqlalchemy import func, select

        source, rows = self._source, self._rows
        key = rows.c[source.key]
        within = select(key).where(source.between(rows, after, upto))
        first = within.order_by(key).limit(rows_max)
        source.check_order(connection, first, EmitError)
        newest = func.max(first.subquery("cut").c[source.key])
        end = source.checked(connection.scalar(select(newest)), EmitError)
        if end is None:
            return None
        # Counted by key, since rows of equal keys stay together.
        cut = select(key).where(source.between(rows, after, end))
        source.check_order(connection, cut, EmitError)
        count = connection.scalar(select(func.count()).select_from(cut.subquery("cut")))
        if not count or (after is not None and comparable(end) <= comparable(after)):
            raise SourceDataLost(
                f"rows of {source.query!r:.100} cannot be counted by {source.key!r}; got {count} "
                f"rows after {after} up to {end}, which is the key of a row after {after}; "
                "expected at least that row; was it just deleted? otherwise the database "
                f"compares the column differently from a {source.kind}; convert it in the query",
                query=source.query,
            )
        return end, count

    def _check_null(self, connection: Any, wrong: type[ConfigError | EmitError]) -> None:
        from sqlalchemy import select

        source, key = self._source, self._rows.c[self._source.key]
        if connection.execute(select(key).where(key.is_(None)).limit(1)).all():
            raise wrong(
                f"the key {source.key!r} of {source.query!r:.100} is NULL in some rows, which "
                "would never be read; expected NOT NULL; exclude them in the query",
                key=source.key,
            )

    def _look(self, connection: Connection) -> tuple[datetime.datetime, Key | None]:
        from sqlalchemy import func, select, union_all

        self._look_at_file()
        source, key = self._source, self._rows.c[self._source.key]
        dialect = self._engine.dialect.name
        zoneless = dialect in ("mysql", "mariadb")  # CURRENT_TIMESTAMP jumps in summer
        time = func.utc_timestamp() if zoneless else func.current_timestamp()
        ends = [select(end(key).label(source.key)) for end in (func.min, func.max)]
        # Values that SQLite sorts before or behind all keys do not have the form of a key.
        source.check_order(connection, union_all(*ends), EmitError)
        now, newest = connection.execute(select(time, func.max(key))).one()
        newest = source.checked(newest, EmitError)
        latest = self._latest(now)
        ahead = newest if latest is not None and newest is not None else None
        if latest is None or ahead is None or comparable(ahead) <= comparable(latest):
            self._ahead = None
        else:
            self._tell_ahead(ahead)
            newest = connection.scalar(select(func.max(key)).where(key <= latest))
            newest = source.checked(newest, EmitError)
        return now, newest

    def _look_at_file(self) -> None:
        """Record whether an SQLite file was replaced since the last look."""
        path = self._engine.url.database
        if self._engine.dialect.name != "sqlite" or not path:
            return
        try:
            found = os.stat(path)
        except OSError:
            return  # the next read will report it
        before, self._file = self._file, (found.st_dev, found.st_ino)
        self._replaced |= before not in (None, self._file)

    def _latest(self, now: datetime.datetime) -> Key | None:
        """Return the latest key whose time has come; None if no time is waited for."""
        if self._max_ahead_s is None:
            return None
        days = 0
        ahead_s = _TICK_S + self._max_ahead_s
        if self._source.kind == "date":  # the day must be over, including the last tick
            days, ahead_s = 1, self._max_ahead_s
        try:
            latest = comparable(now) + datetime.timedelta(days=-days, seconds=ahead_s)
        except OverflowError:
            return None
        if self._source.kind == "date":
            return cast("Key", latest.date())
        zone = datetime.UTC if self._source.kind == "timestamp" else None
        return cast("Key", latest.replace(tzinfo=zone))

    def _tell_ahead(self, newest: Key) -> None:
        told, self._ahead = self._ahead is not None, newest
        if not told:
            text = (
                "%s; is the clock of a writer wrong, or of the database? if these are local "
                "times, set max_ahead_s to the seconds by which they are ahead of UTC"
            )
            if self._source.kind == "date":
                text = (
                    "%s; if all rows of a date are inserted at once, set max_ahead_s to 86,400; "
                    "if these are local dates, to the seconds by which they are ahead of UTC"
                )
            _logger.warning(text, self.held_back(), extra=self._about)

    def _gaps_upto(
        self, connection: Any, metadata: Json, start: Key | None, end: Key | None
    ) -> tuple[Gap, ...]:
        """Return the largest gaps up to the end of a batch, the largest first."""
        from sqlalchemy import func, select

        source, key = self._source, self._rows.c[self._source.key]
        if not source.counts:
            return ()
        gaps = self._planned_here(metadata).gaps
        if end is None or end == start:
            return gaps
        before = func.lag(key).over(order_by=key)
        pairs = select(before.label("low"), key.label("high"))
        found = pairs.where(source.between(self._rows, start, end)).subquery("txtopo_pairs")
        low, high = found.c.low, found.c.high
        # As floats, since the distance of two 64-bit numbers may not fit into 64 bits.
        width = high * 1.0 - low
        widest = select(low, high).where(high > low + 1).order_by(width.desc())
        new = [Gap(*pair) for pair in connection.execute(widest.limit(_GAPS_MAX)).all()]
        first = connection.scalar(
            select(func.min(key)).where(source.between(self._rows, start, end))
        )
        new.append(Gap(cast("int | None", start), first))
        wide = {gap for gap in (*gaps, *new) if gap.width > 1}
        return tuple(sorted(wide, key=lambda gap: (-gap.width, gap.high))[:_GAPS_MAX])

    def _check_late(self, connection: Connection, metadata: Json, *, also_many: bool) -> None:
        """Look for rows in the skipped gaps, and for more rows of the last key.

        With *also_many* the rows of the last key are counted even if there are many.
        """
        planned = self._planned_here(metadata)
        if planned.gaps:
            self._check_gaps(connection, planned)
        if planned.at_upto is not None and (also_many or planned.at_upto <= _COUNTED_MAX):
            self._check_last_key(connection, planned)

    def _check_gaps(self, connection: Connection, planned: PlannedKeys) -> None:
        from sqlalchemy import func, select, union_all

        source, key = self._source, self._rows.c[self._source.key]
        # One by one, since a database uses the index for a single range, but not for several.
        firsts = [
            select(func.min(key).label(source.key)).where(each.holds(key)) for each in planned.gaps
        ]
        found = union_all(*firsts).subquery("txtopo_firsts")
        first = connection.scalar(select(func.min(found.c[source.key])))
        if first is None:
            return
        gap = next(each for each in planned.gaps if each.holds(first))
        where = f"before {gap.high}" if gap.low is None else f"between {gap.low} and {gap.high}"
        read = "which was read first" if gap.low is None else "which were read"
        raise OffsetRegression(
            f"rows of {source.query!r:.100} appeared with keys that count as read; got "
            f"{source.key} {first}, {where}, {read}; expected keys after {planned.upto}; was "
            f"{gap.high} set by hand, far ahead of its sequence, or is settle_s shorter than the "
            f"transactions that insert rows? give such rows keys after {planned.upto}, and let "
            "the sequence continue from there",
            query=source.query,
        )

    def _check_last_key(self, connection: Connection, planned: PlannedKeys) -> None:
        count = self._count_at(connection, planned.upto)
        if count <= (planned.at_upto or 0):
            return
        source = self._source
        raise OffsetRegression(
            f"rows of {source.query!r:.100} appeared with the last key that was read, and count "
            f"as read; got {count} rows with {source.key} {planned.upto}; expected at most "
            f"{planned.at_upto}, which were read; is settle_s shorter than the time in which rows "
            f"of one key are inserted? give such rows keys after {planned.upto}, and give the "
            "spout a longer settle_s, or a key that no two rows share",
            query=source.query,
        )

    def _count_at(self, connection: Connection, key: Key | None) -> int:
        """Return the number of rows of one key."""
        from sqlalchemy import func, select

        rows = self._rows
        same = rows.c[self._source.key] == key
        if isinstance(key, datetime.datetime):  # which SQLite stores in several forms
            first = comparable(key) == datetime.datetime.min
            same = self._source.between(rows, None if first else key - _MICROSECOND, key)
        return connection.scalar(select(func.count()).select_from(rows).where(same)) or 0

    def _planned_here(self, metadata: Json) -> PlannedKeys:
        """Return the keys that this query has planned; none if another query made the plan."""
        if not isinstance(metadata, dict) or metadata.get("source") != self._source.identity:
            return PlannedKeys(None, None, None, [])
        return self._source.planned(metadata)

    def _position(self, metadata: Json) -> Key | None:
        if metadata is None:
            return self._first
        planned = self._source.planned(metadata)
        self._source.check_same(metadata, may_change=self._may_change)
        return planned.upto

    def _check_lost(self, position: Key | None, metadata: Json) -> None:
        if metadata is None:
            return
        before = self._source.planned(metadata).newest
        if before is None or (position is not None and comparable(before) <= comparable(position)):
            return
        if self._newest is None or comparable(before) > comparable(self._newest):
            raise SourceDataLost(
                f"rows of {self._source.query!r:.100} disappeared before they were read; got "
                f"{self._newest} as the largest {self._source.key!r}, which was {before}; "
                "expected rows to stay until they are committed; restore them, or begin again "
                "with start_after, under a new topology id",
                query=self._source.query,
            )

    def _check_filled_again(self, position: Key | None, metadata: Json) -> None:
        """Look for new rows up to the position, which would never be read.

        Rows that were read may be deleted, even the last ones. So a table that ends before its
        position proves nothing, and causes a warning. After the table was empty, all its rows are
        new. In a different SQLite file they are from another time, for example from a backup, and
        new rows follow them.
        """
        newest, was_empty = self._newest, self._was_empty
        self._was_empty = newest is None
        if metadata is None or newest is None or position is None:
            return
        if comparable(newest) >= comparable(position):
            return
        source = self._source
        if self._replaced:
            raise OffsetRegression(
                f"the file of {source.query!r:.100} was replaced by one that ends before the "
                f"position; got {newest} as the largest {source.key!r}; expected keys after "
                f"{position}, up to which it was read; was it restored from a backup? new rows "
                "get keys that count as read; restore the newer file, or begin again under "
                "another topology id; if only rows that were read are missing, start again",
                query=source.query,
            )
        if was_empty:
            raise OffsetRegression(
                f"{source.query!r:.100} was emptied and filled again with keys that count as "
                f"read; got {newest} as the largest {source.key!r}; expected keys after "
                f"{position}, up to which it was read; let keys continue when a table is emptied "
                "(TRUNCATE … CONTINUE IDENTITY, AUTOINCREMENT of SQLite) and give the rows new "
                "ones, or begin again under another topology id",
                query=source.query,
            )
        if not self._warned:
            self._warned = True
            text = (
                "the largest %r of %.100r is %s, and rows up to %s count as read; was the table "
                "filled again from the beginning? such rows are never read"
            )
            about = self._about
            _logger.warning(text, source.key, source.query, newest, position, extra=about)


class SettledKeys:
    """Finds the largest key that has been visible long enough.

    Two clocks must agree: the database's own, which may be set forward, and one of the driver that
    is never set. If the database's clock goes back, the noted keys have to settle again.
    """

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._seen: deque[tuple[datetime.datetime, float, Key]] = deque()
        self._settled: Key | None = None

    def settled(self, now: datetime.datetime, elapsed_s: float, newest: Key | None) -> Key | None:
        """Return the largest key that may be read.

        Args:
            now: The time of the database.
            elapsed_s: The time of a clock that only goes forward.
            newest: The newest key at that time.
        """
        if not self._settle_s:
            return newest
        if self._seen and _seconds(now, self._seen[-1][0]) < -_TICK_S:
            self._seen.clear()

        def lasted(seen: tuple[datetime.datetime, float, Key], limit_s: float) -> bool:
            return min(_seconds(now, seen[0]), elapsed_s - seen[1]) >= limit_s

        if newest is not None and (
            not self._seen or lasted(self._seen[-1], self._settle_s / _NOTES_MAX)
        ):
            self._seen.append((now, elapsed_s, newest))
        while self._seen and lasted(self._seen[0], self._settle_s + _TICK_S):
            self._settled = self._seen.popleft()[2]
        return self._settled


def _seconds(now: datetime.datetime, before: datetime.datetime) -> float:
    return (now - before).total_seconds()
