"""States over a backing map: crashes after any key that was put, and random histories of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

from tests.harness.chance import most
from tests.unit.state.backing_maps import ComparingMap, DictMap, MortalComparingMap, MortalMap
from txtopo import Fields, TransactionAttempt
from txtopo.errors import InfrastructureError
from txtopo.plugins.stores import OpaqueMap, StateTable, TransactionalMap
from txtopo.state import Ledger, StateHandle, StateKind, StateTransaction
from txtopo.testing.conformance.driver import claim_of, whole_ledger

KEYS = "abcdef"
Contents = dict[str, int | None]
Step = tuple[str, str, str, int]


class World:
    """One state in one store, and coordinators that die and are followed by others."""

    def __init__(self, kind: StateKind, *, compares: bool = False) -> None:
        self.texts: dict[str, str] = {}
        self.table = StateTable("counts", kind, Fields("key string"), Fields("value long"))
        self.compares = compares
        self.epoch = 0
        self.restart()

    def restart(self, keys_left: int = 10**9, seed: int = 0) -> Ledger | None:
        """Open the store again, and claim it with the next epoch."""
        mortal = MortalComparingMap if self.compares else MortalMap
        self.map = mortal(self.texts, keys_left, seed)
        opened = OpaqueMap if self.table.kind == "opaque" else TransactionalMap
        self.backend = opened(self.map, self.table)
        self.epoch += 1
        self.backend.create()
        return self.backend.claim(claim_of("topology", self.epoch))

    def commit(self, txid: int, attempt: int, steps: list[Step]) -> None:
        """Run a committer's body, and commit what it wrote."""
        handle = StateHandle("counts", self.table, self.backend)
        named = TransactionAttempt(txid, attempt, self.epoch)
        with handle.transaction(named) as state:
            stepped(state, steps)
        assert handle.writes is not None
        assert self.backend.commit(named, handle.writes).writer == named

    def seen(self) -> tuple[Ledger, Contents]:
        """Return what a reader sees who comes now."""
        reader = ComparingMap(self.texts) if self.compares else DictMap(self.texts)
        opened = OpaqueMap if self.table.kind == "opaque" else TransactionalMap
        with opened(reader, self.table).snapshot() as snapshot:
            items = list(snapshot.items())
            rows = {key[0]: row.visible() for key, row in items}
            assert len(rows) == len(items), "a key is listed twice"
            assert snapshot.ledger is not None
            return snapshot.ledger, {k: v[0] for k, v in rows.items() if v is not None}


def stepped(state: StateTransaction, steps: list[Step]) -> None:
    """Add, copy from key to key, and delete: what is written depends on other keys."""
    for step, key, other, amount in steps:
        if step == "add":
            state.put(key, (state.get(key) or 0) + amount)
        elif step == "copy":
            state.put(key, state.get(other))
        else:
            state.delete(key)


def folded(contents: Mapping[str, int | None], steps: list[Step]) -> Contents:
    """Return what the steps make of the contents, in plain Python."""
    after = dict(contents)
    for step, key, other, amount in steps:
        if step == "add":
            after[key] = (after.get(key) or 0) + amount
        elif step == "copy":
            after[key] = after.get(other)
        else:
            after.pop(key, None)
    return after


def drawn(chance: random.Random) -> list[Step]:
    """Draw the steps of a batch."""
    steps = ("add", "add", "copy", "delete")
    return [
        (chance.choice(steps), chance.choice(KEYS), chance.choice(KEYS), chance.randint(1, 9))
        for _ in range(chance.randint(0, 6))
    ]


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txtopo.state.backing_map.KEYS_PER_CHUNK", 2)
    monkeypatch.setattr("txtopo.state.backing_map.KEYS_PER_CALL", 4)


each_map = pytest.mark.parametrize(
    ("kind", "compares"),
    [("opaque", False), ("opaque", True), ("transactional", False), ("transactional", True)],
)
BEFORE: list[Step] = [("add", "a", "", 1), ("add", "b", "", 2), ("add", "gone", "", 3)]
# What the attempts of the second txid do; a transactional state sees the first one each time.
BATCHES: list[list[Step]] = [
    [("add", "a", "", 10), ("copy", "b", "a", 0), ("delete", "gone", "", 0), ("add", "n", "", 1)],
    [("add", "b", "", 20), ("add", "m", "", 2)],
    [("copy", "a", "gone", 0), ("add", "n", "", 5)],
]
KEYS_PUT_MAX = 20
SECONDS_APART = most(1, otherwise=4)


@pytest.mark.integration
@each_map
@pytest.mark.parametrize("first", range(KEYS_PUT_MAX))
@pytest.mark.rule("txtopo.state.map_backend", "Rules", 1, 2, 3)
def test_two_crashes_after_any_two_keys_are_taken_back(
    kind: StateKind, compares: bool, first: int
) -> None:
    batches = BATCHES if kind == "opaque" else [BATCHES[0]] * 3
    for second in range(first % SECONDS_APART, KEYS_PUT_MAX, SECONDS_APART):
        world = World(kind, compares=compares)
        world.commit(1, 0, BEFORE)
        before = folded({}, BEFORE)
        for keys_left, batch in zip((first, second), batches, strict=False):
            crash(partial(redone, world, keys_left, batch), world)
            at_rest(world, 2, before)

        redone(world, 10**9, batches[2])
        after = folded(before, batches[2])
        assert world.seen() == (whole_ledger("topology", world.epoch, 2, world.epoch), after)
        world.commit(3, 0, BEFORE)
        assert world.seen()[1] == folded(after, BEFORE)


@each_map
@pytest.mark.integration
@pytest.mark.parametrize("seed", range(most(60, otherwise=8)))
@pytest.mark.rule("txtopo.state.map_backend", "Rules", 4)
def test_random_histories_of_crashes_end_as_the_oracle_says(
    kind: StateKind, compares: bool, seed: int
) -> None:
    world = World(kind, compares=compares)
    history = History(world, random.Random(seed))

    for txid in range(1, 16):
        history.commit(txid)
    assert world.seen()[1] == history.contents


class History:
    """One batch after the other, each in several attempts, of which some die."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.contents: Contents = {}
        self.batches: dict[TransactionAttempt, list[Step]] = {}

    def commit(self, txid: int) -> None:
        """Bring a txid through, however often it dies or is done again."""
        steps, attempt = drawn(self.chance), 0
        while True:
            if self.world.table.kind == "opaque":
                steps = drawn(self.chance)
            self.batches[TransactionAttempt(txid, attempt, self.world.epoch)] = steps
            self.world.map.keys_left = self.chance.choice((10**9, self.chance.randint(0, 15)))
            died = crash(partial(self.world.commit, txid, attempt, steps), self.world)
            attempt += 1
            if died:
                at_rest(self.world, txid, self.contents, self.batches)
                attempt = self.restarted(attempt)
                continue
            assert self.world.seen()[1] == folded(self.contents, steps)
            if self.chance.random() < 0.7:
                break
        self.contents = folded(self.contents, steps)

    def restarted(self, attempt: int) -> int:
        """Let another coordinator continue, or the same one, and return its next attempt."""
        if self.chance.random() < 0.5:
            return attempt
        while crash(self.restart, self.world):
            pass
        return 0

    def restart(self) -> None:
        """Restart, and maybe die on the way."""
        self.world.restart(self.chance.randint(0, 6), self.chance.randint(0, 99))


def redone(world: World, keys_left: int, batch: list[Step]) -> None:
    """Restart, and commit the second txid again."""
    world.restart(keys_left)
    world.commit(2, 0, batch)


def crash(action: Callable[[], Any], world: World) -> bool:
    """Do what may die on the way, and return whether it did."""
    try:
        action()
    except InfrastructureError:
        world.map.keys_left = 10**9
        return True
    return False


def at_rest(
    world: World,
    txid: int,
    before: Contents,
    batches: Mapping[TransactionAttempt, list[Step]] = MappingProxyType({}),
) -> None:
    """After a crash a reader sees what the ledger says.

    In the redo of a committed txid the ledger names no writer, so nobody takes it over.
    """
    ledger, contents = world.seen()
    if ledger.txid == txid - 1:
        assert contents == before
    elif ledger.writer in batches:
        assert contents == folded(before, batches[ledger.writer])
    assert ledger.txid in (txid - 1, txid)
