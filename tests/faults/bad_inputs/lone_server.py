"""A ZooKeeper server without a quorum, which serves only readers."""

from __future__ import annotations

from tests.harness.servers.private import free_port
from tests.harness.servers.zookeeper import ZooKeeperProcess


class LoneServer(ZooKeeperProcess):
    """One server of two. The other one is never started, so there is no quorum."""

    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    options = (*ZooKeeperProcess.options, "-Dreadonlymode.enabled=true")

    def __init__(self) -> None:
        super().__init__()
        (self.folder / "data").mkdir()
        (self.folder / "data" / "myid").write_text("1")
        with (self.folder / "zoo.cfg").open("a") as settings:
            settings.write("initLimit=10\nsyncLimit=5\n")
            for number in (1, 2):
                settings.write(f"server.{number}=127.0.0.1:{free_port()}:{free_port()}\n")
