"""The layout of a state in Delta: columns and properties of its table, its folder, its names.

Each state has its own folder with nothing else in it: a VACUUM of a table removes all files that
the table does not refer to, including files of another table. So no state lies within the table of
another, whichever was created first, and none is named like a log.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from string import ascii_letters
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.errors import TopologyError, ValueRefusedError
from txtopo.plugins.stores import Field, StateTable, declaration, mean_names, redacted_url
from txtopo.state.log_mode import limited_sums

DECLARATION = "txtopo.declaration"

OWNER = "txtopo.topology"

COMPONENT = "txtopo.component"

STATE = "txtopo.state"

ENSEMBLE = "txtopo.ensemble"

RETENTION = "delta.logRetentionDuration"

STATISTICS = "delta.dataSkippingStatsColumns"

# Written by our transactions and read back: the last writer, which does not fit into a version.
WRITER_EPOCH = "txtopo.writer_epoch"

WRITER_TERM = "txtopo.writer_term"

FOLD = "txtopo.fold"
"""In the metadata of a commit that folds a log."""

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
        """Whether rows keep their values from before their txid."""
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

    def sql(self) -> str:
        """Return the query of a table with the name of the state: no bookkeeping, no deleted rows.

        In mode ``log`` it combines the rows of a key. Means come last, as in a database's view.
        """
        keys, values = map(_quoted, self.keys), [_quoted(name) for name in self.values]
        shown, end = values, " WHERE NOT deleted" if self.opaque else ""
        if self.state.mode == "log":
            operators = [each.operator or "" for each in self.state.aggregates]
            values = [f"{_SQL[op]}({value})" for op, value in zip(operators, values, strict=True)]
            shown = [f"{value} AS {name}" for value, name in zip(values, shown, strict=True)]
            end = f" GROUP BY {', '.join(map(_quoted, self.keys))}"
        means = [
            # Some databases divide whole numbers without a fraction.
            f"{_whole_as_double(self.state.value[at], values[at])} / NULLIF({values[at + 1]}, 0) "
            f"AS {_quoted(name)}"
            for at, name in mean_names(self.state).items()
        ]
        columns = ", ".join([*keys, *shown, *means])
        return f"SELECT {columns} FROM {_quoted(self.state.name)}{end}"  # noqa: S608 - quoted

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a new table."""
        return {
            DECLARATION: declaration(self.state),
            "delta.enableDeletionVectors": "false",  # delta-rs cannot read such a table into Arrow
            "delta.checkpointInterval": "100",
            # Statistics in the log are JSON, whose numbers lose digits: a merge would skip the file
            # of a key with 38 digits and insert the key again.
            RETENTION: "interval 86400 seconds",  # upkeep.py adjusts it to the history that is kept
            STATISTICS: ",".join(self._with_statistics()),
        }

    def _with_statistics(self) -> list[str]:
        names = list(limited_sums(self.state)) if self.state.mode == "log" else []
        return ["txid", *(name if name.isidentifier() else f"`{name}`" for name in names)]


_SQL = {"add": "SUM", "min": "MIN", "max": "MAX"}

# Without quotes, some databases would take such a column for a value of their own.
_SQL_VALUES = re.compile(r"user|null|true|false|local\w+|(current|session)_\w+", re.IGNORECASE)


def _quoted(name: str) -> str:
    """Return a name as Spark writes it: in backticks, if it is not a plain word."""
    plain = name.isascii() and name.isidentifier() and not _SQL_VALUES.fullmatch(name)
    return name if plain else f"`{name.replace('`', '``')}`"


def _whole_as_double(field: Field, total: str) -> str:
    return f"CAST({total} AS DOUBLE)" if field.type == "long" else total


def reserved(name: str) -> bool:
    """Return whether a column may not have this name in Delta or delta-rs."""
    own = name.lower().startswith(("txtopo_", "__delta_rs_"))
    # delta-rs loses control characters between a table and a merge.
    return own or any(each in _COLUMN_RESERVED or each < " " for each in name)


def check_sizes(state: StateTable, rows: pa.Table) -> None:
    """Check that delta-rs can write these rows in one transaction.

    Raises:
        ValueRefusedError: A column is too large.
    """
    for each, column in zip(rows.schema, rows.columns, strict=True):
        text = pa.types.is_string(each.type) or pa.types.is_binary(each.type)
        if text and column.nbytes > COLUMN_BYTES_MAX:
            raise ValueRefusedError(
                f"a batch is too large for state {state.name!r} in Delta; got {column.nbytes} "
                f"bytes in column {each.name!r}; expected at most {COLUMN_BYTES_MAX}; nothing of "
                "it was written; no setting raises this limit; let the spout cut smaller "
                "batches, or write shorter values",
                state=state.name,
                column=each.name,
                bytes=column.nbytes,
            )


def without_negative_zero(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Return rows with 0.0 for -0.0 in key columns: they are equal to users but not to delta-rs."""
    for name in names:
        column = rows.column(name)
        if pa.types.is_floating(column.type):
            zero = pa.scalar(0.0, column.type)
            rows = rows.set_column(rows.column_names.index(name), name, pc.add(column, zero))
    return rows


_REFUSED = "%[]\\#\x7f"


@dataclass(frozen=True, slots=True)
class Location:
    """A folder with one Delta table for each state.

    Attributes:
        root: The folder: a path, or a URI that delta-rs opens.
        options: Storage options for delta-rs, from the query of the URL. Put secrets into the
            environment, where delta-rs finds them too.
        local: Whether the folder is on this machine.
        history_txids: How many txids back a reader may go; ``?history_txids=`` of the URL.
        frames: Whether Spark may write frames into it; ``?writer=spark`` of the URL.
    """

    root: str
    options: dict[str, str] = field(default_factory=dict, repr=False)
    local: bool = False
    history_txids: int = 100
    frames: bool = False

    def table(self, name: str) -> str:
        """Return the path or URI of the table of a state."""
        return f"{self.root.rstrip('/')}/{names_of(name).folder}"


def location_of(url: str) -> Location:
    """Read the URL of a state: ``delta:///folder``, ``delta:folder`` or ``s3://bucket/folder``.

    Raises:
        TopologyError: The URL names no folder.
    """
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "delta":
        parts = urlsplit(url)
        if not parts.netloc:
            raise _unreadable(url)
        root = parts._replace(query="", fragment="").geturl()
        return _with_options(Location(root), parts.query)
    path, _, query = rest.partition("?")
    if path.startswith("//"):
        path = path[2:]
        if not path.startswith("/"):
            raise _unreadable(url)
    folder = unquote(path)
    if not folder.strip("/"):
        raise _unreadable(url)
    if any(each in _REFUSED or each < " " for each in folder):
        raise TopologyError(
            f"delta-rs cannot keep a table in this folder; got {folder!r}; expected a path "
            "without percent signs, brackets, backslashes, # or control characters; choose "
            "another folder",
            path=folder,
        )
    return _with_options(Location(os.path.realpath(folder), local=True), query)


def absolute(url: str) -> str:
    """Return the URL with an absolute path if it is a local folder: tasks may run elsewhere."""
    location = location_of(url)
    if not location.local:
        return url
    _, mark, query = url.partition("?")
    return f"delta://{quote(location.root)}{mark}{query}"


def _with_options(location: Location, query: str) -> Location:
    options = dict(parse_qsl(query))
    text = options.pop("history_txids", str(location.history_txids))
    if not text.isdecimal():
        raise TopologyError(
            f"bad history_txids in the URL of a state; got {text!r}; expected a whole number: how "
            "many txids back a reader may go",
            setting="history_txids",
            got=text,
        )
    writer = options.pop("writer", "")
    if writer not in ("", "spark"):
        raise TopologyError(
            f"bad writer in the URL of a state; got {writer!r}; expected 'spark', for DataFrame "
            "committers, or none",
            setting="writer",
            got=writer,
            expected="spark",
        )
    frames = writer == "spark"
    return replace(location, options=options, history_txids=int(text), frames=frames)


def _unreadable(url: str) -> TopologyError:
    return TopologyError(
        f"cannot read the URL of a state in Delta; got {redacted_url(url)!r}; expected "
        "'delta:///absolute/folder', 'delta:folder' or e.g. 's3://bucket/folder'",
        path=redacted_url(url),
    )


LOG = "_delta_log"
"""The folder of a table's log; Delta's word."""

CHECKSUMS = "_txtopo_checksums"
"""The file of notes in that folder, on a local disk; see ``durability.py``."""

_PLAIN = frozenset("_0123456789" + ascii_letters)


@dataclass(frozen=True, slots=True)
class DeltaNames:
    """The names of one state's files and folders, below the folder of all states.

    Attributes:
        folder: The folder of its table.
        log: The folder of its log.
        checksums: The file of checksums.
    """

    folder: str
    log: str
    checksums: str


def names_of(table: str) -> DeltaNames:
    """Return the names of a state's files and folders."""
    folder = folder_name(table)
    return DeltaNames(folder, f"{folder}/{LOG}", f"{folder}/{LOG}/{CHECKSUMS}")


def folder_name(table: str) -> str:
    """Return the folder name for a table: letters and digits, others as ``-`` and hex.

    delta-rs decodes percent signs in a path, and object stores keep few characters unchanged.
    """
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"-{byte:02x}" for byte in table.encode())


def table_name(folder: str) -> str:
    """Return the table name for a folder name."""
    return unquote(folder.replace("%", "%25").replace("-", "%"))
