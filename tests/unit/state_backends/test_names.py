"""The names of what stands beside a state's table: all of them are known, reserved and kept apart.

What is really in a database after a state was used is compared with what its one function says, so
that a table, a view or an index of which that does not know makes a test fail.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from state_backends.sql.names import (
    LEDGER,
    STAGE,
    SqlNames,
    mariadb_names,
    postgresql_names,
    sqlite_names,
    stage_name,
)
from tests.harness.servers.mariadb import MariaServer
from txtopo import Fields
from txtopo.errors import SchemaDrift, TopologyError
from txtopo.state import Count, State, StateKind, StateMode, open_state
from txtopo.testing.conformance.driver import StateDriver

_numbers = itertools.count()
KEY, VALUE = Fields("key string"), Fields("value long")
MANY = 2_500
"""Rows that PostgreSQL copies into its stage."""
FOLDED_AFTER = 33


@dataclass(frozen=True)
class Store:
    """A database of the test's own, and what the tests know of its kind.

    Attributes:
        url: Its URL.
        names_of: What gives the names of a state.
        taken: The ends of names that an opaque state takes.
        free: Ends that other databases take.
        catalogue: The statement that lists all that has a name in the database.
    """

    url: str
    names_of: Any
    taken: tuple[str, ...]
    free: tuple[str, ...]
    catalogue: str

    def ask(self, *statements: str) -> list[Any]:
        engine = sa.create_engine(self.url)
        try:
            with engine.begin() as connection:
                results = [connection.exec_driver_sql(text) for text in statements]
                return list(results[-1]) if results[-1].returns_rows else []
        finally:
            engine.dispose()

    def found(self) -> set[str]:
        """Return the names of all that is there, also what connections have for themselves."""
        return {row[0] for row in self.ask(self.catalogue)}

    def kept(self) -> set[str]:
        """Return the names of what stays when its connections are closed."""
        return {name for name in self.found() if not name.startswith(STAGE)}


KINDS: dict[str, dict[str, Any]] = {
    "sqlite": {
        "names_of": sqlite_names,
        "taken": ("_txid", "_deleted", "_view"),
        "free": ("_touched", "_stage", "_pkey"),
        "catalogue": "SELECT name FROM sqlite_schema",
    },
    "postgresql": {
        "names_of": postgresql_names,
        "taken": ("_touched", "_deleted", "_view"),
        "free": ("_txid", "_stage"),
        "catalogue": (
            "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE nspname NOT LIKE 'pg_toast%%' AND nspname <> ALL "
            "(ARRAY['pg_catalog', 'information_schema'])"
        ),
    },
    "mariadb": {
        "names_of": mariadb_names,
        "taken": ("_touched", "_view"),
        "free": ("_txid", "_deleted", "_stage", "_pkey"),
        "catalogue": (
            "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() "
            "UNION ALL SELECT trigger_name FROM information_schema.triggers "
            "WHERE trigger_schema = DATABASE()"
        ),
    },
}
STORES = [
    pytest.param("sqlite", marks=pytest.mark.integration),
    pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
    pytest.param("mariadb", marks=pytest.mark.service("mariadb")),
]
LOGS = STORES[1:]
both_orders = pytest.mark.parametrize("table_first", [True, False])


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store_of(request.param, request, tmp_path)


def store_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    if kind == "sqlite":
        return Store(f"sqlite:///{folder}/states.db", **KINDS[kind])
    server = request.getfixturevalue(kind)
    return Store(server.create_database(f"bookkeeping{next(_numbers)}"), **KINDS[kind])


def state_of(
    store: Store, table: str, mode: StateMode = "table", kind: StateKind = "opaque", **options: Any
) -> State:
    state = open_state(store.url, kind, table, KEY, VALUE, mode, **options)
    return state.with_columns(KEY, VALUE, (Count(),)) if mode == "log" else state


def use(state: State) -> None:
    """Write, write again, undo, delete and fold."""
    driver = StateDriver(state, topology=state.layout().name)
    if state.mode == "log":
        for txid in range(1, FOLDED_AFTER):
            driver.merge(txid, [("a", 1), (str(txid), 1)])
        driver.merge(FOLDED_AFTER - 1, [("b", 1)], attempt=1)
    else:
        driver.puts(1, {"0": 0, "1": 1})
        driver.puts(2, {"a": 1, "0": None})
        driver.puts(3, {"a": 3})
        driver.puts(3, {"b": 3}, attempt=1)
        assert driver.contents() == {"1": 1, "a": 1, "b": 3}
    driver.backend.close()


class TestCatalogue:
    """What is in the database, compared with what the function says."""

    @pytest.mark.parametrize("kind", ["opaque", "transactional"])
    @pytest.mark.rule("state_backends.sql.names", "Rules", 1)
    def test_everything_beside_a_table_has_a_name_that_is_known(
        self, store: Store, kind: StateKind
    ) -> None:
        self.check(store, "table", kind)

    @pytest.mark.parametrize("kind", ["opaque", "transactional"])
    @pytest.mark.parametrize("database", LOGS)
    def test_everything_beside_a_log_has_a_name_that_is_known(
        self, database: str, kind: StateKind, request: pytest.FixtureRequest, tmp_path: Path
    ) -> None:
        self.check(store_of(database, request, tmp_path), "log", kind)

    def test_a_state_whose_names_are_dropped_is_gone(self, store: Store) -> None:
        """As docs/how-to/operations.md says for one that was forgotten."""
        before = state_of(store, "counts")
        use(before)
        names = store.names_of(before.layout())
        for name in reversed(names.reserved()):
            kind = names.kind(name)
            if kind != "index":
                store.ask(f"DROP {kind} {name}")
        store.ask(f"DELETE FROM {LEDGER} WHERE state = 'counts'")

        assert store.kept() - {f"{LEDGER}_pkey"} == {LEDGER}
        StateDriver(state_of(store, "counts", kind="transactional"), topology="other")

    def test_nothing_else_is_added_to_a_table_of_the_users_own(self, store: Store) -> None:
        make_own_table(store, "counts")
        before = store.kept()
        state = state_of(store, "counts", add_columns=True)
        driver = StateDriver(state)
        driver.puts(1, {"a": 1})
        driver.backend.close()

        names = store.names_of(state.layout())
        added = store.kept() - before - {LEDGER, f"{LEDGER}_pkey"}
        assert added == set(names.reserved()) - {"counts"}

    def check(self, store: Store, mode: StateMode, kind: StateKind) -> None:
        state = state_of(store, "counts", mode, kind)
        driver = StateDriver(state)
        if mode == "log":
            for txid in range(1, FOLDED_AFTER):
                driver.merge(txid, [("a", 1), (str(txid), 1)])
        else:
            driver.puts(1, {str(n): n for n in range(MANY)})
            driver.puts(2, {"a": 1, "0": None})
            driver.puts(2, {"b": 3}, attempt=1)
            driver.puts(3, {"a": 3})
        # Also what the connection of the writer has for itself.
        found = store.found()
        driver.backend.close()

        names: SqlNames = store.names_of(state.layout())
        wanted = {LEDGER, *names.reserved()}
        if "postgresql" in store.url:
            wanted |= {f"{LEDGER}_pkey"} | (
                {stage_name(state.layout()), "counts_pkey"} if mode == "table" else set()
            )
        assert found == wanted


def make_own_table(store: Store, name: str) -> None:
    text = "TEXT"
    if "mysql" in store.url or "mariadb" in store.url:
        text = "VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
        name = f"`{name}`"
    options = " STRICT" if "sqlite" in store.url else ""
    key = "`key`" if "VARCHAR" in text else "key"
    kind = "INTEGER" if "sqlite" in store.url else "BIGINT"
    store.ask(f"CREATE TABLE {name} ({key} {text} NOT NULL PRIMARY KEY, value {kind}){options}")


class TestTwoStates:
    """Of two topologies: the second to be created is refused, and the first continues."""

    @both_orders
    def test_a_state_with_the_name_of_anothers_bookkeeping_is_refused(
        self, store: Store, table_first: bool
    ) -> None:
        for end in store.taken:
            table = f"x{next(_numbers)}"
            self.check_refused(store, table, f"{table}{end}", table_first=table_first)

    @both_orders
    @pytest.mark.parametrize("database", LOGS)
    def test_a_state_with_the_name_of_a_logs_bookkeeping_is_refused(
        self, database: str, table_first: bool, request: pytest.FixtureRequest, tmp_path: Path
    ) -> None:
        store = store_of(database, request, tmp_path)
        for end in ("_txid", "_view") if database == "postgresql" else ("_view",):
            table = f"x{next(_numbers)}"
            self.check_refused(store, table, f"{table}{end}", "log", table_first=table_first)

    def check_refused(
        self,
        store: Store,
        table: str,
        other: str,
        mode: StateMode = "table",
        *,
        table_first: bool,
    ) -> None:
        states = [state_of(store, table, mode), state_of(store, other)]
        first, second = states if table_first else reversed(states)
        use(first)
        before = store.kept()

        with pytest.raises(SchemaDrift, match=f"'{second.table}' in .*state '{first.table}'"):
            StateDriver(second, topology="other")
        assert store.kept() == before
        again = StateDriver(first, 2, topology=str(first.table))
        assert again.held() is not None
        again.backend.close()

    @both_orders
    def test_names_that_this_database_does_not_take_are_told_apart(
        self, store: Store, table_first: bool
    ) -> None:
        for end in store.free:
            table = f"x{next(_numbers)}"
            states = [state_of(store, table), state_of(store, f"{table}{end}")]
            for state in states if table_first else reversed(states):
                use(state)

    def test_a_name_that_is_reserved_by_nobody_goes_on(self, store: Store) -> None:
        for end in store.taken:
            use(state_of(store, f"alone{end}"))
            StateDriver(state_of(store, f"alone{end}"), 2, topology=f"alone{end}").backend.close()

    def test_a_transactional_state_reserves_only_its_view(self, store: Store) -> None:
        StateDriver(state_of(store, "kept", kind="transactional"), topology="a").backend.close()
        for end in set(store.taken) - {"_view"}:
            use(state_of(store, f"kept{end}"))

    def test_unicode_forms_and_accents_are_told_apart(self, store: Store) -> None:
        for name in ("\u00e9", "e\u0301", "e"):
            use(state_of(store, name))

    def test_the_longest_names_are_not_cut(self, store: Store) -> None:
        """PostgreSQL cuts at 63 bytes, MariaDB refuses at 64 signs; both take what is added."""
        for last in "ab":
            use(state_of(store, "\u00e9" * 24 + f"x{last}"))

    @pytest.mark.parametrize("names", [("words", "Words"), ("Words", "words")])
    def test_names_that_differ_in_case(self, store: Store, names: tuple[str, str]) -> None:
        first, second = (state_of(store, name) for name in names)
        use(first)
        if "sqlite" not in store.url:
            use(second)
            return
        with pytest.raises(SchemaDrift, match=f"'{names[1]}' in .*state '{names[0]}'"):
            StateDriver(second)


class TestThingsOfUsers:
    """Tables, views, indexes, sequences and types that are there already."""

    def things(self, store: Store, name: str) -> Iterator[tuple[str, str]]:
        yield f"CREATE TABLE {name} (a INTEGER)", f"DROP TABLE {name}"
        yield f"CREATE VIEW {name} AS SELECT 1 AS a", f"DROP VIEW {name}"
        if "sqlite" in store.url or "postgresql" in store.url:
            yield f"CREATE INDEX {name} ON theirs (a)", f"DROP INDEX {name}"
        if "sqlite" not in store.url:
            yield f"CREATE SEQUENCE {name}", f"DROP SEQUENCE {name}"
        if "postgresql" in store.url:
            yield f"CREATE TYPE {name} AS ENUM ('a')", f"DROP TYPE {name}"

    @pytest.mark.parametrize("options", [{}, {"create": False}, {"add_columns": True}])
    @pytest.mark.rule("state_backends.sql.names", "Rules", 2)
    def test_whatever_has_a_reserved_name_is_named_and_nothing_is_made(
        self, store: Store, options: dict[str, Any]
    ) -> None:
        store.ask("CREATE TABLE theirs (a INTEGER)")
        if options:
            make_own_table(store, "counts")
        if "create" in options:
            added = "txid", "prev_value", "prev_txid", "deleted"
            kinds = ["BIGINT", "BIGINT", "BIGINT", "BOOLEAN NOT NULL DEFAULT FALSE"]
            if "sqlite" in store.url:
                kinds = ["INTEGER", "INTEGER", "INTEGER", "INTEGER NOT NULL DEFAULT 0"]
            for name, kind in zip(added, kinds, strict=True):
                store.ask(f"ALTER TABLE counts ADD COLUMN {name} {kind}")
        for end in store.taken:
            things = itertools.islice(self.things(store, f"counts{end}"), 1 if options else None)
            for made, dropped in things:
                store.ask(made)
                before = store.kept() | {LEDGER, f"{LEDGER}_pkey"}
                with pytest.raises(SchemaDrift, match=f"'counts{end}', which the state needs"):
                    StateDriver(state_of(store, "counts", **options))
                assert store.kept() <= before, made
                store.ask(dropped)
        StateDriver(state_of(store, "counts", **options)).puts(1, {"a": 1})

    def test_what_has_the_name_of_the_table_is_named(self, store: Store) -> None:
        store.ask("CREATE TABLE theirs (a INTEGER)")
        for made, dropped in self.things(store, "counts"):
            store.ask(made)
            with pytest.raises(SchemaDrift, match=r"'counts' (in|is there)"):
                StateDriver(state_of(store, "counts"))
            store.ask(dropped)
        use(state_of(store, "counts"))

    def test_what_has_the_name_of_the_ledger_is_named(self, store: Store) -> None:
        store.ask("CREATE TABLE theirs (a INTEGER)")
        for made, dropped in list(self.things(store, LEDGER))[1:]:
            store.ask(made)
            with pytest.raises(SchemaDrift, match=f"'{LEDGER}', the table that all states share"):
                StateDriver(state_of(store, "counts"))
            store.ask(dropped)

    def test_a_list_of_keys_that_is_not_ours_is_refused_later_as_well(self, store: Store) -> None:
        if "_touched" not in store.taken:
            return
        use(state_of(store, "counts"))
        store.ask("DROP TABLE counts_touched", "CREATE TABLE counts_touched (a INTEGER)")

        with pytest.raises(SchemaDrift, match="'counts_touched', which the state needs"):
            StateDriver(state_of(store, "counts"), 2, topology="counts")

    def test_a_table_of_theirs_under_two_spellings(self, store: Store) -> None:
        make_own_table(store, "counts")
        StateDriver(state_of(store, "counts", add_columns=True), topology="a").puts(1, {"a": 1})

        with pytest.raises(SchemaDrift, match=r"state 'counts'|there is no such table"):
            StateDriver(state_of(store, "Counts", add_columns=True), topology="b")

    def test_a_column_that_differs_in_case_from_one_of_ours(self, store: Store) -> None:
        make_own_table(store, "counts")
        name = '"TXID"' if "postgresql" in store.url else "TXID"
        store.ask(f"ALTER TABLE counts ADD COLUMN {name} INTEGER")
        state = state_of(store, "counts", add_columns=True)

        if "postgresql" in store.url:
            StateDriver(state).puts(1, {"a": 1})
            return
        with pytest.raises(SchemaDrift, match="its column 'TXID' is spelled differently"):
            StateDriver(state)


@pytest.mark.service("postgresql")
class TestPostgresql:
    @pytest.fixture
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
        return store_of("postgresql", request, tmp_path)

    def test_the_index_of_a_key_makes_room(self, store: Store) -> None:
        """PostgreSQL gives it another name; the other way round the state is refused."""
        for name in ("x_pkey", "x"):
            use(state_of(store, name))
        use(state_of(store, "y"))

        with pytest.raises(SchemaDrift, match="'y_pkey' already exists as an index of table 'y'"):
            StateDriver(state_of(store, "y_pkey"))

    @pytest.mark.parametrize("name", ["pg_class", "pg_tables", f"{LEDGER}_pkey"])
    def test_names_of_the_system_are_refused(self, store: Store, name: str) -> None:
        with pytest.raises(SchemaDrift, match=f"'{name}' already exists as an? (system|index)"):
            StateDriver(state_of(store, name))


@pytest.fixture(scope="module")
def server() -> Iterator[MariaServer]:
    with MariaServer({"lower-case-table-names": "1"}) as server:
        yield server


@pytest.mark.service("mariadb")
class TestMariadbThatFoldsNames:
    """As on Windows and macOS: names of tables are compared without case."""

    @pytest.mark.parametrize(
        "names", [("words", "Words"), ("x", "X_TOUCHED"), ("X", "x_touched"), ("X", "x_View")]
    )
    @both_orders
    def test_states_that_differ_in_case_are_refused(
        self, server: MariaServer, names: tuple[str, str], table_first: bool
    ) -> None:
        url = server.create_database(f"folded{next(_numbers)}")
        store = Store(url, **KINDS["mariadb"])
        first, second = names if table_first else reversed(names)
        use(state_of(store, first))

        with pytest.raises(SchemaDrift, match=f"'{second}' in .*state '{first}'"):
            StateDriver(state_of(store, second))


LOCK_THE_INDEX = """
import fcntl, os, sys

# Byte 128 of the file: whoever has it locked uses the index (UNIX_SHM_DMS in os_unix.c).
try:
    fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)
except BlockingIOError:
    sys.exit(0)
sys.exit(1)
"""


@pytest.mark.integration
class TestSqliteFiles:
    """SQLite keeps a log beside a database, and deletes what it finds in its place."""

    @pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
    @both_orders
    def test_a_database_in_the_place_of_anothers_log_is_refused(
        self, tmp_path: Path, end: str, table_first: bool
    ) -> None:
        urls = [f"sqlite:///{tmp_path}/states.db", f"sqlite:///{tmp_path}/states.db{end}"]
        first, second = urls if table_first else reversed(urls)
        kept = StateDriver(open_state(first, table="kept"))
        kept.puts(1, {"a": 1})
        kept.backend.close()

        with pytest.raises(SchemaDrift, match="SQLite keeps the log of"):
            StateDriver(open_state(second, table="other"))
        with open_state(first, table="kept").reader() as reader:
            assert dict(reader.items()) == {"a": 1}

    def test_looking_for_it_leaves_the_locks_of_sqlite_alone(self, tmp_path: Path) -> None:
        """Another process that finds the index of the log unlocked cuts it off, under our feet."""
        state = open_state(f"sqlite:///{tmp_path}/states.db", table="kept")
        store = StateDriver(state)
        store.puts(1, {"a": 1})
        beside = StateDriver(open_state(f"sqlite:///{tmp_path}/states.db", table="other"))

        taken = subprocess.run(
            [sys.executable, "-c", LOCK_THE_INDEX, f"{tmp_path}/states.db-shm"], check=False
        )
        assert taken.returncode == 0, "SQLite's lock was gone"
        store.backend.close()
        beside.backend.close()

    def test_alone_it_goes_on(self, tmp_path: Path) -> None:
        state = open_state(f"sqlite:///{tmp_path}/states.db-wal", table="kept")
        StateDriver(state).puts(1, {"a": 1})
        assert StateDriver(state, 2).contents() == {"a": 1}

    @pytest.mark.parametrize("name", ["sqlite_counts", "SQLite_counts"])
    def test_a_name_of_sqlites_own_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(TopologyError, match="SQLite reserves names that begin"):
            open_state(f"sqlite:///{tmp_path}/states.db", table=name).open()
