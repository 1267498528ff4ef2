"""Tables, views and what stands in their way, in every SQL database."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tests.unit.testing.conformance.types_page import expected, seen
from txtopo import Fields, TransactionAttempt
from txtopo.errors import SchemaDrift, SchemaVersionError, StateUsageError
from txtopo.plugins.stores import Claim, Owner, Puts
from txtopo.state import Count, State, Sum, open_state
from txtopo.testing.conformance.driver import StateDriver


class SchemaSuite:
    """Subclasses have the fixtures ``url``, a store of the test's own, and ``state`` in it."""

    @pytest.fixture
    def engine(self, url: str) -> sa.Engine:
        return sa.create_engine(url)

    def test_a_user_finds_plain_columns(self, state: State, engine: sa.Engine) -> None:
        StateDriver(state).puts(1, {"a": 1})

        table = sa.Table("counts", sa.MetaData(), autoload_with=engine)
        names = ["key", "value", "txid", "prev_value", "prev_txid", "deleted"]
        assert table.columns.keys() == names
        with engine.connect() as connection:
            assert list(connection.execute(sa.select(table))) == [("a", 1, 1, None, None, False)]

    def test_a_connection_that_is_made_ahead_writes_nothing(
        self, state: State, engine: sa.Engine
    ) -> None:
        backend = state.open()
        try:
            backend.connect()

            assert backend.stored() == ()
            assert sa.inspect(engine).get_table_names() == []
            backend.create()
        finally:
            backend.close()
        assert "txtopo_ledger" in sa.inspect(engine).get_table_names()

    def test_the_view_hides_bookkeeping_and_tombstones(
        self, state: State, engine: sa.Engine
    ) -> None:
        store = StateDriver(state)
        store.puts(1, {"a": 1, "b": 1})
        store.puts(2, {"a": None, "b": 2})

        with state.reader() as reader:
            query = reader.sql()
        assert query == "SELECT * FROM counts_view"
        with engine.connect() as connection:
            assert list(connection.execute(sa.text(query))) == [("b", 2)]

    def test_plain_sql_sees_what_the_page_of_the_stores_says(
        self, url: str, engine: sa.Engine
    ) -> None:
        assert seen(url, engine) == expected(engine.dialect.name)

    def test_a_transactional_state_has_one_value_a_row(self, url: str, engine: sa.Engine) -> None:
        StateDriver(open_state(url, kind="transactional", table="kept"))

        table = sa.Table("kept", sa.MetaData(), autoload_with=engine)
        assert table.columns.keys() == ["key", "value", "txid"]

    def test_anyone_reads_a_state_without_its_declaration(self, url: str) -> None:
        state = open_state(url, table="flights").with_columns(
            Fields("carrier string, hour int"),
            Fields("flights long, delay long"),
            (Count(), Sum("delay")),
        )
        StateDriver(state).merge(1, [("UA", 5, 3, None)])

        with open_state(url).reader() as reader:
            assert reader.get(("UA", 5)) == {"flights": 3, "delay": None}
            assert dict(reader.items()) == {("UA", 5): {"flights": 3, "delay": None}}
            assert reader.table == state.layout()

    def test_a_table_must_be_named_when_there_are_several(self, url: str, state: State) -> None:
        StateDriver(state)
        StateDriver(open_state(url, table="more"), topology="other")

        with pytest.raises(StateUsageError, match="counts, more"), open_state(url).reader():
            pass

    @pytest.mark.parametrize(
        "other",
        [
            {"kind": "transactional"},
            {"key": Fields("key long")},
            {"value": Fields("value double")},
            {"value": Fields("value long, more long")},
        ],
    )
    def test_another_declaration_is_refused(
        self, state: State, url: str, other: dict[str, str]
    ) -> None:
        StateDriver(state).puts(1, {"a": 1})

        with pytest.raises(SchemaDrift, match="a different declaration"):
            open_state(url, table="counts", **other).open().create()  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "change",
        [
            "ALTER TABLE counts ADD COLUMN more TEXT",
            "ALTER TABLE counts RENAME COLUMN prev_txid TO other",
        ],
    )
    def test_a_table_changed_by_hand_is_refused(
        self, state: State, engine: sa.Engine, change: str
    ) -> None:
        StateDriver(state)
        with engine.begin() as connection:
            connection.execute(sa.text(change))

        with pytest.raises(SchemaDrift, match="does not have the columns"):
            StateDriver(state)

    @pytest.mark.rule("txtopo.state.backend", "Rules", 6)
    @pytest.mark.rule("state_backends.sql.backend", "Rules", 4)
    def test_neither_a_claim_nor_a_commit_makes_a_table(
        self, state: State, engine: sa.Engine
    ) -> None:
        backend = state.open()
        with pytest.raises(SchemaDrift):
            backend.claim(Claim(Owner("topology"), 1))
        with pytest.raises(SchemaDrift):
            backend.commit(TransactionAttempt(1, 0, 1), Puts({("a",): (1,)}))
        backend.close()

        assert sa.inspect(engine).get_table_names() == []

    @pytest.mark.row(34)
    def test_a_change_during_the_run_writes_nothing(self, state: State, engine: sa.Engine) -> None:
        store = StateDriver(state)
        store.puts(1, {"a": 1})
        with engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE counts RENAME COLUMN prev_txid TO other"))

        with pytest.raises(SchemaDrift):
            store.puts(2, {"a": 2})

    def test_a_table_that_is_not_ours_is_refused(self, state: State, engine: sa.Engine) -> None:
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE counts (id INTEGER)"))

        with pytest.raises(SchemaDrift, match="does not list it"):
            StateDriver(state)

    def test_a_lost_table_is_not_recreated(self, state: State, engine: sa.Engine) -> None:
        """An empty table under a ledger of txid 1 would be a silent loss."""
        StateDriver(state).puts(1, {"a": 1})
        with engine.begin() as connection:
            connection.execute(sa.text("DROP VIEW counts_view"))
            connection.execute(sa.text("DROP TABLE counts"))

        with pytest.raises(SchemaDrift, match="its table is missing"):
            StateDriver(state)

    def test_a_ledger_of_a_newer_version_is_refused(self, state: State, engine: sa.Engine) -> None:
        store = StateDriver(state)
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE txtopo_ledger SET schema_version = 2"))

        with pytest.raises(SchemaVersionError, match="upgrade"):
            store.puts(1, {"a": 1})
