"""``txtopo state``: reads any state of any store, without a run and without its topology's module.

A store keeps the declarations of its states, so its URL is all that is needed. Nothing here writes
to a store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from txtopo.command.choices import Choices, choices
from txtopo.command.exports import FORMATS, export, export_format
from txtopo.command.output import print_json, print_line, print_note, print_pairs, print_table
from txtopo.errors import (
    InfrastructureError,
    StateUsageError,
    StoreUnavailable,
    TxtopoError,
    escaped,
)
from txtopo.metadata import Json
from txtopo.state import State, open_state
from txtopo.state.backend import StateTable
from txtopo.state.ledger import RELEASED, Ledger
from txtopo.state.plain_values import json_of, key_of, text_of_value
from txtopo.state.queries import QueryBackend
from txtopo.state.reader import ReaderView, StateReader
from txtopo.state.registry import redacted_url
from txtopo.tuples import Fields

_ROWS_MAX = 1_000
"""The most rows of an answer that a person would read."""
_TIMEOUT_S = 30.0
_ENVIRONMENT = "env:"
_ANY = "state"
"""The table with which a backend is opened while the wanted one is unknown."""
_HALF_A_BATCH = (
    "this store has no snapshots: while its topology runs, these may include rows of an "
    "unfinished batch"
)

url_argument = click.argument("url", metavar="URL")
table_option = click.option(
    "--table", metavar="NAME", help="The state's table; not needed if the store holds only one."
)


@click.group(short_help="List, show, query and export states.")
def state() -> None:
    """Read states in their stores, without a run and without the topology's module.

    URL is that of open_state: sqlite:///counts.db, postgresql://user@host/database,
    delta:///folder, redis://host:6379/0. Instead of it, env:NAME takes the URL from an environment
    variable, so that its password is in no list of processes.
    """


@state.command("ls")
@url_argument
@choices
def list_states(chosen: Choices, url: str) -> None:
    """List the states that a store holds.

    Each is shown with its owner, its last txid, and its size, as far as the store knows it.

    \b
    Example:
      txtopo state ls sqlite:///counts.db
    """
    store = _store(url)
    tables = sorted(_known(store), key=lambda table: table.name)
    rows = [_listed(store, table) for table in tables]
    if chosen.json:
        print_json({"url": redacted_url(store.url), "states": [*rows]})
        return
    columns = ("table", "owner", "txid", "epoch", "kind", "rows", "bytes")
    print_table(
        columns,
        [[_owner_text(row) if each == "owner" else row[each] for each in columns] for row in rows],
        right=("txid", "epoch", "rows", "bytes"),
        empty=f"{redacted_url(store.url)} holds no state; has its topology run yet?",
    )
    for row in rows:
        if row["error"] is not None:
            print_note(f"{row['table']}: {row['error']}")


@state.command("show")
@url_argument
@table_option
@choices
def show_state(chosen: Choices, url: str, table: str | None) -> None:
    """Show the ledger of a state, its columns and its size.

    \b
    Example:
      txtopo state show sqlite:///counts.db --table words
    """
    with _reading(url, table) as reader:
        found, size, ledger = reader.table, reader.size(), reader.ledger
        shown: dict[str, Json] = {
            "url": redacted_url(_resolved(url)),
            "table": found.name,
            "kind": found.kind,
            "mode": found.mode,
            "key": _columns(found.key),
            "value": _columns(ReaderView(found).fields),
            "aggregates": [repr(each) for each in found.aggregates],
            "sql": reader.sql(),
            "is_snapshot": reader.is_snapshot,
            "rows": size.rows,
            "bytes": size.bytes,
            "ledger": None if ledger is None else _ledger(ledger),
        }
        if chosen.json:
            print_json(shown)
            return
        known: dict[str, object] = {
            **shown,
            "key": _columns_text(found.key),
            "value": _columns_text(ReaderView(found).fields),
            "aggregates": ", ".join(map(repr, found.aggregates)) or None,
            "ledger": None if ledger is None else _ledger_text(ledger),
        }
        print_pairs(known)


@state.command("get")
@url_argument
@click.argument("key", nargs=-1, required=True)
@table_option
@choices
def get_value(chosen: Choices, url: str, key: tuple[str, ...], table: str | None) -> int:
    """Print the value of a key.

    KEY is one argument for each key column, or one JSON array for all of them. The exit code is 1
    if there is no such key. A key that begins with - comes after --.

    \b
    Examples:
      txtopo state get sqlite:///counts.db cat
      txtopo state get env:SALES --table sales Paris 2026-01-31
    """
    missing = object()
    with _reading(url, table) as reader:
        wanted = key_of(key, reader.table.key)
        value = reader.get(wanted, missing)
        names = ReaderView(reader.table).fields.names
        parts = wanted if isinstance(wanted, tuple) else (wanted,)
        txid = None if reader.ledger is None else reader.ledger.txid
        name, columns = reader.table.name, reader.table.key.names
    values: dict[str, object] = {}
    if value is not missing and names:
        values = {names[0]: value} if len(names) == 1 else value
    if chosen.json:
        print_json(
            {
                "table": name,
                "key": json_of(dict(zip(columns, parts, strict=True))),
                "found": value is not missing,
                "value": None if value is missing else json_of(values),
                "txid": txid,
            }
        )
    elif value is not missing and not names:
        shown = ", ".join(map(text_of_value, parts))
        print_note(f"state {name!r}, which keeps only keys, has key {shown} after txid {txid}")
    elif value is not missing:
        print_pairs({escaped(each): escaped(text_of_value(part)) for each, part in values.items()})
        print_note(f"after txid {txid}")
    else:
        shown = ", ".join(map(text_of_value, parts))
        print_note(f"state {name!r} has no key {shown} after txid {txid}")
    return 1 if value is missing else 0


@state.command("query", short_help="Run one read-only SELECT.")
@url_argument
@click.argument("statement", metavar='"SELECT …"')
@click.option(
    "--limit",
    metavar="ROWS",
    type=click.IntRange(1, 1_000_000),
    default=_ROWS_MAX,
    show_default=True,
    help="How many rows to print at most.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(0.001, 86_400),
    default=_TIMEOUT_S,
    show_default=True,
    help="How long the query may take.",
)
@choices
def query(chosen: Choices, url: str, statement: str, limit: int, timeout_s: float) -> None:
    """Run one SELECT in a database, in a transaction that can change nothing.

    A state is a table with bookkeeping columns; what users see of it is the view NAME_view.

    \b
    Example:
      txtopo state query sqlite:///counts.db \\
          "SELECT key, value FROM words_view ORDER BY value DESC LIMIT 10"
    """
    store = _store(url)
    with closing(store.open(_ANY)) as backend:
        if not isinstance(backend, QueryBackend):
            raise StateUsageError(
                f"{redacted_url(store.url)} is not a database that can run queries; expected "
                "SQLite, PostgreSQL, MariaDB or MySQL; export it to a file that any tool can "
                "read with txtopo state export, or look up a key with txtopo state get",
                path=redacted_url(store.url),
            )
        answer = backend.query(statement, rows_max=limit, timeout_s=timeout_s)
    if chosen.json:
        print_json(
            {
                "columns": [*answer.columns],
                "rows": json_of(answer.rows),
                "complete": answer.complete,
            }
        )
    else:
        print_table(answer.columns, [[*map(text_of_value, row)] for row in answer.rows])
    if not answer.complete:
        print_note(f"these are the first {limit:,} rows; raise --limit to see more")


@state.command("export")
@url_argument
@click.argument("file", type=click.Path(path_type=Path))
@table_option
@click.option(
    "--format",
    "form",
    type=click.Choice([*FORMATS]),
    help="By default, the suffix of FILE decides.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@choices
def export_state(
    chosen: Choices, url: str, file: Path, table: str | None, form: str | None, *, force: bool
) -> None:
    """Write all of a state to a file.

    The file has the state as of one txid, which is printed.

    The suffix of FILE says whether it is Parquet (.parquet), CSV (.csv) or JSON lines (.jsonl).

    \b
    Example:
      txtopo state export env:SALES sales.parquet --table sales
    """
    written = export_format(file, form)
    with _reading(url, table) as reader:
        try:
            rows = export(reader, file, written, force=force)
        except StoreUnavailable:
            raise  # is an OSError as well
        except OSError as error:
            raise TxtopoError(
                f"cannot write {str(file)!r}: {error.strerror or error}", path=str(file)
            ) from error
        name, ledger = reader.table.name, reader.ledger
    txid = None if ledger is None else ledger.txid
    line = f"{rows:,} rows of state {name!r} after txid {txid} are in {str(file)!r}"
    if not file.is_file():
        print_note(line)
    elif chosen.json:
        print_json(
            {"table": name, "file": str(file), "format": written, "rows": rows, "txid": txid}
        )
    else:
        print_line(line)


def _resolved(url: str) -> str:
    """Return the URL of a store, which may be in the environment.

    Raises:
        StateUsageError: There is no such variable.
    """
    if not url.startswith(_ENVIRONMENT):
        return url
    name = url.removeprefix(_ENVIRONMENT)
    found = os.environ.get(name)
    if not found:
        raise StateUsageError(
            f"there is no environment variable {name!r}; got {url!r}; expected one with the URL "
            "of a store",
            name=name,
        )
    return found


def _store(url: str, table: str | None = None) -> State:
    store = open_state(_resolved(url), table=table)
    if not store.shared_by_processes:
        raise StateUsageError(
            f"{redacted_url(url)} is in the memory of another process; read it there with "
            "open_state(…).reader()",
            path=redacted_url(url),
        )
    return store


def _known(store: State) -> tuple[StateTable, ...]:
    """Return the states of a store.

    Raises:
        StateUsageError: The store does not record them.
    """
    with closing(store.open(_ANY)) as backend:
        found = backend.stored()
    if found is None:
        meant = f"has no state {store.table!r}" if store.table else "does not list its states"
        raise StateUsageError(
            f"{redacted_url(store.url)} {meant}, or its columns are unknown; expected --table "
            "with the name of a state; a state whose columns the store does not record can be "
            "read in Python: open_state(url, table=…, key=…, value=…).reader()",
            path=redacted_url(store.url),
            table=store.table,
        )
    return found


@contextmanager
def _reading(url: str, table: str | None) -> Iterator[StateReader]:
    store = _store(url, table)
    _known(store)
    with store.reader() as reader:
        if not reader.is_snapshot:
            print_note(f"note: {_HALF_A_BATCH}")
        yield reader


def _listed(store: State, table: StateTable) -> dict[str, Json]:
    """Return what is known of one state; a damaged state does not prevent listing the others."""
    row: dict[str, Json] = {
        "table": table.name,
        "kind": table.kind,
        "mode": table.mode,
        **dict.fromkeys(("owner", "txid", "epoch", "rows", "bytes", "is_snapshot", "error")),
    }
    try:
        with store.named(table.name).reader() as reader:
            size, ledger = reader.size(), reader.ledger
            row |= {"rows": size.rows, "bytes": size.bytes, "is_snapshot": reader.is_snapshot}
    except InfrastructureError:
        raise
    except TxtopoError as error:
        return {**row, "error": str(error)}
    if ledger is not None:
        known = _ledger(ledger)
        row |= {name: known[name] for name in ("owner", "txid", "epoch")}
    return row


def _ledger(ledger: Ledger) -> dict[str, Json]:
    known = asdict(ledger)
    del known["witness"]  # it is for starts, which compare it
    owner = {name: known.pop(name) for name in ("topology", "component", "state")}
    attempts = [*known.pop("attempts")]
    return {
        "owner": None if ledger.topology == RELEASED else owner,
        **known,
        "attempts": attempts,
    }


def _owner_text(row: dict[str, Json]) -> str | None:
    owner = row["owner"]
    if isinstance(owner, dict):
        return ".".join(str(part) for part in owner.values() if part)
    return None if row["txid"] is None else "released"


def _ledger_text(ledger: Ledger) -> str:
    known = _ledger(ledger)
    owner = _owner_text(known)
    return "\n".join(
        [f"owner {owner}", *(f"{name} {known[name]}" for name in known if name != "owner")]
    )


def _columns(fields: Fields) -> list[Json]:
    return [{"name": field.name, "type": field.type} for field in fields]


def _columns_text(fields: Fields) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in fields)
