"""The names of all objects that a state has in a database.

Each database has one function that returns the names of a state. Code that creates, uses or looks
for an object takes its name from there. The names follow from what the ledger records about a
state, so the names of all other states in the database can be computed as well. The index of the
range column is not in the ledger, and is found in the database itself.

Rules
-----
1. Every object of a state in a database has a name from this file.
2. The names are reserved. A clash is refused whichever came first: between two states of a topology
   when the topology is built, with anything else before a table is made; see ``name_clashes.py``. A
   name that clashes with nothing is allowed: a state may be called ``counts_view`` as long as none
   is called ``counts``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase

from txtopo.errors import TopologyError
from txtopo.plugins.stores import StateTable

LEDGER = "txtopo_ledger"
"""The table that all states of a database share."""
# PostgreSQL silently truncates names at 63 bytes; "_touched" and other suffixes are added to them.
TABLE_BYTES_MAX = 50
STAGE = "txtopo_stage".ljust(TABLE_BYTES_MAX + 1, "_")
"""How the temporary tables of a connection to PostgreSQL begin; no state's table has such a long
name."""
VIEW = "the view"
"""The objects that a state can do without."""
RANGE_INDEX = "txtopo_range"
"""The index of ranges in MariaDB and MySQL, where names of indexes are per table."""
SQLITE_RESERVED = "sqlite_"
"""The prefix, in any case, that SQLite forbids for users' tables."""
_MARIADB_CHARACTER_MAX = 0xFFFF
SQLITE_ENDS = ("-wal", "-shm", "-journal")
_TO_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


@dataclass(frozen=True, slots=True)
class SqlNames:
    """The names of the objects of one state; None for an object that it does not have.

    Attributes:
        table: Its table.
        view: The view of it without bookkeeping.
        touched: The table with the keys of its last txid.
        by_txid: The index of its rows by txid.
        tombstones: The index of its tombstones.
        by_range: The index of the column by which it is read in ranges.
        key: The index of its primary key, if its name is in the namespace of tables. It is not
            reserved: PostgreSQL picks another name if it is taken.
    """

    table: str
    view: str
    touched: str | None = None
    by_txid: str | None = None
    tombstones: str | None = None
    by_range: str | None = None
    key: str | None = None

    def reserved(self) -> dict[str, str]:
        """Return the reserved names with their uses, such as "the view"; the table comes first."""
        uses = {
            self.table: "the table",
            self.touched: "the list of keys",
            self.view: VIEW,
            self.by_txid: "the index by txid",
            self.tombstones: "the index of tombstones",
            self.by_range: "the index of ranges",
        }
        return {name: use for name, use in uses.items() if name is not None}

    def kind(self, name: str) -> str:
        """Return the kind of the object with one of these names, as the database calls it."""
        if name == self.view:
            return "view"
        return "table" if name in (self.table, self.touched) else "index"


@dataclass(frozen=True, slots=True)
class TakenName:
    """An object in a database.

    Attributes:
        name: Its name.
        kind: Its kind, such as "view", as the database calls it.
        table: The table of an index.
    """

    name: str
    kind: str
    table: str | None = None

    def __str__(self) -> str:
        article = "an" if self.kind.startswith(tuple("aeiou")) else "a"
        return f"{article} {self.kind}" + (f" of table {self.table!r}" if self.table else "")


def stage_name(state: StateTable) -> str:
    """Return the name of the temporary table of a state in PostgreSQL, of 63 bytes.

    A connection has one for each of the states that it writes.
    """
    return STAGE + hashlib.sha256(state.name.encode()).hexdigest()[: 63 - len(STAGE)]


def sqlite_names(state: StateTable) -> SqlNames:
    """Return the names of a state in SQLite."""
    name, by_range = state.name, _by_range(state)
    if state.kind != "opaque":
        return SqlNames(name, f"{name}_view", by_range=by_range)
    ends = {"by_txid": f"{name}_txid", "tombstones": f"{name}_deleted"}
    return SqlNames(name, f"{name}_view", by_range=by_range, **ends)


def postgresql_names(state: StateTable) -> SqlNames:
    """Return the names of a state in PostgreSQL."""
    name = state.name
    if state.mode == "log":
        return SqlNames(name, f"{name}_view", by_txid=f"{name}_txid")
    more = {"by_range": _by_range(state), "key": f"{name}_pkey"}
    if state.kind != "opaque":
        return SqlNames(name, f"{name}_view", **more)
    return SqlNames(name, f"{name}_view", f"{name}_touched", tombstones=f"{name}_deleted", **more)


def mariadb_names(state: StateTable) -> SqlNames:
    """Return the names of a state in MariaDB and MySQL, where index names are local to a table."""
    name = state.name
    if state.kind != "opaque" or state.mode == "log":
        return SqlNames(name, f"{name}_view")
    return SqlNames(name, f"{name}_view", f"{name}_touched")


def _by_range(state: StateTable) -> str | None:
    """Return the name of the index of ranges; the primary key serves its own first column."""
    first = state.key[0].name
    return None if state.range_by in (None, first) else f"{state.name}_range"


def sqlite_files(database: str) -> list[str]:
    """Return the paths of SQLite's side files, which SQLite creates and removes itself."""
    return [f"{database}{end}" for end in SQLITE_ENDS]


def in_small_letters(name: str) -> str:
    """Return a name as SQLite compares it: only the case of ASCII letters is ignored."""
    return name.translate(_TO_LOWER)


def check_mariadb_names(state: StateTable) -> None:
    """Check that MariaDB and MySQL accept the names of a state.

    Raises:
        TopologyError: They do not; rename what the message names.
    """
    for name in (state.name, *state.key.names, *state.value.names):
        if name != name.rstrip() or any(ord(each) > _MARIADB_CHARACTER_MAX for each in name):
            raise TopologyError(
                f"bad name in state {state.name!r}; got {name!r}; MariaDB and MySQL allow neither "
                "a space at the end of a name nor characters beyond U+FFFF, such as emoji; "
                "rename it",
                state=state.name,
            )


def check_sqlite_names(state: StateTable) -> None:
    """Check that SQLite accepts the name of a state's table.

    Raises:
        TopologyError: It does not; rename the table.
    """
    if in_small_letters(state.name).startswith(SQLITE_RESERVED):
        raise TopologyError(
            f"bad name of a state's table; got {state.name!r}; SQLite reserves names that begin "
            f"with {SQLITE_RESERVED!r}; rename it",
            state=state.name,
        )
