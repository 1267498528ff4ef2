"""The columns of a state's Delta table, and the properties that say what it is."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.errors import ValueRefusedError
from txtopo.state import StateTable, declaration, limited_sums

DECLARATION = "txtopo.declaration"
OWNER = "txtopo.topology"
COMPONENT = "txtopo.component"
STATE = "txtopo.state"
ENSEMBLE = "txtopo.ensemble"
RETENTION = "delta.logRetentionDuration"
STATISTICS = "delta.dataSkippingStatsColumns"
# Written by a transaction of ours and read back: who wrote last, which does not fit into a version.
WRITER_EPOCH = "txtopo.writer_epoch"
# delta-rs joins the rows of a transaction in columns of Arrow, whose offsets have 31 bits.
COLUMN_BYTES_MAX = 2**31 - 1
_COLUMN_RESERVED = ' ,;{}()\n\t="'


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a state's table.

    Attributes:
        state: The state.
    """

    state: StateTable

    @property
    def opaque(self) -> bool:
        """Whether rows keep what was there before their txid."""
        return self.state.kind == "opaque" and self.state.mode == "table"

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return self.state.key.names

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the value columns."""
        return self.state.value.names

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        fields = [*self.state.key.arrow_schema(), *self.state.value.arrow_schema()]
        fields.append(pa.field("txid", pa.int64()))
        if self.opaque:
            fields += [f.with_name(f"prev_{f.name}") for f in self.state.value.arrow_schema()]
            fields += [pa.field("prev_txid", pa.int64()), pa.field("deleted", pa.bool_())]
        return pa.schema([field.with_nullable(True) for field in fields])

    @property
    def properties(self) -> dict[str, str]:
        """The properties that the table is made with."""
        return {
            DECLARATION: declaration(self.state),
            "delta.enableDeletionVectors": "false",  # delta-rs cannot read such a table into Arrow
            "delta.checkpointInterval": "100",
            # Statistics in the log are JSON, whose numbers lose digits: a merge would pass over the
            # file of a key with 38 digits and insert the key again.
            RETENTION: "interval 86400 seconds",  # upkeep.py fits it to the history that is kept
            STATISTICS: ",".join(self._with_statistics()),
        }

    def _with_statistics(self) -> list[str]:
        names = list(limited_sums(self.state)) if self.state.mode == "log" else []
        return ["txid", *(name if name.isidentifier() else f"`{name}`" for name in names)]


def reserved(name: str) -> bool:
    """Whether Delta takes no column of this name, or delta-rs has one of its own."""
    own = name.lower().startswith(("txtopo_", "__delta_rs_"))
    # delta-rs loses control characters between a table and a merge.
    return own or any(sign in _COLUMN_RESERVED or sign < " " for sign in name)


def check_sizes(state: StateTable, rows: pa.Table) -> None:
    """Check that delta-rs can write these rows in one transaction.

    Raises:
        ValueRefusedError: A column is too large.
    """
    for field, column in zip(rows.schema, rows.columns, strict=True):
        text = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
        if text and column.nbytes > COLUMN_BYTES_MAX:
            raise ValueRefusedError(
                f"a batch is too large for state {state.name!r} in Delta; got {column.nbytes} "
                f"bytes in column {field.name!r}; expected at most {COLUMN_BYTES_MAX}; nothing of "
                "it was written; no setting raises that; let the spout cut smaller batches, or "
                "write shorter values",
                state=state.name,
                column=field.name,
                bytes=column.nbytes,
            )


def without_negative_zero(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Return the rows with -0.0 in key columns as 0.0: delta-rs tells them apart, users do not."""
    for name in names:
        column = rows.column(name)
        if pa.types.is_floating(column.type):
            zero = pa.scalar(0.0, column.type)
            rows = rows.set_column(rows.column_names.index(name), name, pc.add(column, zero))
    return rows
