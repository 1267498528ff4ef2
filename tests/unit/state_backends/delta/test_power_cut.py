"""What a Delta table on a local disk still has after a power cut.

delta-rs leaves all to the operating system, so only a disk that forgets shows what is missing: a
process that is killed loses nothing of what it has written.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from state_backends.delta.appending import fold
from state_backends.delta.backend import DeltaBackend
from state_backends.delta.layout import Layout
from tests.harness.servers.forgetful_disk import ForgetfulDisk
from tests.unit.state_backends.delta.tables import log_of, table_of
from txtopo import Fields
from txtopo.errors import FencedError, UnknownOutcomeError
from txtopo.state import Count, State, StateMode, open_state
from txtopo.testing.conformance.driver import StateDriver, partials

pytestmark = pytest.mark.integration


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForgetfulDisk:
    folder = tmp_path / "disk"
    folder.mkdir()
    return ForgetfulDisk(folder, monkeypatch)


def counted(tmp_path: Path, mode: StateMode = "table") -> State:
    """Return a state whose folder is two levels below the disk."""
    state = open_state(f"delta://{tmp_path}/disk/states/here", table="counts", mode=mode)
    columns = tuple(Count().columns("n").values())
    return state.with_columns(Fields("key string"), Fields("n long"), columns)


@pytest.mark.parametrize("mode", ["table", "log"])
@pytest.mark.rule("state_backends.delta.durability", "Rules", 1)
def test_a_commit_that_has_returned_survives_a_power_cut(
    tmp_path: Path, disk: ForgetfulDisk, mode: StateMode
) -> None:
    """With the table, which was made just before, and the folders that it is in."""
    store = StateDriver(counted(tmp_path, mode))
    store.merge(1, [("a", 1), ("b", 1)])
    store.merge(2, [("a", 1)])
    store.close()

    disk.cut_the_power()

    again = StateDriver(counted(tmp_path, mode), epoch=2)
    assert again.ledger.txid == 2
    assert again.contents() == {"a": 2, "b": 1}


def test_a_claim_that_has_returned_survives_a_power_cut(
    tmp_path: Path, disk: ForgetfulDisk
) -> None:
    """Else the coordinator that it deposed could write again."""
    StateDriver(counted(tmp_path), epoch=1)
    StateDriver(counted(tmp_path), epoch=7).close()

    disk.cut_the_power()

    with pytest.raises(FencedError, match="epoch 7"):
        StateDriver(counted(tmp_path), epoch=6)


def test_what_a_predecessor_had_not_flushed_is_durable_before_it_is_believed(
    tmp_path: Path, disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed between its commit and the flush; its txid is adopted, never brought again."""
    killed = StateDriver(counted(tmp_path), epoch=1)
    killed.merge(1, [("a", 1)])
    with monkeypatch.context() as patch:
        patch.setattr("state_backends.delta.durability.DurableLog.sync", lambda _: None)
        killed.merge(2, [("a", 1)])

    heir = StateDriver(counted(tmp_path), epoch=2)
    assert heir.ledger.txid == 2
    disk.cut_the_power()

    assert StateDriver(counted(tmp_path), epoch=3).contents() == {"a": 2}


@pytest.mark.rule("state_backends.delta.durability", "Rules", 4)
def test_what_an_error_left_open_is_durable_before_it_is_believed(
    tmp_path: Path, disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is there, delta-rs failed after it, and the ledger is read back."""
    store = StateDriver(counted(tmp_path))
    store.merge(1, [("a", 1)])
    assert isinstance(store.backend, DeltaBackend)
    writer = store.backend._writer
    write = writer.write

    def fails_afterwards(*arguments: object) -> None:
        write(*arguments)  # type: ignore[arg-type]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "write", fails_afterwards)
    attempt = store.attempt(2)
    with pytest.raises(UnknownOutcomeError):
        store.backend.commit(attempt, partials(store.state, [("a", 1)]))
    monkeypatch.setattr(writer, "write", write)
    assert store.held() is not None
    disk.cut_the_power()

    again = StateDriver(counted(tmp_path), epoch=2)
    assert again.ledger.txid == 2
    assert again.contents() == {"a": 2}


def test_folds_between_commits_survive_with_the_commit_after_them(
    tmp_path: Path, disk: ForgetfulDisk
) -> None:
    """A fold is a version as well: the log that lacks it, or its file, is no table any more."""
    state = counted(tmp_path, "log")
    store = StateDriver(state)
    for txid in (1, 2, 3):
        store.merge(txid, [("a", 1), (f"k{txid}", 1)])
    assert isinstance(store.backend, DeltaBackend)
    fold(table_of(store), store.backend._reader, Layout(state.layout()), 1, 2)
    store.merge(4, [("a", 1)])
    store.close()

    disk.cut_the_power()

    again = StateDriver(state, epoch=2)
    assert again.ledger.txid == 4
    assert again.contents() == {"a": 4, "k1": 1, "k2": 1, "k3": 1}


@pytest.mark.rule("state_backends.delta.durability", "Rules", 3)
def test_a_checkpoint_survives_with_the_commit_after_it(
    tmp_path: Path, disk: ForgetfulDisk
) -> None:
    """The entries before it may be gone by then."""
    store = StateDriver(counted(tmp_path))
    store.merge(1, [("a", 1)])
    table = table_of(store)
    table.create_checkpoint()
    version = table.version()
    for entry in log_of(store).glob("*.json"):
        if int(entry.stem) < version:
            entry.unlink()
    heir = StateDriver(counted(tmp_path), epoch=2)
    heir.merge(2, [("a", 1)])

    disk.cut_the_power()

    assert StateDriver(counted(tmp_path), epoch=3).contents() == {"a": 2}


def test_a_disk_that_is_told_nothing_forgets_everything(
    tmp_path: Path, disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of these tests does what it says."""
    monkeypatch.setattr("state_backends.delta.durability._sync", lambda _: None)
    StateDriver(counted(tmp_path)).merge(1, [("a", 1)])

    disk.cut_the_power()

    assert list((tmp_path / "disk").iterdir()) == []
