"""Two states in one SQLite file are of the same txid, wherever the driver dies in a commit.

That of real processes and servers, at random moments: ``tests/faults/processes``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from tests.unit.runtime.evolving import KEYS, Evolving, of_batches
from txtopo.attempt import TransactionAttempt
from txtopo.plugins.stores import Key, Row, StateBackend, StateTable, Writes
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.state import Ledger, register_backend
from txtopo.state.backend import StateKind

STATES = ("old.old", "new.new")
BEFORE = (
    "turn.after",
    *(f"begin.before:{state}" for state in STATES),
    *(f"begin.after:{state}" for state in sorted(STATES)),
    *(f"{step}:{state}" for state in STATES for step in ("rows.before", "rows.after")),
    *(f"write.before:{state}" for state in STATES),
)
"""The steps of a commit until the transaction ends, in their order."""
AFTER = (*(f"write.after:{state}" for state in STATES), "advance.before", "advance.after")
GROUPS = {"group_txids_max": 3, "max_spout_pending": 9, "poll_interval_s": 20}
"""Each commit is a group of three txids; a spout that is asked again at once would end a run early,
and with it a group."""


def outside(file: Path) -> dict[str, tuple[int, int]]:
    """Return txid and number of records of each state, as somebody without txtopo reads them."""
    with sqlite3.connect(file, isolation_level=None) as reader:
        reader.execute("BEGIN")
        txids = dict(reader.execute("SELECT state, txid FROM txtopo_ledger"))
        counts = {t: reader.execute(f'SELECT sum("count") FROM "{t}"').fetchone() for t in txids}
        reader.execute("COMMIT")
    reader.close()
    return {table: (txid, counts[table][0]) for table, txid in txids.items()}


DEATHS: tuple[tuple[str, int, StateKind], ...] = (
    *((step, 3, "opaque") for step in BEFORE),
    *((step, 6, "opaque") for step in AFTER),
    ("write.before:new.new", 3, "transactional"),
    ("write.after:old.old", 6, "transactional"),
)
"""Where the driver dies, and the txid that both states hold then."""


@pytest.mark.integration
@pytest.mark.parametrize(("step", "txid", "kind"), DEATHS)
def test_states_of_one_file_are_of_the_same_txid_wherever_the_driver_dies(
    step: str, txid: int, kind: StateKind, tmp_path: Path
) -> None:
    file = tmp_path / "states.db"
    world = Evolving(f"sqlite:///{file}", kind, batches=9)
    topology = world.topology("old", "new")
    world.die(topology, step, times=2, **GROUPS)

    assert outside(file) == dict.fromkeys(("old", "new"), (txid, txid * KEYS))
    world.run(topology, **GROUPS)
    assert outside(file) == dict.fromkeys(("old", "new"), (9, 9 * KEYS))
    assert world.held("old") == world.held("new") == of_batches(1, 9)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("step", "txid"), [("rows.after:c.c", 3), ("write.before:e.e", 3), ("write.after:c.c", 6)]
)
def test_so_are_five_states(step: str, txid: int, tmp_path: Path) -> None:
    file = tmp_path / "states.db"
    world = Evolving(f"sqlite:///{file}", batches=9)
    topology = world.topology(*"abcde")
    world.die(topology, step, times=2, **GROUPS)

    assert outside(file) == dict.fromkeys("abcde", (txid, txid * KEYS))
    world.run(topology, **GROUPS)
    assert outside(file) == dict.fromkeys("abcde", (9, 9 * KEYS))


def test_there_is_no_other_step_in_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(ThreadScheduler, "point", lambda _, step: steps.append(step))
    world = Evolving(f"sqlite:///{tmp_path}/states.db", batches=3)

    world.run(world.topology("old", "new"), **GROUPS)

    first = steps.index(BEFORE[0])
    assert tuple(steps[first : steps.index(AFTER[-1]) + 1]) == (*BEFORE, *AFTER)


class OneByOne(MemoryBackend):
    """Changes how one state is committed."""

    called: ClassVar[set[str]] = set()

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        self.called.add(self.table.name)
        return super().commit(attempt, writes)


class Replacing(MemoryBackend):
    """Changes how the contents of one state are replaced."""

    called: ClassVar[set[str]] = set()

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        if ledger.txid:
            self.called.add(self.table.name)
        return super().replace(expected, ledger, changes)


class Together(MemoryBackend):
    """Changes how several states are committed."""

    called: ClassVar[set[str]] = set()

    def commit_together(
        self, attempt: TransactionAttempt, writes: Sequence[tuple[StateBackend, Writes]]
    ) -> list[Ledger]:
        self.called.update(backend.table.name for backend, _ in writes if backend is self)
        return super().commit_together(attempt, writes)


@pytest.mark.parametrize("kind", [OneByOne, Replacing, Together])
@pytest.mark.parametrize("changed", [("old", "new"), ("old",), ("new",)])
def test_what_a_subclass_changes_is_called_for_each_of_its_states(
    kind: type[OneByOne | Replacing | Together], changed: Sequence[str]
) -> None:
    """Also if a state of the class that it extends is in the same store and comes first."""
    store = MemoryStore()

    def opened(url: str, table: StateTable) -> MemoryBackend:
        return (kind if table.name in changed else MemoryBackend)(store, table)

    register_backend("changed", opened)
    kind.called.clear()
    world = Evolving("changed:")
    world.run(world.topology("old", "new"))

    expected = changed[:1] if kind is Together and len(changed) > 1 else changed
    assert kind.called == set(expected)
    assert world.held("old") == world.held("new") == of_batches(1, 6)
