"""An operator's process that kills itself at one step of a verb."""

from __future__ import annotations

import sys

from tests.harness.dying import dies_at
from tests.unit.operations.deployment import Deployment
from txtopo.operations import fork, quarantine
from txtopo.state import open_state

TXID = 3


def deployment_of(hosts: str, id: str, folder: str) -> Deployment:
    first, second = (open_state(f"sqlite:///{folder}/{at}.db") for at in range(2))
    return Deployment((first, second), hosts=hosts, id=id)


def main(hosts: str, id: str, folder: str, step: str, to: str = "") -> None:
    deployment = deployment_of(hosts, id, folder)
    access = deployment.access(dies_at(f"operator.{step}"))
    if to:
        topology, config = deployment.topology(), deployment.config
        fork(topology, f"{id}-2", to, config, access=access).apply()
    quarantine(deployment.topology(), TXID, deployment.config, access=access).apply()


if __name__ == "__main__":
    main(*sys.argv[1:])
