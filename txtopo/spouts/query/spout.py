"""QueryTransactionalSpout: the rows of a SQL table with a growing key, each exactly once."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from txtopo.config import Config, check_text
from txtopo.context import TaskContext
from txtopo.errors import ConfigError
from txtopo.spouts.query.emitting import QueryEmitter
from txtopo.spouts.query.planning import QueryCoordinator
from txtopo.spouts.query.source import QuerySource, check_key
from txtopo.spouts.transactional import TransactionalSpout
from txtopo.tuples import Fields


class QueryTransactionalSpout(TransactionalSpout):
    """Reads a SQL table, or a query, by ranges of a key that only grows; through SQLAlchemy.

    Delivery: transactional. A batch is a range of keys, of which the number of rows is kept too: if
    a replay finds more or fewer, the run stops with ``SourceDataLost``; so it does if unread rows
    at the end of the table are gone. Rows must not be changed, and not be deleted before their
    batch is committed. Each row is then emitted once, with one condition, which no reader of a
    table can do without:

    *Rows may be committed in another order than their keys were drawn.* A sequence, an identity
    column or ``now()`` gives its value when a row is inserted, and the row is seen when its
    transaction is committed. If a larger key was read by then, the row would be passed over, and
    nothing could tell. So a key is only read, and all smaller ones with it, once it has been seen
    for ``settle_s`` seconds: give more than the longest transaction that inserts rows takes. 0 is
    right if the table no longer grows, or grows by one transaction at a time.

    Ranges are planned in the driver and read in the tasks, which divide a batch. Rows come in the
    order of the key; give it an index. Rows of equal keys stay in one batch, in no order.

    For topologies of DataFrames, ``DataFrameTransactionalSpout(spout.coordinator, read, fields)``
    plans the same ranges: ``metadata["after"]`` (excluded, or None) to ``metadata["upto"]``.

    Args:
        url: Where the database is, as SQLAlchemy has it; the driver is chosen for PostgreSQL and
            MariaDB. It goes to the tasks with its password.
        query: Name of a table or view, or ``schema.name``; else a ``SELECT`` in parentheses, which
            the database should be able to search by the key.
        key: Name of the field that grows: a whole number, a date or a timestamp; never NULL.
        fields: The columns to emit, with the key among them.
        settle_s: How long a key is seen before it is read, in seconds.
        start_after: Where to begin: behind this key; None begins with the first one.
        batch_rows_max: Rows of a batch, but for rows of equal keys.

    Raises:
        ConfigError: An argument is wrong.

    Example:
        >>> from txtopo import Fields
        >>> from txtopo.spouts import QueryTransactionalSpout
        >>> fields = Fields("id long, word string")
        >>> spout = QueryTransactionalSpout("sqlite:///w.db", "words", "id", fields, settle_s=10)
    """

    client_modules = ("sqlalchemy",)

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
    ) -> None:
        if type(batch_rows_max) is not int or batch_rows_max < 1:
            raise ConfigError(
                f"batch_rows_max of a query is wrong; got {batch_rows_max!r}; expected a whole "
                "number of at least 1"
            )
        if isinstance(settle_s, bool) or not isinstance(settle_s, int | float) or not settle_s >= 0:
            raise ConfigError(
                f"settle_s of a query is wrong; got {settle_s!r}; expected seconds: more than the "
                "longest transaction that inserts rows takes, or 0 if there is one at a time"
            )
        check_text("the URL of a query", unquote(url))
        kind = check_key(key, fields, start_after)
        self.output_fields = fields
        self._source = QuerySource(url, query, key, kind, fields)
        self._start_after = start_after
        self._settle_s = settle_s
        self._batch_rows_max = batch_rows_max

    def coordinator(self, config: Config, context: TaskContext) -> QueryCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: The query cannot be run, or a key is NULL.
            InfrastructureError: The database cannot be reached; try again.
        """
        planner = QueryCoordinator(
            self._source, self._start_after, self._settle_s, self._batch_rows_max, context.tasks
        )
        planner.check()
        return planner

    def emitter(self, config: Config, context: TaskContext) -> QueryEmitter:
        """Make an emitting part."""
        return QueryEmitter(self._source, context)
