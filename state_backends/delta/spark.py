"""The merge of a batch by Spark, for frames that should not pass through the driver.

Rules
-----
1. The merge has the same transaction as one of delta-rs: app id ``<topology>/<state>``, and the
   version that packs the ledger. Delta for Spark skips it silently if the table has that version or
   a later one, and refuses it if another transaction of the app id came in between. So the claim of
   a later epoch fences it, and the caller reads the ledger afterwards.
2. Spark may merge into a newer snapshot than the one whose ledger was checked: an earlier attempt
   of the same txid may have come in between, since its version is smaller. So every merge includes
   the undo, not only the merge of a redo. The merge itself reads the rows that *txid* wrote, from
   its own snapshot: Delta pins the snapshot of the table that a transaction writes.
3. The merge runs in a separate session, so that none of the user's settings apply.

The rows to undo are part of the source. Clauses for rows that are not in the source would make
Spark rewrite the whole table each time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from state_backends.delta.by_session import session
from state_backends.delta.layout import Layout
from state_backends.delta.merging import DELETED, inserted, restored, same_key, updated
from state_backends.delta.tables import application, noted, packed
from txtopo.disk_errors import meaning_of
from txtopo.errors import (
    AuthError,
    ConfigError,
    ErrorMeaning,
    PromiseError,
    SchemaDrift,
    StoreContended,
    TxtopoError,
    UnknownOutcomeError,
    ValueRefusedError,
)
from txtopo.plugins.stores import Fields, FrameWrites, Ledger, StateTable

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
            txid: The txid of the batch.
            writes: The rows of the batch.
            ledger: The ledger after the merge.
            tombstones: Whether there may be tombstones of earlier txids.
        """
        session = self._session(writes.frame.sparkSession, ledger)
        # The rows are read twice, and must be the same.
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
            # A row of the txid already has its effect: the same txid brings the same batch.
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
        """Return the rows, and a row for each further key that the merge has to undo."""
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


def frame_of(rows: pa.Table) -> DataFrame:
    """Return rows of this process as a frame of the session that writes."""
    names = ["deleted" if name == DELETED else name for name in rows.column_names]
    return session().createDataFrame(rows.rename_columns(names))


def operators_of(state: StateTable) -> tuple[Any, ...]:
    """Return how Spark combines each value of a state whose aggregates stores can combine."""
    return tuple(aggregate.operator for aggregate in state.aggregates if aggregate.operator)


def _combining(layout: Layout, writes: FrameWrites) -> Callable[[int, str, str], str]:
    """Return the function that combines values in Spark's SQL, whose sums raise on overflow."""
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
    """Return an expression of delta-rs in Spark's SQL, which quotes names differently."""
    return expression.replace('"', "`")


UNDONE = "txtopo_undone"
"""A column of the source: whether the row undoes what its txid did to its key."""

REFUSED = "txtopo refuses: "
"""The prefix of errors that these rows raise when Spark computes them."""

_ANSI = "spark.sql.ansi.enabled"

_ROWS = "txtopo_rows"

_AGGREGATES = {"add": "sum", "min": "min", "max": "max"}

_TYPES = {"long": "bigint", "short": "smallint", "byte": "tinyint", "json": "string"}


def sql_types(fields: Fields) -> dict[str, str]:
    """Return Spark's type name of each field, as in ``DataFrame.dtypes``."""
    return {field.name: _TYPES.get(field.type, field.type) for field in fields}


def checked_rows(layout: Layout, writes: FrameWrites) -> DataFrame:
    """Return the rows of a frame: key columns, value columns, the flags of a merge.

    A key that is NULL or occurs twice, or a sum that does not fit, makes Spark raise when it
    computes the rows.

    Raises:
        ValueRefusedError: A column has another type; nothing was written.
        ConfigError: In this session sums wrap without an error.
    """
    state, frame = layout.state, writes.frame
    if str(frame.sparkSession.conf.get(_ANSI)).lower() != "true":
        raise ConfigError(
            f"sums overflow silently in the session of a frame; got {_ANSI}=false; expected true, "
            "Spark's default; set it where the session is built",
            setting=_ANSI,
            got="false",
            expected="true",
        )
    keys, values = sql_types(state.key), sql_types(state.value)
    found = dict(frame.dtypes)
    for name, kind in {**keys, **values}.items():
        if found.get(name) != kind:
            raise ValueRefusedError(
                f"a frame does not fit state {state.name!r}; got {found.get(name, 'no column')} "
                f"for {name!r}; expected {kind}; cast it in the plan; nothing was written",
                state=state.name,
                column=name,
            )
    columns = [f"{_key(state.name, *key)} AS `{key[0]}`" for key in keys.items()]
    columns += [f"`{name}`" for name in values]
    flag = "coalesce(`deleted`, false)" if writes.deletes else "false"
    rows = frame.selectExpr(*columns, f"{flag} AS {DELETED}")
    return _distinct(state.name, rows, keys, values, writes)


def _distinct(
    state: str,
    rows: DataFrame,
    keys: Mapping[str, str],
    values: Mapping[str, str],
    writes: FrameWrites,
) -> DataFrame:
    from pyspark.sql import functions

    names = [f"`{name}`" for name in keys]
    if writes.operators is not None:
        by_name = dict(zip(values, writes.operators, strict=True))
        parts = [f"{_AGGREGATES[by_name[name]]}(`{name}`) AS `{name}`" for name in values]
        parts.append(f"false AS {DELETED}")
        guards = names
    else:
        parts = [f"any_value(`{name}`) AS `{name}`" for name in (*values, DELETED)]
        twice = _raising(f"a key of state {state} is used twice")
        guards = [f"CASE WHEN {_ROWS} > 1 THEN {twice} ELSE {name} END AS {name}" for name in names]
    parts.append(f"count(1) AS {_ROWS}")
    grouped = rows.groupBy(*names).agg(*map(functions.expr, parts))
    casts = [f"CAST(`{name}` AS {kind}) AS `{name}`" for name, kind in values.items()]
    return grouped.selectExpr(*guards, *casts, DELETED, f"false AS {UNDONE}")


def _key(state: str, name: str, kind: str) -> str:
    column, wrong = f"`{name}`", f"`{name}` IS NULL"
    if kind in ("float", "double"):
        wrong += f" OR isnan({column})"
        column = f"CAST({column} + 0.0D AS {kind})"  # -0.0 and 0.0 are one key
    raising = _raising(f"a key of state {state} is NULL or NaN in field {name}")
    return f"CASE WHEN {wrong} THEN {raising} ELSE {column} END"


def _raising(text: str) -> str:
    quoted = (REFUSED + text).replace("\\", "").replace("'", "")
    return f"raise_error('{quoted}')"


# Names of Delta's exceptions: the words alone also occur in Java stack traces.
_CONTENDED = re.compile(
    r"DELTA_(?:CONCURRENT\w*|METADATA_CHANGED|PROTOCOL_CHANGED)"
    r"|io\.delta\.exceptions\.\w+|\b(?:Concurrent(?:Append|Delete\w*|Transaction|Write)"
    r"|MetadataChanged|ProtocolChanged)Exception"
)

_REFUSED = re.compile(re.escape(REFUSED) + r"([^\n\"]*)")

# SQLSTATE class 22: data exceptions, such as a sum that does not fit.
_DATA = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]*?) ?SQLSTATE: 22\w{3}")

# Failed functions of the user, and raise_error. A frame that commit derived from its input is
# computed during the merge. It would fail each time, so it is not treated like a lost machine.
_USERS = re.compile(
    r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]*?) ?SQLSTATE: (?:38|39|P0)\w{3}"
    r"|api\.python\.PythonException: ([^\n]*)"
)

# SQLSTATE class 42: no such table or column, no right to it; 0A: a feature that Spark lacks.
_STATEMENT = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]*?) ?SQLSTATE: (42501|(?:42|0A)\w{3})")

# The names of Java's exceptions for files, with their messages.
_FILE = re.compile(
    r"(?:java\.nio\.file\.\w*Exception|java\.io\.\w*Exception|"
    r"org\.apache\.hadoop\.\S*AccessControlException|AmazonS3Exception|\w*S3Exception): [^\n]*"
)

# The last lines of a traceback name Python's exception.
_RAISED = re.compile(r"^(\w[\w.]*(?:Error|Exception): [^\n]*)$", re.M)


def translated_of_spark(error: Exception, label: str) -> TxtopoError:
    """Return the error of txtopo for an error of Spark; the merge may have been written.

    Args:
        error: The exception of Spark.
        label: The state and its store, for the message.
    """
    if isinstance(error, TxtopoError):
        return error
    text = str(error)
    refused = _REFUSED.search(text) or _DATA.search(text)
    if refused is not None:
        said = " ".join(part for part in refused.groups() if part)
        return ValueRefusedError(
            f"{label} cannot store a frame exactly; got {said}; expected distinct keys and values "
            "that fit their columns; nothing of its batch was written",
            store=label,
            got=said,
        )
    users = _USERS.search(text)
    if users is not None and "FailedException" not in text:  # which asks for another try
        raised = _RAISED.search(text)
        said = " ".join(part for part in users.groups() if part)[:300]
        return ValueRefusedError(
            f"{label} was given a frame whose plan failed on its rows; got "
            f"{raised.group(1)[:300] if raised else said}; fix what commit does with the frame; "
            "nothing of its batch was written",
            store=label,
            got=raised.group(1)[:300] if raised else said,
        )
    first = _first_lines(text)
    if _CONTENDED.search(text):
        return StoreContended(
            f"{label} was changed by another writer: {first}; try again", store=label, got=first
        )
    lasting = _lasting(text, label)
    if lasting is not None:
        return lasting
    return UnknownOutcomeError(
        f"it is unknown whether {label} was written by Spark: {first}; the ledger will show it",
        store=label,
        got=first,
    )


def _lasting(text: str, label: str) -> PromiseError | None:
    """Return the error for a failure that would recur each time, or None."""
    statement = _STATEMENT.search(text)
    if statement is not None:
        name, said, state = statement.groups()
        if state == "42501":
            return AuthError(
                f"{label} cannot be written by Spark: {name} {said}; check its permissions",
                store=label,
                got=f"{name} {said}",
            )
        return SchemaDrift(
            f"{label} cannot be merged into by Spark: {name} {said[:300]}; was the table changed "
            "by hand?",
            store=label,
            got=f"{name} {said[:300]}",
        )
    file = _FILE.search(text)
    meaning = ErrorMeaning.PASSES if file is None else meaning_of(None, file.group())
    if file is not None and meaning is ErrorMeaning.REFUSED:
        return AuthError(
            f"{label} cannot be written by Spark: {file.group()[:300]}; check the permissions of "
            "its folder or bucket on all executors",
            store=label,
            got=file.group()[:300],
        )
    if file is not None and meaning is ErrorMeaning.LASTS:
        return PromiseError(
            f"{label} cannot be written by Spark, and a retry will not help: "
            f"{file.group()[:300]}; check its disk or bucket",
            store=label,
            got=file.group()[:300],
        )
    return None


def _first_lines(text: str) -> str:
    """Return the lines that name the failure; the first line of a Java error names the call."""
    lines = text.strip().split("\n")
    of_call = lines[0].startswith("An error occurred while calling")
    return " ".join(lines[: 2 if of_call else 1])[:300]
