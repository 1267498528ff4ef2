"""The tutorial as a beginner does it: its programs are killed with SIGKILL, and count right."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.harness.polling import wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.unit.test_layout import ROOT
from tests.unit.test_pages import environment, programs_of, run_python
from txtopo import open_state
from txtopo.errors import TxtopoError

TUTORIAL = ROOT / "docs" / "tutorial"
ORDERS = {"tea": 30_000, "milk": 20_000, "bread": 10_000}
PRICES = {"tea": 250, "milk": 120, "bread": 300}


def programs(page: str, addresses: dict[str, str]) -> list[str]:
    """Return the programs of a part, with the addresses of the servers of the tests."""
    text = (TUTORIAL / page).read_text()
    for address, real in addresses.items():
        assert address in text
        text = text.replace(address, real)
    return [program.text for program in programs_of(text)]


def committed(url: str) -> int:
    """Return the last txid that the state holds; 0 before there is one."""
    try:
        with open_state(url, table="sold").reader() as reader:
            return reader.ledger.txid if reader.ledger else 0
    except TxtopoError:
        return 0


def kill_in_the_middle(command: list[str], folder: Path, url: str) -> int:
    """Start a command, kill it (SIGKILL) when it has committed, and return its last txid."""
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", "txtopo", *command], cwd=folder, env=environment(), stderr=log
        ) as killed,
    ):
        try:
            wait_until(lambda: committed(url) >= 10, lambda: (folder / "log").read_text()[-2000:])
        finally:
            killed.kill()
    assert killed.returncode == -signal.SIGKILL, "it had ended before"
    return committed(url)


@pytest.mark.spark
@pytest.mark.kills
def test_the_count_in_sqlite_is_right_after_a_kill(tmp_path: Path) -> None:
    (program,) = programs("killed.md", {})
    (tmp_path / "count.py").write_text(program)
    url = f"sqlite:///{tmp_path / 'count.db'}"
    command = ["run", "count.py", "--available-now", "--set", "max_rows_per_second=3000"]

    kill_in_the_middle(command, tmp_path, url)
    with open_state(url, table="sold").reader() as reader:
        assert 0 < sum(dict(reader.items()).values()) < sum(ORDERS.values())
    done = run_python(["-m", "txtopo", *command[:3]], tmp_path)

    assert "leading, epoch 2" in done.stderr, done.stderr[-2000:]
    with open_state(url, table="sold").reader() as reader:
        assert dict(reader.items()) == ORDERS


@pytest.mark.kills
def test_the_count_from_kafka_in_postgresql_is_right_after_a_kill(
    kafka: KafkaBroker, postgresql: PostgresServer, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    url, topic = postgresql.create_database("tutorial"), f"orders-{uuid4()}"
    addresses = {
        "localhost:9092": kafka.servers,
        '"orders"': f'"{topic}"',
        "postgresql://txtopo:tutorial@localhost/states": url,
    }
    orders, shop = programs("kafka-postgresql.md", addresses)
    # The column and the spout have the topic's name in the page.
    shop = shop.replace(f'"shop", "{topic}"', '"shop", "orders"')
    shop = shop.replace(f'{{"{topic}": Count()', '{"orders": Count()')
    shop = shop.replace(f'grouping("{topic}"', 'grouping("orders"')
    (tmp_path / "orders.py").write_text(orders)
    (tmp_path / "shop.py").write_text(shop)
    written = run_python(["orders.py"], tmp_path)
    assert written.returncode == 0, written.stderr
    command = ["run", "shop.py", "--zookeeper", f"{zookeeper.hosts}/{uuid4()}"]
    command += ["--set", "carrier=local"]

    kill_in_the_middle([*command, "--set", "max_rows_per_second=2000"], tmp_path, url)
    done = run_python(["-m", "txtopo", *command, "--available-now"], tmp_path)

    assert "leading, epoch 2" in done.stderr, done.stderr[-2000:]
    with open_state(url, table="sold").reader() as reader:
        counted = {each: (row["orders"], row["cents"]) for each, row in reader.items()}
    assert counted == {each: (n, n * PRICES[each]) for each, n in ORDERS.items()}
