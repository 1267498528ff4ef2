"""The flights without Spark, killed at random moments; ZooKeeper in a process of its own."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tests.faults.processes.killing import Campaign
from tests.harness.servers.mariadb import MariaServer
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo.state.backend import StateKind

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]
KILLS = {"opaque": 10, "transactional": 5}
KILLS_OF_OTHERS = 4
each_kind = pytest.mark.parametrize("kind", ["opaque", "transactional"])


def campaign(
    folder: Path, state: str, kind: StateKind, zookeeper: ZooKeeperProcess, mode: str = "table"
) -> Campaign:
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    return Campaign(folder, state, ["--kind", kind, "--mode", mode, "--zookeeper", hosts])


@each_kind
@pytest.mark.row(22, 31)
def test_every_sample_of_sqlite_is_the_fold_of_the_first_txids(
    kind: StateKind, flights_input: Path, tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    state = f"sqlite:///{tmp_path / 'flights.db'}"
    killed = campaign(flights_input, state, kind, zookeeper)

    with killed.watched():
        killed.kill_and_finish(KILLS[kind], seed=1 if kind == "opaque" else 2)


@each_kind
@pytest.mark.row(22, 31)
def test_every_sample_of_postgresql_is_the_fold_of_the_first_txids(
    kind: StateKind,
    flights_input: Path,
    postgresql: PostgresServer,
    zookeeper: ZooKeeperProcess,
) -> None:
    state = postgresql.create_database(f"kills_{kind}")
    killed = campaign(flights_input, state, kind, zookeeper)

    with killed.watched():
        killed.kill_and_finish(KILLS[kind], seed=3 if kind == "opaque" else 4)


@pytest.mark.parametrize("mode", ["table", pytest.param("log", marks=pytest.mark.slow)])
@pytest.mark.row(22, 31)
def test_every_sample_of_delta_is_the_fold_of_the_first_txids(
    mode: str, flights_input: Path, tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    killed = campaign(flights_input, f"delta://{tmp_path}/states", "opaque", zookeeper, mode)

    with killed.watched():
        killed.kill_and_finish(KILLS_OF_OTHERS, seed=5 if mode == "table" else 6)


@pytest.mark.slow
@pytest.mark.row(22, 31)
def test_every_sample_of_a_log_in_postgresql_is_the_fold_of_the_first_txids(
    flights_input: Path, postgresql: PostgresServer, zookeeper: ZooKeeperProcess
) -> None:
    state = postgresql.create_database("kills_log")
    killed = campaign(flights_input, state, "opaque", zookeeper, "log")

    with killed.watched():
        killed.kill_and_finish(KILLS_OF_OTHERS, seed=7)


@pytest.mark.slow
@pytest.mark.row(22, 31)
def test_every_sample_of_mariadb_is_the_fold_of_the_first_txids(
    flights_input: Path, mariadb: MariaServer, zookeeper: ZooKeeperProcess
) -> None:
    state = mariadb.create_database("kills")
    killed = campaign(flights_input, state, "opaque", zookeeper)

    with killed.watched():
        killed.kill_and_finish(KILLS_OF_OTHERS, seed=8)


@pytest.mark.slow
@pytest.mark.row(22, 31)
def test_every_sample_of_a_log_in_mariadb_is_the_fold_of_the_first_txids(
    flights_input: Path, mariadb: MariaServer, zookeeper: ZooKeeperProcess
) -> None:
    state = mariadb.create_database("kills_log")
    killed = campaign(flights_input, state, "opaque", zookeeper, "log")

    with killed.watched(seen_min=10):
        killed.kill_and_finish(KILLS_OF_OTHERS, seed=10)


@pytest.mark.slow
@pytest.mark.row(22, 31)
def test_every_sample_of_redis_is_the_fold_of_the_first_txids(
    flights_input: Path, redis_server: RedisServer, zookeeper: ZooKeeperProcess
) -> None:
    killed = campaign(flights_input, redis_server.empty(), "opaque", zookeeper)

    with killed.watched():
        killed.kill_and_finish(KILLS_OF_OTHERS, seed=9)
