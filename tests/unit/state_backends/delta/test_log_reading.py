"""The log of a Delta table as Python reads it, compared with delta-rs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from state_backends.delta import by_session
from state_backends.delta.log_reading import LogState, NoTableError, UnreadableTableError, is_table

deltalake = pytest.importorskip("deltalake")

SCHEMA = pa.schema(
    [
        ("word", pa.string()),
        ("n", pa.int64()),
        ("small", pa.int8()),
        ("price", pa.decimal128(20, 3)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("txid", pa.int64()),
    ]
)


def rows(txid: int, count: int = 2) -> pa.Table:
    values = [{"word": f"w {n}", "n": n, "txid": txid} for n in range(count)]
    return pa.Table.from_pylist(values, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """A table with properties, transactions, removed files and, half-way, a checkpoint."""
    uri = str(tmp_path / "table")
    found = deltalake.DeltaTable.create(
        uri, SCHEMA, configuration={"txtopo.owner": "words"}, raise_if_key_not_exists=False
    )
    for txid in range(1, 13):
        noted = deltalake.CommitProperties(
            custom_metadata={"txtopo.txid": str(txid)},
            app_transactions=[deltalake.Transaction("words/counts", txid)],
        )
        deltalake.write_deltalake(found, rows(txid), mode="append", commit_properties=noted)
        if txid == 6:
            found.create_checkpoint()
        if txid == 9:
            found.optimize.compact()
    return found


def path_of(uri: str) -> str:
    return uri.removeprefix("file://")


def folder(table: Any) -> str:
    return path_of(table.table_uri).rstrip("/")


def same(ours: Any, theirs: Any) -> None:
    assert ours.version() == theirs.version()
    assert ours.metadata().configuration == theirs.metadata().configuration
    assert ours.schema().to_arrow() == pa.schema(theirs.schema().to_arrow())
    for app in ("words/counts", "nobody"):
        assert ours.transaction_version(app) == theirs.transaction_version(app)
    assert sorted(ours.file_uris()) == sorted(map(path_of, theirs.file_uris()))
    expected = pa.table(theirs.get_add_actions(flatten=True)).to_pylist()
    found = ours.get_add_actions(flatten=True).to_pylist()
    for each in found:
        (other,) = [one for one in expected if one["path"] == each["path"]]
        assert each == {name: other[name] for name in each}
    assert len(found) == len(expected)


@pytest.mark.rule("state_backends.delta.by_session", "Rules", 4)
def test_each_version_reads_as_delta_rs_reads_it(table: Any) -> None:
    for version in range(table.version() + 1):
        same(
            by_session.DeltaTable(folder(table), version),
            deltalake.DeltaTable(table.table_uri, version),
        )
    same(by_session.DeltaTable(folder(table)), table)


def test_history_names_what_each_commit_noted(table: Any) -> None:
    ours = by_session.DeltaTable(folder(table)).history(5)
    for mine, theirs in zip(ours, table.history(5), strict=True):
        assert mine["version"] == theirs["version"]
        assert mine["operation"] == theirs["operation"]
        assert mine.get("txtopo.txid") == theirs.get("txtopo.txid")


def test_a_table_follows_the_log(table: Any) -> None:
    ours = by_session.DeltaTable(folder(table), 3)
    ours.update_incremental()
    same(ours, table)


def test_a_log_whose_old_entries_are_gone_begins_with_its_checkpoint(table: Any) -> None:
    old = by_session.DeltaTable(folder(table), 3)
    for version in range(6):
        Path(folder(table), "_delta_log", f"{version:020}.json").unlink()

    same(by_session.DeltaTable(folder(table)), table)
    old.update_incremental()
    same(old, table)
    with pytest.raises(NoTableError):
        LogState.read(folder(table), 3)


def test_what_is_no_table_is_told(tmp_path: Path) -> None:
    assert not is_table(str(tmp_path))
    with pytest.raises(by_session.TableNotFoundError):
        by_session.DeltaTable(str(tmp_path))


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 2, "minWriterVersion": 5},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["columnMapping"]},
    ],
)
def test_a_feature_that_changes_how_files_are_read_is_refused(protocol: Any) -> None:
    with pytest.raises(UnreadableTableError, match="columnMapping"):
        LogState()._apply([("protocol", protocol)])
