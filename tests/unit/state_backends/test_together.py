"""States of one database in one transaction: each keeps its own rules, and all or none is written.

Deaths in such a commit: ``tests/unit/runtime/test_shared_transactions.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from txtopo.errors import FencedError, StoreDamagedError
from txtopo.state import StateKind, open_state
from txtopo.state.commit import commit_all_resolved
from txtopo.state.together import SharedTransactions, shared_transactions
from txtopo.testing.conformance.driver import StateDriver, packed

if TYPE_CHECKING:
    from tests.harness.servers.postgresql import PostgresServer

numbers = count()


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
        pytest.param("mariadb", marks=pytest.mark.service("mariadb")),
        pytest.param("redis", marks=pytest.mark.service("redis")),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/states.db"
    if request.param == "redis":
        return str(request.getfixturevalue("redis_server").empty())
    return str(request.getfixturevalue(request.param).create_schema(f"together{next(numbers)}"))


class Pair:
    """The states ``first`` and ``second``, claimed by one epoch."""

    def __init__(
        self,
        *urls: str,
        epoch: int = 1,
        kinds: Sequence[StateKind] = ("opaque", "opaque"),
    ) -> None:
        tables = ("first", "second")
        pairs = zip(tables, (urls[0], urls[-1]), kinds, strict=True)
        self.states = [
            StateDriver(open_state(url, kind, table), epoch, component=table)
            for table, url, kind in pairs
        ]

    @property
    def shared(self) -> SharedTransactions:
        """How they share transactions."""
        first, second = self.states
        named = {("a", "first"): first, ("b", "second"): second}
        backends = {name: state.backend for name, state in named.items()}
        return shared_transactions(backends, {name: named[name].ledger for name in named})

    def commit(
        self, txid: int, *rows: Mapping[Any, Any], attempt: int = 0, first: int | None = None
    ) -> None:
        """Commit final values to both; None deletes a key."""
        writes = [
            (state.backend, packed(each)) for state, each in zip(self.states, rows, strict=True)
        ]
        commit_all_resolved(self.states[0].attempt(txid, attempt, first=first), writes)

    def contents(self) -> list[dict[Any, Any]]:
        """Return what they hold."""
        return [state.contents() for state in self.states]

    def txids(self) -> list[int]:
        """Return the txids of their ledgers."""
        found = []
        for state in self.states:
            with state.backend.snapshot() as snapshot:
                assert snapshot.ledger is not None
                found.append(snapshot.ledger.txid)
        return found

    def close(self) -> None:
        """Close both."""
        for state in self.states:
            state.backend.close()


@pytest.fixture
def pair(url: str) -> Iterator[Pair]:
    pair = Pair(url)
    yield pair
    pair.close()


def test_each_state_undoes_and_purges_what_it_has_deleted_itself(pair: Pair) -> None:
    """One has tombstones where the other has none, in redos and in the commits behind them."""
    assert pair.shared.groups == ((("a", "first"), ("b", "second")),)
    pair.commit(1, {"a": 1, "b": 1}, {"a": 1, "b": 1})
    pair.commit(2, {"a": None, "c": 2}, {"c": 2})
    pair.commit(2, {"c": 3}, {"a": None}, attempt=1)
    assert pair.contents() == [{"a": 1, "b": 1, "c": 3}, {"b": 1}]

    pair.commit(5, {"b": None}, {"a": 7}, first=3)
    pair.commit(5, {}, {"b": None}, first=3, attempt=1)
    assert pair.contents() == [{"a": 1, "b": 1, "c": 3}, {}]

    pair.commit(6, {"a": None}, {"d": 1})
    pair.commit(7, {"e": 1}, {})
    assert pair.contents() == [{"b": 1, "c": 3, "e": 1}, {"d": 1}]


def test_in_a_redo_a_transactional_state_keeps_what_an_opaque_one_undoes(url: str) -> None:
    pair = Pair(url, kinds=("opaque", "transactional"))
    assert len(pair.shared.groups) == 1
    pair.commit(1, {"a": 1}, {"a": 1})
    pair.commit(1, {"a": 2}, {"a": 1}, attempt=1)
    pair.commit(2, {"b": 3}, {"b": 3})

    assert pair.contents() == [{"a": 2, "b": 3}, {"a": 1, "b": 3}]
    pair.close()


def test_if_another_coordinator_has_claimed_one_of_them_nothing_is_written(
    url: str, pair: Pair
) -> None:
    pair.commit(1, {"a": 1}, {"a": 1})
    pair.commit(2, {"a": 2}, {"a": 2})
    successor = StateDriver(open_state(url, "opaque", "second"), 2, component="second")

    with pytest.raises(FencedError):
        pair.commit(3, {"a": 3}, {"a": 3})
    assert (pair.txids(), pair.contents()) == ([2, 2], [{"a": 2}, {"a": 2}])

    successor.puts(3, {"a": 4})
    later = Pair(url, epoch=3)
    later.commit(3, {"a": 5}, {"a": 5})
    assert (later.txids(), later.contents()) == ([3, 3], [{"a": 5}, {"a": 5}])
    later.close()
    successor.close()


@pytest.mark.parametrize("why", ["missing", "not supported", "no right"])
def test_states_of_a_server_that_does_not_tell_its_identity_share_nothing(
    why: str, postgresql: PostgresServer
) -> None:
    """As in Aurora, which refuses the question with "not supported"."""
    import psycopg

    name = f"anonymous{next(numbers)}"
    url = postgresql.create_database(name)
    function = "pg_catalog.pg_control_system"
    statements = ["SET allow_system_table_mods = on", f"ALTER FUNCTION {function}() RENAME TO gone"]
    if why == "not supported":
        body = "BEGIN RAISE 'not supported' USING ERRCODE = '0A000'; END"
        returns = "OUT system_identifier bigint"
        statements += [f"CREATE FUNCTION {function}({returns}) LANGUAGE plpgsql AS $${body}$$"]
    elif why == "no right":
        statements = [
            f"REVOKE EXECUTE ON FUNCTION {function}() FROM PUBLIC",
            f"CREATE ROLE {name} LOGIN PASSWORD '{postgresql.password}'",
            f"GRANT ALL ON SCHEMA public TO {name}",
        ]
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
    if why == "no right":
        url = url.replace(f"{postgresql.user}:", f"{name}:")

    pair = Pair(url)
    assert pair.shared == SharedTransactions(((("a", "first"),), (("b", "second"),)))
    pair.close()


def test_a_file_is_also_looked_for_at_the_path_of_the_second_state(tmp_path: Path) -> None:
    link, file, other = (tmp_path / name for name in ("link.db", "file.db", "other.db"))
    link.symlink_to(file)
    Pair(f"sqlite:///{other}").close()
    pair = Pair(f"sqlite:///{file}", f"sqlite:///{link}")
    assert len(pair.shared.groups) == 1
    pair.commit(1, {"a": 1}, {"a": 1})
    link.unlink()
    link.symlink_to(other)

    with pytest.raises(StoreDamagedError, match=r"state 'second' .* is now another file"):
        pair.commit(2, {"a": 2}, {"a": 2})
    assert pair.states[0].contents() == {"a": 1}
    pair.close()
