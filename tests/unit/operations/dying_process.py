"""An operator's process that kills itself at one step of a verb."""

from __future__ import annotations

import sys

from tests.harness.dying import dies_at
from tests.unit.operations.places import Place
from txtopo.operations import quarantine
from txtopo.state import open_state

TXID = 3


def place_of(hosts: str, id: str, folder: str) -> Place:
    first, second = (open_state(f"sqlite:///{folder}/{at}.db") for at in range(2))
    return Place((first, second), hosts=hosts, id=id)


def main(hosts: str, id: str, folder: str, step: str) -> None:
    place = place_of(hosts, id, folder)
    access = place.access(dies_at(f"operator.{step}"))
    quarantine(place.topology(), TXID, place.config, access=access).apply()


if __name__ == "__main__":
    main(*sys.argv[1:])
