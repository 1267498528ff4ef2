"""``python -m benchmarks.stores``: what a commit costs in each store, in a state of a million keys.

One state with a count by key; each commit is one txid that adds to distinct keys, drawn by chance.
What is measured is ``StateBackend.commit`` alone, durable and fenced, with the sizes in turn; for
Delta also with every commit merged by Spark. With ``--groups`` what a txid costs instead: alone,
and as one of ten in a write; in wall time, and in processor time of this process.
"""

from __future__ import annotations

import argparse
import gc
import random
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa

from benchmarks.delta_session import delta_session
from benchmarks.report import machine
from tests.harness.servers.mariadb import MariaServer
from tests.harness.servers.object_store import ObjectStore
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.redis import RedisServer
from tests.unit.state_backends.delta.by_spark import SCHEME, register
from txtopo import ConfigError, Count, Fields, TransactionAttempt, open_state
from txtopo.attempt import group_of
from txtopo.plugins.stores import Merges
from txtopo.state import StateMode
from txtopo.testing.conformance.driver import claim_of

COMMITS = {100: 15, 10_000: 7, 100_000: 3}
"""How many commits of which size are measured in each round."""
ROUNDS = 3
_FILLING = 200_000


@dataclass(frozen=True, slots=True)
class Store:
    """A kind of store.

    Attributes:
        name: Its URL scheme.
        mode: Of the state in it.
        url: Where an empty one is; whatever it needs is stopped with the stack.
    """

    name: str
    mode: StateMode
    url: Callable[[ExitStack, Path], str]

    @property
    def title(self) -> str:
        """How it is called in the table."""
        return f"{self.name}, {self.mode}"


def _sqlite(_: ExitStack, folder: Path) -> str:
    return f"sqlite:///{folder}/states.db"


def _delta(_: ExitStack, folder: Path) -> str:
    return f"delta://{folder}/states"


def _delta_in_s3(stack: ExitStack, _: Path) -> str:
    try:
        return stack.enter_context(ObjectStore()).url()
    except FileNotFoundError as missing:
        raise ConfigError(str(missing)) from missing


def _delta_by_spark(stack: ExitStack, folder: Path) -> str:
    stack.callback(delta_session().stop)
    register()
    return f"{SCHEME}://{folder}/states"


def _postgresql(stack: ExitStack, _: Path) -> str:
    return stack.enter_context(PostgresServer()).create_database("benchmark")


def _mariadb(stack: ExitStack, _: Path) -> str:
    return stack.enter_context(MariaServer()).create_database("benchmark")


def _redis(stack: ExitStack, _: Path) -> str:
    return stack.enter_context(RedisServer()).url()


STORES = (
    Store("sqlite", "table", _sqlite),
    Store("postgresql", "table", _postgresql),
    Store("postgresql", "log", _postgresql),
    Store("delta", "table", _delta),
    Store("delta", "log", _delta),
    Store("delta by Spark", "table", _delta_by_spark),
    Store("redis", "table", _redis),
    Store("mariadb", "table", _mariadb),
    Store("mariadb", "log", _mariadb),
)
# Not with a million keys: the server keeps every version of a table in its memory.
IN_S3 = (Store("delta in S3", "table", _delta_in_s3), Store("delta in S3", "log", _delta_in_s3))


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    if arguments.groups:
        group_table(arguments.only)
    else:
        cost_table(arguments.keys, arguments.only)


def cost_table(keys: int, only: Sequence[str] | None = None) -> list[str]:
    """Measure, print each line when it is there, and return the table in Markdown.

    What cannot be run here, for want of its jars, has no line.
    """
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    say(f"{machine()}; a state of {keys:,} keys; milliseconds per commit, median (longest)")
    say("")
    sizes = list(COMMITS)
    say("| store | " + " | ".join(f"{size:,} keys" for size in sizes) + " | filled in |")
    say("|---" * (len(sizes) + 2) + "|")
    for store in STORES:
        if only and store.name not in only:
            continue
        try:
            with measured_in(store) as url:
                filled_s, walls = measure(url, store.mode, keys)
        except ConfigError as missing:
            print(f"{store.title}: left out; {missing}", flush=True)
            continue
        cells = [f"{median(walls[size]):,.0f} ({max(walls[size]):,.0f})" for size in sizes]
        say(f"| {store.title} | " + " | ".join(cells) + f" | {filled_s:.0f} s |")
    return lines


GROUP_TXIDS, GROUP_TUPLES = 10, 1_000
"""Txids of a group, and tuples of each of them, with keys drawn from :data:`STATE_KEYS`."""
STATE_KEYS = 10_000


def group_table(only: Sequence[str] | None = None) -> None:
    """Measure what a txid costs alone and in a group, alternately, and print it."""
    print(
        f"{machine()}; txids of {GROUP_TUPLES:,} tuples; milliseconds a txid, median (processor)\n"
    )
    print(f"| store | alone | one of {GROUP_TXIDS} |\n|---|---|---|", flush=True)
    for store in (*STORES, *IN_S3):
        if only and store.name not in only:
            continue
        try:
            with measured_in(store) as url:
                costs = grouped(url, store.mode)
        except ConfigError as missing:
            print(f"{store.title}: left out; {missing}", flush=True)
            continue
        cells = [
            f"{1000 * median(wall for wall, _ in each):,.1f} "
            f"({1000 * median(cpu for _, cpu in each):,.1f})"
            for each in costs
        ]
        print(f"| {store.title} | " + " | ".join(cells) + " |", flush=True)


def grouped(url: str, mode: StateMode) -> tuple[list[tuple[float, float]], ...]:
    """Return wall and processor seconds of a txid: alone, and in groups."""
    chance = random.Random(7)
    state = open_state(url, table="counts", mode=mode)
    state = state.with_columns(Fields("key string"), Fields("count long"), (Count(),))
    backend = state.open()
    backend.create()
    backend.claim(claim_of("benchmark", 1))
    txid = 0

    def commit(txids: int) -> tuple[float, float]:
        nonlocal txid
        members = [TransactionAttempt(txid + at, 0, 1) for at in range(1, txids + 1)]
        txid += txids
        drawn = [chance.randrange(STATE_KEYS) for _ in range(txids * GROUP_TUPLES)]
        counted = sorted(Counter(drawn).items())
        names = pa.array([f"key-{number:07}" for number, _ in counted])
        partials = pa.table({"key": names, "count": [count for _, count in counted]})
        begun, used = time.perf_counter(), time.process_time()
        backend.commit(group_of(members), Merges(partials))
        wall, cpu = time.perf_counter() - begun, time.process_time() - used
        return wall / txids, cpu / txids

    commit(GROUP_TXIDS)
    costs = [(commit(1), commit(GROUP_TXIDS)) for _ in range(7)]
    backend.close()
    alone, in_groups = zip(*costs, strict=True)
    return list(alone), list(in_groups)


@contextmanager
def measured_in(store: Store) -> Iterator[str]:
    """Give the URL of an empty store, and remove the store in the end."""
    folder = Path(tempfile.mkdtemp(prefix="txtopo-stores-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield store.url(stack, folder)


def measure(url: str, mode: StateMode, keys: int) -> tuple[float, dict[int, list[float]]]:
    """Return the seconds of filling, and the milliseconds of each commit by its size."""
    chance = random.Random(7)
    state = open_state(url, table="counts", mode=mode)
    state = state.with_columns(Fields("key string"), Fields("count long"), (Count(),))
    backend = state.open()
    backend.create()
    backend.claim(claim_of("benchmark", 1))
    walls: dict[int, list[float]] = defaultdict(list)
    txid = 0

    def commit(wanted: list[int] | range) -> float:
        nonlocal txid
        txid += 1
        names = pa.array([f"key-{number:07}" for number in wanted])
        partials = pa.table({"key": names, "count": pa.array([1] * len(names), pa.int64())})
        gc.collect()
        begun = time.perf_counter()
        backend.commit(TransactionAttempt(txid, 0, 1), Merges(partials))
        return time.perf_counter() - begun

    filled_s = sum(
        commit(range(first, min(first + _FILLING, keys))) for first in range(0, keys, _FILLING)
    )
    for _ in range(ROUNDS):
        for size, times in COMMITS.items():
            for _ in range(times):
                drawn = sorted(chance.sample(range(keys), min(size, keys)))
                walls[size].append(commit(drawn) * 1000)
    with state.reader() as reader:
        total = sum(count for _, count in reader.items())
    backend.close()
    expected = keys + ROUNDS * sum(min(size, keys) * times for size, times in COMMITS.items())
    if total != expected:
        raise AssertionError(f"{url}: the store is wrong; got {total}; expected {expected}")
    return filled_s, walls


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="measure commits of each store")
    parser.add_argument("--only", action="append", help="name of a store; may be repeated")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys in the state")
    parser.add_argument("--groups", action="store_true", help="what a txid costs in a group")
    return parser.parse_args()


if __name__ == "__main__":
    main()
