"""The driver that counts flights is killed at random moments: each carrier and each store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tests.faults.processes.counted_flights import SEEN_MIN, CountedFlights
from tests.faults.processes.stores import FIXTURES, SERVERS, marks_of, new_url, url_in
from txtopo.state import StateKind, StateMode

pytestmark = [pytest.mark.kills, pytest.mark.slow, pytest.mark.timeout(900)]
COMMITS_MAX = {"local": 8}
"""The most commits between two kills, by carrier; 10 on Spark, where a kill takes longer."""


@dataclass(frozen=True, slots=True)
class Case:
    """A driver that is killed.

    Attributes:
        seed: It decides when the kills are.
        kills: How many there are.
        store: Where the states are.
        kind: Their kind.
        mode: Their mode.
        carrier: On Spark ZooKeeper is in the JVM of the driver and dies with it.
        seen_min: So many txids the samples must show.
    """

    seed: int
    kills: int
    store: str
    kind: StateKind = "opaque"
    mode: StateMode = "table"
    carrier: str = "local"
    seen_min: int = SEEN_MIN

    @property
    def on_spark(self) -> bool:
        return self.carrier != "local"


CASES = (
    Case(1, 10, "sqlite"),
    Case(2, 5, "sqlite", "transactional"),
    Case(3, 10, "postgresql"),
    Case(4, 5, "postgresql", "transactional"),
    Case(5, 4, "delta"),
    Case(6, 4, "delta", mode="log"),
    Case(7, 4, "postgresql", mode="log"),
    Case(8, 4, "mariadb"),
    Case(10, 4, "mariadb", mode="log", seen_min=10),
    Case(9, 4, "redis"),
    Case(5, 2, "sqlite", carrier="rdd"),
    Case(6, 2, "postgresql", "transactional", carrier="dataframe"),
    Case(7, 2, "sqlite", carrier="resident"),
    Case(7, 3, "sqlite", "transactional", carrier="resident"),
)


def _parameters() -> Iterator[object]:
    for case in CASES:
        marks = marks_of(case.store)
        marks.append(pytest.mark.spark if case.on_spark else pytest.mark.service("zookeeper"))
        name = f"{case.carrier}-{case.store}-{case.kind}-{case.mode}"
        yield pytest.param(case, marks=marks, id=name)


@pytest.fixture
def killed(case: Case, request: pytest.FixtureRequest, tmp_path: Path) -> CountedFlights:
    """The topology of a case, on a store of its own."""
    if case.on_spark:
        zookeeper = ["--zookeeper", "embedded", "--zookeeper-dir", str(tmp_path / "zookeeper")]
        folder = request.getfixturevalue("flights_half")
    else:
        hosts = request.getfixturevalue("zookeeper").hosts
        zookeeper = ["--zookeeper", f"{hosts}/{uuid4().hex}"]
        folder = request.getfixturevalue("flights_all")
    if case.store in SERVERS:
        url = new_url(request.getfixturevalue(FIXTURES[case.store]))
    else:
        url = url_in(tmp_path, case.store)
    options = ["--carrier", case.carrier, "--kind", case.kind, "--mode", case.mode]
    return CountedFlights(folder, url, [*options, *zookeeper])


@pytest.mark.parametrize("case", list(_parameters()))
@pytest.mark.row(22, 31)
def test_every_sample_of_a_store_is_the_fold_of_the_first_txids(
    case: Case, killed: CountedFlights
) -> None:
    with killed.watched(case.seen_min):
        commits_max = COMMITS_MAX.get(case.carrier, 10)
        killed.kill_and_finish(case.kills, case.seed, commits_max)
