"""The fence of ``compare_and_put``: two coordinators at one map, one call of it at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.chance import times
from tests.unit.state.backing_maps import ComparingMap, MortalComparingMap, MortalMap
from txtopo import Fields, TransactionAttempt
from txtopo.errors import FencedError, InfrastructureError
from txtopo.plugins.stores import OpaqueMap, Puts, StateTable
from txtopo.state import Ledger
from txtopo.testing.conformance.driver import claim_of, whole_ledger

TABLE = StateTable("counts", "opaque", Fields("key string"), Fields("value long"))
TXIDS = 4
ATTEMPTS_MAX = 30
Contents = dict[str, int]


class Turns:
    """Lets one of several threads continue at a time; chance says which."""

    def __init__(self, chance: random.Random, players: Sequence[str]) -> None:
        self._chance = chance
        self._players = list(players)
        self._turn = chance.choice(self._players)
        self._changed = threading.Condition()

    def pause(self, player: str) -> None:
        """Let somebody continue, and wait until it is *player*."""
        with self._changed:
            self._turn = self._chance.choice(self._players)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._turn == player, 120.0)

    def play(self, player: str, action: Callable[[], None]) -> None:
        """Wait for the first turn, and leave when it is over."""
        try:
            with self._changed:
                assert self._changed.wait_for(lambda: self._turn == player, 120.0)
            action()
        finally:
            with self._changed:
                self._players.remove(player)
                self._turn = self._chance.choice([*self._players, "nobody"][:1])
                self._changed.notify_all()


class SharedMap(ComparingMap):
    """A map that lets the other coordinator in before each call."""

    def __init__(self, texts: dict[str, str], turns: Turns, player: str) -> None:
        super().__init__(texts)
        self._turns = turns
        self._player = player

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        self._turns.pause(self._player)
        return super().multi_get(keys)

    def compare_and_put(self, key: str, expected: str | None, value: str) -> bool:
        self._turns.pause(self._player)
        return super().compare_and_put(key, expected, value)


class Duel:
    """A coordinator, and the one that deposes it at any moment."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.texts: dict[str, str] = {}
        self.turns = Turns(self.chance, ["old", "new"])
        self.batches: dict[TransactionAttempt, Contents] = {}
        self.current = 0
        self.claimed: Ledger | None = None
        self.redone: int | None = None

    def old(self) -> None:
        """Commit txids until it is deposed."""
        backend = self._backend("old")
        try:
            backend.claim(claim_of("topology", 1))
            for txid in range(1, TXIDS + 1):
                self.current = txid  # what ZooKeeper knows before the commit begins
                self._commit(backend, txid, epoch=1)
        except FencedError:
            pass

    def new(self) -> None:
        """Depose the other, and continue where the ledger stands."""
        backend = self._backend("new")
        for _ in range(ATTEMPTS_MAX):
            try:
                self.claimed = backend.claim(claim_of("topology", 2))
                break
            except InfrastructureError:
                pass
        assert self.claimed is not None
        first = self.claimed.txid + 1
        adopted = self.claimed.writer_epoch and self.chance.random() < 0.5
        if self.claimed.txid == self.current > 0 and not adopted:
            self.redone = first = self.claimed.txid
        for txid in range(first, TXIDS + 1):
            self._commit(backend, txid, epoch=2)

    def expected(self) -> Contents:
        """Return the fold of the batches that the ledgers said were committed, in plain Python."""
        contents: Contents = {}
        assert self.claimed is not None
        for txid in range(1, TXIDS + 1):
            kept = txid <= self.claimed.txid and txid != self.redone
            attempts = [a for a in self.batches if a.txid == txid and a.epoch == (1 if kept else 2)]
            writer = self.claimed.writer if kept and txid == self.claimed.txid else max(attempts)
            for key, amount in self.batches[writer].items():
                contents[key] = contents.get(key, 0) + amount
        return contents

    def _commit(self, backend: OpaqueMap, txid: int, *, epoch: int) -> None:
        for number in range(ATTEMPTS_MAX):
            attempt = TransactionAttempt(txid, number, epoch)
            batch = {self.chance.choice("abcd"): self.chance.randint(1, 9) for _ in range(3)}
            self.batches[attempt] = batch
            try:
                with backend.snapshot() as snapshot:
                    rows = snapshot.rows([(key,) for key in batch])
                before = {k: row.before(txid) for k, row in rows.items()}
                total = {(k,): ((before.get((k,)) or (0,))[0] + n,) for k, n in batch.items()}
                assert backend.commit(attempt, Puts(total)).writer == attempt
                return
            except InfrastructureError:
                continue
        raise AssertionError(f"txid {txid} of epoch {epoch} never got through")

    def _backend(self, player: str) -> OpaqueMap:
        return OpaqueMap(SharedMap(self.texts, self.turns, player), TABLE)


@pytest.mark.parametrize("seed", range(times(150)))
def test_a_deposed_coordinator_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txtopo.state.backing_map.KEYS_PER_CHUNK", 2)
    duel = Duel(seed)

    with ThreadPoolExecutor(2) as threads:
        games = [
            threads.submit(duel.turns.play, "old", duel.old),
            threads.submit(duel.turns.play, "new", duel.new),
        ]
        for game in games:
            game.result()
    with OpaqueMap(ComparingMap(duel.texts), TABLE).snapshot() as snapshot:
        rows = {key[0]: row.visible() for key, row in snapshot.items()}
        assert snapshot.ledger is not None
        assert (snapshot.ledger.txid, snapshot.ledger.epoch) == (TXIDS, 2)
    assert {key: v[0] for key, v in rows.items() if v} == duel.expected()


class InterruptedMap(ComparingMap):
    """Lets somebody in before one key is put."""

    def __init__(
        self, texts: dict[str, str], key: str, text: str, let_in: Callable[[], None]
    ) -> None:
        super().__init__(texts)
        self._key = key
        self._text = text
        self._let_in = let_in

    def compare_and_put(self, key: str, expected: str | None, value: str) -> bool:
        if key == self._key and self._text in value:
            self._let_in()
        return super().compare_and_put(key, expected, value)


def put(texts: dict[str, str], attempt: TransactionAttempt, values: Contents) -> None:
    """Claim and commit, as a coordinator that nobody disturbs."""
    state = OpaqueMap(ComparingMap(texts), TABLE)
    state.claim(claim_of("topology", attempt.epoch))
    state.commit(attempt, Puts({(key,): (value,) for key, value in values.items()}))


def seen(texts: dict[str, str]) -> tuple[Ledger | None, Contents]:
    with OpaqueMap(ComparingMap(texts), TABLE).snapshot() as snapshot:
        rows = {key[0]: row.visible() for key, row in snapshot.items()}
        return snapshot.ledger, {key: v[0] for key, v in rows.items() if v}


def test_a_row_that_looks_as_before_is_another_one() -> None:
    """The successor writes the same value again; the zombie has read it from another attempt."""
    texts: dict[str, str] = {}
    put(texts, TransactionAttempt(1, 0, 1), {"a": 1})

    def succeed() -> None:
        put(texts, TransactionAttempt(1, 0, 2), {"a": 1})

    zombie = OpaqueMap(InterruptedMap(texts, '["counts","row","[\\"a\\"]"]', "[9]", succeed), TABLE)
    with pytest.raises(FencedError):
        zombie.commit(TransactionAttempt(1, 1, 1), Puts({("a",): (9,)}))
    assert seen(texts) == (whole_ledger("topology", 2, 1, 2, 0), {"a": 1})


def test_an_attempt_does_not_finish_what_a_newer_one_has_begun() -> None:
    """The newer one died in the middle of the same keys; the ledger must not call it well."""
    texts: dict[str, str] = {}
    put(texts, TransactionAttempt(1, 0, 1), {"a": 1})

    def begin() -> None:
        newer = OpaqueMap(MortalComparingMap(texts, keys_left=2), TABLE)
        with pytest.raises(InfrastructureError):
            newer.commit(TransactionAttempt(2, 1, 1), Puts({("a",): (9,)}))

    older = OpaqueMap(InterruptedMap(texts, '["counts","head"]', '"txid":2', begin), TABLE)
    with pytest.raises(FencedError, match="which has begun to write"):
        older.commit(TransactionAttempt(2, 0, 1), Puts({("a",): (5,)}))
    assert seen(texts) == (whole_ledger("topology", 1, 1, 1, 0), {"a": 1})


def test_an_abandoned_attempt_is_refused_though_its_successor_died() -> None:
    """Without a comparison as well, in one process."""
    texts: dict[str, str] = {}
    state = OpaqueMap(mortal := MortalMap(texts), TABLE)
    state.claim(claim_of("topology", 1))
    mortal.keys_left = 4
    with pytest.raises(InfrastructureError):
        state.commit(TransactionAttempt(1, 1, 1), Puts({("a",): (9,)}))
    mortal.keys_left = 100

    with pytest.raises(FencedError, match="which has begun to write"):
        state.commit(TransactionAttempt(1, 0, 1), Puts({("a",): (5,)}))
    assert state.commit(TransactionAttempt(1, 2, 1), Puts({})).attempt == 2
    assert seen(texts)[1] == {}
