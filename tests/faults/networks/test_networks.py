"""A few rounds of the campaign: a fault on each link, which the run survives without help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import pytest

from tests.conftest import missing
from tests.faults.networks.rounds import Drawn, Services, run_round
from txtopo.config import Carrier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kills, pytest.mark.timeout(600)]
Case = tuple[Literal["ensemble", "store"], str, str, int]
CASES: tuple[Case, ...] = (
    # Longer than the session, so that it expires while the standby asks who leads.
    ("ensemble", "no way back", "postgresql", 2),
    ("ensemble", "cuts within messages", "postgresql", 1),
    ("store", "half open and new ones hang", "postgresql", 1),
    ("store", "answers swallowed", "mariadb", 1),
)


def spec(
    link: str, fault: str, store: str = "postgresql", drivers: int = 1, carrier: Carrier = "local"
) -> Drawn:
    """Return a round that is not drawn."""
    return Drawn(
        link=link,
        number=0,
        fault=fault,
        fault_s=1.6,
        before_s=0.1,
        store=store,
        kind="opaque",
        carrier=carrier,
        drivers=drivers,
        everywhere=True,
    )


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    with Services() as services:
        yield services


@pytest.mark.service("zookeeper")
@pytest.mark.service("postgresql")
@pytest.mark.parametrize(("link", "fault", "store", "drivers"), CASES)
def test_a_run_goes_on_after_a_fault_of_its_network(
    services: Services, link: str, fault: str, store: str, drivers: int
) -> None:
    if (reason := missing(store)) is not None:
        pytest.skip(reason)

    done = run_round(spec(link, fault, store, drivers), 0, services)

    assert done.wrong == ""
    assert done.txids > 0


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.service("zookeeper")
@pytest.mark.service("postgresql")
def test_a_run_goes_on_after_a_fault_between_the_driver_and_its_slots(
    services: Services, spark: SparkSession
) -> None:
    services.use(spark)

    done = run_round(spec("executors", "requests swallowed", carrier="resident"), 0, services)

    assert done.wrong == ""
    assert done.txids > 0
