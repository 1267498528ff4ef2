"""The disk of PostgreSQL's write-ahead log is full: the server dies of it in the middle of COMMIT.

Where tables lie on a full disk a statement fails and the server continues; without room for its log
it must not continue. It ends all connections, starts again by itself, finds no room to finish that
either, and is down until somebody makes room and starts it. The run waits all the while.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.small_disk import SmallDisk
from tests.unit.runtime.loop_world import BATCHES, running, topology_of
from tests.unit.state_backends.large_values import Large, expected, filling, read
from txtopo import Fields
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import StoreUnavailable, UnknownOutcomeError
from txtopo.runtime.progress import BatchCommitted, BatchFailed
from txtopo.state import open_state

pytestmark = [pytest.mark.integration, pytest.mark.service("postgresql")]
FULL_AFTER = 3
LEFT_BYTES = 100_000
VALUE_BYTES = 300_000
"""Nine batches of it need two segments more than the one that is there, of 1 MiB each."""
SEGMENTS_MADE_BEFORE = 16


@pytest.fixture
def server(disk: SmallDisk) -> Iterator[PostgresServer]:
    """A server of the test's own, since it dies, whose log alone is on the small disk."""
    folder = disk.folder / "log"
    folder.mkdir()
    settings = {"wal_recycle": "off", "min_wal_size": "2MB", "max_wal_size": "32MB"}
    with PostgresServer(settings, log_folder=folder) as server:
        _use_up_segments(server)
        yield server


@pytest.mark.row(33)
def test_a_full_disk_of_the_log_stops_the_server_and_nothing_is_half_written(
    server: PostgresServer, disk: SmallDisk
) -> None:
    state = open_state(server.url, value=Fields("value string"))
    changes, failed = filling(disk, FULL_AFTER, LEFT_BYTES)
    topology = topology_of(state, Large(VALUE_BYTES))
    # One by one, so that the disk is full before the last of them.
    with running(topology, MemoryEnsemble(), changes, group_txids_max=1) as run:
        assert failed.wait(LIMIT_S)
        wait_until(lambda: "database system is shut down" in _log(server), lambda: _log(server))
        # Its last word is not its end.
        pid = server.folder / "data" / "postmaster.pid"
        wait_until(lambda: not pid.exists(), lambda: _log(server))
        with pytest.raises(StoreUnavailable, match="nothing was written"):
            read(state)
        committed = changes.of(BatchCommitted)[-1].progress.txid
        disk.free()
        server.start()
        txid, held = read(state)
        assert held == expected(VALUE_BYTES, txid)
        assert txid >= committed
        run.process_all_available(LIMIT_S)

    assert read(state) == (BATCHES, expected(VALUE_BYTES))
    assert FULL_AFTER <= committed < BATCHES
    errors = [change.error for change in changes.of(BatchFailed)]
    assert all(isinstance(error, StoreUnavailable | UnknownOutcomeError) for error in errors)
    assert "PANIC:  could not write to file" in _log(server)


def _use_up_segments(server: PostgresServer) -> None:
    """Leave no segment of the log that was made in advance: the next one needs room."""
    engine = sa.create_engine(server.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for _ in range(SEGMENTS_MADE_BEFORE):
            connection.exec_driver_sql("SELECT pg_logical_emit_message(false, 'a', 'b')")
            connection.exec_driver_sql("SELECT pg_switch_wal()")
        connection.exec_driver_sql("CHECKPOINT")
    engine.dispose()


def _log(server: PostgresServer) -> str:
    return (server.folder / "log").read_text()
