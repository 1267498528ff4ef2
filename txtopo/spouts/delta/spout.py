"""DeltaTransactionalSpout: what was appended to a Delta table, or all of its changes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from txtopo.config import Config, check_text
from txtopo.context import TaskContext
from txtopo.errors import ConfigError
from txtopo.spouts.delta.emitting import DeltaEmitter
from txtopo.spouts.delta.log import DeltaLog
from txtopo.spouts.delta.planning import DeltaCoordinator, DeltaLimits
from txtopo.spouts.transactional import TransactionalEmitter, TransactionalSpout
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from deltalake import DeltaTable


class DeltaTransactionalSpout(TransactionalSpout):
    """Reads what is appended to a Delta table, or changed, version by version; needs no JVM.

    Delivery: transactional. A batch is a range of files of the table's log, which a replay reads
    again. Each appended row is emitted once. If a file or an entry of the log is removed (VACUUM,
    ``delta.logRetentionDuration``) before its rows are committed, the run stops with
    ``SourceDataLost``. OPTIMIZE does no harm.

    A version that deletes, updates or overwrites rows stops the run too, unless ``changes`` names a
    boolean field: then each row that went is emitted once more, with true in that field, and an
    updated one in both forms. ``PersistentAggregate(…, retracted=that field)`` takes such rows
    back. The change data feed (``delta.enableChangeDataFeed``) need not be on. It makes the batches
    smaller: without it the rows that an update leaves as they are go and come, too, since it writes
    their file anew. A version is then never divided between batches.

    Versions are planned in the driver, from the log alone, and only those that are there; the
    files are read in the tasks with pyarrow, a file in one task. Columns are matched by name;
    one that older files lack is NULL there.

    Args:
        table: Path or URL of the table.
        fields: Which columns to emit, and the one that ``changes`` names.
        changes: Name of a boolean field, and of no column, that is true for rows that went; None
            reads a table to which rows are only appended.
        starting_version: The first version to read; 0 reads all that was ever appended, as long as
            the log has it.
        batch_versions_max: Versions of a batch at the most.
        batch_files_max: Files of a batch at the most.
        batch_bytes_max: Bytes of a batch at the most; a larger file is a batch of its own.
        storage_options: For deltalake, where the table is in an object store.

    Attributes:
        log: The log of the table.
        changes: As given.

    Raises:
        ConfigError: A limit or the version is wrong, or no boolean field is named by ``changes``.
    """

    def __init__(
        self,
        table: str | os.PathLike[str],
        fields: Fields,
        *,
        changes: str | None = None,
        starting_version: int = 0,
        batch_versions_max: int = 100,
        batch_files_max: int = 100,
        batch_bytes_max: int = 64 << 20,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        if type(starting_version) is not int or starting_version < 0:
            raise ConfigError(
                f"starting_version is wrong; got {starting_version!r}; expected a whole number of "
                "at least 0"
            )
        if changes is not None and ("boolean", changes) not in [(f.type, f.name) for f in fields]:
            raise ConfigError(
                f"changes names no boolean field; got {changes!r}; expected one of the fields, "
                f"e.g. Fields('…, {changes} boolean'); they are {fields}"
            )
        self.output_fields = fields
        self.changes = changes
        self._limits = DeltaLimits(batch_versions_max, batch_files_max, batch_bytes_max)
        self._first = (starting_version, 0)
        uri = os.fspath(table)
        check_text("the path of a Delta table", uri)
        uri = uri if "://" in uri else os.path.abspath(uri)
        self.log = DeltaLog(uri, dict(storage_options or {}), changes is not None)

    def coordinator(self, config: Config, context: TaskContext) -> DeltaCoordinator:
        """Make the planning part.

        Raises:
            ConfigError: The table is not there, or lacks a field.
        """
        assert self.output_fields is not None
        table = _opened(self.log)
        _check_fields(table, self.output_fields, self.log.uri, self.changes)
        return DeltaCoordinator(self.log, self._limits, self._first, table)

    def emitter(self, config: Config, context: TaskContext) -> TransactionalEmitter:
        """Make an emitting part."""
        assert self.output_fields is not None
        return DeltaEmitter(self.log, self.output_fields, self.changes, context)


def _opened(log: DeltaLog) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(log.uri, storage_options=dict(log.options) or None)
    except TableNotFoundError as error:
        raise ConfigError(
            f"there is no Delta table at {log.uri!r}; expected the folder that has _delta_log in "
            "it; make the table before the topology starts",
            table=log.uri,
        ) from error


def _check_fields(table: DeltaTable, fields: Fields, uri: str, changes: str | None) -> None:
    import pyarrow as pa

    found = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
    if changes in found:
        raise ConfigError(
            f"changes names a column of {uri!r}; got {changes!r}; expected a name of your own, "
            "since the field says which rows went",
            column=changes,
        )
    for field in fields.arrow_schema():
        if field.name == changes:
            continue
        if found.get(field.name) != field.type:
            got = found.get(field.name, "no such column")
            raise ConfigError(
                f"column {field.name!r} of {uri!r} does not fit; got {got}; expected {field.type}; "
                f"the table has {', '.join(f'{name} {kind}' for name, kind in found.items())}",
                column=field.name,
            )
