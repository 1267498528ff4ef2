"""What a version of txtopo left behind in the middle of a stream, as files.

``python -m tests.services.upgrade.stored`` writes the folders of today's versions that are
missing: once,
when the version of what is stored grows; never again for a version that users have. For each kind
of state there are the znodes of a run that was killed after txid 5, and what its store held.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.harness.servers.redis import RedisServer
from tests.services.upgrade.stores import LAYOUTS, DeltaStore, RedisStore, SqliteStore, Store
from tests.unit.runtime.loop_world import Changes, running, topology_of
from txtopo.runtime.progress import BatchCommitted, TopologyEvent
from txtopo.state import StateKind, open_state
from txtopo.transactional_state.memory import MemoryEnsemble
from txtopo.transactional_state.nodes import SCHEMA

FOLDER = Path(__file__).parent
KINDS: tuple[StateKind, ...] = ("opaque", "transactional")
TODAY = [f"znodes_{SCHEMA}_{name}_{version}" for name, version in LAYOUTS.items()]
"""Names of the folders of what today's txtopo writes."""
LEFT_AT = 5


def versions() -> list[str]:
    """Return the versions of which something is kept."""
    return sorted(path.name for path in FOLDER.glob("znodes_*"))


def store_name(version: str) -> str:
    """Return the store that a version is of, as in :data:`LAYOUTS`."""
    return version.split("_")[2]


def restored(version: str, kind: StateKind, store: Store) -> MemoryEnsemble:
    """Make the state that a version left, and return its ensemble."""
    folder = FOLDER / version
    store.bring_back(folder, kind)
    ensemble = MemoryEnsemble()
    znodes = json.loads((folder / f"{kind}.znodes.json").read_text())
    ensemble.nodes = {path: (text.encode(), number) for path, (text, number) in znodes.items()}
    return ensemble


def write(folder: Path, kind: StateKind, store: Store) -> None:
    """Write what today's version leaves when it dies after txid 5."""
    ensemble = MemoryEnsemble()

    def keep(change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == LEFT_AT:
            nodes = {path: (data.decode(), at) for path, (data, at) in ensemble.nodes.items()}
            text = json.dumps(nodes, indent=1, sort_keys=True)
            (folder / f"{kind}.znodes.json").write_text(f"{text}\n")
            store.keep(folder, kind)

    topology = topology_of(open_state(store.url, kind))
    with running(topology, ensemble, Changes(keep)) as run:
        run.process_all_available()


def main() -> None:
    missing = [version for version in TODAY if not (FOLDER / version).exists()]
    if not missing:
        raise SystemExit(f"{TODAY} are there: what a version wrote is never written again")
    for version in missing:
        (FOLDER / version).mkdir()
        for kind in KINDS:
            with tempfile.TemporaryDirectory() as place:
                _write_with(version, kind, Path(place))


def _write_with(version: str, kind: StateKind, place: Path) -> None:
    folder = FOLDER / version
    if store_name(version) == "redis":
        with RedisServer() as server:
            write(folder, kind, RedisStore(server))
    else:
        make = DeltaStore if store_name(version) == "delta" else SqliteStore
        write(folder, kind, make(place))


if __name__ == "__main__":
    main()
