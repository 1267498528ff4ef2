"""An operator's process is really killed, on SQLite and a real ZooKeeper."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.processes import Child
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.unit.operations.deployment import ALL, BATCHES, POISON, both
from tests.unit.operations.dying_process import TXID, deployment_of
from txtopo.errors import OperationUnfinished, PoisonBatchError
from txtopo.operations import fork, quarantine
from txtopo.state import open_state


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


@pytest.mark.slow
@pytest.mark.parametrize("step", ["after-epoch", "write.after:a.totals", "after:0", "before:1"])
def test_another_process_finishes_the_fork_that_a_killed_one_began(
    zookeeper: ZooKeeperProcess, tmp_path: Path, step: str
) -> None:
    arguments = (zookeeper.hosts, uuid.uuid4().hex, str(tmp_path))
    deployment = deployment_of(*arguments)
    deployment.run(batches=3)
    url = f"sqlite:///{tmp_path}/two.db"
    two = replace(deployment, states=(open_state(url), open_state(url)), id=f"{deployment.id}-2")

    with Child("tests.unit.operations.dying_process", *arguments, step, url) as child:
        child.die()

    with pytest.raises(OperationUnfinished, match="fork"):
        two.run()
    topology, access = deployment.topology(), deployment.access()
    fork(topology, two.id, url, deployment.config, access=access).apply()
    assert two.held() == deployment.held() == both(3, 15)
    two.run()
    assert two.held() == both(BATCHES, ALL)
