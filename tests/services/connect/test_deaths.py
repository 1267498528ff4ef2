"""A client dies, a server dies in the middle of a batch: each record counts once all the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest

from tests.harness.polling import wait_until
from tests.harness.processes import Child, run_child
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.spark_connect import SparkConnectServer
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.services.connect.counting_process import ROWS
from tests.services.connect.programs import read

pytestmark = [
    pytest.mark.spark,
    pytest.mark.service("spark-connect"),
    pytest.mark.timeout(900),
]

PROCESS = "tests.services.connect.counting_process"


@pytest.mark.slow
@pytest.mark.service("zookeeper")
@pytest.mark.parametrize(
    ("carrier", "step"),
    [
        ("dataframe", "write.after:counts.counts"),
        ("auto", "write.before:counts.counts"),
    ],
)
def test_a_client_that_dies_between_two_writes_goes_on_where_it_was(
    connect_server: SparkConnectServer,
    postgresql: PostgresServer,
    zookeeper: ZooKeeperProcess,
    tmp_path: Path,
    carrier: str,
    step: str,
) -> None:
    (tmp_path / "go").touch()
    name = f"connect_{uuid4().hex}"
    state = postgresql.create_database(name)
    arguments = (connect_server.url, state, f"{zookeeper.hosts}/{name}", carrier, str(tmp_path))
    with Child(PROCESS, *arguments, step) as first:
        first.die()

    second = run_child(PROCESS, *arguments, "")

    assert [said["txid"] for said in first.events("committed")] == [1]
    assert [said["txid"] for said in second.events("committed")][-1] == 3
    check_counts(state)


@pytest.mark.slow
@pytest.mark.service("zookeeper")
def test_a_server_that_dies_in_a_batch_ends_the_run_and_the_next_one_goes_on(
    connect_server: SparkConnectServer, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    state = f"sqlite:///{tmp_path / 'states.db'}"
    root = f"{zookeeper.hosts}/{uuid4().hex}"
    arguments = (connect_server.url, state, root, "auto", str(tmp_path), "")
    with Child(PROCESS, *arguments) as first:
        wait_until((tmp_path / "reached").exists, "the batch is held")
        connect_server.kill()
        (tmp_path / "go").touch()
        connect_server.start()
        ended = first.wait_for("ended")

    second = run_child(PROCESS, *arguments)

    assert [said["txid"] for said in first.events("committed")] == [1]
    assert ended["kind"] == "ConfigError"
    assert "its Spark Connect server was restarted; committed txids stay committed" in ended["text"]
    assert [said["txid"] for said in second.events("committed")] == [2, 3]
    check_counts(state)


def check_counts(state: str) -> None:
    """Check that each word counts once, in all and by itself."""
    assert read(state) == Counter(ROWS)
    assert list(read(state, "total").values()) == [len(ROWS)]
