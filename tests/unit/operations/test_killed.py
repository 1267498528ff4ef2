"""An operator's process is really killed, on SQLite and a real ZooKeeper."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.harness.processes import Child
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.unit.operations.dying_process import TXID, place_of
from tests.unit.operations.places import ALL, BATCHES, POISON, both
from txtopo.errors import OperationUnfinished, PoisonBatchError
from txtopo.operations import quarantine


def test_another_process_finishes_what_a_killed_one_began(
    zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    parts = (zookeeper.hosts, uuid.uuid4().hex, str(tmp_path))
    place = place_of(*parts)
    with pytest.raises(PoisonBatchError):
        place.run(POISON)

    with Child("tests.unit.operations.dying_process", *parts, "after:1") as child:
        child.die()

    with pytest.raises(OperationUnfinished, match="quarantine"):
        place.run()
    quarantine(place.topology(), TXID, place.config, access=place.access()).apply()
    place.run(POISON)
    assert place.held() == both(BATCHES, ALL - 4 - 5)
