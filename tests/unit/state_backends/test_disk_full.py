"""A disk that is full: a clear error, nothing half written, and it continues when there is room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.harness.polling import LIMIT_S
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.small_disk import SmallDisk
from tests.unit.runtime.loop_world import BATCHES, running, topology_of
from tests.unit.state_backends.large_values import Large, expected, filling, read
from txtopo import Fields
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import StoreUnavailable
from txtopo.runtime.progress import BatchFailed
from txtopo.state import open_state

pytestmark = pytest.mark.integration
FULL_AFTER = 3
LEFT_BYTES = 150_000
VALUE_BYTES = 60_000


@pytest.fixture
def url(request: pytest.FixtureRequest, disk: SmallDisk) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{disk.folder / 'states.db'}"
    elif request.param == "delta":
        yield f"delta://{disk.folder}/states"
    else:
        server: PostgresServer = request.getfixturevalue("postgresql")
        yield from database_on(disk, server)


def database_on(disk: SmallDisk, server: PostgresServer) -> Iterator[str]:
    """Yield the URL of a database whose tables are on the disk; the server's log is elsewhere."""
    tablespace = disk.folder / "tablespace"
    tablespace.mkdir()
    tablespace.chmod(0o777)
    server.own(tablespace)
    engine = sa.create_engine(server.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE TABLESPACE small LOCATION '{tablespace}'")
        connection.exec_driver_sql("CREATE DATABASE on_a_small_disk TABLESPACE small")
        yield server.url_of("on_a_small_disk")
        connection.exec_driver_sql("DROP DATABASE on_a_small_disk WITH (FORCE)")
        connection.exec_driver_sql("DROP TABLESPACE small")
    engine.dispose()


@pytest.mark.row(33)
@pytest.mark.parametrize(
    "url",
    ["sqlite", "delta", pytest.param("postgresql", marks=pytest.mark.service("postgresql"))],
    indirect=True,
)
def test_a_full_disk_is_waited_for_and_nothing_is_half_written(url: str, disk: SmallDisk) -> None:
    state = open_state(url, value=Fields("value string"))
    changes, failed = filling(disk, FULL_AFTER, LEFT_BYTES)
    topology = topology_of(state, Large(VALUE_BYTES))
    # One by one, so that the disk is full before the last of them.
    with running(topology, MemoryEnsemble(), changes, group_txids_max=1) as run:
        assert failed.wait(LIMIT_S)
        txid, held = read(state)
        assert FULL_AFTER <= txid < BATCHES
        assert held == expected(VALUE_BYTES, txid)
        disk.free()
        run.process_all_available(LIMIT_S)

    assert read(state) == (BATCHES, expected(VALUE_BYTES))
    errors = {str(change.error) for change in changes.of(BatchFailed)}
    assert all(isinstance(change.error, StoreUnavailable) for change in changes.of(BatchFailed))
    assert any("full" in error or "No space left" in error for error in errors), errors
