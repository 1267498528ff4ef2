"""States of a database in mode ``log``: the view and the folds."""

from __future__ import annotations

import datetime
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from state_backends.sql.backend import SqlBackend
from state_backends.sql.log import LogDialect, LogFolder
from tests.harness.polling import wait_until
from tests.unit.state_backends.logs import (
    KEY,
    asked,
    counted,
    fold,
    fold_under_way,
    folder_of,
    folding,
)
from tests.unit.state_backends.patience import Patient
from txtopo import Fields
from txtopo.plugins.stores import Puts
from txtopo.state import Count, Max, Mean, Min, State, Sum, open_state
from txtopo.state.log_mode import SEGMENTS_OF_A_TIER
from txtopo.testing.conformance.driver import StateDriver, partials, whole_ledger


class LogSuite(Patient):
    """To be subclassed, with a fixture ``url``: an empty database, or schema, of the test's own.

    Attributes:
        quoted: The columns key, n and txid, as SQL has them.
        waiting: The question how many wait for a lock.
    """

    quoted: str
    waiting: str

    @pytest.fixture
    def log(self, url: str) -> State:
        return counted(url)

    def test_anybody_reads_it_by_grouping_and_the_view_does(self, log: State) -> None:
        store = StateDriver(log)
        store.merge(1, [("a", 1), ("b", 1)])
        store.merge(2, [("a", 2), ("a ", 1), ("A", 1)])
        key, n, _ = self.quoted.split(", ")

        view = asked(log, f"SELECT * FROM log_view ORDER BY {key}")
        by_hand = asked(log, f"SELECT {key}, sum({n}) FROM log GROUP BY {key} ORDER BY {key}")

        assert view == by_hand == [("A", 1), ("a", 3), ("a ", 1), ("b", 1)]
        assert type(view[0][1]) is int

    def test_it_is_read_by_who_knows_no_more_than_its_name(self, log: State) -> None:
        store = StateDriver(log)
        store.merge(1, [("a", 1), ("b", 1)])
        store.merge(2, [("a", 2)])

        with open_state(log.url, table="log").reader() as reader:
            assert dict(reader.items()) == {"a": 3, "b": 1}
        with open_state(log.url, table="log", mode="log").reader() as reader:
            assert dict(reader.items()) == {"a": 3, "b": 1}

    def test_the_view_shows_a_mean(self, url: str) -> None:
        columns = tuple(Mean("x").columns("whole").values())
        state = open_state(url, table="log", mode="log")
        state = state.with_columns(KEY, Fields("n_sum long, n_count long"), columns)
        store = StateDriver(state)
        store.merge(1, [("a", 1, 1), ("b", None, 0)])
        store.merge(2, [("a", 4, 1), ("b", None, 0)])

        assert asked(state, "SELECT n FROM log_view ORDER BY 1") in (
            [(2.5,), (None,)],
            [(None,), (2.5,)],
        )

    def test_a_log_is_folded_while_commits_go_on(self, log: State) -> None:
        store = StateDriver(log)
        txids = SEGMENTS_OF_A_TIER * 5
        for txid in range(1, txids + 1):
            if txid == txids:
                # While one fold is under way none begins; the last one finds all there is.
                fold_under_way(folder_of(store).background)
            store.merge(txid, [("a", 1), (f"k{txid}", 1)])
        store.close()

        assert len({txid for _, _, txid in self.rows_of(log)}) < SEGMENTS_OF_A_TIER * 2
        assert store.contents() == {"a": txids, **{f"k{n}": 1 for n in range(1, txids + 1)}}

    def test_a_log_of_groups_is_folded(self, log: State) -> None:
        """A group is one commit, and its last txid may be any."""
        store = StateDriver(log)
        commits = SEGMENTS_OF_A_TIER * 2
        for at in range(commits):
            if at == commits - 1:
                fold_under_way(folder_of(store).background)
            store.merge(1 + 10 * (at + 1), [("a", 1)], first=1 + 10 * at + (at > 0))
        store.merge(1 + 10 * commits, [("b", 1)], attempt=1, first=2 + 10 * (commits - 1))
        store.close()

        assert len(self.rows_of(log)) < SEGMENTS_OF_A_TIER + 2
        assert store.contents() == {"a": commits - 1, "b": 1}

    def test_a_txid_is_redone_after_all_before_it_were_folded(self, log: State) -> None:
        store = StateDriver(log)
        for txid in range(1, 6):
            store.merge(txid, [("a", 1)])
        fold(log, 1, 4)
        store.merge(5, [("b", 1)], attempt=1)

        assert self.rows_of(log) == [("a", 4, 4), ("b", 1, 5)]
        assert store.held() == whole_ledger("topology", 1, 5, 1, 1)

    def test_a_fold_of_every_aggregate_changes_no_answer(self, url: str) -> None:
        fields = Fields("n long, total decimal(38,2), part double, low string, high timestamp")
        aggregates = (Count(), Sum("x"), Sum("x"), Min("x"), Max("x"))
        state = open_state(url, table="log", mode="log").with_columns(KEY, fields, aggregates)
        store = StateDriver(state)
        nothing = (0, None, None, None, None)
        early, late = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (1, 9999))
        store.merge(1, [("a", *nothing), ("b", 1, Decimal("0.10"), 0.5, "b", early)])
        store.merge(2, [("a", 1, Decimal("9.99"), 1.5, "Z", late), ("b", *nothing)])
        store.merge(
            3, [("a", 1, Decimal("-9.98"), 2.5, "a", early), ("b", *nothing), ("c", *nothing)]
        )
        store.merge(4, [("a", *nothing)])
        before = store.contents()

        assert fold(state, 1, 3) == 3
        assert store.contents() == before
        assert fold(state, 1, 3) == 3
        assert store.contents() == before

    @pytest.mark.parametrize(
        ("done", "first_span", "second_span"),
        [
            ((), (1, 29), (1, 29)),
            ((), (1, 29), (1, 10)),
            ((), (1, 10), (5, 29)),
            ((), (5, 29), (1, 29)),
            # The rows that the first one makes were folded away before.
            (((10, 29),), (1, 10), (10, 29)),
            # The first row goes away with the first fold.
            (((1, 5), (10, 20)), (5, 29), (3, 20)),
        ],
    )
    @pytest.mark.rule("state_backends.sql.postgresql_log", "Folds", 1)
    @pytest.mark.rule("state_backends.sql.log", "Folds", 2)
    @pytest.mark.rule("state_backends.sql.mariadb_log", "Folds", 2)
    def test_two_folds_of_the_same_rows_add_them_up_once(
        self,
        log: State,
        done: tuple[tuple[int, int], ...],
        first_span: tuple[int, int],
        second_span: tuple[int, int],
    ) -> None:
        """A zombie may fold as well: it waits, and finds what is left."""
        store = StateDriver(log)
        for txid in range(1, 31):
            store.merge(txid, [(f"k{n}", 1) for n in range(txid % 7 + 1)])
        before = store.contents()
        for span in done:
            fold(log, *span)

        with ThreadPoolExecutor(1) as pool:
            with folding(log, *first_span) as connection:
                second = pool.submit(fold, log, *second_span)
                self.wait_for_a_lock(log, second)
                connection.commit()
            second.result()

        rows = self.rows_of(log)
        assert store.contents() == before
        assert sum(n for _, n, _ in rows) == sum(before.values())
        assert len({(key, txid) for key, _, txid in rows}) == len(rows)

    def test_a_fold_that_is_killed_changes_nothing(self, log: State) -> None:
        store = StateDriver(log)
        for txid in range(1, 6):
            store.merge(txid, [("a", 1), (f"k{txid}", 1)])
        before = self.rows_of(log)

        with folding(log, 1, 4) as connection:
            self.kill(log, connection)
            with pytest.raises(sa.exc.DBAPIError):
                connection.commit()
            connection.invalidate()
        assert self.rows_of(log) == before
        assert fold(log, 1, 4) == 5

    @pytest.mark.rule("state_backends.sql.mariadb_log", "Folds", 3)
    def test_no_commit_waits_for_a_fold(self, log: State) -> None:
        """Nor does the redo of the txid that follows its span, with smaller and larger keys."""
        store = StateDriver(log)
        for txid in range(1, 5):
            store.merge(txid, [("f", 1), ("k", 1)])
        store.merge(5, [("d", 1), ("m", 1)])

        with folding(log, 1, 4) as connection:
            store.merge(5, [("a", 1), ("e", 1), ("z", 1)], attempt=1)
            store.merge(6, [("a", 1), ("e", 1)])
            connection.commit()
        assert store.contents() == {"a": 2, "e": 2, "f": 4, "k": 4, "z": 1}

    def test_a_fold_waits_for_no_commit(self, log: State) -> None:
        """Nor for a redo, whose rows come next to its own."""
        store = StateDriver(log)
        store.merge(1, [("z", 1)])
        for txid in range(2, 6):
            store.merge(txid, [("d", 1)])
        backend = log.open()
        assert isinstance(backend, SqlBackend)
        assert isinstance(backend._dialect, LogDialect)

        with backend._engine.connect() as connection:
            connection.execution_options(**backend._dialect.write_options())
            backend._dialect.prepare(connection)
            with connection.begin() as redo:
                backend._dialect.undo(connection, 5)
                backend._dialect.apply(connection, 5, partials(log, [("a", 1)]))
                assert fold(log, 1, 4) == 2
                redo.rollback()
        backend.close()
        assert self.rows_of(log) == [("d", 3, 4), ("z", 1, 4), ("d", 1, 5)]

    @pytest.mark.rule("state_backends.sql.log", "Folds", 3)
    def test_the_rows_of_a_log_are_counted_once(
        self, log: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Counting reads all of it, so what commits and folds leave is remembered."""
        counts: list[dict[int, int]] = []
        counted = LogFolder._counted

        def noted(self: LogFolder, connection: sa.Connection) -> dict[int, int]:
            counts.append(counted(self, connection))
            return dict(counts[-1])

        monkeypatch.setattr(LogFolder, "_counted", noted)
        store = StateDriver(log)
        folder = folder_of(store)
        for txid in range(1, SEGMENTS_OF_A_TIER * 3 + 1):
            store.merge(txid, [("a", 1), (f"k{txid}", 1)])
            if txid % SEGMENTS_OF_A_TIER == 0:
                fold_under_way(folder.background)

        assert len(counts) == 1
        assert len(counts[0]) == SEGMENTS_OF_A_TIER
        left = Counter(txid for _, _, txid in self.rows_of(log))
        assert folder._rows == left
        assert len(left) < SEGMENTS_OF_A_TIER * 2

    def test_final_values_are_refused(self, log: State) -> None:
        store = StateDriver(log)

        with pytest.raises(ValueError, match="accepts only partial aggregates"):
            store.commit(1, Puts({("a",): (1,)}))
        assert store.commit(1, Puts({})).txid == 1

    def rows_of(self, log: State) -> list[tuple[str, int, int]]:
        return asked(log, f"SELECT {self.quoted} FROM log ORDER BY 3, 1")

    def wait_for_a_lock(self, log: State, work: Future[Any]) -> None:
        """Return when somebody waits for a lock, or the work is done."""
        wait_until(
            lambda: work.done() or asked(log, self.waiting) != [(0,)], "somebody waits for a lock"
        )

    def kill(self, log: State, connection: sa.Connection) -> None:
        """End the session of a connection, as the server does with one whose client was killed."""
        raise NotImplementedError
