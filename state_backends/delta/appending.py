"""Mode ``log``: the partials of a txid are appended; a redo replaces them.

A row is a partial aggregate with its txid, and so is a folded row: whoever groups by key and
combines sees the fold of the batches 1 to the ledger's txid.

Why not files that the tasks write
----------------------------------
deltalake 1.6.6 carries it: ``create_write_transaction`` commits files that are there, and removes
those of a redo, in one version with the transaction. It was tried and not built. Measured with a
count by text keys, two slots that share a third of their keys, processor seconds and memory of the
driver for one batch, and of files committed instead (0.1 s in a task for 500,000 rows):

    keys a slot   envelopes   driver            files' rows and size
         50,000        3 MB   0.2 s,  +45 MB    1.3 times the rows, twice the size
        500,000       36 MB   1.5 s, +190 MB    the same
      2,000,000      147 MB   7.4 s, +550 MB    the same

* Up to a million keys a batch there is little to win. Well before a batch is too large for the
  driver, those that wait for their commit are: thirty of 36 MB are ``Config.driver_bytes_max``.
  A smaller ``max_spout_pending`` mends that.
* The driver would still read it all: a fold combines sixteen such batches in its memory, a sum that
  nears the end of its column all of them, and a user's reader as well. And rows that no driver has
  combined are more by as many slots as share a key: each reader and each fold pays for them.
* Sums of floats would depend on the number of slots, which combines them in an order of its own.
* It would take the picklable writer through seven files of ``txtopo``: what a backend offers and
  what a commit takes, the compiled topology, the partials of a slot, envelopes, what the driver
  learns of a job, and the commit phase; and every executor on the file system of the table.

Batches that should not pass the driver are DataFrames, merged by Spark: ``?writer=spark``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from state_backends.delta.layout import Layout, check_sizes, without_negative_zero
from state_backends.delta.reading import Reader
from state_backends.delta.sums import SumGuard
from txtopo.state import Standing, Writes, log_rows

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


class Appender:
    """Writes the batches of a state in mode ``log``."""

    def __init__(self, layout: Layout, reader: Reader) -> None:
        self.layout = layout
        self._reader = reader
        self._guard = SumGuard(layout.state)
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
        """Commit the partials of *txid* and its transaction in one version."""
        rows = without_negative_zero(log_rows(self.layout.state, txid, writes), self.layout.keys)
        check_sizes(self.layout.state, rows)
        if found is Standing.APPLY or self._redone:
            self._guard.check(table, rows, lambda: self._before(table, txid))
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

    def _before(self, table: DeltaTable, txid: int) -> pa.Table:
        return self._reader.read(table, pc.field("txid") < txid)
