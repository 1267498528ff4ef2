"""States in PostgreSQL, and what happens when the connection or the server goes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import ClassVar

import pytest
import sqlalchemy as sa

from state_backends.sql import postgresql
from state_backends.sql.postgresql import COPIED_ROWS_MIN
from tests.harness.chance import most
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.tcp_proxy import TcpProxy
from tests.unit.state_backends.connection_suite import ConnectionSuite
from tests.unit.state_backends.extent import OwnExtent
from tests.unit.state_backends.patience import POSTGRESQL_PATIENCE
from tests.unit.state_backends.schema_suite import SchemaSuite
from txtopo.errors import (
    PromiseError,
    StoreUnavailable,
    TopologyError,
)
from txtopo.state import State, open_state
from txtopo.state.queries import QueryBackend
from txtopo.testing.conformance import MillionKeysSuite, StateBackendSuite
from txtopo.testing.conformance.driver import StateDriver, putting
from txtopo.testing.conformance.pace import DEATHS_MIN
from txtopo.tuples import Fields

pytestmark = pytest.mark.service("postgresql")


@pytest.fixture
def url(postgresql_schema: str) -> str:
    return postgresql_schema


@pytest.fixture
def state(url: str) -> State:
    return open_state(url, table="counts")


class TestStateBackend(OwnExtent, StateBackendSuite):
    refused = frozenset(
        {
            "nul in keys",
            "nul in strings",
            "surrogates in keys",
            "surrogates in strings",
            "keys beyond 2,700 bytes",
        }
    )
    # Each takes 80 ms; two hundred are tried on the stores without a server.
    histories = most(40, otherwise=10)
    deaths = DEATHS_MIN
    many = COPIED_ROWS_MIN + 500


@pytest.mark.slow
class TestMillionKeys(MillionKeysSuite):
    pass


class TestSchema(SchemaSuite):
    pass


class TestConnection(ConnectionSuite):
    commit_marker = b"COMMIT\0"
    lock_settings: ClassVar[Mapping[str, object]] = {
        "state_backends.sql.postgresql._LOCK_TIMEOUT": "20ms"
    }
    silence_settings: ClassVar[Mapping[str, object]] = {
        "state_backends.sql.postgresql._CONNECTION": {
            **{name: 1 for name in postgresql._CONNECTION if name.startswith("keepalives")},
            "tcp_user_timeout": 1_000,
            "connect_timeout": 2,
        }
    }
    patience = POSTGRESQL_PATIENCE

    @pytest.fixture
    def server(self, postgresql: PostgresServer) -> PostgresServer:
        return postgresql

    @pytest.mark.parametrize("rows", [1, 2_500])
    @pytest.mark.parametrize("marker", [b"MERGE", b"COPY", b"UPDATE txtopo_ledger"])
    def test_a_connection_lost_before_the_commit_writes_nothing(
        self, distant: StateDriver, proxy: TcpProxy, marker: bytes, rows: int
    ) -> None:
        proxy.lose(marker, landed=True)
        batch = {str(n): n for n in range(rows)}

        if marker == b"COPY" and rows == 1:
            assert distant.puts(2, batch).txid == 2
            return
        with pytest.raises(StoreUnavailable):
            distant.puts(2, batch)
        assert distant.contents() == {"a": 1}
        assert distant.puts(2, batch).txid == 2


def test_a_server_that_is_not_there_is_unavailable() -> None:
    state = open_state("postgresql://nobody:word@127.0.0.1:1/none", table="counts")

    with pytest.raises(StoreUnavailable) as caught:
        state.open().create()
    assert "word@" not in str(caught.value)


def test_text_is_ordered_by_its_bytes(url: str) -> None:
    """LEAST would follow the database's language, and the reference follows Python."""
    store = StateDriver(open_state(url, table="counts"))

    with sa.create_engine(url).connect() as connection:
        found = connection.execute(
            sa.text(
                "SELECT collation_name FROM information_schema.columns "
                "WHERE table_name = 'counts' AND column_name = 'key' "
                "AND table_schema = current_schema()"
            )
        ).scalar()
    assert found == "C"
    assert store.contents() == {}


def test_pages_are_half_filled(state: State, url: str) -> None:
    """So that a new version of a row stays on its page, and no index has to be written."""
    StateDriver(state).puts(1, {"a": 1})

    with sa.create_engine(url).connect() as connection:
        options = connection.execute(
            sa.text(
                "SELECT relname, reloptions FROM pg_class "
                "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
            )
        ).all()
    tables = {name for name, _ in options}
    half_filled = {name for name, chosen in options if chosen and "fillfactor=50" in chosen}
    assert tables - half_filled == {"counts_touched"}
    assert len(half_filled) == 2, "the rows and the ledger"


def test_json_is_read_by_the_functions_of_the_database_and_kept_as_it_was(url: str) -> None:
    """JSONB would give 1e+300 as a whole number."""
    state = open_state(url, table="documents", value=Fields("document json"))
    with closing(StateDriver(state)) as store:
        store.run(1, putting({"a": {"tags": ["x"], "weight": 1e300}}))

        question = "SELECT document -> 'tags' ->> 0, document FROM documents_view"
        assert isinstance(store.backend, QueryBackend)
        answer = store.backend.query(question, rows_max=1, timeout_s=9)
        assert answer.rows == (("x", '{"tags":["x"],"weight":1e+300}'),)


def test_other_databases_and_drivers_are_refused() -> None:
    for url in ("postgresql+psycopg2://h/d", "postgresql+asyncpg://h/d"):
        with pytest.raises(TopologyError, match="cannot be stored through"):
            open_state(url)


def test_a_row_that_is_there_each_time_ends_the_run(state: State, url: str) -> None:
    """Whoever makes it at the same time is seen at the next try; here it never is."""
    store = StateDriver(state)
    store.puts(1, {"a": 1})
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE UNIQUE INDEX one_each ON counts (value)"))
    engine.dispose()

    with pytest.raises(PromiseError, match=r"the same happened 3 times; nothing was written"):
        store.puts(2, {"b": 1})
    assert store.contents() == {"a": 1}
