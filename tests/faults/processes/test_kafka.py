"""Words are counted from Kafka into a database and a topic while driver and broker are killed,
each at a moment that chance chooses.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from examples.kafka_demo import run_demo
from tests.harness.servers.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.service("kafka"), pytest.mark.slow]


def demo(folder: Path, hosts: str, seed: int, records: int, kills: int) -> int:
    return run_demo(
        argparse.Namespace(
            records=records,
            kills=kills,
            broker_kills=kills,
            seed=seed,
            dir=folder,
            zookeeper=f"{hosts}/{folder.name}",
            carrier="local",
        )
    )


@pytest.mark.row(10, 22)
def test_totals_are_equal_after_a_kill_of_driver_and_broker(
    zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    assert demo(tmp_path, zookeeper.hosts, seed=1, records=20_000, kills=1) == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.row(10, 22)
def test_totals_are_equal_after_many_kills(
    zookeeper: ZooKeeperProcess, tmp_path: Path, seed: int
) -> None:
    assert demo(tmp_path, zookeeper.hosts, seed=seed, records=200_000, kills=6) == 0
