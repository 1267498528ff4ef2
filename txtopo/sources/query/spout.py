"""The spout that reads a SQL table by ranges of a growing key: QueryTransactionalSpout."""

from __future__ import annotations

import datetime
from copy import copy
from typing import Any, Self, cast
from urllib.parse import unquote

from txtopo.config import ChangeKind, Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError
from txtopo.instead import known_arguments
from txtopo.metadata import Json
from txtopo.setting_checks import check_text
from txtopo.sources.query.keys import check_key
from txtopo.sources.query.planning import QueryCoordinator
from txtopo.sources.query.reading import QueryEmitter
from txtopo.sources.query.source import QuerySource, modules_of, servers_of
from txtopo.spouts.spout import TransactionalSpout, check_min_batch_rows
from txtopo.tuples import Fields


class QueryTransactionalSpout(TransactionalSpout):
    """Reads the rows of a SQL table or query in the order of a growing key, with SQLAlchemy.

    Delivery: transactional. A batch is a range of keys, with its number of rows. If a task finds
    another number of rows in its part of the range, the run stops with ``SourceDataLost``. It also
    stops if unread rows at the end of the table have disappeared. Rows must not be changed, nor
    deleted before their batch is committed. Each row is then emitted in exactly one batch, on one
    condition, which applies to every reader of a table:

    *Rows may become visible in a different order from that in which their keys were assigned.* A
    sequence, an identity column or ``now()`` assigns a key when a row is inserted, but others see
    the row only when its transaction is committed. If a larger key was read before that, the row
    would be skipped, and nothing could notice. So the spout reads up to a key only when it has seen
    the key for ``settle_s`` seconds. Set it to more than the duration of the longest transaction
    that inserts rows; if several rows have the same key, also to more than the time between the
    first and the last of them. 0 is correct if the table no longer grows, or if only one
    transaction inserts at a time.

    If the key is a time, a row is read once that time has passed by the database's clock, in UTC; a
    date has passed when its day is over. If a writer's clock is ahead, its rows wait, and a
    warning, the page and the metrics report it. A number is read however large it is. If rows are
    later added with lower numbers, which count as read, or with the last key that was read, the run
    ends with ``OffsetRegression``.

    Ranges are planned in the driver; the tasks divide a batch and read it. Rows are read in the
    order of the key, so create an index on it. Rows of equal keys stay in one batch, in no
    particular order.

    Rows may be deleted once they are committed, but a key that was read must never be reused: if a
    table is emptied, its keys must continue after the last one. The position belongs to the key and
    the query, and the run stops with ``TopologyChanged`` if the topology has another key or query.

    Sessions in PostgreSQL, MariaDB and MySQL are in UTC, whatever the zone of the server is. Times
    without a zone that become a ``timestamp`` are taken as UTC, from every database.

    For topologies of DataFrames, ``DataFrameTransactionalSpout(spout.coordinator, read, fields)``
    plans the same ranges: ``metadata["after"]`` (excluded, or None) to ``metadata["upto"]``.

    Args:
        url: The database, as a URL of SQLAlchemy; the driver is chosen for PostgreSQL and MariaDB.
            The URL is sent to the tasks, with its password.
        query: A table or view, as ``name`` or ``schema.name``, or a ``SELECT`` in parentheses. The
            database should be able to search a ``SELECT`` by the key.
        key: Name of the growing field: a whole number, a date or a timestamp; never NULL.
        fields: The columns to emit, including the key.
        settle_s: How many seconds a key must have been visible before its row is read.
        start_after: Start after this key (exclusive); None starts at the first row.
        batch_rows_max: Maximum rows of a batch, exceeded only to keep rows with equal keys
            together.
        max_ahead_s: How many seconds a key that is a time may be ahead of the database's clock and
            still be read: the offset of local times from UTC, if keys are local times; 86,400 if
            all rows of a date are inserted at once. None for any number, if the table no longer
            grows.

    Raises:
        ConfigError: An argument is wrong.

    Example:
        >>> from txtopo import Fields
        >>> from txtopo.spouts import QueryTransactionalSpout
        >>> fields = Fields("id long, word string")
        >>> spout = QueryTransactionalSpout("sqlite:///w.db", "words", "id", fields, settle_s=10)
    """

    ends = True

    @known_arguments
    def __init__(
        self,
        url: str,
        query: str,
        key: str,
        fields: Fields,
        *,
        settle_s: float,
        start_after: Any = None,
        batch_rows_max: int = 10_000,
        max_ahead_s: float | None = 0.0,
    ) -> None:
        if type(batch_rows_max) is not int or batch_rows_max < 1:
            raise ConfigError(
                f"batch_rows_max of a query is wrong; got {batch_rows_max!r}; expected a whole "
                "number of at least 1",
                setting="batch_rows_max",
            )
        if isinstance(settle_s, bool) or not isinstance(settle_s, int | float) or not settle_s >= 0:
            raise ConfigError(
                f"settle_s of a query is wrong; got {settle_s!r}; expected a number of seconds "
                "greater than the duration of the longest transaction that inserts rows, or 0 if "
                "only one runs at a time",
                setting="settle_s",
            )
        _check_ahead(max_ahead_s)
        check_text("the URL of a query", unquote(url))
        kind = check_key(key, fields, start_after)
        if isinstance(start_after, datetime.datetime) and start_after.tzinfo is not None:
            start_after = start_after.astimezone(datetime.UTC)  # some drivers drop the zone
        self.output_fields = fields
        self._source = QuerySource(url, query, key, kind, fields)
        self.client_modules, self.connects_to = modules_of(url), servers_of(url)
        self._start_after = start_after
        self._settle_s = settle_s
        self._batch_rows_max = batch_rows_max
        self._max_ahead_s = max_ahead_s

    def beginning_at(self, place: Json) -> Self:
        """Return a copy of this spout that begins after a key.

        Args:
            place: The key, as ``start_after``; a date or a time as text in ISO 8601, as in the
                metadata of a batch: ``metadata["upto"]`` is the last key that it read.

        Raises:
            ConfigError: It is not a key of this query.
        """
        begun = copy(self)
        begun._start_after = self._source.key_from(place)
        return begun

    def coordinator(self, config: Config, context: TaskContext) -> QueryCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: The query cannot be run, or a key is NULL or of another type.
            InfrastructureError: The database cannot be reached; try again.
        """
        check_min_batch_rows(config, self._batch_rows_max)
        planner = QueryCoordinator(
            self._source,
            self._start_after,
            self._settle_s,
            self._batch_rows_max,
            context,
            may_change=config.may_change(ChangeKind.SOURCE),
            max_ahead_s=self._max_ahead_s,
        )
        planner.check()
        return planner

    def emitter(self, config: Config, context: TaskContext) -> QueryEmitter:
        """Make an emitting part."""
        return QueryEmitter(self._source, context, may_change=config.may_change(ChangeKind.SOURCE))


def _check_ahead(max_ahead_s: object) -> None:
    number = isinstance(max_ahead_s, int | float) and not isinstance(max_ahead_s, bool)
    if max_ahead_s is not None and not (number and cast("float", max_ahead_s) >= 0):
        raise ConfigError(
            f"max_ahead_s of a query is wrong; got {max_ahead_s!r}; expected the seconds by which "
            "a key may be ahead of the database's clock in UTC, or None for any",
            setting="max_ahead_s",
        )
