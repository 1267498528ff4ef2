"""An operator's process that kills itself at one step of a verb."""

from __future__ import annotations

import os
import signal
import sys

from tests.unit.operations.places import Place
from txtopo.operations import quarantine
from txtopo.state import open_state

TXID = 3


def place_of(hosts: str, id: str, folder: str) -> Place:
    first, second = (open_state(f"sqlite:///{folder}/{at}.db") for at in range(2))
    return Place((first, second), hosts=hosts, id=id)


def main(hosts: str, id: str, folder: str, step: str) -> None:
    place = place_of(hosts, id, folder)

    def point(name: str) -> None:
        if name == f"operator.{step}":
            os.kill(os.getpid(), signal.SIGKILL)

    quarantine(place.topology(), TXID, place.config, access=place.access(point)).apply()


if __name__ == "__main__":
    main(*sys.argv[1:])
