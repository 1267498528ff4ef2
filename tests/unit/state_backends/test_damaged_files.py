"""Files that a disk has cut off or changed: said to be damaged, and not counted on.

SQLite's log has checksums: what follows the first damage in it is gone, as if it had never been
written, and then ZooKeeper knows better. To Delta's log txtopo adds them (see
``delta/test_delta_checksums.py``). SQLite's database and the files of Delta have none, so what is
found there is what does not fit together.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.faults.processes.damage import cut_off, flip
from tests.harness.polling import LIMIT_S
from tests.unit.runtime.loop_world import BATCHES, expected, running, stored, topology_of
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import StateUsageError, StoreBehindCoordinator, StoreDamagedError
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.integration
ROWS = 2_000
FLIPS = 60
Damage = Callable[[Path, float], None]
each_damage = pytest.mark.parametrize("how", [cut_off, flip])


def rows_of(txid: int) -> dict[str, int]:
    return {f"key {at:05}": 1000 * txid + at for at in range(ROWS)}


def filled(url: str, txids: int = 3) -> StateDriver:
    """Return a state with some thousand rows, still open."""
    store = StateDriver(open_state(url, table="counts"))
    for txid in range(1, txids + 1):
        store.puts(txid, rows_of(txid))
    return store


@pytest.mark.row(8)
@each_damage
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_a_damaged_log_of_sqlite_is_a_store_that_is_behind(
    how: Damage, share: float, tmp_path: Path
) -> None:
    written, kept = tmp_path / "written.db", tmp_path / "kept.db"
    ensemble = MemoryEnsemble()
    with running(topology_of(open_state(f"sqlite:///{written}")), ensemble) as run:
        run.process_all_available(LIMIT_S)
        for end in ("", "-wal"):  # before its end, which takes the log into the database
            shutil.copy(f"{written}{end}", f"{kept}{end}")
    how(tmp_path / "kept.db-wal", share)
    state = open_state(f"sqlite:///{kept}")

    with (
        pytest.raises(StoreBehindCoordinator) as caught,
        running(topology_of(state), ensemble) as run,
    ):
        run.process_all_available(LIMIT_S)

    assert caught.value.facts["committed_txid"] == BATCHES
    txid, total = stored(state)
    assert txid < BATCHES
    assert total == expected(txid), "what is left is not what was there once"


@pytest.mark.row(8)
def test_no_bit_of_a_log_of_sqlite_makes_other_rows(tmp_path: Path) -> None:
    """Whatever bit it is: a reader sees the batches up to some txid, or gets an error."""
    written, kept = tmp_path / "written.db", tmp_path / "kept.db"
    topology = topology_of(open_state(f"sqlite:///{written}"))
    with running(topology, MemoryEnsemble(), group_txids_max=1) as run:
        run.process_all_available(LIMIT_S)
        contents = {end: Path(f"{written}{end}").read_bytes() for end in ("", "-wal")}
    chance, txids = Random(3), set()

    for at in chance.sample(range(len(contents["-wal"].rstrip(b"\0"))), FLIPS):
        changed = bytearray(contents["-wal"])
        changed[at] ^= 1 << chance.randrange(8)
        kept.write_bytes(contents[""])
        Path(f"{kept}-wal").write_bytes(changed)
        Path(f"{kept}-shm").unlink(missing_ok=True)
        state = open_state(f"sqlite:///{kept}", table="totals")
        # An error is right as well: the tables themselves may be what is gone.
        with contextlib.suppress(StateUsageError), state.reader() as reader:
            txid = 0 if reader.ledger is None else reader.ledger.txid
            assert reader.get("total", 0) == expected(txid), f"bit at {at}"
            txids.add(txid)
    assert len(txids) > BATCHES // 2, "the bits were all at one place"


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_database_of_sqlite_that_was_cut_off_is_damaged(share: float, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'states.db'}"
    filled(url).close()
    cut_off(tmp_path / "states.db", share)

    with pytest.raises(StoreDamagedError, match="damaged"):
        StateDriver(open_state(url, table="counts"), epoch=2)
    with pytest.raises(StoreDamagedError), open_state(url, table="counts").reader() as reader:
        dict(reader.items())


def test_a_page_of_sqlite_that_changed_is_damaged(tmp_path: Path) -> None:
    """The head of every page in the second half, since only some are of the table."""
    url = f"sqlite:///{tmp_path / 'states.db'}"
    filled(url).close()
    contents = bytearray((tmp_path / "states.db").read_bytes())
    for page in range(len(contents) // 2 // 4096 * 4096, len(contents), 4096):
        contents[page] ^= 8
    (tmp_path / "states.db").write_bytes(contents)

    with pytest.raises(StoreDamagedError, match="damaged"):
        StateDriver(open_state(url, table="counts"), epoch=2)
    # Here the rows before it are read first.
    with pytest.raises(StoreDamagedError), open_state(url, table="counts").reader() as reader:
        dict(reader.items())


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_a_file_of_delta_that_was_cut_off_is_damaged(share: float, tmp_path: Path) -> None:
    url = f"delta://{tmp_path}/states"
    filled(url).close()
    files = max(tmp_path.rglob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    cut_off(files, share)

    with pytest.raises(StoreDamagedError), open_state(url, table="counts").reader() as reader:
        dict(reader.items())


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_log_of_delta_that_was_cut_off_is_damaged(share: float, tmp_path: Path) -> None:
    url = f"delta://{tmp_path}/states"
    filled(url).close()
    log = max(tmp_path.rglob("_delta_log/*.json"))
    cut_off(log, share)

    with pytest.raises(StoreDamagedError), open_state(url, table="counts").reader() as reader:
        dict(reader.items())
