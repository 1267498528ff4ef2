"""History of Delta tables, and the end of their old files."""

from __future__ import annotations

import json

import pytest
from deltalake import DeltaTable

from state_backends.delta import upkeep
from state_backends.delta.layout import RETENTION
from state_backends.delta.reading import seconds_since, version_of
from state_backends.delta.upkeep import fit_log, remove_old_files
from tests.unit.state_backends.delta.tables import COUNTED, log_of, seen, table_of
from txtopo.errors import StateUsageError, StoreDamagedError, TopologyError
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("mode", ["table", "log"])
def test_a_state_is_read_as_it_was_after_a_txid(url: str, mode: str) -> None:
    state = open_state(
        f"{url}?history_txids=5", table="t", mode="log" if mode == "log" else "table"
    )
    state = state.with_columns(*COUNTED)
    store = StateDriver(state)
    for txid in range(1, 9):
        store.merge(txid, [("a", 100)])
        store.merge(txid, [("a", 1)], attempt=1)
    StateDriver(state, epoch=2)

    for txid in range(3, 9):
        with state.reader(txid=txid) as reader:
            assert (reader.get("a"), reader.ledger.txid if reader.ledger else 0) == (txid, txid)
    for txid in (2, 9, -1):
        with pytest.raises(StateUsageError, match=f"as of txid {txid}"):
            state.reader(txid=txid).__enter__()


@pytest.mark.parametrize("mode", ["table", "log"])
def test_a_state_is_not_read_as_of_a_txid_within_a_group(url: str, mode: str) -> None:
    state = open_state(url, table="t", mode="log" if mode == "log" else "table")
    state = state.with_columns(*COUNTED)
    store = StateDriver(state)
    groups = {3: 1, 4: 4, 7: 5, 10: 8}
    for last, first in groups.items():
        store.merge(last, [("a", 100)], first=first)
        store.merge(last, [("a", last - first + 1)], attempt=1, first=first)
    StateDriver(state, epoch=2)

    for txid in (0, *groups):
        with state.reader(txid=txid) as reader:
            assert reader.get("a", 0) == txid
    for txid, before, last in ((1, 0, 3), (2, 0, 3), (6, 4, 7), (8, 7, 10), (9, 7, 10)):
        said = rf"as of txid {txid}; txids {before + 1} to {last} were .* txid {before} or {last}$"
        with pytest.raises(StateUsageError, match=said) as caught:
            state.reader(txid=txid).__enter__()
        assert caught.value.facts["group"] == (before + 1, last)


def test_only_ends_of_a_group_that_can_be_read_are_named(url: str) -> None:
    state = open_state(f"{url}?history_txids=4", table="t").with_columns(*COUNTED)
    store = StateDriver(state)
    store.merge(2, [("a", 2)], first=1)
    store.merge(6, [("a", 4)], first=3)
    store.merge(8, [("a", 2)], first=7)

    with pytest.raises(StateUsageError, match=r"txids 3 to 6 were .* expected txid 6$"):
        state.reader(txid=5).__enter__()
    with pytest.raises(StateUsageError, match="holds txid 8 and keeps 4 before it"):
        state.reader(txid=2).__enter__()


def test_other_stores_keep_no_history() -> None:
    state = open_state("memory:", table="counts")
    StateDriver(state)

    with pytest.raises(StateUsageError, match="keeps no history; got txid=1"):
        state.reader(txid=1).__enter__()


def test_old_files_go_and_those_within_reach_stay(counts: State) -> None:
    store = StateDriver(counts)
    for txid in range(1, 6):
        store.merge(txid, [("a", 1)])
    log = log_of(store)
    # As if the first three commits were two days old, and the rest three hours.
    for number, entry in enumerate(sorted(log.glob("*.json"))):
        age_h = 48 if number < 5 else 3
        text = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in text:
            for kind, name in (
                ("commitInfo", "timestamp"),
                ("remove", "deletionTimestamp"),
                ("add", "modificationTime"),
            ):
                if kind in action:
                    action[kind][name] -= age_h * 3_600_000
        entry.write_text("\n".join(json.dumps(action) for action in text))
    store.merge(6, [("a", 1)])
    files = len(list(log.parent.glob("*.parquet")))

    table = table_of(store)
    assert (seconds_since(table, 2) or 0) // 3600 == 48
    assert (seconds_since(table, 4) or 0) // 3600 == 3
    assert seconds_since(table, -1) is None
    remove_old_files(table, 48 * 3600 + 1)
    assert len(list(log.parent.glob("*.parquet"))) == files
    remove_old_files(table_of(store), 3 * 3600 + 1)
    assert len(list(log.parent.glob("*.parquet"))) < files
    assert store.contents() == {"a": 6}
    with counts.reader(txid=5) as reader:
        assert reader.get("a") == 5


def test_the_log_is_kept_as_long_as_the_history_needs_it(counts: State) -> None:
    store = StateDriver(counts)

    def kept(age_s: int) -> str:
        fit_log(table_of(store), age_s)
        return table_of(store).metadata().configuration[RETENTION]

    assert kept(30_000) == "interval 86400 seconds"
    assert kept(50_000) == "interval 100000 seconds"
    assert kept(12_600) == "interval 100000 seconds"
    assert kept(1) == "interval 20 seconds"


def test_a_table_that_grows_is_tidied_and_stays_right(
    counts: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "RENEW_COMMITS", 5)
    monkeypatch.setattr(upkeep, "VACUUM_COMMITS", 10)
    store = StateDriver(counts)
    for txid in range(1, 41):
        store.merge(txid, [("a", 1)])
    store.close()

    assert table_of(store).metadata().configuration[RETENTION].endswith(" seconds")
    assert store.contents() == {"a": 40}


def test_a_bad_length_of_history_is_refused(url: str) -> None:
    with pytest.raises(TopologyError, match="bad history_txids"):
        open_state(f"{url}?history_txids=-1", table="t").open()


def test_versions_that_come_meanwhile_do_not_shift_those_that_are_found(counts: State) -> None:
    store = StateDriver(counts)
    for txid in range(1, 9):
        store.merge(txid, [("a", 1)])
    old = table_of(store)
    for txid in range(9, 12):
        store.merge(txid, [("a", 1)])

    found = version_of(5, old, lambda v: DeltaTable(old.table_uri, version=v), "topology", "counts")
    assert found is not None
    assert seen(found) == {"a": 5}


def test_a_torn_table_does_not_hide_the_others(url: str, counts: State) -> None:
    StateDriver(counts).merge(1, [("a", 1)])
    torn = StateDriver(open_state(url, table="torn").with_columns(*COUNTED))
    for entry in log_of(torn).glob("*.json"):
        entry.write_text("{")

    with open_state(url, table="counts").reader() as reader:
        assert reader.get("a") == 1
    with pytest.raises(StoreDamagedError, match="'torn'"):
        open_state(url, table="torn").reader().__enter__()
