"""States in PostgreSQL in mode ``log``: the suite of aggregates, the view, and folds."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from state_backends.sql.backend import SqlBackend
from state_backends.sql.postgresql_folding import LogFolder
from state_backends.sql.postgresql_log import PostgresqlLogDialect
from tests.services.postgresql import PostgresServer
from txtopo.errors import TopologyError, ValueRefusedError
from txtopo.state import SEGMENTS_OF_A_TIER, Count, Fields, Ledger, Puts, State, Sum, open_state
from txtopo.testing.conformance import AggregateStateSuite
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.service("postgresql")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def database(postgresql: PostgresServer) -> Iterator[sa.Engine]:
    engine = sa.create_engine(postgresql.create_database("logs"))
    yield engine
    engine.dispose()


@pytest.fixture
def url(database: sa.Engine) -> str:
    """A schema of the test's own, which the URL makes the place for its tables."""
    name = f"test{next(_numbers)}"
    with database.begin() as connection:
        connection.execute(sa.text(f"CREATE SCHEMA {name}"))
    place = database.url.update_query_dict({"options": f"-csearch_path={name}"})
    return place.render_as_string(hide_password=False)


@pytest.fixture
def log(url: str) -> State:
    state = open_state(url, table="log", mode="log")
    return state.with_columns(Fields("key string"), Fields("n long"), (Count(),))


class TestLog(AggregateStateSuite):
    mode = "log"
    refused = frozenset(
        {"nul in keys", "nul in strings", "surrogates in keys", "surrogates in strings"}
    )
    histories = 40


def folder_of(log: State) -> LogFolder:
    dialect = PostgresqlLogDialect(sa.make_url(log.url), log.layout())
    return LogFolder(log.layout(), dialect.columns, dialect.write_options())


def fold(log: State, first: int, last: int) -> None:
    """Fold as the backend does."""
    engine = sa.create_engine(log.url)
    with engine.begin() as connection:
        connection.execute(folder_of(log).statement(first, last))
    engine.dispose()


def rows_of(log: State) -> list[tuple[str, int, int]]:
    engine = sa.create_engine(log.url)
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT key, n, txid FROM log ORDER BY 3, 1")).all()
    engine.dispose()
    return [tuple(row) for row in found]


def test_anybody_reads_it_by_grouping_and_the_view_does(log: State) -> None:
    store = StateDriver(log)
    store.merge(1, [("a", 1), ("b", 1)])
    store.merge(2, [("a", 2)])
    engine = sa.create_engine(log.url)

    with engine.connect() as connection:
        view = connection.execute(sa.text("SELECT * FROM log_view ORDER BY key")).all()
        by_hand = connection.execute(
            sa.text("SELECT key, sum(n)::bigint FROM log GROUP BY key ORDER BY key")
        ).all()
    engine.dispose()
    assert [tuple(row) for row in view] == [tuple(row) for row in by_hand] == [("a", 3), ("b", 1)]


def test_a_log_is_folded_while_commits_go_on(log: State) -> None:
    store = StateDriver(log)
    txids = SEGMENTS_OF_A_TIER * 5
    for txid in range(1, txids + 1):
        store.merge(txid, [("a", 1), (f"k{txid}", 1)])
    store.close()

    assert len({txid for _, _, txid in rows_of(log)}) < SEGMENTS_OF_A_TIER * 2
    assert store.contents() == {"a": txids, **{f"k{n}": 1 for n in range(1, txids + 1)}}


def test_a_txid_is_redone_after_all_before_it_were_folded(log: State) -> None:
    store = StateDriver(log)
    for txid in range(1, 6):
        store.merge(txid, [("a", 1)])
    fold(log, 1, 4)
    store.merge(5, [("b", 1)], attempt=1)

    assert rows_of(log) == [("a", 4, 4), ("b", 1, 5)]
    assert store.held() == Ledger("topology", 1, 5, 1, 1)


def test_two_folds_of_the_same_rows_add_them_up_once(log: State) -> None:
    """A zombie may fold as well: it waits, and finds nothing left."""
    store = StateDriver(log)
    for txid in range(1, 31):
        store.merge(txid, [(f"k{n}", 1) for n in range(500)])

    with ThreadPoolExecutor(2) as pool:
        folds = [pool.submit(fold, log, 1, 29) for _ in range(2)]
        for each in folds:
            each.result()

    assert len(rows_of(log)) == 1_000
    assert set(store.contents().values()) == {30}


def test_the_rows_of_a_log_are_counted_once(log: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting reads all of it, so what commits and folds leave is remembered."""
    counts: list[dict[int, int]] = []
    counted = LogFolder._counted

    def noted(self: LogFolder, connection: sa.Connection) -> dict[int, int]:
        counts.append(counted(self, connection))
        return dict(counts[-1])

    monkeypatch.setattr(LogFolder, "_counted", noted)
    store = StateDriver(log)
    assert isinstance(store.backend, SqlBackend)
    assert isinstance(store.backend._dialect, PostgresqlLogDialect)
    folder = store.backend._dialect._folder
    for txid in range(1, SEGMENTS_OF_A_TIER * 3 + 1):
        store.merge(txid, [("a", 1), (f"k{txid}", 1)])
        if txid % SEGMENTS_OF_A_TIER == 0:
            assert folder._lane._running is not None
            folder._lane._running.result()

    assert len(counts) == 1
    assert len(counts[0]) == SEGMENTS_OF_A_TIER
    left = Counter(txid for _, _, txid in rows_of(log))
    assert folder._rows == left
    assert len(left) < SEGMENTS_OF_A_TIER * 2


def test_sums_are_watched_over_folds_and_restarts(url: str) -> None:
    state = open_state(url, table="log", mode="log")
    state = state.with_columns(Fields("key string"), Fields("total long"), (Sum("x"),))
    store = StateDriver(state)
    half = 2**62
    store.merge(1, [("a", half)])
    store.merge(2, [("b", -half)])  # the bound is reached; the sums are not
    store.merge(3, [("a", half - 1)])

    again = StateDriver(state, epoch=2)
    with pytest.raises(ValueRefusedError, match="a sum of state 'log'"):
        again.merge(4, [("a", 1)])
    again.merge(4, [("b", -half)])
    with pytest.raises(ValueRefusedError, match="a sum of state 'log'"):
        again.merge(5, [("b", -1)])
    assert again.contents() == {"a": 2**63 - 1, "b": -(2**63)}


def test_a_sum_of_floats_beyond_their_range_is_refused_before_it_is_there(url: str) -> None:
    """PostgreSQL has no infinity for it; every reading and every fold would fail."""
    state = open_state(url, table="log", mode="log")
    state = state.with_columns(Fields("key string"), Fields("total double"), (Sum("x"),))
    store = StateDriver(state)
    store.merge(1, [("a", 1.7e308), ("b", 1.0)])

    with pytest.raises(ValueRefusedError):
        store.merge(2, [("a", 1.7e308)])
    store.merge(2, [("a", -1.7e308), ("b", float("inf"))])
    assert store.contents() == {"a": 0.0, "b": float("inf")}


def test_final_values_are_refused(log: State) -> None:
    store = StateDriver(log)

    with pytest.raises(ValueError, match="takes partial aggregates only"):
        store.commit(1, Puts({("a",): (1,)}))
    assert store.commit(1, Puts({})).txid == 1


def test_other_databases_keep_no_log(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("logs")

    with pytest.raises(TopologyError, match="keeps no state in mode 'log'"):
        open_state(f"sqlite:///{folder}/a.db", table="log", mode="log").open()
