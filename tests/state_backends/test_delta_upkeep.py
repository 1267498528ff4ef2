"""Folds, history and the end of old files of Delta tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from state_backends.delta import upkeep
from state_backends.delta.backend import DeltaBackend
from state_backends.delta.files import files_of
from state_backends.delta.folding import fold
from state_backends.delta.history import seconds_since
from state_backends.delta.layout import RETENTION, Layout
from state_backends.delta.upkeep import fit_log, remove_old_files
from tests.state_backends.delta_tables import COUNTED, log_of, table_of
from txtopo.errors import StateUsageError, TopologyError, ValueRefusedError
from txtopo.state import SEGMENTS_OF_A_TIER, Fields, Ledger, State, Sum, open_state, span_to_fold
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.integration


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"delta://{tmp_path}/states"


@pytest.fixture
def counts(url: str) -> State:
    return open_state(url, table="counts").with_columns(*COUNTED)


@pytest.fixture
def log(url: str) -> State:
    return open_state(url, table="log", mode="log").with_columns(*COUNTED)


def test_a_log_is_folded_while_commits_go_on(log: State) -> None:
    store = StateDriver(log)
    txids = SEGMENTS_OF_A_TIER * 5
    for txid in range(1, txids + 1):
        store.merge(txid, [("a", 1), (f"k{txid}", 1)])
    store.close()

    files = files_of(table_of(store))
    assert len(files) < SEGMENTS_OF_A_TIER * 2
    assert store.contents() == {"a": txids, **{f"k{n}": 1 for n in range(1, txids + 1)}}


def test_the_last_txid_is_never_folded_and_can_be_redone_after_a_fold(log: State) -> None:
    store = StateDriver(log)
    for txid in range(1, SEGMENTS_OF_A_TIER + 1):
        store.merge(txid, [("a", 1)])
    files = files_of(table_of(store))
    assert span_to_fold(files, SEGMENTS_OF_A_TIER) is None

    assert isinstance(store.backend, DeltaBackend)
    fold(table_of(store), store.backend._reader, Layout(log.layout()), 1, SEGMENTS_OF_A_TIER - 1)
    spans = [(file.first_txid, file.last_txid) for file in files_of(table_of(store))]
    assert spans == [(SEGMENTS_OF_A_TIER - 1,) * 2, (SEGMENTS_OF_A_TIER,) * 2]
    store.merge(SEGMENTS_OF_A_TIER, [("b", 1)], attempt=1)

    assert store.contents() == {"a": SEGMENTS_OF_A_TIER - 1, "b": 1}
    assert store.held() == Ledger("topology", 1, SEGMENTS_OF_A_TIER, 1, 1)


def test_a_fold_of_a_zombie_changes_no_answer(log: State) -> None:
    zombie = StateDriver(log, epoch=1)
    for txid in range(1, 9):
        zombie.merge(txid, [("a", 1)])
    old = table_of(zombie)
    successor = StateDriver(log, epoch=2)
    successor.merge(8, [("b", 1)])
    assert isinstance(successor.backend, DeltaBackend)
    reader, layout = successor.backend._reader, Layout(log.layout())
    fold(table_of(successor), reader, layout, 1, 4)

    with pytest.raises(Exception, match=r"[Cc]onflict|[Cc]oncurrent|deleted"):
        fold(old, reader, layout, 1, 5)
    assert successor.contents() == {"a": 7, "b": 1}


def test_sums_of_a_log_are_watched_over_folds_and_restarts(url: str) -> None:
    state = open_state(url, table="sums", mode="log")
    state = state.with_columns(Fields("key string"), Fields("total long"), (Sum("x"),))
    store = StateDriver(state)
    half = 2**62
    store.merge(1, [("a", half)])
    store.merge(2, [("b", -half)])  # the bound is reached; the sums are not
    store.merge(3, [("a", half - 1)])

    again = StateDriver(state, epoch=2)
    with pytest.raises(ValueRefusedError):
        again.merge(4, [("a", 1)])
    again.merge(4, [("b", -half)])
    assert again.contents() == {"a": 2**63 - 1, "b": -(2**63)}


def test_the_log_of_a_version_names_its_txid_for_people(counts: State) -> None:
    store = StateDriver(counts)
    store.merge(1, [("a", 1)])

    newest = max(log_of(store).glob("*.json")).read_text().splitlines()
    (commit,) = (json.loads(line)["commitInfo"] for line in newest if "commitInfo" in line)
    assert commit["txtopo.txid"] == "1"


# ---------------------------------------------------------------- history


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
    for txid in range(1, 201):
        store.merge(txid, [("a", 1)])
    store.close()

    assert table_of(store).metadata().configuration[RETENTION].endswith(" seconds")
    assert store.contents() == {"a": 200}


def test_a_bad_length_of_history_is_refused(url: str) -> None:
    with pytest.raises(TopologyError, match="bad history_txids"):
        open_state(f"{url}?history_txids=-1", table="t").open()
