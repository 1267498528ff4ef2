"""Kills ``flights.py`` at random moments, starts it again, and compares the result with pandas.

``make demo`` runs it. The store is SQLite and ZooKeeper the embedded one, all in ``./txtopo-demo``,
unless ``--state`` and ``--zookeeper`` name others.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from examples.flights import ROWS, cut, flights_csv
from examples.flights_check import compare, progress_in_store

ROOT = Path(__file__).parent.parent
# A kill comes up to so long after the row that was drawn for it: in the middle of anything.
KILL_DELAY_S_MAX = 0.1
STATUS = (
    "txid {task.fields[txid]} · {task.completed:,.0f} rows · {task.fields[speed]:,.0f} rows/s · "
)
STATUS += "{task.fields[attempts]} attempts · {task.fields[kills]} kills"

Line = dict[str, int | str]


class Demo:
    """The bar, the child that counts, and the moments at which it is killed."""

    def __init__(self, args: argparse.Namespace, command: list[str], console: Console) -> None:
        self.args = args
        self.command = command
        self.console = console
        self.random = random.Random(args.seed)
        self.bar = Progress(BarColumn(bar_width=None), TextColumn(STATUS), console=console)
        self.task = self.bar.add_task("", total=ROWS, txid=0, speed=0, attempts=0, kills=0)
        self.kills = 0
        self.attempts = 0
        self.txid = 0

    def run(self) -> int:
        """Start the child until it ends by itself; return its exit status."""
        with self.bar:
            while True:
                kills, status = self.kills, self.one_life()
                if self.kills == kills:
                    return status
                self.bar.update(self.task, kills=self.kills)
                self.console.print(
                    f"killed (SIGKILL) after the commit of txid {self.txid}; starting again"
                )

    def one_life(self) -> int:
        """Start the child; kill it when the row drawn for this life is counted."""
        log = self.args.dir / "flights.log"
        with log.open("ab") as errors:
            child = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
            )
        try:
            kill_at = self.draw()
            for line in lines(child):
                self.show(line)
                if kill_at is not None and self.bar.tasks[0].completed >= kill_at:
                    time.sleep(self.random.uniform(0, KILL_DELAY_S_MAX))
                    os.kill(child.pid, signal.SIGKILL)
                    self.kills, kill_at = self.kills + 1, None
            return child.wait()
        finally:
            child.kill()

    def draw(self) -> float | None:
        """Return after how many rows the next kill comes, each in its own part of the data."""
        if self.kills >= self.args.kills:
            return None
        share = self.random.uniform(0, 0.9)
        kills: int = self.args.kills
        return ROWS * (self.kills + share) / (kills + 1)

    def show(self, line: Line) -> None:
        """Show what the child says it has done."""
        if line["event"] == "leading":
            # Commits whose lines were lost in the kill are in the store.
            self.txid, rows = progress_in_store(self.args.state, self.args.name)
            self.bar.update(self.task, completed=rows, txid=self.txid)
        elif line["event"] == "started":
            self.attempts += int(line["attempts"])
            self.bar.update(self.task, attempts=self.attempts)
        elif int(line["txid"]) > self.txid:
            self.txid = int(line["txid"])
            rows = int(line["rows"])
            self.bar.update(self.task, advance=rows, txid=self.txid, speed=line["speed"])


def lines(child: subprocess.Popen[str]) -> Iterator[Line]:
    """Yield what the child prints; ends when it ends, though its JVM may hold the pipe longer."""
    assert child.stdout is not None
    pipe = child.stdout.fileno()
    rest = b""
    while True:
        # What it said before its end is in the pipe by then, so nothing is missed.
        ended = child.poll() is not None
        readable = bool(select.select([pipe], [], [], 0.0 if ended else 0.05)[0])
        data = os.read(pipe, 65536) if readable else b""
        if not data and (ended or readable):
            return
        *whole, rest = (rest + data).split(b"\n")
        for text in whole:
            if text.startswith(b"{"):
                yield json.loads(text)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="count flights while being killed")
    parser.add_argument("--kills", type=int, default=3, help="how often to kill it")
    parser.add_argument(
        "--seed", type=int, help="seed for the times of the kills; random by default"
    )
    parser.add_argument(
        "--dir", type=Path, default=Path("txtopo-demo"), help="folder for all files"
    )
    parser.add_argument("--state", help="URL of the store, e.g. postgresql://…; SQLite by default")
    parser.add_argument("--mode", default="table", help="table, or log to append rows")
    parser.add_argument("--zookeeper", default="embedded", help="host:port of a real ensemble")
    parser.add_argument("--master", help="Spark master; local[*] by default")
    parser.add_argument("--carrier", default="auto", help="auto, local, rdd or dataframe")
    return parser.parse_args()


def main() -> int:
    """Run the demo; return 0 if the store and pandas agree on every number."""
    args, console = parse(), Console()
    args.seed = random.randrange(1_000_000) if args.seed is None else args.seed
    args.dir = args.dir.absolute()
    # A store or ensemble that others use too may hold an earlier demo; this one gets its own names.
    own = args.state is None and args.zookeeper == "embedded"
    args.name = "flights" if own else f"flights_{int(time.time())}"
    args.state = args.state or f"sqlite:///{args.dir / 'flights.db'}"
    begin_again(args.dir)
    console.print(f"seed {args.seed}; files and log in {args.dir}")

    # A plain SIGTERM would leave the child behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    status = Demo(args, child_command(args), console).run()
    if status != 0:
        log = (args.dir / "flights.log").read_text(errors="replace").splitlines()
        console.print("\n".join(log[-20:]), markup=False)
        console.print(f"the flights topology ended with exit status {status}; see its log above")
        return 1
    equal = compare(args.state, args.name, console)
    verdict = "are equal" if equal else "DIFFER"
    console.print(f"store and pandas {verdict}, after {time.monotonic() - started:.0f} s")
    return 0 if equal else 1


def begin_again(folder: Path) -> None:
    """Remove what an earlier demo left in its folder, and cut the input if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "txtopo-zookeeper", ignore_errors=True)
    for path in [*folder.glob("flights.db*"), folder / "flights.log"]:
        path.unlink(missing_ok=True)
    cut(folder / "input", flights_csv())


def child_command(args: argparse.Namespace) -> list[str]:
    """Return the command line of the process that is killed."""
    command = [sys.executable, str(Path(__file__).with_name("flights.py")), "--json"]
    for name in ("dir", "state", "mode", "zookeeper", "master", "carrier", "name"):
        value = getattr(args, name)
        if value is not None:
            command += [f"--{name.replace('_', '-')}", str(value)]
    return command


if __name__ == "__main__":
    sys.exit(main())
