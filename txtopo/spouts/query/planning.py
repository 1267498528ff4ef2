"""QueryCoordinator: cuts the keys of a query into ranges, in the driver.

The metadata of a batch is ``{"after": key, "upto": key, "cuts": [[key, rows], …], "newest": key}``.
Each cut is the share of a task: the rows behind the cut before it, up to its key. How many these
were when the batch was planned lets a replay tell that they have changed. ``newest`` was the
largest key then; that it is gone before it was read can be told by it.
"""

from __future__ import annotations

import datetime
from collections import deque
from typing import Any, cast

from txtopo.errors import ConfigError, InfrastructureError, SourceDataLost
from txtopo.metadata import Json
from txtopo.spouts.query.source import Key, QuerySource
from txtopo.spouts.transactional import LastBatch, TransactionalCoordinator

# Keys seen are noted so many times in the time that they need to settle.
_NOTES_MAX = 100
# The clocks of some databases tick in seconds.
_TICK_S = 1.0


class Settling:
    """Which key has been seen long enough, by the database's own clock."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._seen: deque[tuple[datetime.datetime, Key]] = deque()
        self._settled: Key | None = None

    def settled(self, now: datetime.datetime, newest: Key | None) -> Key | None:
        """Return the largest key that may be read, when *newest* is seen at *now*."""
        if not self._settle_s:
            return newest
        apart = datetime.timedelta(seconds=self._settle_s / _NOTES_MAX)
        if newest is not None and (not self._seen or now - self._seen[-1][0] >= apart):
            self._seen.append((now, newest))
        long = datetime.timedelta(seconds=self._settle_s + _TICK_S)
        while self._seen and now - self._seen[0][0] >= long:
            self._settled = self._seen.popleft()[1]
        return self._settled


class QueryCoordinator(TransactionalCoordinator):
    """Plans batches of a query."""

    def __init__(
        self,
        source: QuerySource,
        start_after: Key | None,
        settle_s: float,
        batch_rows_max: int,
        tasks: int,
    ) -> None:
        self._source = source
        self._first = start_after
        self._settling = Settling(settle_s)
        self._batch_rows_max = batch_rows_max
        self._cut_rows_max = -(-batch_rows_max // tasks)
        self._engine = source.engine()
        self._rows = source.selectable()
        self._upto: Key | None = None
        self._newest: Key | None = None

    def check(self) -> None:
        """Check that the query can be read.

        Raises:
            ConfigError: It cannot, or a key is NULL.
            InfrastructureError: The database cannot be reached; try again.
        """
        from sqlalchemy import select
        from sqlalchemy.exc import DBAPIError

        source = self._source
        with source.connected(self._engine) as connection:
            pass  # that it cannot be reached is nobody's mistake
        try:
            with self._engine.connect() as connection:
                connection.execute(select(self._rows).limit(0)).all()  # no value is looked at
                nulls = select(self._rows.c[source.key]).where(self._rows.c[source.key].is_(None))
                null = connection.execute(nulls.limit(1)).all()
        except DBAPIError as error:
            if error.connection_invalidated:
                raise InfrastructureError(f"cannot read {source.query!r:.100}") from error
            raise ConfigError(
                f"the query cannot be run: {error.orig}; got {source.query!r:.200}; expected a "
                f"table, or a SELECT in parentheses, with {', '.join(source.fields.names)}"
            ) from error
        if null:
            raise ConfigError(
                f"the key {source.key!r} of {source.query!r:.100} is NULL in some rows, which "
                "would never be read; expected NOT NULL; leave them out by a query",
                key=source.key,
            )

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether a key behind the last batch has settled.

        Raises:
            SourceDataLost: Rows that were not read are gone.
        """
        now, self._newest = self._look()
        position = self._position(last.metadata)
        self._check_lost(position, last.metadata)
        self._upto = self._settling.settled(now, self._newest)
        return self._upto is not None and (position is None or cast(Any, self._upto) > position)

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        """Return the keys of the batch."""
        kept, upto = self._source.to_json, self._upto
        start = after = self._position(previous_metadata)
        assert upto is not None, "is_ready said so"
        cuts: list[tuple[Key, int]] = []
        with self._source.connected(self._engine) as connection:
            left = self._batch_rows_max
            while left > 0:
                cut = self._cut(connection, after, upto, min(left, self._cut_rows_max))
                if cut is None:
                    break
                cuts.append(cut)
                after, left = cut[0], left - cut[1]
        return {
            "after": kept(start),
            "upto": kept(cuts[-1][0] if cuts else upto),
            "cuts": [[kept(key), rows] for key, rows in cuts],
            "newest": kept(self._newest),
        }

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def _cut(
        self, connection: Any, after: Key | None, upto: Key, rows_max: int
    ) -> tuple[Key, int] | None:
        from sqlalchemy import func, select

        source, rows = self._source, self._rows
        key = rows.c[source.key]
        within = select(key.label("k")).where(source.between(rows, after, upto))
        first = within.order_by(key).limit(rows_max).subquery("cut")
        end = connection.scalar(select(func.max(first.c.k)))
        if end is None:
            return None
        # Counted by the key, since rows of equal keys stay together.
        counted = select(func.count()).select_from(rows).where(source.between(rows, after, end))
        return end, connection.scalar(counted)

    def _look(self) -> tuple[datetime.datetime, Key | None]:
        from sqlalchemy import func, select

        dialect = self._engine.dialect.name
        zoneless = dialect in ("mysql", "mariadb")  # its CURRENT_TIMESTAMP jumps in summer
        clock = func.utc_timestamp() if zoneless else func.current_timestamp()
        with self._source.connected(self._engine) as connection:
            key = self._rows.c[self._source.key]
            now, newest = connection.execute(select(clock, func.max(key))).one()
        return now, newest

    def _position(self, metadata: Json) -> Key | None:
        if metadata is None:
            return self._first
        return self._source.from_json(cast("dict[str, Any]", metadata)["upto"])

    def _check_lost(self, position: Key | None, metadata: Json) -> None:
        if metadata is None:
            return
        before: Any = self._source.from_json(cast("dict[str, Any]", metadata)["newest"])
        unread = before is not None and (position is None or before > position)
        if unread and (self._newest is None or before > self._newest):
            raise SourceDataLost(
                f"rows of {self._source.query!r:.100} are gone that were not read; got "
                f"{self._newest} as the largest {self._source.key!r}, which was {before}; expected "
                "rows to stay until they are committed; bring them back, or begin anew with "
                "start_after, under a new topology id",
                query=self._source.query,
            )
