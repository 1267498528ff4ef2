"""Archives of what each version of txtopo leaves behind when it is killed within a stream.

There is one archive a version. For each kind of state it holds the znodes of a run that was killed
after txid 5, and the contents of its store. ``python -m tests.services.upgrade.stored`` writes the
missing archives of today's versions. Until a version is released, a change of what is stored
deletes the archive and writes it again; the archive of a version that users have stays as it is.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path

from tests.harness.runs import Changes
from tests.harness.servers.redis import RedisServer
from tests.services.upgrade.stores import LAYOUTS, DeltaStore, RedisStore, SqliteStore, Store
from tests.unit.runtime.loop_world import running, topology_of
from txtopo.runtime.progress import BatchCommitted, TopologyEvent
from txtopo.state import StateKind, open_state
from txtopo.transactional_state.memory import MemoryEnsemble
from txtopo.transactional_state.nodes import SCHEMA

FOLDER = Path(__file__).parent
KINDS: tuple[StateKind, ...] = ("opaque", "transactional")
TODAY = [f"znodes_{SCHEMA}_{name}_{version}" for name, version in LAYOUTS.items()]
"""The versions that today's txtopo writes."""
LEFT_AT = 5


def versions() -> list[str]:
    """Return the versions that have an archive."""
    return sorted(path.stem for path in FOLDER.glob("znodes_*.zip"))


def store_name(version: str) -> str:
    """Return the store of a version, one of :data:`LAYOUTS`."""
    return version.split("_")[2]


def archive_of(version: str) -> Path:
    """Return the archive of a version."""
    return FOLDER / f"{version}.zip"


def pack(folder: Path, archive: Path) -> None:
    """Pack a folder; equal folders give equal archives."""
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            # The time of a ZipInfo is the beginning of 1980 unless it is given.
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix())
            file.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def restored(version: str, kind: StateKind, store: Store, folder: Path) -> MemoryEnsemble:
    """Fill *store* with what a version left, and return its ensemble; unpack into *folder*."""
    with zipfile.ZipFile(archive_of(version)) as file:
        file.extractall(folder)
    store.bring_back(folder, kind)
    ensemble = MemoryEnsemble()
    znodes = json.loads((folder / f"{kind}.znodes.json").read_text())
    ensemble.nodes = {path: (text.encode(), number) for path, (text, number) in znodes.items()}
    return ensemble


def write(folder: Path, kind: StateKind, store: Store) -> None:
    """Write into *folder* what today's version leaves when it is killed after txid 5."""
    ensemble = MemoryEnsemble()

    def keep(change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == LEFT_AT:
            nodes = {path: (data.decode(), at) for path, (data, at) in ensemble.nodes.items()}
            text = json.dumps(nodes, indent=1, sort_keys=True)
            (folder / f"{kind}.znodes.json").write_text(f"{text}\n")
            store.keep(folder, kind)

    topology = topology_of(open_state(store.url, kind))
    # A group would be in the store as a whole when its first txid is told.
    with running(topology, ensemble, Changes(keep), group_txids_max=1) as run:
        run.process_all_available()


def main() -> None:
    """Write the missing archives."""
    missing = [version for version in TODAY if not archive_of(version).exists()]
    if not missing:
        raise SystemExit(f"{TODAY} are there: what a version wrote is never written again")
    for version in missing:
        with tempfile.TemporaryDirectory() as folder:
            for kind in KINDS:
                with tempfile.TemporaryDirectory() as store_folder:
                    _write_with(version, kind, Path(folder), Path(store_folder))
            pack(Path(folder), archive_of(version))


def _write_with(version: str, kind: StateKind, folder: Path, store_folder: Path) -> None:
    if store_name(version) == "redis":
        with RedisServer() as server:
            write(folder, kind, RedisStore(server))
    else:
        make = DeltaStore if store_name(version) == "delta" else SqliteStore
        write(folder, kind, make(store_folder))


if __name__ == "__main__":
    main()
