"""What only a Delta table knows: versions, foreign writers, properties, lost logs, folds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

from state_backends.delta import backend, durability, tables
from state_backends.delta.failures import translated
from state_backends.delta.merging import delete_rows
from state_backends.delta.tables import ledger_of, noted, packed, unpacked
from tests.harness.chance import most
from tests.unit.state_backends.delta.tables import COUNTED, log_of, seen, table_of
from txtopo import Fields, TransactionAttempt
from txtopo.errors import (
    FencedError,
    ForeignStateError,
    SchemaDrift,
    SchemaVersionError,
    StoreContended,
    TopologyError,
    TxtopoError,
    UnknownOutcomeError,
    ValueRefusedError,
)
from txtopo.plugins.stores import Puts, StateMode, claimed
from txtopo.state import Count, Ledger, Max, Mean, State, open_state
from txtopo.testing.conformance.driver import StateDriver, claim_of, partials, whole_ledger

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("mode", ["table", "log"])
@pytest.mark.rule("state_backends.delta.backend", "Rules", 2, 6)
def test_every_version_of_the_table_is_the_fold_of_the_batches_of_its_ledger(
    url: str, mode: str
) -> None:
    """C2 without sampling: claims, replays and folds make versions as well, all of them right."""
    state = open_state(url, table="counts", mode="log" if mode == "log" else "table")
    store = StateDriver(state.with_columns(*COUNTED))
    chance = random.Random(7)
    folds: list[dict[str, int]] = [{}]
    cuts: dict[tuple[int, int], dict[str, int]] = {}
    txids = most(40, otherwise=15)
    for txid in range(1, txids + 1):
        for attempt in range(chance.randint(1, 3)):
            batch = {key: chance.randint(1, 9) for key in chance.sample("abcdefgh", 3)}
            store.merge(txid, list(batch.items()), attempt)
            cut = {k: folds[-1].get(k, 0) + batch.get(k, 0) for k in {*folds[-1], *batch}}
            cuts[txid, attempt] = cut
        folds.append(cut)
        if txid % 10 == 0:
            store = StateDriver(store.state, epoch=txid)
    store.close()

    newest = table_of(store)
    assert newest.version() > 2 * txids
    for version in range(newest.version() + 1):
        table = DeltaTable(newest.table_uri, version=version)
        held = ledger_of(table, "counts")
        if held is not None:
            assert seen(table) == (cuts[held.txid, held.attempt] if held.txid else {}), version


@pytest.mark.parametrize("mode", ["table", "log"])
def test_the_query_of_a_state_returns_what_readers_see(url: str, mode: StateMode) -> None:
    """It is for tools that read a Delta table by its path, with bookkeeping and deleted rows."""
    kinds = (Count(), *Mean("x").columns("user").values(), Max("x"))
    value = Fields("end long, user_sum long, user_count long, höchst long")
    state = open_state(url, table="sales", mode=mode)
    state = state.with_columns(Fields("key string"), value, kinds)
    store = StateDriver(state)
    store.commit(1, partials(state, [("a", 1, 4, 1, 4), ("b", 2, 3, 2, 2)]))
    store.commit(2, partials(state, [("a", 2, 1, 1, 1)]))
    if mode == "table":
        store.commit(3, Puts({("b",): None}))

    with store.state.reader() as reader:
        query = reader.sql()
        expected = reader.to_arrow().sort_by("key")
    assert expected.num_rows == (1 if mode == "table" else 2)
    tables = QueryBuilder().register("sales", table_of(store))
    found = pa.table(tables.execute(f"{query} ORDER BY 1"))
    names = expected.column_names
    assert found.select(names).to_pylist() == expected.to_pylist()
    assert found.column_names == ["key", "end", "user_sum", "user_count", "höchst", "user"]


@pytest.mark.row(40)
@pytest.mark.rule("state_backends.delta.backend", "Rules", 1)
def test_a_zombie_that_read_before_the_claim_changes_nothing(counts: State) -> None:
    zombie = StateDriver(counts, epoch=1)
    zombie.merge(1, [("a", 1)])
    successor = StateDriver(counts, epoch=2)
    before = table_of(successor).version()

    with pytest.raises(FencedError, match=r"another one took over \(epoch 2\)"):
        zombie.merge(2, [("a", 1)])
    assert table_of(successor).version() == before
    successor.merge(2, [("a", 2)])
    assert successor.contents() == {"a": 3}


@pytest.mark.row(41)
def test_a_commit_that_another_backend_made_is_seen(counts: State) -> None:
    """The first try of a commit uses the reading of the one before; what it says is checked."""
    first = StateDriver(counts)
    first.merge(1, [("a", 1)])
    second = StateDriver(counts)
    second.merge(2, [("a", 1)])

    assert first.merge(3, [("a", 1)]).txid == 3
    assert first.contents() == {"a": 3}


@pytest.mark.row(38)
@pytest.mark.rule("state_backends.delta.backend", "Rules", 4)
def test_a_commit_that_cannot_be_synced_is_read_back(
    counts: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, but nobody knows whether it stays; the ledger will show it."""
    store = StateDriver(counts)
    store.merge(1, [("a", 1)])

    def fails(table: str, first: int, last: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(durability, "sync_versions", fails)
    with pytest.raises(UnknownOutcomeError, match="Input/output error"):
        store.backend.commit(store.attempt(2), partials(counts, [("a", 1)]))
    monkeypatch.undo()
    assert store.merge(2, [("a", 1)]).txid == 2
    assert store.contents() == {"a": 2}


@pytest.mark.rule("state_backends.delta.backend", "Rules", 3)
def test_a_claim_moves_nothing_and_remembers_who_wrote(counts: State) -> None:
    StateDriver(counts, epoch=3).merge(1, [("a", 1)], attempt=2)

    claimed = StateDriver(counts, epoch=5).ledger

    assert claimed == whole_ledger("topology", 5, txid=1, writer_epoch=3, attempt=2)
    with counts.reader() as reader:
        assert reader.ledger == claimed


def ranged(url: str) -> StateDriver:
    """Drive a state with the rows a to c of txid 1, which expire by their value, 1."""
    state = open_state(url, table="ranged").with_columns(Fields("k string"), Fields("n long"))
    store = StateDriver(state.ranged("n"))
    store.puts(1, dict.fromkeys("abc", 1))
    store.puts(2, {})
    return store


@pytest.mark.rule("state_backends.delta.backend", "Rules", 5)
def test_who_is_deposed_while_it_deletes_what_has_expired_deletes_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ranged(url)
    successors: list[StateDriver] = []

    def late(*arguments: Any) -> None:
        successors.append(StateDriver(store.state, epoch=2))
        delete_rows(*arguments)

    monkeypatch.setattr(backend, "delete_rows", late)
    with pytest.raises(FencedError):
        store.backend.expire(1, 2)

    assert len(successors) == 1
    assert store.contents() == dict.fromkeys("abc", 1)


@pytest.mark.rule("state_backends.delta.backend", "Rules", 5)
def test_rows_that_have_expired_are_looked_for_once_in_many_txids(url: str) -> None:
    store = ranged(url)
    assert store.backend.expire(0, 2) == 0

    assert store.backend.expire(1, 1 + backend.EXPIRY_TXIDS) == 0
    assert store.backend.expire(1, 2 + backend.EXPIRY_TXIDS) == 3


@pytest.mark.row(41)
def test_a_lost_log_makes_the_writer_unknown_and_the_txid_is_done_again(counts: State) -> None:
    """The checkpoint keeps the transaction, not the metadata of its commit."""
    first = StateDriver(counts, epoch=1)
    first.merge(1, [("a", 1)])
    table = table_of(first)
    table.alter.set_table_properties({"somebody": "else"}, raise_if_not_exists=False)
    table.create_checkpoint()
    for entry in sorted(log_of(first).glob("*.json"))[:-1]:
        entry.unlink()

    second = StateDriver(counts, epoch=2)
    assert second.ledger == whole_ledger("topology", 2, txid=1, writer_epoch=0, attempt=0)
    second.merge(1, [("b", 1)])
    assert second.contents() == {"b": 1}


@pytest.mark.row(39)
def test_others_may_optimize_between_two_commits(counts: State) -> None:
    store = StateDriver(counts)
    for txid in range(1, 6):
        store.merge(txid, [("a", 1), (f"k{txid}", 1)])
        table_of(store).optimize.compact()
    store.merge(5, [("a", 2)], attempt=1)

    assert store.contents() == {"a": 6, **{f"k{txid}": 1 for txid in range(1, 5)}}
    assert store.held() == whole_ledger("topology", 1, txid=5, writer_epoch=1, attempt=1)


def test_a_change_of_properties_between_two_commits_is_no_failure(counts: State) -> None:
    store = StateDriver(counts)
    for txid in range(1, 4):
        table_of(store).alter.set_table_properties({"n": str(txid)}, raise_if_not_exists=False)
        store.merge(txid, [("a", 1)])

    assert store.contents() == {"a": 3}


@pytest.mark.row(9)
def test_a_table_of_another_topology_is_refused(counts: State) -> None:
    StateDriver(counts, topology="first")

    with pytest.raises(ForeignStateError, match=r"'second'.*'first'"):
        StateDriver(counts, topology="second")


def test_a_ledger_that_was_wiped_is_no_new_table(counts: State) -> None:
    store = StateDriver(counts)
    store.merge(1, [("a", 1)])
    table = table_of(store)
    rows = pa.table(table.scan())
    properties = table.metadata().configuration
    for entry in log_of(store).iterdir():
        entry.unlink()
    DeltaTable.create(
        table.table_uri, rows.schema, configuration=properties, raise_if_key_not_exists=False
    )
    write_deltalake(table.table_uri, rows, mode="append")

    with pytest.raises(SchemaDrift, match="no transaction of it"):
        StateDriver(counts, epoch=2)


@pytest.mark.parametrize(
    ("schema", "error", "words"),
    [
        ("2", SchemaVersionError, "schema 2; expected at most 1; .* upgrade"),
        ("one", SchemaDrift, "cannot be read; got ValueError.*changed by hand"),
    ],
)
def test_a_ledger_of_another_form_is_refused(
    counts: State,
    monkeypatch: pytest.MonkeyPatch,
    schema: str,
    error: type[TxtopoError],
    words: str,
) -> None:
    store = StateDriver(counts)
    with monkeypatch.context() as other:
        other.setattr(tables, "noted", lambda ledger: noted(ledger) | {tables.SCHEMA: schema})
        store.merge(1, [("a", 1)])

    with pytest.raises(error, match=words):
        StateDriver(counts, epoch=2)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("delta.setTransactionRetentionDuration", "interval 7 days", "deletes its transactions"),
        ("delta.enableDeletionVectors", "true", "deletion vectors"),
        ("delta.dataSkippingStatsColumns", "key,txid", "statistics"),
    ],
)
def test_properties_that_break_the_promise_are_refused(
    counts: State, key: str, value: str, words: str
) -> None:
    store = StateDriver(counts)
    table_of(store).alter.set_table_properties({key: value}, raise_if_not_exists=False)

    with pytest.raises(SchemaDrift, match=words):
        StateDriver(counts, epoch=2)


def test_a_table_of_others_is_refused(url: str, counts: State, tmp_path: Path) -> None:
    (tmp_path / "states").mkdir()
    write_deltalake(tmp_path / "states" / "counts", pa.table({"key": ["a"], "n": [1]}))

    with pytest.raises(SchemaDrift, match="is not a table of txtopo"):
        StateDriver(counts)


def test_what_does_not_fit_into_a_version_is_refused() -> None:
    whole = Ledger("topology", 2**18 - 1, 2**33 - 1, 2**18 - 1, 2**12 - 2)
    assert unpacked(packed(whole)) == (2**18 - 1, 2**33 - 1, 2**12 - 1)
    assert packed(whole) == 2**63 - 1

    for ledger in (
        Ledger("topology", 2**18),
        Ledger("topology", 1, 2**33),
        Ledger("topology", 1, 1, 1, 2**12 - 1),
    ):
        with pytest.raises(ValueRefusedError, match="does not fit"):
            packed(ledger)


def test_versions_grow_with_every_claim_and_attempt() -> None:
    """Delta for Spark skips what is not later than what the table has; attempts begin at 0."""
    ledger = whole_ledger("topology", 1, 6, 1, 3)
    versions = [packed(ledger)]
    for epoch, attempts in ((2, ((6, 0), (6, 1), (7, 0), (7, 5))), (3, ((7, 0), (8, 0)))):
        ledger = claimed(ledger, claim_of("topology", epoch))
        versions.append(packed(ledger))
        for txid, attempt in attempts:
            ledger = ledger.written_by(TransactionAttempt(txid, attempt, epoch))
            versions.append(packed(ledger))

    assert versions == sorted(set(versions))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DeltaError("Cast error: Can't cast value 9 to type Int64"), ValueRefusedError),
        (DeltaError("Commit failed: a concurrent transaction deleted data"), StoreContended),
        (DeltaError("Generic error at /overflow/conflict: lost"), UnknownOutcomeError),
        (OSError(5, "overflow of a conflict that already exists"), UnknownOutcomeError),
    ],
)
def test_an_error_is_told_by_what_it_says_and_not_by_a_path(
    error: Exception, kind: type[Exception]
) -> None:
    found = translated(error, "state", uri="/overflow/conflict", writing=True)

    assert type(found) is kind


@pytest.mark.parametrize("name", ["a%20b", "a[1]", "a\\b", "a#b"])
def test_a_folder_that_delta_rs_cannot_name_is_refused(name: str) -> None:
    with pytest.raises(TopologyError, match="cannot keep a table in this folder"):
        open_state(f"delta:///tmp/{quote(name)}", table="t").open()


@pytest.mark.parametrize("name", ["txtopo_deleted", "__delta_rs_source"])
def test_a_column_that_delta_rs_or_txtopo_has_is_refused(url: str, name: str) -> None:
    with pytest.raises(TopologyError, match="bad column name"):
        open_state(url, table="t", key=Fields(f"{name} string")).open()


@pytest.mark.parametrize("url", ["delta:", "delta:///", "delta://host/path", "s3:///folder"])
def test_a_url_without_a_folder_is_refused(url: str) -> None:
    with pytest.raises(TopologyError, match="cannot read the URL"):
        open_state(url, table="t").open()


def test_tables_of_odd_names_are_listed(url: str) -> None:
    names = ["a/b", "Ünï 🐘", "..", "-41", "A", "50%", ".hidden", "x\\y"]
    for number, name in enumerate(names):
        StateDriver(open_state(url, table=name).with_columns(*COUNTED)).merge(1, [("a", number)])

    for number, name in enumerate(names):
        with open_state(url, table=name).reader() as reader:
            assert reader.get("a") == number
    stored = open_state(url, table="a/b").open().stored()
    assert {table.name for table in stored or ()} == set(names)


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85"])
def test_a_key_with_an_odd_line_end_may_be_in_the_predicate_of_a_log_entry(
    counts: State, sign: str
) -> None:
    """Other signs that ``splitlines`` cuts at are escaped there."""
    key = f"tea{sign}pot"
    store = StateDriver(counts)
    store.merge(1, [(key, 1)])
    store.merge(2, [(key, 2)])
    entry = max(log_of(store).glob("*.json")).read_text()
    store.close()

    again = StateDriver(counts, epoch=2)
    again.merge(3, [(key, 4)])

    assert f"'{key}'" in entry
    assert seen(table_of(again)) == {key: 7}
