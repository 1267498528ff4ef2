"""The server in the driver's JVM: who hosts it, who shares it, and what happens after a kill."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from py4j.protocol import Py4JJavaError

from tests.harness.processes import Child
from tests.harness.servers.private import free_port
from tests.harness.spark_session import launch_test_jvm
from txtopo import ZooKeeper
from txtopo.config import Config
from txtopo.ensemble import (
    Journal,
    TransactionalState,
    embedded,
    open_transactional_state,
)
from txtopo.ensemble.embedded import HOST, SNAPSHOTS_KEPT, EmbeddedServer
from txtopo.errors import ConfigError

pytestmark = pytest.mark.spark

PROGRAM = "tests.unit.ensemble.embedded_process"
LISTEN = "0A"
LIMIT_S = 120.0
ENDED_S_MAX = 120.0
STARTS = SNAPSHOTS_KEPT + 2
READABLE = dict.fromkeys(("0100007F", "0000000000000000FFFF00000100007F"), "127.0.0.1")
WORDS = (
    *("conf", "cons", "crst", "dump", "envi", "gtmk", "hash", "isro", "mntr"),
    *("ruok", "srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs"),
)


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    """A JVM as a Spark driver has it, without a session."""
    gateway = launch_test_jvm()
    yield gateway.jvm
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(ENDED_S_MAX)


def opened(jvm: Any, directory: Path, topology_id: str = "t") -> TransactionalState:
    # The longest session timeout of the embedded server: none is to expire here.
    config = Config(
        zookeeper=ZooKeeper(dir=str(directory), session_timeout_s=10, connect_timeout_s=LIMIT_S)
    )
    return open_transactional_state(config.zookeeper, topology_id, jvm)


def keep_port(directory: Path) -> int:
    """Name a port that no other process of this machine takes while the server is down."""
    port = free_port()
    (directory / "port").write_text(str(port))
    return port


def port_of(directory: Path) -> int:
    return int((directory / "port").read_text())


def is_served(directory: Path) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port_of(directory))) == 0


def listening(pid: int) -> set[tuple[str, int]]:
    """Return the addresses and ports that a process listens on."""
    sockets = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            sockets.add(os.readlink(file))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTEN and f"socket:[{inode}]" in sockets:
                address, _, port = local.partition(":")
                found.add((READABLE.get(address, address), int(port, 16)))
    return found


def test_what_is_stored_outlives_the_server_and_its_port_stays(jvm: Any, tmp_path: Path) -> None:
    port = keep_port(tmp_path)
    for epoch in (1, 2, 3):
        state = opened(jvm, tmp_path)

        assert is_served(tmp_path)
        assert port_of(tmp_path) == port
        assert Journal(state).claim_epoch("one", token="ensemble") == epoch
        state.close()
        assert not is_served(tmp_path)


def test_topologies_of_one_jvm_share_a_server_until_the_last_one_closes(
    jvm: Any, tmp_path: Path
) -> None:
    keep_port(tmp_path)
    one, other = opened(jvm, tmp_path, "one"), opened(jvm, tmp_path, "other")
    one.close()
    one.close()

    assert Journal(other).claim_epoch("other", token="ensemble") == 1
    other.close()
    assert not is_served(tmp_path)


def test_only_the_loopback_is_served_and_nothing_but_clients(jvm: Any, tmp_path: Path) -> None:
    """No AdminServer, which would listen on port 8080 of every address."""
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    before = listening(pid)
    state = opened(jvm, tmp_path)

    assert listening(pid) - before == {("127.0.0.1", port_of(tmp_path))}
    assert not [address for address, _ in listening(pid) if address != "127.0.0.1"]
    state.close()
    assert listening(pid) == before


def test_four_letter_words_are_off(jvm: Any, tmp_path: Path) -> None:
    """``srvr`` alone cannot be turned off: the server itself puts it on its list."""
    state = opened(jvm, tmp_path)
    answered = set()
    for word in WORDS:
        with socket.create_connection(("127.0.0.1", port_of(tmp_path)), LIMIT_S) as connection:
            connection.sendall(word.encode())
            if b"not in the whitelist" not in connection.recv(4096):
                answered.add(word)
    state.close()

    assert answered == {"srvr"}


def test_a_port_that_a_stranger_took_is_left_to_it(jvm: Any, tmp_path: Path) -> None:
    keep_port(tmp_path)
    opened(jvm, tmp_path).close()
    with socket.create_server(("127.0.0.1", port_of(tmp_path))) as stranger:
        state = opened(jvm, tmp_path)

        assert port_of(tmp_path) != stranger.getsockname()[1]
        assert Journal(state).claim_epoch("one", token="ensemble") == 1
        state.close()


def test_a_jvm_that_leaves_the_disk_to_the_operating_system_is_refused(
    jvm: Any, tmp_path: Path
) -> None:
    """ZooKeeper would acknowledge what a power cut takes back, and nothing else would show it."""
    jvm.java.lang.System.setProperty("zookeeper.forceSync", "no")
    try:
        with pytest.raises(ConfigError, match=r"got -Dzookeeper\.forceSync=no in the driver's JVM"):
            opened(jvm, tmp_path)
    finally:
        jvm.java.lang.System.clearProperty("zookeeper.forceSync")

    opened(jvm, tmp_path).close()


def test_a_directory_that_cannot_be_made_is_refused(jvm: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match=r"file/below cannot be used .* use a directory"):
        opened(jvm, tmp_path / "file" / "below")


@pytest.mark.row(51)
def test_a_directory_with_damaged_data_is_refused_and_let_go(jvm: Any, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    with pytest.raises(ConfigError, match="cannot be used by the embedded server"):
        opened(jvm, tmp_path)
    (tmp_path / "data").unlink()
    keep_port(tmp_path)

    opened(jvm, tmp_path).close()
    assert not is_served(tmp_path)


@pytest.mark.slow
@pytest.mark.row(50)
def test_a_standby_takes_over_server_and_leadership_after_a_kill(tmp_path: Path) -> None:
    with Child(PROGRAM, str(tmp_path)) as first:
        first.wait_for("at", 5)
        with Child(PROGRAM, str(tmp_path)) as second:
            second.wait_for("waits")
            first.kill()
            first.wait()
            reached = first.events("at")[-1]["current"]

            leads = second.wait_for("leads")
            assert leads["epoch"] == 2
            assert leads["current"] >= reached
            second.wait_for("at", 5)
            assert second.said[-1]["current"] == leads["current"] + 5


def test_a_snapshot_follows_after_some_mib_of_log(jvm: Any, tmp_path: Path) -> None:
    """Old logs are deleted only before a snapshot; by default there may be 4 GiB before one."""
    state = opened(jvm, tmp_path)
    client = KazooClient(f"{HOST}:{port_of(tmp_path)}")
    client.start()
    client.create("/large")
    for _ in range(50):
        client.set("/large", bytes(1_000_000))
    client.stop()
    client.close()
    state.close()

    logs = list((tmp_path / "data" / "version-2").glob("log.*"))
    assert len(logs) in (2, 3)
    assert max(path.stat().st_size for path in logs) <= 37 * 2**20  # 4 MiB are allocated ahead


def started_often(jvm: Any, directory: Path) -> Path:
    """Start the server more often than it keeps snapshots; return the folder of its files."""
    for epoch in range(1, STARTS + 1):  # each start leaves a snapshot and a log
        state = opened(jvm, directory)
        assert Journal(state).claim_epoch("one", token="ensemble") == epoch
        state.close()
    return directory / "data" / "version-2"


def test_old_files_of_the_server_are_deleted_without_a_word(
    jvm: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """ZooKeeper's own cleaner prints each of them to standard output, which is the user's."""
    names = [path.name for path in started_often(jvm, tmp_path).iterdir()]

    assert sum(name.startswith("snapshot") for name in names) == SNAPSHOTS_KEPT
    assert sum(name.startswith("log") for name in names) <= SNAPSHOTS_KEPT + 1
    assert capfd.readouterr().out == ""


def test_nothing_raises_in_java_when_old_files_are_deleted(
    jvm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark takes 30 ms for each exception, and the first request to lead waits for that."""
    folder, server = started_often(jvm, tmp_path), EmbeddedServer(jvm, tmp_path)
    server.attach()
    raised = []
    monkeypatch.setattr(Py4JJavaError, "__init__", lambda self, *told: raised.append(told))
    before = len(list(folder.glob("snapshot.*")))
    server.tidy()

    server.close()
    assert before > len(list(folder.glob("snapshot.*"))) == SNAPSHOTS_KEPT
    assert raised == []


def test_a_server_with_few_snapshots_is_not_asked_what_it_needs(jvm: Any, tmp_path: Path) -> None:
    server = EmbeddedServer(jvm, tmp_path)
    server.attach()
    server._jvm = None  # whoever asks it fails
    server.tidy()

    server._jvm = jvm
    server.close()
    assert len(list((tmp_path / "data" / "version-2").glob("snapshot.*"))) <= SNAPSHOTS_KEPT


def test_old_files_are_deleted_once_a_minute(
    jvm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, state = started_often(jvm, tmp_path), opened(jvm, tmp_path)
    assert Journal(state).claim_epoch("one", token="ensemble") == STARTS + 1
    old, other, stuck = (folder / name for name in ("snapshot.0", "snapshot.of-mine", "log.0"))
    old.touch()
    other.touch()

    assert Journal(state).claim_epoch("one", token="ensemble") == STARTS + 2
    assert old.exists()
    monkeypatch.setattr(embedded, "PURGE_INTERVAL_S", 0.0)
    assert Journal(state).claim_epoch("one", token="ensemble") == STARTS + 3
    assert (old.exists(), other.exists()) == (False, True)
    stuck.mkdir()  # what cannot be deleted is told, and stops nothing
    assert Journal(state).claim_epoch("one", token="ensemble") == STARTS + 4
    state.close()
    assert "to delete old files of the embedded zookeeper" in caplog.text
