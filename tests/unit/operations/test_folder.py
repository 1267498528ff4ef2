"""An embedded ensemble is found by its folder, while a run lives and offline."""

from __future__ import annotations

import fcntl
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.processes import Child
from tests.harness.servers.private import free_port
from tests.unit.operations.deployment import Deployment
from txtopo import Config, ZooKeeper, open_state
from txtopo.ensemble import Journal
from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState
from txtopo.errors import ConfigError
from txtopo.operations import show
from txtopo.operations.ensemble import Ensemble
from txtopo.operations.folder import EmbeddedFolder

pytestmark = pytest.mark.spark
RUN = "tests.unit.ensemble.embedded_process"
HELD = """
import sys
from txtopo.operations.ensemble import Ensemble
with Ensemble.open(folder=sys.argv[1]) as ensemble:
    print(*(each.id for each in ensemble.topologies()), flush=True)
    sys.stdin.read()
"""


def is_free(folder: Path) -> bool:
    """Return whether nobody hosts the server of a folder."""
    with (folder / "lock").open("r+b") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a topology ``t`` has left; each test has a copy."""
    folder = tmp_path_factory.mktemp("left") / "zookeeper"
    (folder / "data").mkdir(parents=True)
    server = EmbeddedFolder(folder)
    state = ZooKeeperTransactionalState(server.locate(), "t", connect_timeout_s=LIMIT_S)
    Journal(state).claim_epoch({"host": "h"}, token="t")
    state.close()
    server.close()
    return folder


@pytest.fixture
def folder(left: Path, tmp_path: Path) -> Path:
    """A folder in which a topology ``t`` has run, and nobody hosts it.

    Its port is a free one: that of the first folder may be another test's by now.
    """
    folder = shutil.copytree(left, tmp_path / "zookeeper")
    (folder / "port").write_text(str(free_port()))
    return folder


def test_offline_a_jvm_hosts_it_under_the_same_lock_and_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment may choose a collector for every JVM of a machine."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")
    with Ensemble.open(folder=folder) as ensemble:
        assert not is_free(folder)
        assert ensemble.ask("t", "kill").status == "killed"

    assert is_free(folder)
    with Ensemble.open(Config(zookeeper=ZooKeeper(dir=str(folder)))) as ensemble:
        assert [each.status for each in ensemble.topologies()] == ["killed"]


def test_while_a_run_lives_its_server_is_used(folder: Path) -> None:
    with Child(RUN, str(folder)) as run:
        run.wait_for("leads")
        found = EmbeddedFolder(folder)
        assert found.locate().endswith((folder / "port").read_text())
        assert found._gateway is None
        with Ensemble.open(folder=folder) as ensemble:
            assert dict(ensemble.topology("t").leader)["pid"] == run.pid  # type: ignore[arg-type]


@pytest.mark.slow
def test_when_the_run_ends_meanwhile_the_server_is_hosted_here(folder: Path) -> None:
    config = Config(zookeeper=ZooKeeper(connect_timeout_s=LIMIT_S, session_timeout_s=10))
    with Child(RUN, str(folder)) as run:
        run.wait_for("leads")
        with Ensemble.open(config, folder=folder) as ensemble:
            assert ensemble.topologies()
            run.kill()

            assert wait_until(lambda: ensemble.topologies(), "it is hosted here")
            assert ensemble.ask("t", "deactivate").status == "deactivated"


def test_a_run_that_starts_while_a_command_has_the_folder_gets_in(folder: Path) -> None:
    config = Config(zookeeper=ZooKeeper(connect_timeout_s=LIMIT_S, session_timeout_s=10))
    with Ensemble.open(config, folder=folder) as ensemble, Child(RUN, str(folder)) as run:
        run.wait_for("leads")
        leader: Any = ensemble.topology("t").leader
        assert leader["pid"] == run.pid
        ensemble.close()  # and the run hosts the server itself

        run.wait_for("at", times=len(run.events("at")) + 100)
        assert not is_free(folder)


@pytest.mark.parametrize("lock", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_port_that_another_program_has_is_no_ensemble(folder: Path, lock: bool) -> None:
    if not lock:
        (folder / "lock").unlink()  # a copy of the folder may lack it
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        (folder / "port").write_text(str(other.getsockname()[1]))

        with Ensemble.open(folder=folder) as ensemble:
            assert [each.id for each in ensemble.topologies()] == ["t"]


def test_the_jvm_ends_with_a_process_that_is_killed(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HELD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == "t\n"
        assert not is_free(folder)
        held.send_signal(signal.SIGKILL)

    wait_until(lambda: is_free(folder), "nobody hosts it")


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_is_no_ensemble_is_refused_and_left_as_it_is(
    tmp_path: Path, there: bool
) -> None:
    folder = tmp_path / "none"
    if there:
        folder.mkdir()

    with pytest.raises(ConfigError, match="holds no embedded zookeeper"):
        Ensemble.open(folder=folder)

    assert folder.exists() == there
    assert not there or list(folder.iterdir()) == []


def test_an_operators_verb_needs_no_session(folder: Path, tmp_path: Path) -> None:
    states = open_state(f"sqlite:///{tmp_path}/a.db"), open_state(f"sqlite:///{tmp_path}/b.db")
    config = Config(carrier="local", zookeeper=ZooKeeper(dir=str(folder)))

    found = show(Deployment(states, id="t").topology(), config)

    assert (found.epoch, found.current) == (1, 1)
    assert is_free(folder)
