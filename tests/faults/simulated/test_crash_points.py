"""Every crash point at three txids, both kinds, one state and two, in three kinds of stores.

``make test`` dies at each of them in memory, in opaque states after each story and in transactional
ones after none, and in databases at those of a write and of a claim. ``make faults`` and ``make
test-all`` run the whole matrix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.faults.simulated.cell_databases import Memory, PostgresqlSchemas, SqliteFiles, StoreKind
from tests.faults.simulated.crash_cells import GROUP_TXIDS, POINTS, Cell, cells
from tests.faults.simulated.crash_run import run_cell
from tests.faults.simulated.one_core import handoff_on_one_core
from tests.harness.servers.postgresql import PostgresServer
from txtopo.testing.simulation.clock import ThreadHandoff

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]

EXPIRY = ("expire.before", "expire.after")
"""Beside the commits; ``test_expiry.py`` dies there."""

CHANGE = ("change.claimed", "change.columns", "change.rows", "change.declared")
"""Of a table whose columns change; ``tests/services/integration/test_evolution.py`` dies there."""
STORES = {
    "memory": (),
    "sqlite": (),
    "postgresql": (pytest.mark.service("postgresql"),),
}
QUICK = (("opaque", 2), ("transactional", 1))
"""The kinds and numbers of states at which ``make test`` dies: two can differ, and one cannot.

Stories come before the death with the two alone.
"""
TURNS = {1: 3, GROUP_TXIDS: 2}
"""By the size of groups, the how manieth commit it dies in: others were before, and more follow."""


def is_quick(cell: Cell, store: str) -> bool:
    """Whether a cell is one of ``make test``."""
    if cell.turn != TURNS[cell.size]:
        return False
    two, one = QUICK
    if store == "memory":
        return (cell.kind, cell.states) == two or (
            (cell.kind, cell.states) == one and not cell.story
        )
    if store == "postgresql" and cell.story:  # written by the same code as SQLite
        return False
    # A database knows of no other points, and nothing of how many txids are in a write.
    return (cell.kind, cell.states) == two and cell.state is not None and cell.size == 1


def _runs() -> Iterator[object]:
    for store, marks in STORES.items():
        for cell in cells():
            more = () if is_quick(cell, store) else (pytest.mark.slow,)
            yield pytest.param(cell, store, marks=(*marks, *more), id=f"{cell}-{store}")


def test_each_point_with_each_story_is_died_at_in_make_test() -> None:
    every = {(cell.point, cell.story, cell.size) for cell in cells()}
    quick = [cell for cell in cells() if is_quick(cell, "memory")]

    assert {(cell.point, cell.story, cell.size) for cell in quick} == every


@pytest.fixture(scope="module")
def handoff() -> Iterator[ThreadHandoff]:
    with handoff_on_one_core() as handoff:
        yield handoff


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, StoreKind]]:
    """The kinds of stores that were asked for, each made once.

    A parametrised fixture of the module's scope would be made again whenever pytest, which orders
    the tests by all that is parametrised, changes from one kind to another. This one is made again
    for the slow ones, which come after those of other modules.
    """
    made: dict[str, StoreKind] = {}
    yield made
    for kind in made.values():
        kind.close()


@pytest.fixture
def stores(
    request: pytest.FixtureRequest,
    made: dict[str, StoreKind],
    tmp_path_factory: pytest.TempPathFactory,
) -> StoreKind:
    """Stores of the kind that a test asks for."""
    name: str = request.param
    if name not in made:
        if name == "memory":
            made[name] = Memory()
        elif name == "sqlite":
            made[name] = SqliteFiles(tmp_path_factory.mktemp("cells"))
        else:
            server: PostgresServer = request.getfixturevalue("postgresql")
            made[name] = PostgresqlSchemas(server.create_database(f"cells_{uuid4().hex}"))
    return made[name]


@pytest.mark.parametrize(("cell", "stores"), list(_runs()), indirect=["stores"])
@pytest.mark.row(7, 13, 22, 31, 42, 43, 46, 48, 49)
def test_a_process_that_dies_anywhere_loses_and_doubles_nothing(
    cell: Cell, stores: StoreKind, handoff: ThreadHandoff
) -> None:
    assert run_cell(cell, stores.stores(), handoff) == []


def test_the_matrix_has_every_point_that_the_runtime_names() -> None:
    """A point that is added later must not be forgotten here."""
    named = {
        match.group(1)
        for folder in ("txtopo/runtime", "txtopo/state", "state_backends")
        for path in (ROOT / folder).rglob("*.py")
        for match in re.finditer(r'point\(f?"([a-z-]+\.[a-z-]+)', path.read_text())
    }

    assert named == {*POINTS, *EXPIRY, *CHANGE}
