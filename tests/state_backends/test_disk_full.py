"""A disk that is full: a clear error, nothing half written, and it goes on when there is room."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.runtime.loop_world import BATCHES, LIMIT_S, ROWS, Changes, Total, running, topology_of
from tests.services.postgresql import PostgresServer
from tests.services.small_disk import SmallDisk, small_disk
from txtopo.errors import StoreUnavailable
from txtopo.runtime.progress import BatchCommitted, BatchFailed, Change
from txtopo.state import Fields, State, open_state
from txtopo.transactional_state.memory import MemoryEnsemble

pytestmark = pytest.mark.integration
DISK_BYTES = 64 * 2**20
FULL_AFTER = 3
LEFT_BYTES = 150_000
VALUE_BYTES = 60_000


class Large(Total):
    """Writes one large value a batch, so that a disk fills up."""

    def finish_batch(self) -> None:
        with self.state.transaction(self.attempt) as state:
            state.put(f"batch {self.attempt.txid}", value_of(self.sum))


def value_of(total: int) -> str:
    """Return a text that says what was summed up, and that nobody can make smaller."""
    digests = (hashlib.sha512(f"{total} {at}".encode()).hexdigest() for at in range(10**6))
    text = ""
    while len(text) < VALUE_BYTES:
        text += next(digests)
    return text


def expected(txids: int) -> dict[str, str]:
    rows = range(BATCHES * ROWS)
    sums = (sum(rows[at * ROWS : (at + 1) * ROWS]) for at in range(txids))
    return {f"batch {txid}": value_of(total) for txid, total in enumerate(sums, start=1)}


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    try:
        with small_disk(DISK_BYTES) as disk:
            yield disk
    except PermissionError as error:
        pytest.skip(f"no file system can be mounted here: {error}")


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
    place = disk.folder / "tablespace"
    place.mkdir()
    place.chmod(0o777)
    server.own(place)
    engine = sa.create_engine(server.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE TABLESPACE small LOCATION '{place}'")
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
    failed = threading.Event()

    def hook(change: Change) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == FULL_AFTER:
            disk.fill(LEFT_BYTES)
        if isinstance(change, BatchFailed):
            failed.set()

    changes = Changes(hook)
    with running(topology_of(state, Large()), MemoryEnsemble(), changes) as run:
        assert failed.wait(LIMIT_S)
        txid, held = read(state)
        assert FULL_AFTER <= txid < BATCHES
        assert held == expected(txid)
        disk.free()
        run.process_all_available(LIMIT_S)

    assert read(state) == (BATCHES, expected(BATCHES))
    errors = {str(change.error) for change in changes.of(BatchFailed)}
    assert all(isinstance(change.error, StoreUnavailable) for change in changes.of(BatchFailed))
    assert any("full" in error or "No space left" in error for error in errors), errors


def read(state: State) -> tuple[int, dict[object, object]]:
    """Return (txid, rows) of one snapshot."""
    with state.named("totals").reader() as reader:
        assert reader.ledger is not None
        return reader.ledger.txid, dict(reader.items())
