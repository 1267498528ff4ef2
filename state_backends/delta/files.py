"""The files of one version of a table, with the txids that they span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a table.

    Attributes:
        path: Below the folder of the table.
        first_txid: Smallest txid of its rows.
        last_txid: Largest txid of its rows.
        rows: How many it has.
    """

    path: str
    first_txid: int
    last_txid: int
    rows: int


def files_of(table: DeltaTable) -> list[LogFile]:
    """Return the files that have rows, in the order of their last txids."""
    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    names = ("path", "min.txid", "max.txid", "num_records")
    columns = [actions.column(name).to_pylist() for name in names]
    files = [LogFile(*row) for row in zip(*columns, strict=True) if row[3]]
    return sorted(files, key=lambda file: file.last_txid)
