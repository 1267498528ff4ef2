"""States in tables of the user's own."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.harness.servers.mariadb import MariaServer
from tests.harness.servers.postgresql import PostgresServer
from tests.unit.state_backends.existing_suite import BALANCE, NAME, ExistingSuite
from txtopo import Fields
from txtopo.errors import SchemaDrift, StoreDamagedError, TopologyError
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver

_numbers = itertools.count()
ACCOUNTS = "name {text} NOT NULL PRIMARY KEY, balance {long}"


@pytest.mark.integration
class TestSqlite(ExistingSuite):
    number = "INTEGER"
    flag = "INTEGER"
    options = "STRICT"
    careless = "TEXT COLLATE NOCASE"

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/states.db"

    @pytest.mark.parametrize("collation", ["NOCASE", "RTRIM"])
    @pytest.mark.parametrize("index", ["", "BINARY"])
    def test_a_collation_that_holds_keys_equal_is_refused(
        self, url: str, engine: sa.Engine, collation: str, index: str
    ) -> None:
        """Also where the index tells apart what a comparison does not."""
        self.make(engine, f"name TEXT COLLATE {collation} NOT NULL, balance INTEGER")
        which = f"name COLLATE {index}" if index else "name"
        self.run(engine, f"CREATE UNIQUE INDEX by_name ON accounts ({which})")

        with pytest.raises(SchemaDrift, match="so that 'a' equals"):
            StateDriver(self.state(url))

    def test_a_text_that_is_not_utf_8_ends_the_run(self, url: str, engine: sa.Engine) -> None:
        """STRICT looks at the type of a text only, and other programs write any bytes."""
        self.make(engine, "name {text} NOT NULL PRIMARY KEY, note {text}")
        self.run(engine, "INSERT INTO accounts VALUES ('ann', CAST(x'ff' AS TEXT))")
        note = Fields("note string")
        state = open_state(url, table="accounts", key=NAME, value=note, add_columns=True)

        with pytest.raises(StoreDamagedError, match="decode to UTF-8 column 'note'"):
            StateDriver(state).contents()

    def test_a_table_that_is_not_strict_is_refused(self, url: str, engine: sa.Engine) -> None:
        self.run(engine, "CREATE TABLE accounts (name TEXT NOT NULL PRIMARY KEY, balance INTEGER)")

        with pytest.raises(SchemaDrift, match="it is not STRICT"):
            StateDriver(self.state(url))


class TestPostgresql(ExistingSuite):
    careless = 'TEXT COLLATE "en-x-icu"'

    @pytest.fixture
    def url(self, postgresql: PostgresServer) -> str:
        return postgresql.create_schema(f"existing{next(_numbers)}")

    def test_a_collation_that_holds_keys_equal_is_refused(
        self, url: str, engine: sa.Engine
    ) -> None:
        rules = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
        self.run(engine, f"CREATE COLLATION careless ({rules})")
        self.make(engine, "name TEXT COLLATE careless PRIMARY KEY, balance BIGINT")

        with pytest.raises(SchemaDrift, match="'careless', under which different keys are equal"):
            StateDriver(self.state(url))

    @pytest.mark.parametrize("kind", ["VARCHAR(20)", 'TEXT COLLATE "C"', 'TEXT COLLATE "en-x-icu"'])
    def test_other_text_will_do(self, url: str, engine: sa.Engine, kind: str) -> None:
        self.make(engine, f"name {kind} PRIMARY KEY, balance BIGINT")
        store = StateDriver(self.state(url))

        store.puts(1, {str(n): n for n in range(2_500)})
        store.puts(2, {str(n): -n for n in range(2_500)} | {"a": 1})
        store.puts(2, {"b": 1}, attempt=1)
        assert store.contents() == {str(n): n for n in range(2_500)} | {"b": 1}


class TestMariadb(ExistingSuite):
    text = "VARCHAR(100)"
    number = "BIGINT AUTO_INCREMENT"
    options = "DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
    careless = "VARCHAR(50) COLLATE utf8mb4_general_ci"

    @pytest.fixture
    def url(self, mariadb: MariaServer) -> str:
        return mariadb.create_database(f"existing{next(_numbers)}")

    @pytest.mark.parametrize("collation", ["utf8mb4_bin", "utf8mb4_general_ci"])
    def test_a_collation_that_holds_keys_equal_is_refused(
        self, url: str, engine: sa.Engine, collation: str
    ) -> None:
        """Under utf8mb4_bin 'a' and 'a ' are equal."""
        self.make(engine, f"name VARCHAR(100) COLLATE {collation} PRIMARY KEY, balance BIGINT")

        with pytest.raises(SchemaDrift, match=f"'{collation}', under which different keys are"):
            StateDriver(self.state(url))

    def test_a_table_without_transactions_is_refused(self, url: str, engine: sa.Engine) -> None:
        self.make(engine, ACCOUNTS)
        self.run(engine, "ALTER TABLE accounts ENGINE=MyISAM")

        with pytest.raises(SchemaDrift, match="its engine is MyISAM"):
            StateDriver(self.state(url))

    def test_a_key_of_which_only_the_beginning_is_unique_is_refused(
        self, url: str, engine: sa.Engine
    ) -> None:
        self.make(engine, "name VARCHAR(100) NOT NULL, balance BIGINT, UNIQUE (name(5))")

        with pytest.raises(SchemaDrift, match="no unique key on name"):
            StateDriver(self.state(url))


def test_what_is_no_database_has_no_tables_of_the_user() -> None:
    for add in (False, True):
        state = open_state("memory:", table="accounts", create=False, add_columns=add)
        with pytest.raises(TopologyError, match="cannot keep a state in your own"):
            state.open()


def test_a_log_is_not_kept_in_a_table_of_the_user() -> None:
    with pytest.raises(TopologyError, match="cannot keep a log in a table that already exists"):
        open_state("sqlite:///x.db", table="accounts", mode="log", create=False)


def test_the_origin_of_a_table_travels_with_its_state() -> None:
    found = open_state("memory:", table="accounts", create=False)
    extended = pickle.loads(pickle.dumps(open_state("sqlite:///x.db", add_columns=True)))

    assert open_state("memory:", table="accounts").layout().origin == "made"
    assert found.layout().origin == "found"
    assert extended.layout("accounts").origin == "extended"
    assert extended.with_columns(NAME, BALANCE).named("accounts").origin == "extended"
