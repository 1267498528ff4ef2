"""What a version of txtopo left behind in the middle of a stream, as files that people can read.

``python -m tests.upgrade.stored`` writes the folder of today's version: once, when the version of
what is stored grows; never again for a version that users have. A file for each kind of state has
the znodes of a run that was killed after txid 5, one has the database.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from pathlib import Path

from state_backends.sql.tables import SCHEMA_VERSION
from tests.runtime.loop_world import Changes, running, topology_of
from txtopo.runtime.progress import BatchCommitted, Change
from txtopo.state import StateKind, open_state
from txtopo.transactional_state.memory import MemoryEnsemble
from txtopo.transactional_state.records import SCHEMA

FOLDER = Path(__file__).parent
KINDS: tuple[StateKind, ...] = ("opaque", "transactional")
TODAY = f"znodes_{SCHEMA}_sql_{SCHEMA_VERSION}"
"""Name of the folder of what today's txtopo writes."""
LEFT_AT = 5


def versions() -> list[str]:
    """Return the versions of which something is kept."""
    return sorted(path.name for path in FOLDER.glob("znodes_*"))


def restored(version: str, kind: StateKind, database: Path) -> MemoryEnsemble:
    """Make the database that a version left, and return its ensemble."""
    folder = FOLDER / version
    connection = sqlite3.connect(database)
    connection.executescript((folder / f"{kind}.sql").read_text())
    connection.close()
    ensemble = MemoryEnsemble()
    znodes = json.loads((folder / f"{kind}.znodes.json").read_text())
    ensemble.nodes = {path: (text.encode(), number) for path, (text, number) in znodes.items()}
    return ensemble


def write(folder: Path, kind: StateKind) -> None:
    """Write what today's version leaves when it dies after txid 5."""
    ensemble = MemoryEnsemble()
    with tempfile.TemporaryDirectory() as place:
        database = Path(place) / "states.db"

        def keep(change: Change) -> None:
            if isinstance(change, BatchCommitted) and change.progress.txid == LEFT_AT:
                nodes = {path: (data.decode(), at) for path, (data, at) in ensemble.nodes.items()}
                text = json.dumps(nodes, indent=1, sort_keys=True)
                (folder / f"{kind}.znodes.json").write_text(f"{text}\n")
                connection = sqlite3.connect(database)
                (folder / f"{kind}.sql").write_text("\n".join(connection.iterdump()) + "\n")
                connection.close()

        topology = topology_of(open_state(f"sqlite:///{database}", kind))
        with running(topology, ensemble, Changes(keep)) as run:
            run.process_all_available()


def main() -> None:
    folder = FOLDER / TODAY
    if folder.exists():
        raise SystemExit(f"{folder} is there: what a version wrote is never written again")
    folder.mkdir()
    for kind in KINDS:
        write(folder, kind)


if __name__ == "__main__":
    main()
