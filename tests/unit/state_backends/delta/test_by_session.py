"""Commits of Spark to the ledger of a table in Delta, without delta-rs."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from state_backends.delta import by_session
from state_backends.delta.by_session import AppTransaction, sole_writer
from txtopo.errors import StoreUnavailable

pytestmark = [
    pytest.mark.slow,  # a commit of a new JVM takes seconds
    pytest.mark.service("delta-spark"),
    pytest.mark.usefixtures("spark"),
]

APP = "words/counts"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A new table, made here."""
    deltalake = pytest.importorskip("deltalake")
    uri = str(tmp_path / "table")
    deltalake.DeltaTable.create(uri, pa.schema([("n", pa.int64())]))
    return uri


@pytest.mark.rule("state_backends.delta.by_session", "Rules", 1)
def test_a_commit_on_a_version_that_another_followed_is_refused(uri: str) -> None:
    ours, theirs = by_session.DeltaTable(uri), by_session.DeltaTable(uri)
    theirs.commit([AppTransaction(APP, 2)], {"txtopo.ledger": "2"})

    with pytest.raises(by_session.DeltaError, match="oncurrent"):
        ours.commit([AppTransaction(APP, 3)])

    assert theirs.history(1)[0]["userMetadata"] == '{"txtopo.ledger": "2"}'
    assert by_session.DeltaTable(uri).transaction_version(APP) == 2


def test_a_table_stays_at_the_version_that_it_wrote(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits before the log is read again: its version is not ours."""
    ours, theirs = by_session.DeltaTable(uri), by_session.DeltaTable(uri)
    write = by_session._Commit.write

    def followed(self: Any, *arguments: Any) -> int:
        monkeypatch.setattr(by_session._Commit, "write", write)
        version = write(self, *arguments)
        by_session._Commit(by_session.own_session(), uri, version).write(
            [AppTransaction(APP, 9)], None
        )
        return version

    monkeypatch.setattr(by_session._Commit, "write", followed)
    ours.commit([AppTransaction(APP, 1)])
    assert (ours.version(), ours.transaction_version(APP)) == (1, 1)

    ours.update_incremental()
    theirs.update_incremental()
    assert ours.transaction_version(APP) == theirs.transaction_version(APP) == 9


def test_the_active_session_stays_that_of_the_user(uri: str, spark: Any) -> None:
    active = spark.getActiveSession()
    by_session.DeltaTable(uri).commit([], properties={"txtopo.topology": "words"})

    assert spark.getActiveSession()._jsparkSession.equals(active._jsparkSession)
    assert by_session.DeltaTable(uri).metadata().configuration["txtopo.topology"] == "words"


@pytest.mark.rule("state_backends.delta.by_session", "Rules", 2)
def test_one_process_at_a_time_commits(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process holds the lock; Spark's JVM is another one."""
    monkeypatch.setattr(by_session, "_WAITS_S", 0)
    table = by_session.DeltaTable(uri)
    with Path(uri).with_name(".table.lock").open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match="another process writes"):
            table.commit([AppTransaction(APP, 1)])
    assert by_session.DeltaTable(uri).transaction_version(APP) is None

    with sole_writer(uri), pytest.raises(StoreUnavailable), sole_writer(uri):
        pass
    table.commit([AppTransaction(APP, 1)])
    assert by_session.DeltaTable(uri).transaction_version(APP) == 1
