"""DeltaDataFrameSpout: what a Delta table was appended, or its changes, read by Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from txtopo.attempt import TransactionAttempt
from txtopo.errors import SourceDataLost
from txtopo.metadata import Json
from txtopo.spouts.dataframe import DataFrameTransactionalSpout
from txtopo.spouts.delta.log import CHANGE_TYPE, Change, ChangedFile, DeltaLog
from txtopo.spouts.delta.planning import files_between, positions
from txtopo.spouts.delta.spout import DeltaTransactionalSpout
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A user's session may pass over such files in silence, which would lose rows.
_READING = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}


class DeltaDataFrameSpout(DataFrameTransactionalSpout):
    """``DeltaTransactionalSpout`` for topologies of DataFrames: Spark reads the files.

    Delivery: transactional, as there. The files of a batch come from the log, in the driver, and
    are read as Parquet, so Spark needs no jars of Delta; it must reach the table under the same
    path or URL.

    Args:
        table: Path or URL of the table.
        fields: Which columns to emit, and the one that ``changes`` names.
        limits: What else ``DeltaTransactionalSpout`` takes: ``changes``, ``starting_version``,
            ``batch_versions_max``, ``batch_files_max``, ``batch_bytes_max``, ``storage_options``.

    Raises:
        ConfigError: An argument is wrong.
    """

    def __init__(self, table: str | os.PathLike[str], fields: Fields, **limits: Any) -> None:
        planned = DeltaTransactionalSpout(table, fields, **limits)
        read = _Read(planned.log, fields, planned.changes)
        super().__init__(planned.coordinator, read, fields)


class _Read:
    """Makes the plan of a batch; picklable."""

    def __init__(self, log: DeltaLog, fields: Fields, changes: str | None) -> None:
        self._log = log
        self._fields = fields
        self._changes = changes

    def __call__(
        self, spark: SparkSession, attempt: TransactionAttempt, metadata: Json
    ) -> DataFrame:
        """Return the rows of the files of a batch.

        Raises:
            SourceDataLost: A file or an entry of the log is gone.
        """
        alike: dict[tuple[object, ...], list[ChangedFile]] = {}
        for _, _, file in files_between(self._log, *positions(metadata)):
            same = (file.change, *sorted(file.partition.items()))
            alike.setdefault(same, []).append(file)
        frames = [self._frame(spark, files) for files in alike.values()]
        if not frames:
            return spark.createDataFrame([], _ddl(self._fields))
        return reduce(lambda left, right: left.unionByName(right), frames)

    def _frame(self, spark: SparkSession, files: list[ChangedFile]) -> DataFrame:
        partition, change = files[0].partition, files[0].change
        stored = [f for f in self._fields if f.name not in partition and f.name != self._changes]
        schema = _ddl(stored)
        if change is Change.BY_ROW:
            schema += f"{', ' if stored else ''}`{CHANGE_TYPE}` string"
        paths = [_escaped(f"{self._log.uri.rstrip('/')}/{file.path}") for file in files]
        try:
            frame = spark.read.options(**_READING).schema(schema or "`_` int").parquet(*paths)
        except Exception as error:
            if "PATH_NOT_FOUND" not in str(error):
                raise
            raise SourceDataLost(
                f"a file of {self._log.uri!r} is gone; expected it, since its batch is planned and "
                "not committed; was the table vacuumed? bring the file back, or begin behind it "
                f"with starting_version, under a new topology id; {str(error)[:500]}",
            ) from error
        return frame.selectExpr(*self._columns(partition, change))

    def _columns(self, partition: Mapping[str, str | None], change: Change) -> list[str]:
        columns = []
        for field in self._fields:
            if field.name == self._changes:
                value = str(change is Change.WENT).lower()
                if change is Change.BY_ROW:
                    value = f"`{CHANGE_TYPE}` IN ('delete', 'update_preimage')"
            elif field.name in partition:
                value = f"CAST({_literal(partition[field.name])} AS {_type(field.type)})"
            else:
                value = f"`{field.name}`"
            columns.append(f"{value} AS `{field.name}`")
        return columns


def _ddl(fields: Any) -> str:
    return ", ".join(f"`{field.name}` {_type(field.type)}" for field in fields)


def _type(kind: str) -> str:
    return "string" if kind == "json" else kind


def _literal(value: str | None) -> str:
    """Return a text in SQL, of which no character has a meaning."""
    if value is None:
        return "NULL"
    return "decode(unhex('" + value.encode().hex() + "'), 'utf-8')"


def _escaped(path: str) -> str:
    """Return a path in which Hadoop finds no pattern."""
    return "".join(f"\\{c}" if c in "{}[]*?\\" else c for c in path)
