"""The columns of a state's Delta table, and the properties that say what it is."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

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


def without_negative_zero(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Return the rows with -0.0 in key columns as 0.0: delta-rs tells them apart, users do not."""
    for name in names:
        column = rows.column(name)
        if pa.types.is_floating(column.type):
            zero = pa.scalar(0.0, column.type)
            rows = rows.set_column(rows.column_names.index(name), name, pc.add(column, zero))
    return rows
