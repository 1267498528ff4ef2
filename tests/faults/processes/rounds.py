"""One round of kills: a topology on new stores is killed about ten times and must end right.

The number of a round is the seed of all its choices. The result is one line of a record, so that a
campaign that was stopped continues.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from tests.conftest import missing
from tests.faults.processes.counted_flights import CountedFlights
from tests.faults.processes.stores import SERVERS, STORES, Server, new_url, url_in
from tests.harness.servers.zookeeper import ZooKeeperProcess

LOCAL, SPARK = "local", "spark"
KILLS_A_ROUND = {LOCAL: 10, SPARK: 5}
COMMITS_MAX = {LOCAL: 8, SPARK: 20}
"""The most commits between two kills; a topology has a hundred."""
KINDS = ("opaque", "transactional")


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a round.

    Attributes:
        number: It decides when the kills are, and all that follows here.
        carrier: ``local``, or ``spark``: in turn ``rdd`` and ``dataframe``.
        store: Of the states.
        kind: Of the states.
        kills: How often the driver was killed.
        samples: How often an outside reader read the states.
        wrong: What the judge found; empty if every sample was right.
    """

    number: int
    carrier: str
    store: str
    kind: str
    kills: int
    samples: int
    wrong: str

    @property
    def command(self) -> str:
        """The command that runs it again."""
        module = "tests.faults.processes.campaign"
        return f"python -m {module} --carrier {self.carrier} --round {self.number}"


class Record:
    """The rounds that ran, one JSON line each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def rounds(self) -> list[Round]:
        """Return all rounds; of one that ran twice, the last result."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        found = [Round(**json.loads(line)) for line in lines]
        return list({(each.carrier, each.number): each for each in found}.values())

    def add(self, done: Round) -> None:
        """Add a round."""
        with self._path.open("a") as file:
            file.write(f"{json.dumps(asdict(done))}\n")


class Services:
    """The servers of a campaign, each started when a round first needs it; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._servers: dict[str, Server] = {}
        self._zookeeper: ZooKeeperProcess | None = None

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def zookeeper(self, carrier: str) -> list[str]:
        """Return arguments for a new ZooKeeper path; on Spark the server is in the driver's JVM."""
        if carrier == SPARK:
            return [
                "--zookeeper",
                "embedded",
                "--zookeeper-dir",
                tempfile.mkdtemp(dir=self._folder),
            ]
        if self._zookeeper is None:
            self._zookeeper = self._stack.enter_context(ZooKeeperProcess())
        return ["--zookeeper", f"{self._zookeeper.hosts}/{uuid4().hex}"]

    def url(self, store: str) -> str:
        """Return the URL of a new, empty store."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        if store not in SERVERS:
            return url_in(folder, store)
        if store not in self._servers:
            server = self._servers[store] = SERVERS[store]()
            self._stack.enter_context(server)
        return new_url(self._servers[store])


def stores_here() -> list[str]:
    """Return the stores that this machine has."""
    return [store for store in STORES if store not in SERVERS or missing(store) is None]


def numbers(carrier: str, kills: int) -> Iterator[tuple[int, int]]:
    """Yield the number and the kills of each round that together make this many kills."""
    a_round = KILLS_A_ROUND[carrier]
    for at, before in enumerate(range(0, kills, a_round)):
        yield at, min(a_round, kills - before)


def run_round(
    carrier: str, number: int, kills: int, folder: Path, services: Services, stores: Sequence[str]
) -> Round:
    """Run a round and judge every sample."""
    store = stores[number % len(stores)]
    kind = KINDS[number // len(stores) % len(KINDS)]
    on = {LOCAL: LOCAL, SPARK: ("rdd", "dataframe")[number % 2]}[carrier]
    arguments = ["--carrier", on, "--kind", kind, *services.zookeeper(carrier)]
    killed = CountedFlights(folder, services.url(store), arguments)
    wrong = ""
    try:
        with killed.watched():
            killed.kill_and_finish(kills, seed=number, commits_max=COMMITS_MAX[carrier])
    except AssertionError as error:
        wrong = str(error) or "an assertion of the judge failed"
    return Round(number, carrier, store, kind, kills, killed.samples, wrong)
