"""An ensemble of three ZooKeeper servers, each a process of its own, from PySpark's jars."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Self

from tests.harness.polling import wait_until
from tests.harness.servers.private import free_port
from tests.harness.servers.zookeeper import ZooKeeperProcess

SERVERS = 3


class Member(ZooKeeperProcess):
    """One server of an ensemble."""

    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

    def __init__(
        self, number: int, peers: Sequence[tuple[int, int]], *, sync_ticks: int = 4
    ) -> None:
        super().__init__()
        self._number = number
        with (self.folder / "zoo.cfg").open("a") as settings:
            settings.write(f"initLimit=10\nsyncLimit={sync_ticks}\n")
            for at, (quorum, election) in enumerate(peers, start=1):
                settings.write(f"server.{at}=127.0.0.1:{quorum}:{election}\n")
        self._name_itself()

    def wipe(self) -> None:
        """Lose everything but its number; the server must be down."""
        shutil.rmtree(self.folder / "data")
        self._name_itself()

    def _name_itself(self) -> None:
        (self.folder / "data").mkdir()
        (self.folder / "data" / "myid").write_text(str(self._number))


class ZooKeeperEnsemble:
    """Three servers that elect a leader; a context manager that starts and ends them.

    Attributes:
        members: The servers.
    """

    def __init__(self) -> None:
        peers = [(free_port(), free_port()) for _ in range(SERVERS)]
        self.members = [Member(number, peers) for number in range(1, SERVERS + 1)]

    @property
    def hosts(self) -> str:
        """All of them, as a client wants them."""
        return ",".join(member.hosts for member in self.members)

    @property
    def leader(self) -> Member:
        """The member that leads; waits for an election."""
        return self._first("leader")

    @property
    def follower(self) -> Member:
        """A member that follows."""
        return self._first("follower")

    def heal(self) -> None:
        """Wake frozen servers, start those that are down, and wait until all serve."""
        for member in self.members:
            member.thaw()
            if not member.runs:
                member.launch()
        for member in self.members:
            member.wait()

    def __enter__(self) -> Self:
        try:
            self.heal()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for member in self.members:
            member.end()

    def _first(self, mode: str) -> Member:
        def found() -> Member | None:
            return next((member for member in self.members if member.mode == mode), None)

        member = wait_until(
            found, lambda: f"one is a {mode}; got {[each.mode for each in self.members]}"
        )
        assert member is not None
        return member
