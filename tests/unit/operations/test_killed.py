"""An operator's process is really killed, on SQLite and a real ZooKeeper."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.harness.processes import Child
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.unit.operations.deployment import ALL, BATCHES, POISON, both
from tests.unit.operations.dying_process import TXID, deployment_of
from txtopo.errors import OperationUnfinished, PoisonBatchError
from txtopo.operations import quarantine


def test_another_process_finishes_what_a_killed_one_began(
    zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    arguments = (zookeeper.hosts, uuid.uuid4().hex, str(tmp_path))
    deployment = deployment_of(*arguments)
    with pytest.raises(PoisonBatchError):
        deployment.run(POISON)

    with Child("tests.unit.operations.dying_process", *arguments, "write.after:a.totals") as child:
        child.die()

    with pytest.raises(OperationUnfinished, match="quarantine"):
        deployment.run()
    quarantine(deployment.topology(), TXID, deployment.config, access=deployment.access()).apply()
    deployment.run(POISON)
    assert deployment.held() == both(BATCHES, ALL - 4 - 5)
