"""Folds of Delta tables in mode ``log``."""

from __future__ import annotations

import json

import pytest

from state_backends.delta.appending import fold
from state_backends.delta.backend import DeltaBackend
from state_backends.delta.layout import Layout
from state_backends.delta.reading import files_of
from tests.unit.state_backends.delta.tables import log_of, table_of
from tests.unit.state_backends.log_sums_suite import SumsSuite
from tests.unit.state_backends.logs import fold_under_way, summed
from txtopo import Fields
from txtopo.errors import ValueRefusedError
from txtopo.state import Count, State, Sum, open_state
from txtopo.state.log_mode import SEGMENTS_OF_A_TIER, span_to_fold
from txtopo.testing.conformance.driver import StateDriver, whole_ledger

pytestmark = pytest.mark.integration


def test_a_log_is_folded_while_commits_go_on(log: State) -> None:
    store = StateDriver(log)
    assert isinstance(store.backend, DeltaBackend)
    txids = SEGMENTS_OF_A_TIER * 5
    for txid in range(1, txids + 1):
        if txid == txids:
            # While one fold is under way none begins; the last one finds all there is.
            fold_under_way(store.backend._upkeep._background)
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
    assert store.held() == whole_ledger("topology", 1, SEGMENTS_OF_A_TIER, 1, 1)


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


class TestSums(SumsSuite):
    pass


def test_a_log_is_read_by_who_knows_no_more_than_its_name(url: str) -> None:
    columns = Fields("key string"), Fields("rows long, total long"), (Count(), Sum("x"))
    state = open_state(url, table="two", mode="log").with_columns(*columns)
    StateDriver(state).merge(1, [("a", 1, 5)])

    with open_state(url, table="two", mode="log").reader() as reader:
        assert dict(reader.items()) == {"a": {"rows": 1, "total": 5}}


def test_the_log_of_a_version_names_its_txid_for_people(counts: State) -> None:
    store = StateDriver(counts)
    store.merge(1, [("a", 1)])

    newest = max(log_of(store).glob("*.json")).read_text().splitlines()
    (commit,) = (json.loads(line)["commitInfo"] for line in newest if "commitInfo" in line)
    assert commit["txtopo.txid"] == "1"


def test_a_file_that_reaches_beyond_a_fold_loses_nothing(log: State) -> None:
    """Who optimizes the table may leave files whose txids overlap."""
    store = StateDriver(log)
    for txid in range(1, 9):
        store.merge(txid, [("a", 1), (f"k{txid}", 1)])
    table_of(store).optimize.compact()
    store.merge(9, [("a", 1)])

    assert isinstance(store.backend, DeltaBackend)
    fold(table_of(store), store.backend._reader, Layout(log.layout()), 3, 5)
    fold(table_of(store), store.backend._reader, Layout(log.layout()), 5, 8)
    assert store.contents() == {"a": 9, **{f"k{txid}": 1 for txid in range(1, 9)}}


@pytest.mark.parametrize("lost", ["stats", "txid"])
def test_files_without_statistics_are_read_all_the_same(log: State, lost: str) -> None:
    store = StateDriver(log)
    store.merge(1, [("a", 1)])
    newest = max(log_of(store).glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            kept = json.dumps({"numRecords": 1})
            action["add"]["stats"] = None if lost == "stats" else kept
    newest.write_text("\n".join(map(json.dumps, actions)))

    again = StateDriver(log, epoch=2)
    for txid in range(2, 2 * SEGMENTS_OF_A_TIER + 2):
        again.merge(txid, [("a", 1)])
    again.close()
    assert again.contents() == {"a": 2 * SEGMENTS_OF_A_TIER + 1}


def test_a_redo_is_checked_against_rows_and_not_files(url: str) -> None:
    state = summed(url, "long")
    store = StateDriver(state)
    store.merge(1, [("a", 2**62)])
    store.merge(2, [("a", 1)])
    table_of(store).optimize.compact()

    with pytest.raises(ValueRefusedError):
        StateDriver(state, epoch=1).merge(2, [("a", 2**62)], attempt=1)
    assert store.contents() == {"a": 2**62 + 1}


def test_columns_may_have_the_names_that_others_make(url: str) -> None:
    state = open_state(url, table="names", mode="log")
    fields = Fields("v long, v_sum long, t long")
    state = state.with_columns(Fields("txid_max string, k0 long"), fields, (Count(),) * 3)
    store = StateDriver(state)
    store.merge(1, [("a", 1, 1, 2, 3)])
    store.merge(2, [("a", 1, 1, 1, 1)])

    assert store.contents() == {("a", 1): {"v": 2, "v_sum": 3, "t": 4}}


def test_a_backend_that_is_closed_during_a_commit_ends_it_well(log: State) -> None:
    store = StateDriver(log)
    for txid in range(1, SEGMENTS_OF_A_TIER):
        store.merge(txid, [("a", 1)])
    store.backend.close()

    assert store.merge(SEGMENTS_OF_A_TIER, [("a", 1)]).txid == SEGMENTS_OF_A_TIER
