"""Readers of several states, as of one instant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from state_backends.sql.backend import SqlBackend
from txtopo import Fields
from txtopo.errors import StateUsageError, StoreUnavailable
from txtopo.state import State, StateReader, open_state, read_together
from txtopo.state.commit import commit_all_resolved
from txtopo.testing.conformance.driver import StateDriver, packed


def declared(url: str, table: str) -> State:
    return open_state(url, table=table).with_columns(Fields("key string"), Fields("value long"))


class Pair:
    """Two states of one store, and a third one wherever a test wants it."""

    def __init__(self, url: str) -> None:
        self.stack = ExitStack()
        self.states = [declared(url, name) for name in ("counts", "totals")]
        self.drivers = [self.drive(state) for state in self.states]
        self.commit(1)

    def drive(self, state: State, topology: str = "topology") -> StateDriver:
        driver = StateDriver(state, topology=topology, component=str(state.table))
        self.stack.callback(driver.close)
        return driver

    def commit(self, txid: int) -> None:
        writes = packed({"a": txid})
        commit_all_resolved(
            self.drivers[0].attempt(txid), [(each.backend, writes) for each in self.drivers]
        )


@pytest.fixture(params=["memory", "sqlite"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    found = Pair("memory:pair" if request.param == "memory" else f"sqlite:///{tmp_path}/pair.db")
    with found.stack:
        yield found


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Pair]:
    found = Pair(f"sqlite:///{tmp_path}/pair.db")
    with found.stack:
        yield found


def seen(*readers: StateReader) -> list[tuple[int, int]]:
    return [(each.ledger.txid if each.ledger else 0, each.get("a")) for each in readers]


def test_both_are_read_as_of_one_txid_whatever_is_committed_meanwhile(pair: Pair) -> None:
    with read_together(*pair.states) as readers:
        pair.commit(2)
        assert seen(*readers) == [(1, 1), (1, 1)]
        assert [reader.to_arrow().to_pylist() for reader in readers] == [
            [{"key": "a", "value": 1}]
        ] * 2
    with read_together(*pair.states) as readers:
        assert seen(*readers) == [(2, 2), (2, 2)]


def test_readers_are_closed_at_the_end_and_may_be_opened_again(pair: Pair) -> None:
    own = [state.reader() for state in pair.states]
    with read_together(*own) as readers:
        assert list(readers) == own
    with pytest.raises(StateUsageError, match="not open"):
        own[0].get("a")
    with own[1] as again:
        assert again.get("a") == 1


def test_states_in_two_databases_are_refused(sqlite: Pair, tmp_path: Path) -> None:
    other = declared(f"sqlite:///{tmp_path}/other.db", "others")
    sqlite.drive(other)

    with (
        pytest.raises(StateUsageError, match=r"'counts' and 'others' .* different databases"),
        read_together(sqlite.states[0], other),
    ):
        pass


def test_one_file_by_two_paths_is_one_database(sqlite: Pair, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "pair.db")
    linked = declared(f"sqlite:///{tmp_path}/link.db", "totals")

    with read_together(sqlite.states[0], linked) as readers:
        assert seen(*readers) == [(1, 1), (1, 1)]


def test_other_options_are_another_session(sqlite: Pair, tmp_path: Path) -> None:
    slow = declared(f"sqlite:///{tmp_path}/pair.db?timeout=9", "totals")

    with (
        pytest.raises(StateUsageError, match="different users or options"),
        read_together(sqlite.states[0], slow),
    ):
        pass


def test_a_store_without_such_snapshots_is_refused(sqlite: Pair, tmp_path: Path) -> None:
    delta = declared(f"delta:///{tmp_path}/delta", "others")
    sqlite.drive(delta)

    with (
        pytest.raises(StateUsageError, match="DeltaBackend has no snapshot of several"),
        read_together(sqlite.states[0], delta),
    ):
        pass


def test_states_of_two_topologies_count_their_own_txids(pair: Pair) -> None:
    other = declared(pair.states[0].url, "others")
    driver = pair.drive(other, topology="another")
    driver.commit(1, packed({"a": 1}))

    with (
        pytest.raises(StateUsageError, match="expected states of one topology"),
        read_together(pair.states[0], other),
    ):
        pass


def test_states_that_hold_different_txids_are_refused(pair: Pair) -> None:
    pair.drivers[0].commit(2, packed({"a": 2}))

    with pytest.raises(StoreUnavailable, match="txids 2 and 1"), read_together(*pair.states):
        pass


def test_a_copy_of_the_database_is_noticed(
    sqlite: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone of a server has its identity."""
    copy = Pair(f"sqlite:///{tmp_path}/copy.db")
    with copy.stack:
        same = sqlite.drivers[0].backend.database()
        monkeypatch.setattr(SqlBackend, "database", lambda backend: same)
        copy.commit(2)
        for pair in ([sqlite.states[0], copy.states[1]], [copy.states[0], sqlite.states[1]]):
            with (
                pytest.raises(StateUsageError, match="a copy of the other's database"),
                read_together(*pair),
            ):
                pass


def test_one_state_is_no_pair(pair: Pair) -> None:
    with pytest.raises(StateUsageError, match="two or more states; got 1"):  # noqa: SIM117
        with read_together(pair.states[0]):
            pass


def test_a_reader_of_an_earlier_txid_is_refused(pair: Pair) -> None:
    counts, totals = pair.states
    with pytest.raises(StateUsageError, match="got a reader with txid=1"):  # noqa: SIM117
        with read_together(counts, totals.reader(txid=1)):
            pass
