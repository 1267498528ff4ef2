"""Mode ``log`` in Delta: append the partials of a txid, fold them, and refuse sums that do not fit.

A row is a partial aggregate with its txid, and so is a folded row. Grouping the rows by key and
combining them gives the result of the batches 1 to the ledger's txid. A redo replaces the rows of
its txid.

A fold replaces the rows of txids up to *f* by their combination, which gets the txid *f*, in one
version. *f* is below the ledger's txid, so an undo never needs folded rows. A fold needs no fence:
it does not change results, and Delta refuses it if a file that it read is gone.
:mod:`txtopo.state.log_mode` decides which txids are folded, and how sums are bounded; the first
bounds are the largest values of each file, which Delta records.

Why not files that the tasks write
----------------------------------
deltalake 1.6.6 could do it: ``create_write_transaction`` commits existing files, and removes those
of a redo, in one version with the transaction. It was tried and not built. Measured with a count by
text keys, two slots that share a third of their keys, processor seconds and memory of the driver
for one batch, and of files committed instead (0.1 s in a task for 500,000 rows):

    keys a slot   envelopes   driver            files' rows and size
         50,000        3 MB   0.2 s,  +45 MB    1.3 times the rows, twice the size
        500,000       36 MB   1.5 s, +190 MB    the same
      2,000,000      147 MB   7.4 s, +550 MB    the same

* Up to a million keys per batch there is little to gain. Before a single batch is too large for the
  driver, the batches waiting for their commit are: thirty of 36 MB reach
  ``Config.driver_bytes_max``. A smaller ``max_spout_pending`` helps.
* The driver would still read all rows: a fold combines sixteen such batches in memory, and a sum
  near its limit combines all of them, as does a user's reader. And each key would have a row for
  each slot, which each reader and each fold would have to combine.
* Sums of floats would depend on the number of slots.
* The picklable writer would pass through seven files of ``txtopo``: what a backend offers and what
  a commit takes, the compiled topology, the partials of a slot, envelopes, what the driver learns
  of a job, and the commit phase. And every executor would need the file system of the table.

For batches that should not pass through the driver, use DataFrames, which Spark merges:
``?writer=spark``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from state_backends.delta.layout import FOLD, Layout, check_sizes, without_negative_zero
from state_backends.delta.library import CommitProperties, write_deltalake
from state_backends.delta.reading import Reader, combined_rows, statistics
from txtopo.plugins.stores import Standing, Writes, log_rows
from txtopo.state.log_mode import SumBounds, largest, limited_sums

if TYPE_CHECKING:
    from state_backends.delta.library import DeltaTable


class Appender:
    """Writes the batches of a state in mode ``log``."""

    def __init__(self, layout: Layout, reader: Reader) -> None:
        self.layout = layout
        self._reader = reader
        self._limits = limited_sums(layout.state)
        self._bounds = SumBounds(self._limits)
        # A transactional state keeps its rows in a redo.
        self._redone = layout.state.kind == "opaque"

    def write(
        self,
        table: DeltaTable,
        txid: int,
        writes: Writes,
        found: Standing,
        properties: CommitProperties,
    ) -> None:
        """Write the partials of *txid* and its ledger as one version of the table.

        In a redo an opaque state replaces the rows of *txid*, and a transactional one keeps them.
        """
        rows = without_negative_zero(log_rows(self.layout.state, txid, writes), self.layout.keys)
        check_sizes(self.layout.state, rows)
        if found is Standing.APPLY or self._redone:
            self._check_sums(table, txid, rows)
        if found is Standing.APPLY:
            write_deltalake(table, rows, mode="append", commit_properties=properties)
            return
        if not self._redone:
            rows = rows.slice(0, 0)
            write_deltalake(table, rows, mode="append", commit_properties=properties)
            return
        write_deltalake(
            table,
            rows,
            mode="overwrite",
            predicate=f"txid = {txid}",
            commit_properties=properties,
        )

    def _check_sums(self, table: DeltaTable, txid: int, rows: pa.Table) -> None:
        """Refuse sums that do not fit, before *rows* are written."""

        def first_bounds() -> dict[str, float]:
            return {
                name: _largest_in_files(table, name) + largest(rows.column(name))
                for name in self._limits
            }

        def exact_bounds() -> dict[str, float]:
            before = self._reader.read(table, pc.field("txid") < txid)
            total = combined_rows(self.layout.state, pa.concat_tables([before, rows]))
            return {name: largest(total.column(name)) for name in self._limits}

        self._bounds.check(rows, first_bounds, exact_bounds)


def fold(table: DeltaTable, reader: Reader, layout: Layout, first: int, last: int) -> None:
    """Replace the rows of the txids *first* to *last* by their combination, in one version."""
    # Rows, not files: a file written by others (OPTIMIZE) may reach beyond the span.
    between = (pc.field("txid") >= first) & (pc.field("txid") <= last)
    rows = reader.read(
        table, between, lambda file: file.first_txid <= last and first <= file.last_txid
    )
    folded = combined_rows(layout.state, rows)
    tags = pa.array([last] * folded.num_rows, pa.int64())
    folded = folded.set_column(folded.num_columns - 1, "txid", tags)
    write_deltalake(
        table,
        folded.cast(layout.schema),
        mode="overwrite",
        predicate=f"txid >= {first} AND txid <= {last}",
        commit_properties=CommitProperties(custom_metadata={FOLD: f"{first}-{last}"}),
    )


def _largest_in_files(table: DeltaTable, name: str) -> float:
    names = (f"min.{name}", f"max.{name}", f"null_count.{name}", "num_records")
    rows = zip(*statistics(table, *names), strict=True)
    return sum((_largest_in_file(*row) for row in rows), start=0.0)


def _largest_in_file(low: Any, high: Any, nulls: int | None, rows: int | None) -> float:
    if low is not None and high is not None:
        return max(abs(float(low)), abs(float(high)))
    # A file with only NULLs has no minimum and maximum; of a file without statistics nothing is
    # known.
    return 0.0 if rows is not None and rows == nulls else math.inf
