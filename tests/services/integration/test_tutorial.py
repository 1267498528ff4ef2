"""The tutorial as a beginner does it: its programs are killed with SIGKILL, and count right.

What the commands of its last two parts print is compared with what the pages show. The runs of
parts 4 to 6 use the carrier "local", so that they need no Spark.
"""

from __future__ import annotations

import ast
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import pytest

from tests.harness.polling import wait_until
from tests.harness.servers.kafka import KafkaBroker
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.unit.test_layout import ROOT
from tests.unit.test_pages import blocks_of, environment, matches, run_python
from txtopo import open_state
from txtopo.errors import TxtopoError

TUTORIAL = ROOT / "docs" / "tutorial"
ORDERS = {"tea": 30_000, "milk": 20_000, "bread": 10_000}
PRICES = {"tea": 250, "milk": 120, "bread": 300}


def programs(page: str, addresses: dict[str, str]) -> list[str]:
    """Return all programs of a part, with the addresses of the servers of the tests."""
    text = (TUTORIAL / page).read_text()
    for address, real in addresses.items():
        assert address in text
        text = text.replace(address, real)
    return [block.text for block in blocks_of(text) if block.language == "python"]


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


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kills
def test_the_count_in_sqlite_is_right_after_a_kill(tmp_path: Path) -> None:
    program, reads = programs("killed.md", {})
    (tmp_path / "count.py").write_text(program)
    (tmp_path / "reads.py").write_text(reads)
    url = f"sqlite:///{tmp_path / 'count.db'}"
    command = ["run", "count.py", "--available-now", "--set", "pace.max_rows_per_second=3000"]

    kill_in_the_middle(command, tmp_path, url)
    with open_state(url, table="sold").reader() as reader:
        assert 0 < sum(dict(reader.items()).values()) < sum(ORDERS.values())
    done = run_python(["-m", "txtopo", *command[:3]], tmp_path)

    assert "leading, epoch 2" in done.stderr, done.stderr[-2000:]
    with open_state(url, table="sold").reader() as reader:
        assert dict(reader.items()) == ORDERS
    read = run_python(["reads.py"], tmp_path)
    txid, _, printed = read.stdout.partition(" ")
    assert txid.isdigit(), read.stderr
    assert ast.literal_eval(printed) == ORDERS


@pytest.fixture
def shop(
    kafka: KafkaBroker, postgresql: PostgresServer, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> dict[str, str]:
    """The files of part 4 in a folder, and 60,000 orders in Kafka; the addresses of the servers."""
    topic = f"orders-{uuid4()}"
    addresses = {
        "localhost:9092": kafka.servers,
        "postgresql://txtopo:tutorial@localhost/states": postgresql.create_database(
            f"shop_{uuid4().hex}"
        ),
        "localhost:2181": f"{zookeeper.hosts}/{uuid4()}",
    }
    orders, program = programs("kafka-postgresql.md", {**addresses, '"orders"': f'"{topic}"'})
    # The column and the spout have the topic's name in the page.
    program = program.replace(f'"shop", "{topic}"', '"shop", "orders"')
    program = program.replace(f'{{"{topic}": Count()', '{"orders": Count()')
    program = program.replace(f'grouping("{topic}"', 'grouping("orders"')
    (tmp_path / "orders.py").write_text(orders)
    (tmp_path / "shop.py").write_text(program)
    hosts = addresses["localhost:2181"]
    settings = f'zookeeper.hosts = "{hosts}"\npace.max_rows_per_second = 5000\n'
    (tmp_path / "txtopo.toml").write_text(settings)
    written = run_python(["orders.py"], tmp_path)
    assert written.returncode == 0, written.stderr
    return addresses


LOCAL = ["run", "shop.py", "--set", "carrier=local"]


@pytest.mark.kills
def test_the_count_from_kafka_in_postgresql_is_right_after_a_kill(
    shop: dict[str, str], tmp_path: Path
) -> None:
    url = shop["postgresql://txtopo:tutorial@localhost/states"]

    kill_in_the_middle([*LOCAL, "--set", "pace.max_rows_per_second=2000"], tmp_path, url)
    done = run_python(["-m", "txtopo", *LOCAL, "--available-now"], tmp_path)

    assert "leading, epoch 2" in done.stderr, done.stderr[-2000:]
    assert counted(url) == {each: (n, n * PRICES[each]) for each, n in ORDERS.items()}


def counted(url: str) -> dict[str, tuple[int, int]]:
    """Return the orders and cents of each product in PostgreSQL."""
    with open_state(url, table="sold").reader() as reader:
        return {each: (row["orders"], row["cents"]) for each, row in reader.items()}


class Part:
    """A part of the tutorial whose commands are typed in turn, each checked against the page.

    Args:
        page: Its name.
        addresses: Those of the tests, by those in the page.
        folder: Where the reader is.
    """

    def __init__(self, page: str, addresses: dict[str, str], folder: Path) -> None:
        text = (TUTORIAL / page).read_text()
        for address, real in addresses.items():
            text = text.replace(address, real)
        blocks = [block.text for block in blocks_of(text) if block.language == "text"]
        self.logs = [block for block in blocks if not block.startswith("$ ")]
        self.waiting = [
            said.partition("\n")[::2]
            for block in blocks
            if block.startswith("$ ")
            for said in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        ]
        self._folder = folder

    def type(self, command: str, status: int = 0) -> str:
        """Run a command, which has to be the next one of the page; return what it prints.

        Args:
            command: How it begins.
            status: The exit status that it has to have.
        """
        assert self.waiting[0][0].startswith(command), f"the page continues with {self.waiting[0]}"
        program, *arguments = shlex.split(self.waiting[0][0])
        run = ["-m", "txtopo", *arguments] if program == "txtopo" else arguments
        done = run_python(run, self._folder)
        assert done.returncode == status, done.stderr
        return done.stderr + done.stdout

    def check(self, command: str, *, numbers: bool = True, status: int = 0) -> None:
        """Run the next command, and compare what it prints; without *numbers*, the rest of it."""
        printed = self.type(command, status)
        _, shown = self.waiting.pop(0)
        assert matches(plain(printed, numbers=numbers), plain(shown, numbers=numbers)), (
            f"{command} prints\n{printed}\nand the page shows\n{shown}"
        )

    def check_log(self, log: Path, *, line: int) -> None:
        """Wait until a run has logged a line of the page's next log, whatever its numbers are."""
        shown = plain(self.logs[0].splitlines()[line], numbers=False)
        wait_until(
            lambda: any(
                plain(each, numbers=False) == shown for each in log.read_text().splitlines()
            ),
            lambda: f"{shown!r} is in {log.read_text()[-2000:]}",
        )


def plain(text: str, *, numbers: bool) -> str:
    """Return a text without what differs between machines: addresses, widths and names.

    Without *numbers*, one number is like another or a dash, and phases of batches are left out.
    """
    text = re.sub(r"postgresql[^\s,]*", "URL", text)
    text = re.sub(r"orders-[0-9a-f-]{36}", "orders", text.replace(socket.gethostname(), "vm"))
    if not numbers:
        text = re.sub(r"\b[0-9a-f]{16}\b|(?<!\S)-(?!\S)", "0", text)
        text = re.sub(r"\d[\d,.]*", "#", text)
        text = re.sub(r"\[#(,? #)*\]", "[#]", text)
        text = re.sub(r"# (planned|processing|processed|committing)\s+", "", text)
    return " ".join(text.split())


@pytest.mark.slow
def test_a_batch_of_the_past_is_shown_as_its_page_shows_it(
    zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    settings = f'zookeeper.hosts = "{zookeeper.hosts}/{uuid4()}"\ncarrier = "local"\n'
    (tmp_path / "txtopo.toml").write_text(settings)
    page = Part("../how-to/replay.md", {}, tmp_path)
    program, look = programs("../how-to/replay.md", {})
    (tmp_path / "shop.py").write_text(program)
    run = ["-m", "txtopo", "run", "shop.py", "--available-now"]
    assert "could not convert" in run_python(run, tmp_path).stderr

    page.check("txtopo replay shop.py --txid 3", status=1)
    repaired = program.replace('tuple["price"]\n', 'tuple["price"].replace(",", ".")\n')
    (tmp_path / "shop.py").write_text(repaired)
    page.check("txtopo replay shop.py --txid 3")
    assert run_python(run, tmp_path).returncode == 0
    page.check("txtopo replay shop.py --txid 3 --component revenue")
    assert not page.waiting
    (tmp_path / "look.py").write_text(look)
    assert matches(run_python(["look.py"], tmp_path).stdout, page.logs[0])


@contextmanager
def running(
    folder: Path, name: str, *settings: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run the topology in the background, with its page; give its process and its log."""
    log = folder / f"{name}.log"
    with (
        log.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-m", "txtopo", *LOCAL, "--set", "page.port=0", *settings],
            cwd=folder,
            env=environment(),
            stderr=file,
        ) as started,
    ):
        try:
            yield started, log
        finally:
            started.kill()


@pytest.mark.slow
@pytest.mark.kills
def test_the_commands_that_look_at_a_topology_print_what_the_tutorial_shows(
    shop: dict[str, str], tmp_path: Path
) -> None:
    part = Part("look-at-it.md", shop, tmp_path)
    fast = [*LOCAL, "--available-now", "--set", "pace.max_rows_per_second=60000"]
    assert run_python(["-m", "txtopo", *fast], tmp_path).returncode == 0

    part.check("txtopo explain shop.py")
    part.check("txtopo verify shop.py")
    part.check("txtopo state show", numbers=False)
    # It has to be at work when it is looked at, on a slow machine, too.
    slowly = ("--set", "pace.max_rows_per_second=1000")
    with running(tmp_path, "run", *slowly) as (run, log):
        assert "the topic is there" in run_python(["orders.py"], tmp_path).stdout
        labels = labels_of(part.waiting[0][1])
        wait_until(
            lambda: labels <= labels_of(part.type("txtopo show shop")),
            lambda: f"{labels} are shown: {part.type('txtopo show shop')}; {log.read_text()}",
        )
        page = re.search(r"^page +(http\S+)$", part.type("txtopo show shop"), re.MULTILINE)
        assert page is not None
        with urlopen(page[1]) as answer:
            assert b"<title>" in answer.read()
        run.terminate()
        assert run.wait() == 0, log.read_text()
    del part.waiting[0]
    assert not part.waiting, "the page has commands that this test does not type"


def labels_of(shown: str) -> set[str]:
    """Return what ``txtopo show`` says something of."""
    return {re.split(r"  +", line)[0] for line in shown.splitlines() if line and line != "…"}


@pytest.mark.slow
@pytest.mark.kills
def test_the_standby_of_the_tutorial_takes_over_when_the_leader_is_killed(
    shop: dict[str, str], tmp_path: Path
) -> None:
    part = Part("two-coordinators.md", shop, tmp_path)
    url = shop["postgresql://txtopo:tutorial@localhost/states"]
    fast = [*LOCAL, "--available-now", "--set", "pace.max_rows_per_second=60000"]
    run_python(["orders.py"], tmp_path)
    assert run_python(["-m", "txtopo", *fast], tmp_path).returncode == 0  # parts 4 and 5

    with running(tmp_path, "leader") as (leader, its_log):
        wait_until(lambda: "leading" in its_log.read_text(), its_log.read_text)
        with running(tmp_path, "standby") as (_, log):
            part.check_log(log, line=0)
            part.logs.pop(0)
            part.type("python orders.py")
            part.waiting.pop(0)
            part.check("txtopo list", numbers=False)
            leader.kill()
            part.check_log(log, line=0)
            part.check("txtopo list", numbers=False)
            part.check_log(log, line=1)
            part.check_log(log, line=3)
            wait_until(
                lambda: sum(n for n, _ in counted(url).values()) == 3 * sum(ORDERS.values()),
                log.read_text,
            )
            part.check("txtopo state query")
            part.check("txtopo kill shop", numbers=False)
    refused = run_python(["-m", "txtopo", *LOCAL], tmp_path)
    assert refused.returncode == 3
    assert "txtopo activate shop" in refused.stderr
    assert not part.waiting, "the page has commands that this test does not type"
