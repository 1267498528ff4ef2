"""``python -m benchmarks.page``: the processor time that a page takes from a run.

Words are counted by key, ten a txid. One client listens to the events, and reads the metrics every
five seconds, both in a process of its own. Printed are the processor time of the threads of the
page and its share of that of the driver's Python process, and how much longer a start takes with a
page than without. It needs Linux, which tells the time of each thread.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Literal

from benchmarks.report import machine
from txtopo import (
    Config,
    Count,
    Fields,
    Page,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.spouts import MemoryTransactionalSpout

BATCH_ROWS = 10
KEYS = 1_000
LOOK_S = 0.2

CLIENT = """
import sys, threading, time, urllib.request
page = sys.argv[1]
def read():
    while True:
        urllib.request.urlopen(page + "/metrics").read()
        time.sleep(5)
threading.Thread(target=read, daemon=True).start()
for line in urllib.request.urlopen(page + "/api/v1/topologies/words/events"):
    pass
"""

START = """
import sys, time
from benchmarks.page import Config, Page, words
topology = words("memory:", 1)
page = Page() if sys.argv[1] == "page" else None
config = Config(carrier="local", zookeeper="memory", page=page)
before_s = time.process_time()
run = topology.start(config=config)
print(time.process_time() - before_s)
run.stop()
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--txids", type=int, default=10_000)
    parser.add_argument("--starts", type=int, default=11)
    parser.add_argument("--carrier", choices=["local", "rdd"], default="local")
    parser.add_argument("--sqlite", action="store_true", help="count in SQLite, not in memory")
    chosen = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'words.db'}" if chosen.sqlite else "memory:"
        page_s, all_s = run_with_page(url, chosen.txids, chosen.carrier)
    print(
        f"{chosen.txids:,} txids: the page took {page_s:.2f} s of {all_s:.2f} s of processor time, "
        f"{page_s / all_s:.1%}, {page_s / chosen.txids * 1e6:.0f} µs per txid"
    )
    pairs = [(start_s("none"), start_s("page")) for _ in range(chosen.starts)]
    without_s, with_s = (median(each) for each in zip(*pairs, strict=True))
    print(f"start: {without_s:.2f} s of processor time, with a page {with_s:.2f} s")


def words(url: str, txids: int) -> Topology:
    """Return the topology."""
    rows = [[f"w{number % KEYS}"] for number in range(txids * BATCH_ROWS)]
    spout = MemoryTransactionalSpout({0: rows}, Fields("word string"), BATCH_ROWS)
    builder = TransactionalTopologyBuilder("words", "words", spout)
    counts = PersistentAggregate(open_state(url), "word", Count())
    builder.set_bolt("counts", counts).fields_grouping("words", "word")
    return builder.build_topology()


def run_with_page(url: str, txids: int, carrier: Literal["local", "rdd"]) -> tuple[float, float]:
    """Return the processor time of the threads of the page, and that of the process."""
    config = Config(carrier=carrier, zookeeper="memory", page=Page(port=0))
    with words(url, txids).start(config=config) as run:
        assert run.page_url is not None
        client = subprocess.Popen([sys.executable, "-c", CLIENT, run.page_url])
        before_s = time.process_time()
        took_s: dict[int, float] = {}
        while (run.board.figures()["txid"] or 0) < txids:
            time.sleep(LOOK_S)
            took_s |= page_threads_s()
        all_s = time.process_time() - before_s
        client.kill()
        client.wait()
    return sum(took_s.values()), all_s


def page_threads_s() -> dict[int, float]:
    """Return the processor time of each thread of the page so far, by its number."""
    found = {}
    for thread in threading.enumerate():
        if thread.name.startswith("txtopo-page") and thread.native_id is not None:
            stat = Path(f"/proc/self/task/{thread.native_id}/schedstat")
            found[thread.native_id] = int(stat.read_text().split()[0]) / 1e9
    return found


def start_s(what: str) -> float:
    """Return the processor time of a start, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", START, what], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


if __name__ == "__main__":
    main()
