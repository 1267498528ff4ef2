"""All states of one database are of the same txid, at every instant, whatever is killed.

An outside reader compares the tables, while the driver and the server of the store are killed at
random moments.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from tests.faults.networks.numbers import fold, folded_total
from tests.faults.processes.stores import SERVERS, Server, marks_of, new_url
from tests.harness.processes import Child
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo.state import StateKind, StateMode, open_state

pytestmark = [pytest.mark.kills, pytest.mark.slow, pytest.mark.timeout(1800)]
KILLS = 12
ENDLESS = 10**12
LEFT = 2_000
"""So many numbers are left to count after the last kill."""


@dataclass
class Watched:
    """A topology that counts endless numbers, and the outside readers of its databases.

    Attributes:
        numbers: A file of as many bytes as there are numbers.
        zookeeper: Where its coordination is.
        kind: Of the spout and the states.
        mode: Of the state by key.
        urls: The store of each of its states, by table.
        drivers: The processes that were started.
        readers: The reader of each database.
    """

    numbers: Path
    zookeeper: str
    kind: StateKind
    mode: StateMode
    urls: dict[str, str]
    drivers: list[Child] = field(default_factory=list)
    readers: dict[str, Child] = field(default_factory=dict)

    def start(self) -> Child:
        """Start a driver."""
        url, _, *more = self.urls.values()
        module = "tests.faults.processes.numbers_process"
        settings = (str(self.numbers), self.zookeeper, self.kind, self.mode)
        child = Child(module, *settings, url, *more)
        self.drivers.append(child)
        return child

    def watch(self) -> None:
        """Begin to read; the tables exist."""
        for url in dict.fromkeys(self.urls.values()):
            tables = [table for table, at in self.urls.items() if at == url]
            module = "tests.faults.processes.outside_process"
            self.readers[url] = Child(module, url, *tables, held=True)
            self.readers[url].wait_for("ready")

    def close(self) -> None:
        """End all processes."""
        for child in (*self.drivers, *self.readers.values()):
            child.clean_up()

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return all events of one kind of the drivers."""
        return [said for child in self.drivers for said in child.events(event)]

    def contents(self) -> dict[str, dict[Any, tuple[int, int]]]:
        """Return the contents of the states, by table."""
        found = {}
        for table, url in self.urls.items():
            mode = self.mode if table == "numbers_by_key" else "table"
            with open_state(url, table=table, mode=mode).reader() as reader:
                found[table] = {key: (row["numbers"], row["total"]) for key, row in reader.items()}
        return found


def attack(watched: Watched, chance: Random, server: Server | None) -> None:
    """Kill drivers, and at times the server, at random moments; then let one count the rest."""
    for kill in range(KILLS):
        child = watched.start()
        if not kill:
            child.wait_for("committed")
            watched.watch()
        early = kill and chance.random() < 0.25
        if early:
            child.wait_for("leading")
        else:
            child.wait_for("committed", chance.randrange(1, 12))
        if server is not None and chance.random() < 0.3:
            time.sleep(chance.uniform(0.0, 0.05))
            server.kill()
            server.start()
            if chance.random() < 0.7:
                child.wait_for("committed", chance.randrange(1, 12))
        time.sleep(chance.uniform(0.0, 0.3 if early else 0.05))
        child.kill()
    counted = max(count for _, (count, _) in watched.contents()["numbers_total"].items())
    os.truncate(watched.numbers, counted + LEFT)
    watched.start().finish()
    for reader in watched.readers.values():
        reader.finish()


def differing(samples: Sequence[list[list[int]]]) -> list[list[list[int]]]:
    """Return the samples in which the states differ in their txid, its attempt, or their sums."""
    return [each for each in samples if any(state != each[0] for state in each)]


STATES = ("by_key", "total", "total_2", "total_3", "total_4")


@dataclass(frozen=True, slots=True)
class Case:
    """A topology that is attacked.

    Attributes:
        store: Where its states are.
        kind: Of the spout and the states.
        states: The number of its states.
        apart: How many of them are in a second database.
        mode: Of the state by key; the others are tables.
    """

    store: str
    kind: StateKind
    states: int = 2
    apart: int = 0
    mode: StateMode = "table"


CASES = (
    Case("sqlite", "opaque"),
    Case("sqlite", "transactional"),
    Case("sqlite", "opaque", states=5, apart=2),
    Case("postgresql", "opaque"),
    Case("postgresql", "transactional", states=5, apart=2),
    Case("mariadb", "opaque", states=5, apart=2),
    Case("mariadb", "transactional"),
    Case("postgresql", "opaque", states=5, apart=2, mode="log"),
    Case("mariadb", "opaque", mode="log"),
    Case("redis", "opaque"),
)


def _parameters() -> Iterator[object]:
    for seed, case in enumerate(CASES, 1):
        name = f"{case.store}-{case.kind}-{case.states}-{case.mode}"
        yield pytest.param(case, seed, marks=marks_of(case.store), id=name)


@pytest.fixture
def server(case: Case) -> Iterator[Server | None]:
    """A server of the test's own, since it dies."""
    if case.store not in SERVERS:
        yield None
        return
    with SERVERS[case.store]() as server:
        yield server


@pytest.fixture
def watched(
    case: Case, server: Server | None, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> Iterator[Watched]:
    databases = [
        f"sqlite:///{tmp_path / f'{at}.db'}" if server is None else new_url(server)
        for at in range(2)
    ]
    together = case.states - case.apart
    urls = {
        f"numbers_{table}": databases[at >= together]
        for at, table in enumerate(STATES[: case.states])
    }
    numbers = tmp_path / "numbers"
    numbers.touch()
    os.truncate(numbers, ENDLESS)
    watched = Watched(numbers, f"{zookeeper.hosts}/{uuid4().hex}", case.kind, case.mode, urls)
    try:
        yield watched
    finally:
        watched.close()


@pytest.mark.parametrize(("case", "seed"), list(_parameters()))
def test_an_outside_reader_never_sees_states_of_one_database_differ(
    case: Case, seed: int, server: Server | None, watched: Watched
) -> None:
    attack(watched, Random(seed), server)

    lost = 0
    for url, reader in watched.readers.items():
        samples = [each["states"] for each in reader.events("sample")]
        wrong = differing(samples)
        lost += len(reader.events("lost"))
        txids = [each[0][0] for each in samples]
        attempts = {tuple(each[0][:3]) for each in samples}
        print(
            f"{case}: {len(samples)} samples of {len(samples[0])} states, {len(wrong)} differ, "
            f"{len(set(txids))} txids seen, {len(attempts) - len(set(txids))} of them redone, "
            f"{len(reader.events('lost'))} lost"
        )
        assert not wrong, f"{len(wrong)} of {len(samples)} differ in {url}, such as {wrong[0]}"
        assert txids == sorted(txids)
        assert len(set(txids)) > KILLS
    assert bool(lost) == (server is not None)
    committed = watched.events("committed")
    groups = [each["txids"] for each in committed]
    adopted = [each["adopted"] for each in watched.events("leading")]
    print(
        f"{case}: {len(watched.drivers) - 1} kills, {max(t['txid'] for t in committed)} txids, "
        f"{len(groups)} commits said, the largest of {max(groups)}, {sum(map(bool, adopted))} "
        f"groups adopted, {len(watched.events('failed'))} failures"
    )
    assert max(groups) > 1
    assert server is not None or not watched.events("failed")
    for table, found in watched.contents().items():
        count = watched.numbers.stat().st_size
        assert found == (
            fold(count) if table == "numbers_by_key" else {"global": folded_total(count)}
        )
