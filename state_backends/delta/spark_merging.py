"""The merge of a batch by Spark: for frames that should not pass the driver.

Rules
-----
1. The merge carries the same transaction as one of delta-rs does: app id ``<topology>/<state>``,
   and the version that packs the ledger. Delta's own check for Spark skips it without a word when
   the table has that version or a later one, and refuses it when a transaction of the app id came
   in between. So a claim of a later epoch fences it, and the caller reads the ledger back.
2. The snapshot that Spark merges into may be newer than the one whose ledger was checked: an
   earlier attempt of the same txid may have come in between, since its version is smaller. So undo
   is part of every merge, not of a redo alone. The rows that *txid* tagged are read by the merge
   itself, from its own snapshot: Delta pins what a transaction reads of the table that it writes.
3. The undo comes as rows of the source. Clauses for rows that are not in the source would make
   Spark write the whole table anew each time.
4. It runs in a session of its own, so that nothing of the user's is set.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from state_backends.delta.expressions import DELETED, inserted, restored, same_key, updated
from state_backends.delta.layout import Layout
from state_backends.delta.ledgers import noted
from state_backends.delta.packing import application, packed
from state_backends.delta.spark_rows import UNDONE, checked_rows, sql_types
from txtopo.state import FrameWrites, Ledger

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SESSION = {
    "spark.sql.ansi.enabled": "true",  # sums raise instead of wrapping
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # The log of a state names few files; by default 50 tasks read it, several times a merge.
    "spark.databricks.delta.snapshotPartitions": "2",
}


class SparkMerger:
    """Writes frames into the table of a state in mode ``table``."""

    def __init__(self, layout: Layout, uri: str) -> None:
        self._layout = layout
        self._uri = uri

    def write(self, txid: int, writes: FrameWrites, ledger: Ledger, *, tombstones: bool) -> None:
        """Commit the rows of *txid* and its transaction in one version, or nothing.

        Args:
            txid: The batch.
            writes: Its rows.
            ledger: What the state holds afterwards.
            tombstones: Whether there may be tombstones of earlier txids.
        """
        session = self._session(writes.frame.sparkSession, ledger)
        # They are read twice, and must be the same.
        rows = checked_rows(self._layout, writes).persist()
        try:
            source = self._with_undo(session, rows, txid, tombstones=tombstones)
            self._merge(session, source, txid, writes)
        finally:
            rows.unpersist()

    def _merge(
        self, session: SparkSession, source: DataFrame, txid: int, writes: FrameWrites
    ) -> None:
        from delta.tables import DeltaTable

        layout = self._layout
        table = DeltaTable.forPath(session, self._uri)
        merge = table.alias("t").merge(source.alias("s"), _spark(same_key(layout)))
        changed = None
        if layout.opaque:
            away = f"s.{UNDONE} AND (t.txid < {txid} OR t.prev_txid IS NULL)"
            merge = merge.whenMatchedDelete(away)
            merge = merge.whenMatchedUpdate(f"s.{UNDONE}", _columns(restored(layout)))
        else:
            # A row of the txid has its effect already: the same txid brings the same batch.
            changed = f"t.txid <> {txid}"
            merge = merge.whenMatchedDelete(f"{changed} AND s.{DELETED}")
        merging = writes.operators is not None
        values = updated(layout, txid, merging=merging, combine=_combining(layout, writes))
        merge = merge.whenMatchedUpdate(changed, _columns(values))
        new = f"NOT s.{UNDONE} AND NOT s.{DELETED}"
        merge = merge.whenNotMatchedInsert(new, _columns(inserted(layout, txid)))
        merge.execute()

    def _session(self, given: SparkSession, ledger: Ledger) -> SparkSession:
        session, state = given.newSession(), self._layout.state.name
        settings = {
            **_SESSION,
            "spark.databricks.delta.write.txnAppId": application(ledger.topology, state),
            "spark.databricks.delta.write.txnVersion": str(packed(ledger)),
            "spark.databricks.delta.commitInfo.userMetadata": json.dumps(noted(ledger)),
        }
        for name, value in settings.items():
            session.conf.set(name, value)
        return session

    def _with_undo(
        self, session: SparkSession, rows: DataFrame, txid: int, *, tombstones: bool
    ) -> DataFrame:
        """Return the rows, and one for each other key that the merge has to take back."""
        layout = self._layout
        if not layout.opaque:
            return rows
        condition = f"txid = {txid}"
        if tombstones:
            condition += f" OR (deleted AND txid < {txid})"
        keys = [f"`{name}`" for name in layout.keys]
        tagged = session.read.format("delta").load(self._uri).where(condition).select(*keys)
        tagged = tagged.join(rows.select(*keys), list(layout.keys), "left_anti")
        empty = [f"CAST(NULL AS {t}) AS `{n}`" for n, t in sql_types(layout.state.value).items()]
        undone = tagged.selectExpr(*keys, *empty, f"false AS {DELETED}", f"true AS {UNDONE}")
        return rows.unionByName(undone)


def _combining(layout: Layout, writes: FrameWrites) -> Callable[[int, str, str], str]:
    """Return how a value meets the stored one, in Spark's SQL, whose sums raise."""
    types = list(sql_types(layout.state.value).values())
    operators = writes.operators or ()

    def combined(position: int, old: str, new: str) -> str:
        operator, kind = operators[position], types[position]
        if operator == "add":
            both = f"CAST({old} + {new} AS {kind})"
        else:
            sign = "<=" if operator == "min" else ">="
            both = f"CASE WHEN {old} {sign} {new} THEN {old} ELSE {new} END"
        return f"CASE WHEN {old} IS NULL THEN {new} WHEN {new} IS NULL THEN {old} ELSE {both} END"

    return combined


def _columns(expressions: Mapping[str, str]) -> dict[str, str | Column]:
    return {_spark(name): _spark(expression) for name, expression in expressions.items()}


def _spark(expression: str) -> str:
    """Return an expression of delta-rs in Spark's SQL: names are quoted otherwise."""
    return expression.replace('"', "`")
