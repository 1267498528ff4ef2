"""A ZooKeeper server that has lost its ensemble, and serves readers only."""

from __future__ import annotations

import socket

from tests.services.zookeeper import ZooKeeperProcess


class LoneServer(ZooKeeperProcess):
    """One server of two; the other one is never started, so there is no quorum."""

    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    options = (*ZooKeeperProcess.options, "-Dreadonlymode.enabled=true")

    def __init__(self) -> None:
        super().__init__()
        (self.folder / "data").mkdir()
        (self.folder / "data" / "myid").write_text("1")
        with (self.folder / "zoo.cfg").open("a") as settings:
            settings.write("initLimit=10\nsyncLimit=5\n")
            for number in (1, 2):
                ports = ":".join(str(port) for port in _free_ports())
                settings.write(f"server.{number}=127.0.0.1:{ports}\n")


def _free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in (one, other)]
