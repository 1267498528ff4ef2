"""An operator's process is really killed, on SQLite and a real ZooKeeper."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

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

    command = [sys.executable, "-m", "tests.unit.operations.dying_process", *parts, "after:1"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL

    with pytest.raises(OperationUnfinished, match="quarantine"):
        place.run()
    quarantine(place.topology(), TXID, place.config, access=place.access()).apply()
    place.run(POISON)
    assert place.held() == both(BATCHES, ALL - 4 - 5)
