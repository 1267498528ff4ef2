"""The files of one version of a table, with the txids that they span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from deltalake import DeltaTable

ANY_TXID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a table.

    Attributes:
        path: Below the folder of the table.
        first_txid: Smallest txid of its rows; 0 if its writer kept no statistics.
        last_txid: Largest txid of its rows; larger than all if its writer kept no statistics.
        rows: How many it has; 0 if its writer kept no statistics.
    """

    path: str
    first_txid: int
    last_txid: int
    rows: int


def files_of(table: DeltaTable) -> list[LogFile]:
    """Return the files that may have rows, in the order of their last txids."""
    columns = statistics(table, "path", "min.txid", "max.txid", "num_records")
    files = [
        LogFile(
            path,
            0 if first is None else first,
            ANY_TXID if last is None else last,
            rows or 0,
        )
        for path, first, last, rows in zip(*columns, strict=True)
        if rows != 0
    ]
    return sorted(files, key=lambda file: file.last_txid)


def statistics(table: DeltaTable, *names: str) -> list[list[Any]]:
    """Return columns of what the log says of each file; None where a writer kept no statistics."""
    actions = pa.table(table.get_add_actions(flatten=True))
    nothing = [None] * actions.num_rows
    there = set(actions.column_names)
    return [actions.column(name).to_pylist() if name in there else nothing for name in names]
