"""Reading the files of one version of a table, with pyarrow.

Conditions are tried on rows alone, never on statistics: delta-rs writes those of text as views,
with which pyarrow cannot compare, and 0.0 is not found in a file whose smallest value is -0.0.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import LocalFileSystem, PyFileSystem

from state_backends.delta.files import LogFile, files_of
from state_backends.delta.location import Location

if TYPE_CHECKING:
    from deltalake import DeltaTable


class Reader:
    """Reads the table of a state."""

    def __init__(self, place: Location, state: str, schema: pa.Schema) -> None:
        self._uri = place.table(state)
        self._local = place.local
        self._options = place.options
        self._schema = schema

    def read(
        self,
        table: DeltaTable,
        condition: Any = None,
        wanted: Callable[[LogFile], bool] = lambda _: True,
    ) -> pa.Table:
        """Return rows of a version.

        Args:
            table: At that version.
            condition: Which rows; all of them without one.
            wanted: Which files are looked into.
        """
        paths = [file.path for file in files_of(table) if wanted(file)]
        if not paths:
            return self._schema.empty_table()
        if self._local:
            files: Any = LocalFileSystem()
            paths = [os.path.join(self._uri, path) for path in paths]
        else:
            files = PyFileSystem(DeltaStorageHandler(self._uri, self._options))
        dataset = ds.dataset(paths, schema=self._schema, format="parquet", filesystem=files)
        if condition is None:
            return dataset.to_table()
        found = [pa.Table.from_batches([batch]).filter(condition) for batch in dataset.to_batches()]
        return pa.concat_tables([self._schema.empty_table(), *found])
