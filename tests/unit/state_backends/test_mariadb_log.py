"""States in MariaDB in mode ``log``: the suite of aggregates, the view, folds, lost connections."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from state_backends.sql import mariadb_log
from state_backends.sql.backend import SqlBackend
from tests.harness.chance import most
from tests.harness.servers.mariadb import MariaServer
from tests.harness.servers.tcp_proxy import TcpProxy
from tests.unit.state_backends.extent import OwnExtent
from tests.unit.state_backends.log_suite import LogSuite
from tests.unit.state_backends.log_sums_suite import LogSumsSuite
from tests.unit.state_backends.logs import KEY, asked, counted, dialect_of, fold, folder_of
from tests.unit.state_backends.patience import MARIADB_PATIENCE
from txtopo import Fields
from txtopo.errors import StoreUnavailable, ValueRefusedError
from txtopo.state import Count, State, open_state
from txtopo.state.log_mode import SEGMENTS_OF_A_TIER, BackgroundTask
from txtopo.testing.conformance import AggregateStateSuite
from txtopo.testing.conformance.driver import StateDriver
from txtopo.testing.conformance.pace import DEATHS_MIN

pytestmark = pytest.mark.service("mariadb")
_numbers = itertools.count()
COMMIT = b"\x03COMMIT"


@pytest.fixture
def url(mariadb: MariaServer) -> str:
    return mariadb.create_database(f"logs{next(_numbers)}")


@pytest.mark.slow  # what is written is built as for PostgreSQL
class TestLog(OwnExtent, AggregateStateSuite):
    mode = "log"
    deaths = DEATHS_MIN
    refused = frozenset(
        {
            *("nan", "infinity", "negative zero"),
            *("surrogates in keys", "surrogates in strings"),
        }
    )
    histories = most(20, otherwise=10)
    keys_max = most(20_000, otherwise=1_000)


class TestSums(LogSumsSuite):
    pass


class TestFolds(LogSuite):
    quoted = "`key`, n, txid"
    # innodb_trx is not renewed for who asks more often than ten times a second.
    waiting = (
        "SELECT CAST(variable_value AS INT) FROM information_schema.global_status "
        "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'"
    )
    patience = MARIADB_PATIENCE

    def kill(self, log: State, connection: sa.Connection) -> None:
        (process,) = connection.exec_driver_sql("SELECT connection_id()").one()
        engine = sa.create_engine(log.url)
        with engine.begin() as other:
            other.exec_driver_sql(f"KILL {process}")
        engine.dispose()


class TestConnection:
    @pytest.fixture
    def proxy(self, mariadb: MariaServer) -> Iterator[TcpProxy]:
        with TcpProxy(mariadb.port) as proxy:
            yield proxy

    @pytest.fixture
    def distant(self, url: str, proxy: TcpProxy) -> StateDriver:
        parsed = sa.make_url(url).set(port=proxy.port)
        store = StateDriver(counted(parsed.render_as_string(hide_password=False)))
        store.merge(1, [("a", 1)])
        return store

    @pytest.mark.parametrize("marker", [b"UPDATE txtopo_ledger", b"JSON_TABLE"])
    def test_a_connection_lost_before_the_commit_appends_nothing(
        self, distant: StateDriver, proxy: TcpProxy, marker: bytes
    ) -> None:
        proxy.lose(marker, landed=True)

        with pytest.raises(StoreUnavailable):
            distant.merge(2, [("a", 1), ("b", 1)])
        assert distant.contents() == {"a": 1}
        assert distant.merge(2, [("a", 1), ("b", 1)]).txid == 2
        assert distant.contents() == {"a": 2, "b": 1}

    @pytest.mark.parametrize("marker", [b"DELETE FROM log", b"JSON_TABLE"])
    def test_a_redo_that_is_lost_leaves_what_was_there(
        self, distant: StateDriver, proxy: TcpProxy, marker: bytes
    ) -> None:
        proxy.lose(marker, landed=True)

        with pytest.raises(StoreUnavailable):
            distant.merge(1, [("b", 1)], attempt=1)
        assert distant.contents() == {"a": 1}
        assert distant.merge(1, [("b", 1)], attempt=2).attempt == 2
        assert distant.contents() == {"b": 1}

    def test_a_commit_that_landed_is_found_in_the_ledger(
        self, distant: StateDriver, proxy: TcpProxy
    ) -> None:
        proxy.lose(COMMIT, landed=True)

        assert distant.merge(2, [("a", 1)]).txid == 2
        assert distant.contents() == {"a": 2}

    def test_a_commit_that_was_lost_is_tried_again(
        self, distant: StateDriver, proxy: TcpProxy
    ) -> None:
        proxy.lose(COMMIT, landed=False)

        with pytest.raises(StoreUnavailable, match="try again"):
            distant.merge(2, [("a", 1)])
        assert distant.contents() == {"a": 1}
        assert distant.merge(2, [("a", 1)], attempt=1).txid == 2

    @pytest.mark.parametrize("marker", [b"AS txtopo_old", b"DELETE FROM", COMMIT])
    @pytest.mark.parametrize("landed", [True, False])
    def test_a_fold_that_is_lost_is_made_again(
        self, distant: StateDriver, proxy: TcpProxy, marker: bytes, landed: bool
    ) -> None:
        for txid in range(2, 6):
            distant.merge(txid, [("a", 1), (f"k{txid}", 1)])
        before = distant.contents()
        proxy.lose(marker, landed=landed)

        with pytest.raises(sa.exc.DBAPIError):
            fold(distant.state, 1, 4)
        assert distant.contents() == before
        assert fold(distant.state, 1, 4) == 4
        assert distant.contents() == before


ROWS = [(txid, [(f"k{n}", 1) for n in range(txid % 7 + 1)]) for txid in range(1, 31)]
SPAN = range(1, 30)


class Pieces:
    """A log whose folds move three rows at a time; what it holds is read after each piece."""

    def __init__(self, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mariadb_log, "PIECE_ROWS", 3)
        monkeypatch.setattr(BackgroundTask, "pause", self._pause)
        self.store = StateDriver(state)
        for txid, rows in ROWS:
            self.store.merge(txid, rows)
        self.before = self.store.contents()
        self.meanwhile: list[Callable[[], object]] = []
        self.seen: list[dict[Any, Any]] = []

    def fold(self) -> int:
        """Fold all txids but the last one as the backend does, piece by piece."""
        with closing(self.store.state.open()) as backend:
            assert isinstance(backend, SqlBackend)
            folder = dialect_of(self.store).folder
            with backend._engine.connect() as connection:
                folder.prepare(connection)
                return folder.folded(connection, SPAN)

    def _pause(self, seconds: float) -> None:
        assert seconds > 0
        if self.meanwhile:
            self.meanwhile.pop(0)()
        self.seen.append(self.store.contents())


@pytest.mark.rule("state_backends.sql.mariadb_log", "Folds", 1, 4)
def test_a_fold_goes_piece_by_piece_and_readers_see_the_same_after_each(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = Pieces(counted(url), monkeypatch)
    rows = sum(len(rows) for txid, rows in ROWS if txid < SPAN[-1])

    left = pieces.fold()

    assert left == 7
    assert len(pieces.seen) >= rows / 3
    assert all(each == pieces.before for each in pieces.seen)
    assert asked(pieces.store.state, "SELECT COUNT(DISTINCT txid) FROM log") == [(2,)]
    assert pieces.store.contents() == pieces.before


@pytest.mark.parametrize("span", [(1, 29), (1, 10), (5, 29), (10, 20)])
def test_two_folds_in_pieces_add_each_row_once(
    url: str, monkeypatch: pytest.MonkeyPatch, span: tuple[int, int]
) -> None:
    """A zombie's fold may come between two pieces, with another span."""
    pieces = Pieces(counted(url), monkeypatch)
    pieces.meanwhile = [int, int, lambda: fold(pieces.store.state, *span)]

    pieces.fold()

    assert not pieces.meanwhile
    assert all(each == pieces.before for each in pieces.seen)
    assert pieces.store.contents() == pieces.before


def test_a_redo_between_two_pieces_of_a_fold_counts_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = Pieces(counted(url), monkeypatch)
    pieces.meanwhile = [int, lambda: pieces.store.merge(30, [("z", 1)], attempt=1)]

    pieces.fold()

    expected = Counter(key for txid, rows in ROWS for key, _ in rows if txid < 30) + Counter("z")
    assert pieces.store.contents() == expected


@pytest.mark.parametrize("marker", [b"AS txtopo_old", b"DELETE FROM", COMMIT])
@pytest.mark.parametrize("landed", [True, False])
def test_a_fold_that_is_lost_between_its_pieces_is_made_again(
    url: str, mariadb: MariaServer, monkeypatch: pytest.MonkeyPatch, marker: bytes, landed: bool
) -> None:
    with TcpProxy(mariadb.port) as proxy:
        distant = sa.make_url(url).set(port=proxy.port).render_as_string(hide_password=False)
        pieces = Pieces(counted(distant), monkeypatch)
        pieces.meanwhile = [int, lambda: proxy.lose(marker, landed=landed)]

        with pytest.raises(sa.exc.DBAPIError):
            pieces.fold()
        assert pieces.store.contents() == pieces.before
        assert pieces.fold() == 7
        assert pieces.store.contents() == pieces.before


def test_who_waits_for_the_end_of_a_fold_gets_the_rest_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = Pieces(counted(url), monkeypatch)
    pieces.meanwhile = [int, folder_of(pieces.store).close]

    assert pieces.fold() == 7
    assert len(pieces.seen) == 2
    assert pieces.store.contents() == pieces.before


def test_a_fold_that_is_late_does_the_rest_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the log would grow faster than it is folded."""
    pieces = Pieces(counted(url), monkeypatch)
    folder = folder_of(pieces.store)
    folder._written.clear()
    many = 4 * SEGMENTS_OF_A_TIER - len(SPAN)

    def write(commits: int) -> None:
        for txid in range(31, 31 + commits):
            folder.wrote(txid, 1)

    pieces.meanwhile = [partial(write, many), int, partial(write, 1)]

    assert pieces.fold() == 7
    assert len(pieces.seen) == 3
    assert pieces.store.contents() == pieces.before


@pytest.mark.parametrize("name", ["txtopo_old", "txtopo_given"])
def test_no_name_of_a_table_is_in_the_way_of_folds(url: str, name: str) -> None:
    state = open_state(url, table=name, mode="log")
    store = StateDriver(state.with_columns(KEY, Fields("n long"), (Count(),)))
    for txid in range(1, 5):
        store.merge(txid, [("a", 1), (f"k{txid}", 1)])

    assert fold(store.state, 1, 3) == 4
    assert store.contents()["a"] == 4


def test_a_long_reading_takes_questions_in_between(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver drops the rest of a result when it is asked something else."""
    monkeypatch.setattr("state_backends.sql.backend._ROWS_AT_A_TIME", 7)
    store = StateDriver(counted(url))
    for txid in range(1, 4):
        store.merge(txid, [(f"k{n}", txid) for n in range(50)])

    with store.state.reader() as reader:
        assert {key: reader.get(key) for key, _ in reader.items()} == {
            f"k{n}": 6 for n in range(50)
        }


def test_a_reading_adds_up_the_log_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each page."""
    monkeypatch.setattr("state_backends.sql.backend._ROWS_AT_A_TIME", 7)
    store = StateDriver(counted(url))
    store.merge(1, [(f"k{n}", 1) for n in range(50)])
    asked_for: list[str] = []
    assert isinstance(store.backend, SqlBackend)
    sa.event.listen(
        store.backend._engine,
        "before_cursor_execute",
        lambda _1, _2, statement, *_: asked_for.append(statement),
    )

    with store.backend.snapshot() as snapshot:
        assert len(list(snapshot.items())) == 50
    assert sum("GROUP BY" in statement for statement in asked_for) == 1


def test_long_keys_that_differ_in_the_end_alone_stay_different(url: str) -> None:
    """MariaDB sorts by the first 1,024 bytes; whoever groups must not."""
    store = StateDriver(counted(url))
    keys = ["\N{ELEPHANT}" * 762 + f"{n:04}" for n in range(300)]
    for txid in range(1, 5):
        store.merge(txid, [(key, 1) for key in keys])
    view = "SELECT COUNT(*), MIN(n), MAX(n) FROM log_view"

    assert asked(store.state, view) == [(300, 4, 4)]
    assert fold(store.state, 1, 3) == 300
    assert asked(store.state, view) == [(300, 4, 4)]
    assert store.contents() == dict.fromkeys(keys, 4)


def test_a_key_beyond_an_index_entry_is_refused(url: str) -> None:
    """The txid is in the primary key, and takes 8 bytes of it."""
    store = StateDriver(counted(url))
    store.merge(1, [("\N{ELEPHANT}" * 766, 1)])

    with pytest.raises(ValueRefusedError, match="holds at most 766"):
        store.merge(2, [("a" * 767, 1), ("b", 1)])
    assert store.contents() == {"\N{ELEPHANT}" * 766: 1}


def test_odd_names_are_quoted(url: str) -> None:
    state = open_state(url, table="we`ird %s", mode="log")
    state = state.with_columns(Fields(**{"key %s": str}), Fields(**{"n %s": int}), (Count(),))
    store = StateDriver(state)
    for txid in range(1, 4):
        store.merge(txid, [("a", 1), (f"k{txid}", 1)])

    assert fold(state, 1, 2) == 3
    assert store.contents() == {"a": 3, "k1": 1, "k2": 1, "k3": 1}
