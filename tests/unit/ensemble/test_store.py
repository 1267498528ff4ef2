"""What every ensemble promises, over those in memory and in a file, and over ZooKeeper."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.servers.zookeeper import LONG_SESSION_S, ZooKeeperProcess
from tests.unit.ensemble.conftest import LIMIT_S
from tests.unit.ensemble.test_zookeeper_election import expire
from txtopo import ZooKeeper
from txtopo.carriers.session import active_session
from txtopo.config import Config
from txtopo.ensemble import (
    MemoryEnsemble,
    MemoryTransactionalState,
    Put,
    TransactionalState,
    open_transactional_state,
)
from txtopo.ensemble.embedded import EmbeddedServer
from txtopo.ensemble.progress_file import FileTransactionalState
from txtopo.errors import BatchMetadataTooLarge
from txtopo.testing.conformance import TransactionalStateSuite
from txtopo.testing.conformance.ensemble_fixtures import OpenClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE = "x" * 500_000


class TestMemoryEnsemble(TransactionalStateSuite):
    forks = False  # it is in the memory of a process

    @pytest.fixture
    def open_client(self) -> OpenClient:
        ensemble = MemoryEnsemble()
        return lambda topology_id: MemoryTransactionalState(topology_id, ensemble)

    def expire(self, client: TransactionalState) -> None:
        assert isinstance(client, MemoryTransactionalState)
        client.expire()


@pytest.mark.integration  # clients of other processes die
class TestFile(TransactionalStateSuite):
    @pytest.fixture
    def open_client(self, tmp_path: Path) -> OpenClient:
        return partial(FileTransactionalState, ZooKeeper(f"file:{tmp_path}/progress.db"))

    def expire(self, client: TransactionalState) -> None:
        """Take the place of the client away, as somebody who believes that its process ended."""
        assert isinstance(client, FileTransactionalState)
        with closing(sqlite3.connect(client.path)) as connection, connection:
            connection.execute("DELETE FROM candidates")
        client.synchronize()


@pytest.mark.service("zookeeper")
class TestZooKeeper(TransactionalStateSuite):
    wait_s = LIMIT_S
    server: ZooKeeperProcess

    @pytest.fixture
    def open_client(self, zookeeper: ZooKeeperProcess) -> OpenClient:
        from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState

        type(self).server = zookeeper
        hosts = zookeeper.hosts
        return lambda topology_id: ZooKeeperTransactionalState(
            hosts,
            topology_id,
            session_timeout_s=LONG_SESSION_S,
            connect_timeout_s=LIMIT_S,
        )

    def expire(self, client: TransactionalState) -> None:
        expire(client._session._client.client_id, self.server)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class EmbeddedClients:
    """Connects to the server of the process of the tests, from that process or another one.

    Attributes:
        folder: The folder of the server.
    """

    folder: str

    def __call__(self, topology_id: str) -> TransactionalState:
        config = Config(zookeeper=ZooKeeper(dir=self.folder, connect_timeout_s=LIMIT_S))
        session = active_session()
        locate = self.locate if session is None else None
        jvm = None if session is None else session._jvm
        return open_transactional_state(config.zookeeper, topology_id, jvm, locate=locate)

    def locate(self) -> str:
        return f"127.0.0.1:{Path(self.folder, 'port').read_text()}"


@pytest.mark.slow  # the client and the server are those of TestZooKeeper
@pytest.mark.spark
class TestEmbeddedZooKeeper(TransactionalStateSuite):
    wait_s = LIMIT_S

    @pytest.fixture
    def open_client(self, spark: SparkSession, tmp_path: Path) -> Iterator[OpenClient]:
        server = EmbeddedServer(spark._jvm, str(tmp_path / "zookeeper"))
        server.attach()  # it stays while clients of other processes use it
        yield EmbeddedClients(str(tmp_path / "zookeeper"))
        server.close()


@pytest.mark.row(17)
def test_a_step_that_does_not_fit_names_path_size_and_limit(
    state: TransactionalState,
) -> None:
    """ZooKeeper would close the connection, and kazoo would try again for ever."""
    with pytest.raises(BatchMetadataTooLarge, match=r"/batches/2 .* 900000 fit") as error:
        state.apply([Put("/batches/1", "x"), Put("/batches/2", LARGE * 2)])

    assert error.value.path == "/batches/2"
    with pytest.raises(BatchMetadataTooLarge):
        state.apply([Put("/batches/1", LARGE), Put("/batches/2", LARGE)])
    state.apply([Put("/batches/1", LARGE)])
    assert state.children("/batches") == ["1"]
