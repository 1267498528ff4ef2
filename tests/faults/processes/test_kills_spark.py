"""The flights on Spark, killed at random moments; ZooKeeper in the killed driver's own JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.processes.killing import Campaign
from tests.harness.servers.postgresql import PostgresServer

pytestmark = [pytest.mark.kills, pytest.mark.spark, pytest.mark.timeout(900)]
KILLS = {"sqlite": 3, "postgresql": 4, "resident": 3}
COMMITS_MAX = 10


def embedded(folder: Path) -> list[str]:
    return ["--zookeeper", "embedded", "--zookeeper-dir", str(folder / "zookeeper")]


@pytest.mark.row(22, 31)
def test_every_sample_of_sqlite_is_the_fold_of_the_first_txids_on_spark(
    flights_half: Path, tmp_path: Path
) -> None:
    arguments = ["--carrier", "rdd", "--kind", "opaque", *embedded(tmp_path)]
    killed = Campaign(flights_half, f"sqlite:///{tmp_path / 'flights.db'}", arguments)

    with killed.watched():
        killed.kill_and_finish(KILLS["sqlite"], seed=5, commits_max=COMMITS_MAX)


@pytest.mark.row(22, 31)
def test_every_sample_of_postgresql_is_the_fold_of_the_first_txids_on_spark(
    flights_half: Path, tmp_path: Path, postgresql: PostgresServer
) -> None:
    arguments = ["--carrier", "dataframe", "--kind", "transactional", *embedded(tmp_path)]
    state = postgresql.create_database("kills_on_spark")
    killed = Campaign(flights_half, state, arguments)

    with killed.watched():
        killed.kill_and_finish(KILLS["postgresql"], seed=6, commits_max=COMMITS_MAX)


@pytest.mark.parametrize("kind", ["opaque", pytest.param("transactional", marks=pytest.mark.slow)])
@pytest.mark.row(22, 31)
def test_every_sample_is_the_fold_of_the_first_txids_on_resident_slots(
    kind: str, flights_half: Path, tmp_path: Path
) -> None:
    arguments = ["--carrier", "resident", "--kind", kind, *embedded(tmp_path)]
    killed = Campaign(flights_half, f"sqlite:///{tmp_path / 'flights.db'}", arguments)

    with killed.watched():
        killed.kill_and_finish(KILLS["resident"], seed=7, commits_max=COMMITS_MAX)
