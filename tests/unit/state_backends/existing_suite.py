"""A state in a table of the user's own, in every SQL database."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import sqlalchemy as sa

from txtopo import Fields
from txtopo.errors import PromiseError, SchemaDrift
from txtopo.state import Count, Min, State, open_state
from txtopo.testing.conformance.driver import StateDriver, adding

NAME, BALANCE = Fields("name string"), Fields("balance long")


class ExistingSuite:
    """Subclasses have a fixture ``url``, a store of the test's own, and say what its types are.

    Attributes:
        text: A column type for keys.
        number: The type of a generated primary key.
        flag: The type of a truth value.
        options: What stands at the end of ``CREATE TABLE``.
        careless: A column type for values that orders text as people do, if there is one.
    """

    text: ClassVar[str] = "TEXT"
    number: ClassVar[str] = "BIGSERIAL"
    flag: ClassVar[str] = "BOOLEAN"
    options: ClassVar[str] = ""
    careless: ClassVar[str] = ""

    @pytest.fixture
    def engine(self, url: str) -> sa.Engine:
        return sa.create_engine(url)

    @pytest.fixture
    def accounts(self, url: str, engine: sa.Engine) -> State:
        """A table with two rows from before, which is told to be extended."""
        self.make(engine, "name {text} NOT NULL PRIMARY KEY, balance {long}, note {text}")
        self.run(engine, "INSERT INTO accounts VALUES ('ann', 10, 'x'), ('bob', NULL, 'y')")
        return self.state(url)

    def state(self, url: str, **options: Any) -> State:
        chosen = options or {"add_columns": True}
        return open_state(url, table="accounts", key=NAME, value=BALANCE, **chosen)

    def make(self, engine: sa.Engine, columns: str) -> None:
        long = "INTEGER" if engine.dialect.name == "sqlite" else "BIGINT"
        types = {"text": self.text, "serial": self.number, "long": long, "flag": self.flag}
        text = f"CREATE TABLE accounts ({columns.format(**types)}) {self.options}"
        self.run(engine, text)

    def run(self, engine: sa.Engine, *statements: str) -> None:
        with engine.begin() as connection:
            for text in statements:
                connection.exec_driver_sql(text)

    def raw(self, engine: sa.Engine, columns: str, name: str) -> tuple[Any, ...] | None:
        """Return what anybody finds in the table."""
        with engine.connect() as connection:
            text = f"SELECT {columns} FROM accounts WHERE name = '{name}'"
            found = connection.exec_driver_sql(text).first()
        return None if found is None else tuple(found)

    def test_rows_from_before_are_part_of_the_state(self, accounts: State) -> None:
        store = StateDriver(accounts)

        assert store.contents() == {"ann": 10, "bob": None}
        assert store.run(1, adding(("ann", 1), ("bob", 1), ("new", 1))) == [11, 1, 1]
        assert store.contents() == {"ann": 11, "bob": 1, "new": 1}

    @pytest.mark.rule("state_backends.sql.creation", "Rules for a user's own table", 1)
    def test_an_undo_takes_rows_from_before_back_to_what_they_were(
        self, accounts: State, engine: sa.Engine
    ) -> None:
        """NULL as the txid of the previous value would mean that there was no row."""
        store = StateDriver(accounts)
        store.puts(1, {"ann": 11, "bob": 12, "new": 13})
        shown = "balance, note, txid, prev_balance, prev_txid"
        assert self.raw(engine, shown, "ann") == (11, "x", 1, 10, 0)
        assert self.raw(engine, shown, "bob") == (12, "y", 1, None, 0)

        store.puts(1, {}, attempt=1)

        assert store.contents() == {"ann": 10, "bob": None}
        assert self.raw(engine, "balance, note, txid", "ann") == (10, "x", None)
        assert store.run(2, adding(("ann", 5))) == [15]
        store.puts(2, {}, attempt=1)
        assert store.contents() == {"ann": 10, "bob": None}

    def test_partials_meet_rows_from_before(self, url: str, accounts: State) -> None:
        store = StateDriver(accounts.with_columns(NAME, BALANCE, (Count(),)))

        store.merge(1, [("ann", 2), ("bob", 3), ("new", 4)])
        assert store.contents() == {"ann": 12, "bob": 3, "new": 4}
        store.merge(1, [("ann", 1)], attempt=1)
        assert store.contents() == {"ann": 11, "bob": None}
        with open_state(url).reader() as reader:
            assert reader.get("ann") == 11

    def test_text_is_ordered_as_in_python_whatever_the_column_says(
        self, url: str, engine: sa.Engine
    ) -> None:
        """Partials are combined in Python and in Arrow before they meet the stored value."""
        self.make(engine, f"name {{text}} NOT NULL PRIMARY KEY, low {self.careless or 'TEXT'}")
        self.run(engine, "INSERT INTO accounts VALUES ('ann', 'a'), ('bob', 'B')")
        state = open_state(url, table="accounts", add_columns=True)
        store = StateDriver(state.with_columns(NAME, Fields("low string"), (Min("x"),)))

        store.merge(1, [("ann", "B"), ("bob", "a")])

        assert store.contents() == {"ann": "B", "bob": "B"}

    def test_a_removed_row_from_before_can_come_back(
        self, accounts: State, engine: sa.Engine
    ) -> None:
        """Until the next txid whoever reads the table itself sees it, marked as deleted."""
        store = StateDriver(accounts)
        store.puts(1, {"ann": None})
        assert store.contents() == {"bob": None}
        assert self.raw(engine, "balance, txid, deleted", "ann") == (10, 1, 1)
        with engine.connect() as connection:
            seen = connection.exec_driver_sql("SELECT name FROM accounts_view").scalars().all()
        assert seen == ["bob"]

        store.puts(1, {}, attempt=1)
        assert store.contents() == {"ann": 10, "bob": None}
        store.puts(2, {"ann": None})
        store.puts(3, {})
        assert self.raw(engine, "balance", "ann") is None
        assert store.contents() == {"bob": None}

    def test_a_row_that_the_user_adds_later_is_from_before_as_well(
        self, accounts: State, engine: sa.Engine
    ) -> None:
        store = StateDriver(accounts)
        store.puts(1, {"ann": 11})
        self.run(engine, "INSERT INTO accounts (name, balance) VALUES ('carl', 5)")

        assert store.run(2, adding(("carl", 1))) == [6]
        store.puts(2, {}, attempt=1)
        assert store.contents() == {"ann": 11, "bob": None, "carl": 5}

    def test_a_transactional_state_has_only_a_txid_more(
        self, url: str, accounts: State, engine: sa.Engine
    ) -> None:
        state = open_state(url, "transactional", "accounts", NAME, BALANCE, add_columns=True)
        store = StateDriver(state)
        store.puts(1, {"ann": 11, "new": 1})

        store.puts(1, {"ann": 99}, attempt=1)

        assert store.contents() == {"ann": 11, "bob": None, "new": 1}
        names = [column["name"] for column in sa.inspect(engine).get_columns("accounts")]
        assert names == ["name", "balance", "note", "txid"]

    def test_a_later_start_goes_on(self, url: str, accounts: State) -> None:
        StateDriver(accounts).puts(1, {"ann": 11})

        for epoch, options in enumerate(({"add_columns": True}, {"create": False}), 2):
            store = StateDriver(self.state(url, **options), epoch)
            store.puts(1, {"ann": epoch})
            assert store.contents() == {"ann": epoch, "bob": None}

    def test_missing_columns_are_named_with_what_adds_them(
        self, url: str, accounts: State, engine: sa.Engine
    ) -> None:
        state = self.state(url, create=False)
        with pytest.raises(SchemaDrift, match="ALTER TABLE accounts ADD COLUMN txid") as caught:
            StateDriver(state)
        assert caught.value.missing == ["txid", "prev_balance", "prev_txid", "deleted"]
        assert not {"txid", "deleted"} & {
            column["name"] for column in sa.inspect(engine).get_columns("accounts")
        }

        self.run(engine, *str(caught.value).partition("first batch: ")[2].split("; "))
        store = StateDriver(state)
        store.puts(1, {"ann": 11, "new": 1})
        store.puts(1, {}, attempt=1)
        assert store.contents() == {"ann": 10, "bob": None}

    def test_a_generated_primary_key_beside_the_key_is_left_alone(
        self, url: str, engine: sa.Engine
    ) -> None:
        self.make(engine, "id {serial} PRIMARY KEY, name {text} NOT NULL UNIQUE, balance {long}")
        self.run(engine, "INSERT INTO accounts (name, balance) VALUES ('ann', 10)")
        store = StateDriver(self.state(url))

        store.puts(1, {"ann": 11, "new": 1, "other": 2})
        assert store.contents() == {"ann": 11, "new": 1, "other": 2}
        assert self.raw(engine, "id", "ann") == (1,)
        store.puts(1, {}, attempt=1)
        assert store.contents() == {"ann": 10}

    @pytest.mark.parametrize(
        ("columns", "why"),
        [
            ("name {text} NOT NULL, balance {long}", "no unique key on name"),
            ("name {text} UNIQUE, balance {long}", "its key 'name' may be NULL"),
            ("name {long} NOT NULL PRIMARY KEY, balance {long}", "its column 'name' is"),
            ("name {text} NOT NULL PRIMARY KEY, total {long}", "it has no column 'balance'"),
            (
                "name {text} NOT NULL PRIMARY KEY, balance {long}, city {text} NOT NULL",
                "its column 'city' has no default and may not be NULL",
            ),
            (
                "name {text} NOT NULL PRIMARY KEY, balance {long} UNIQUE",
                "another unique key on balance",
            ),
            (
                "name {text} NOT NULL PRIMARY KEY, balance {long}, spot {long} DEFAULT 1 UNIQUE",
                "another unique key on spot",
            ),
            (
                "name {text} NOT NULL PRIMARY KEY, balance {long}, txid {long} NOT NULL",
                "its column 'txid' is not as expected: that NULL is allowed",
            ),
            (
                "name {text} NOT NULL PRIMARY KEY, balance {long}, deleted {flag}",
                "its column 'deleted' is not as expected: NOT NULL",
            ),
        ],
    )
    @pytest.mark.rule("state_backends.sql.creation", "Rules for a user's own table", 2, 3)
    def test_a_table_that_cannot_hold_the_state_is_refused_with_the_reason(
        self, url: str, engine: sa.Engine, columns: str, why: str
    ) -> None:
        self.make(engine, columns)
        before = sa.inspect(engine).get_columns("accounts")

        with pytest.raises(SchemaDrift, match=why):
            StateDriver(self.state(url))
        after = sa.inspect(engine).get_columns("accounts")
        assert [column["name"] for column in after] == [column["name"] for column in before]

    def test_a_view_is_refused(self, url: str, accounts: State, engine: sa.Engine) -> None:
        self.run(engine, "CREATE VIEW seen AS SELECT * FROM accounts")

        with pytest.raises(SchemaDrift, match="it is a view"):
            StateDriver(open_state(url, table="seen", key=NAME, value=BALANCE, create=False))

    def test_a_table_that_is_not_there_is_refused(self, url: str) -> None:
        for options in ({"create": False}, {"add_columns": True}):
            with pytest.raises(SchemaDrift, match="there is no such table"):
                StateDriver(self.state(url, **options))

    @pytest.mark.parametrize("change", ["txid = 3", "deleted = '1'"])
    def test_bookkeeping_that_the_ledger_does_not_know_is_refused(
        self, url: str, accounts: State, engine: sa.Engine, change: str
    ) -> None:
        """A batch of that txid would take these rows back, or delete them."""
        StateDriver(accounts)
        self.run(engine, f"UPDATE accounts SET {change} WHERE name = 'bob'")
        self.run(engine, "DELETE FROM txtopo_ledger", "DROP VIEW accounts_view")

        with pytest.raises(SchemaDrift, match="does not list the table"):
            StateDriver(self.state(url, create=False))

    @pytest.mark.rule("state_backends.sql.creation", "Rules for a user's own table", 4)
    def test_names_that_are_taken_are_refused(
        self, url: str, accounts: State, engine: sa.Engine
    ) -> None:
        self.run(engine, "CREATE VIEW accounts_view AS SELECT * FROM accounts")

        with pytest.raises(SchemaDrift, match="'accounts_view', which the state needs"):
            StateDriver(accounts)

        columns = sa.inspect(engine).get_columns("accounts")
        assert [column["name"] for column in columns] == ["name", "balance", "note"]

    def test_a_table_that_the_user_refuses_a_value_for_keeps_its_rows(
        self, url: str, engine: sa.Engine
    ) -> None:
        """NOT NULL and CHECK are the user's; what breaks them ends the run, not the data."""
        self.make(
            engine,
            "name {text} NOT NULL PRIMARY KEY, balance {long} NOT NULL CHECK (balance > 0)",
        )
        store = StateDriver(self.state(url))
        store.puts(1, {"ann": 1})

        for value in ((None,), (-1,)):
            with pytest.raises(PromiseError, match="cannot store a value"):
                store.run(2, lambda state, value=value: state.put("ann", value))  # type: ignore[misc]
        assert store.contents() == {"ann": 1}

    def test_its_own_table_is_refused_where_one_is_to_be_made(
        self, url: str, accounts: State
    ) -> None:
        with pytest.raises(SchemaDrift, match="create=False if the table is your own"):
            StateDriver(open_state(url, table="accounts", key=NAME, value=BALANCE))
