"""Count flights in a loop under faults of all kinds, and write a report: ``make soak MINUTES=30``.

The exit status is 1 if a promise was broken, or if memory, files or threads grew.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from random import Random
from uuid import uuid4

from examples.flights import cut, flights_csv
from tests.conftest import missing
from tests.faults.processes.counted_flights import CountedFlights
from tests.faults.processes.flights_process import SESSION_TIMEOUT_S
from tests.faults.soak.resident import znodes
from tests.faults.soak.trouble import EVERYWHERE, NOT_WITH_SQLITE, OF_A_DATABASE, Scene
from tests.faults.soak.verdict import Held, Soak
from tests.harness.processes import Child
from tests.harness.report_page import DOCS, write_page
from tests.harness.servers.ensemble import ZooKeeperEnsemble
from tests.harness.servers.postgresql import PostgresServer

CALM_S = (0.3, 2.0)
"""How long the pause between two faults is."""
SEEN_MIN = 3


def main() -> None:
    """Soak, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--page", type=Path, default=DOCS / "proof" / "soak.md", help="the page to write"
    )
    args = parser.parse_args()
    began = time.monotonic()
    soak = Soak(args.minutes, args.seed)
    with tempfile.TemporaryDirectory(prefix="txtopo-soak-") as folder:
        run(soak, Path(folder))
    soak.minutes = (time.monotonic() - began) / 60
    write_page(args.page, soak.page())
    if soak.verdict():
        raise SystemExit("\n".join(soak.verdict()))


def run(soak: Soak, folder: Path) -> None:
    """Go through rounds until the time is up."""
    chance, end = Random(soak.seed), time.monotonic() + soak.minutes * 60
    stores = ["sqlite", "delta"] + ["postgresql"] * (missing("postgresql") is None)
    cut(folder / "input", flights_csv())
    with ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeperEnsemble())
        server = stack.enter_context(PostgresServer()) if "postgresql" in stores else None
        resident = start_resident(folder, ensemble)
        stack.callback(resident.clean_up)
        number = 0
        while time.monotonic() < end:
            store = stores[number % len(stores)]
            number += 1
            name = f"round {number} on {store}"
            try:
                a_round(soak, chance, folder / f"round-{number}", store, ensemble, server)
            except AssertionError as error:
                soak.wrong.append(f"{name}: {error or 'an assertion of the judge failed'}")
                traceback.print_exception(error)
            print(f"{name}: {len(soak.wrong)} not right so far", file=sys.stderr, flush=True)
        ensemble.heal()
        (folder / "stop").touch()
        try:
            resident.finish()
        except AssertionError as error:
            soak.wrong.append(f"the resident process: {error}")
        names = Held.__dataclass_fields__
        counted = resident.events("counted")
        soak.held = [Held(**{name: said[name] for name in names}) for said in counted]


def start_resident(folder: Path, ensemble: ZooKeeperEnsemble) -> Child:
    """Start the process that lives as long as the soak."""
    (folder / "resident").mkdir()
    return Child(
        "tests.faults.soak.resident",
        *("--input", str(folder / "input"), "--folder", str(folder / "resident")),
        *("--zookeeper", f"{ensemble.hosts}/{uuid4().hex}", "--stop", str(folder / "stop")),
    )


def a_round(
    soak: Soak,
    chance: Random,
    place: Path,
    store: str,
    ensemble: ZooKeeperEnsemble,
    server: PostgresServer | None,
) -> None:
    """Count all flights once, with faults in between."""
    place.mkdir()
    hosts = f"{ensemble.hosts}/{uuid4().hex}"
    database = server if store == "postgresql" else None
    urls = {"sqlite": f"sqlite:///{place / 'flights.db'}", "delta": f"delta://{place}/states"}
    url = database.create_database(f"soak_{uuid4().hex}") if database else urls[store]
    session = ("--session-s", str(SESSION_TIMEOUT_S))
    counting = CountedFlights(place.parent / "input", url, ["--zookeeper", hosts, *session])
    counting.batch_bytes = 600_000
    faults = EVERYWHERE + (OF_A_DATABASE if database else ())
    faults += NOT_WITH_SQLITE if store != "sqlite" else ()
    soak.rounds[store] += 1
    try:
        with counting.watched(SEEN_MIN):
            scene = Scene(ensemble, database, counting, counting.start("--pause-s", "0.05"))
            scene.child.wait_for("running")
            while scene.child.runs:
                time.sleep(chance.uniform(*CALM_S))
                fault = chance.choice(faults)
                if scene.child.runs:
                    fault(scene)
                    soak.faults[fault.__name__] += 1
            scene.child.finish()
    finally:
        ensemble.heal()
        soak.samples += counting.samples
    soak.znodes.append(znodes(hosts))


if __name__ == "__main__":
    main()
