"""Run the crash matrix and all orders of two coordinators, and write the page: ``make faults``.

Each job is a process on one core. The exit status is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path

from tests.faults.simulated.cell_databases import Memory, PostgresqlSchemas, SqliteFiles, StoreKind
from tests.faults.simulated.crash_cells import KINDS, cells
from tests.faults.simulated.crash_run import run_cell
from tests.faults.simulated.faults_page import (
    HEAD,
    PAGE,
    STORES,
    Interleavings,
    Matrix,
    crash_lines,
    order_lines,
)
from tests.faults.simulated.one_core import handoff_on_one_core, take_core
from tests.faults.simulated.two_coordinators import outcomes
from tests.harness.report_page import write_section
from tests.harness.servers.postgresql import PostgresServer, find_binaries
from txtopo.state.backend import StateKind

PARTS = 4
SHOWN_MAX = 20


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    page: Path = parser.parse_args().page
    matrices: dict[str, Matrix] = {}
    sums = {(kind, each): Interleavings(kind, each) for each in (False, True) for kind in KINDS}
    for result in run_all():
        if isinstance(result, Matrix):
            matrices[result.store] = result
            told = f"{STORES[result.store]}: {result.runs.total()} crashes"
        else:
            sums[result.kind, result.groups].add(result)
            told = f"{result.name}: {result.runs} orders of two coordinators"
        print(f"{told}, {len(result.wrong)} not right", file=sys.stderr)
        for what, found in list(result.wrong.items())[:SHOWN_MAX]:
            print(f"{what}: {found[0]}")
    write_section(page, "Every crash point", crash_lines(matrices), HEAD)
    write_section(page, "Two coordinators", order_lines(sums.values()), HEAD)
    results: list[Matrix | Interleavings] = [*matrices.values(), *sums.values()]
    if any(result.wrong for result in results):
        raise SystemExit(1)


def run_all() -> Iterator[Matrix | Interleavings]:
    """Run all jobs on all cores, and yield what comes of them."""
    stores = [name for name in STORES if name != "postgresql" or find_binaries() is not None]
    context = get_context("spawn")
    cores = context.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)
    with ProcessPoolExecutor(
        len(os.sched_getaffinity(0)), context, initializer=take_core, initargs=(cores,)
    ) as pool:
        slow = [pool.submit(run_matrix, store) for store in reversed(stores)]
        rest = [
            pool.submit(run_orders, kind, part, groups)
            for groups in (False, True)
            for kind in KINDS
            for part in range(PARTS)
        ]
        yield from (done.result() for done in as_completed(slow))
        yield from (done.result() for done in as_completed(rest))


def run_matrix(store: str) -> Matrix:
    """Run every cell on one kind of store."""
    matrix = Matrix(store)
    with _kind(store) as kind, handoff_on_one_core() as handoff:
        for cell in cells():
            found = run_cell(cell, kind.stores(), handoff)
            matrix.runs[cell.point] += 1
            if found:
                matrix.failed[cell.point] += 1
                matrix.wrong[f"{cell}-{store}"] = found
    return matrix


def run_orders(kind: StateKind, part: int, groups: bool) -> Interleavings:
    """Run a part of the orders of a kind, with one ZooKeeper and with one each."""
    result = Interleavings(kind, groups)
    with handoff_on_one_core() as handoff:
        for apart in (False, True):
            part_of = {"part": part, "parts": PARTS}
            for order, outcome in outcomes(kind, handoff, apart=apart, groups=groups, **part_of):
                result.runs += 1
                if not apart:
                    result.points += order.b is None
                    result.refused += outcome.refused
                if outcome.wrong:
                    result.wrong[str(order)] = outcome.wrong
    return result


@contextmanager
def _kind(store: str) -> Iterator[StoreKind]:
    with ExitStack() as stack:
        kind: StoreKind = Memory()
        if store == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            kind = SqliteFiles(Path(folder))
        elif store == "postgresql":
            server = stack.enter_context(PostgresServer())
            kind = PostgresqlSchemas(server.create_database("cells"))
        try:
            yield kind
        finally:
            kind.close()


if __name__ == "__main__":
    main()
