"""Which states share a transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from state_backends.sql.backend import SqlBackend
from tests.unit.runtime.evolving import Evolving, of_batches
from txtopo.attempt import TransactionAttempt
from txtopo.errors import PlugInError
from txtopo.fingerprint import StateName
from txtopo.plugins.stores import Database, Ledger, StateBackend, StateTable, Writes
from txtopo.state import State, open_state
from txtopo.state.commit import claim_state, commit_all_resolved
from txtopo.state.together import SharedTransactions, shared_transactions
from txtopo.testing.conformance.driver import claim_of, packed
from txtopo.tuples import Fields

KEY, VALUE = Fields("key string"), Fields("value long")


class Claimed:
    """Backends of states that one term has claimed, by the names of their tables."""

    def __init__(self, stack: ExitStack, epoch: int = 1, **urls: str | StateBackend) -> None:
        self.anchors: list[State] = []
        self.backends: dict[StateName, StateBackend] = {}
        self.ledgers: dict[StateName, Ledger] = {}
        for name, given in urls.items():
            backend = given if isinstance(given, StateBackend) else self.opened(given, name)
            stack.callback(backend.close)
            backend.create()
            claim = replace(claim_of(epoch=epoch, component=name), term=f"term of epoch {epoch}")
            self.backends["bolt", name] = backend
            self.ledgers["bolt", name] = claim_state(backend, claim, name)

    def opened(self, url: str, name: str) -> StateBackend:
        self.anchors.append(open_state(url, table=name).with_columns(KEY, VALUE))
        return self.anchors[-1].open()

    def shared(self) -> SharedTransactions:
        return shared_transactions(self.backends, self.ledgers)

    def together(self) -> list[str]:
        """Return the groups that share, in short."""
        return ["".join(name for _, name in names) for names in self.shared().groups]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.rule("txtopo.state.together", "Rules", 1)
def test_states_of_one_database_share_in_the_order_of_their_first(
    stack: ExitStack, tmp_path: Path
) -> None:
    one, two = (f"sqlite:///{tmp_path}/{name}.db" for name in "xy")
    delta = f"delta:///{tmp_path}/delta"

    claimed = Claimed(stack, a=one, b=two, c=delta, d=two, e=one, f="memory:m", g="memory:m")

    assert claimed.together() == ["ae", "bd", "c", "fg"]
    assert not claimed.shared().apart


def test_one_state_asks_no_database(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = Claimed(stack, a="memory:")
    monkeypatch.setattr(MemoryBackend, "database", lambda backend: 1 / 0)

    assert claimed.together() == ["a"]


@pytest.mark.rule("txtopo.state.together", "Rules", 2)
@pytest.mark.parametrize(
    ("urls", "groups"), [("xyx", ["ac", "b"]), ("xyy", ["a", "bc"]), ("yxx", ["a", "bc"])]
)
def test_a_copy_of_a_database_has_transactions_of_its_own(
    stack: ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    urls: str,
    groups: list[str],
) -> None:
    """Both have the same identity, and the ledgers of all states from before the copy."""
    for url in (f"sqlite:///{tmp_path}/{name}.db" for name in "xy"):
        Claimed(stack, a=url, b=url, c=url)
    monkeypatch.setattr(SqlBackend, "database", lambda backend: Database(("server", "base")))
    files = [f"sqlite:///{tmp_path}/{name}.db" for name in urls]

    claimed = Claimed(stack, 2, a=files[0], b=files[1], c=files[2])

    assert claimed.together() == groups
    assert all("in a copy" in why for why in claimed.shared().apart.values())
    assert claimed.shared().apart


@pytest.mark.rule("txtopo.state.together", "Rules", 3)
def test_it_is_said_why_a_state_of_the_same_database_is_apart(
    stack: ExitStack, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/x.db"

    shared = Claimed(stack, a=url, b=f"{url}?timeout=9", c=url).shared()

    assert shared.groups == ((("bolt", "a"), ("bolt", "c")), (("bolt", "b"),))
    assert shared.apart["bolt", "b"] == ("its URL has another user or other options than bolt.a")


class OwnCommit(MemoryBackend):
    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        return super().commit(attempt, writes)


def test_a_backend_that_overrides_commit_alone_is_asked_for_it(stack: ExitStack) -> None:
    store, state = MemoryStore(), StateTable("a", "opaque", KEY, VALUE)
    kept = {name: replace(state, name=name) for name in "abc"}
    claimed = Claimed(
        stack,
        a=MemoryBackend(store, kept["a"]),
        b=OwnCommit(store, kept["b"]),
        c=MemoryBackend(store, kept["c"]),
    )

    assert claimed.together() == ["ac", "b"]
    assert (
        "OwnCommit overrides commit and not commit_together"
        in (claimed.shared().apart["bolt", "b"])
    )


class OddDatabase(MemoryBackend):
    def database(self) -> Any:
        return "sqlite"


class OddAnswers(MemoryBackend):
    def commit_together(self, attempt: TransactionAttempt, writes: Any) -> Any:
        return super().commit_together(attempt, writes)[:1]


@pytest.mark.parametrize("kind", [OddDatabase, OddAnswers])
def test_an_odd_answer_of_a_plug_in_is_refused(stack: ExitStack, kind: type[MemoryBackend]) -> None:
    store = MemoryStore()
    kept = [StateTable(name, "opaque", KEY, VALUE) for name in "ab"]
    claimed = Claimed(stack, a=kind(store, kept[0]), b=kind(store, kept[1]))

    def shared_commit() -> None:
        claimed.shared()
        writes = [(backend, packed({"a": 1})) for backend in claimed.backends.values()]
        commit_all_resolved(TransactionAttempt(1, 0, 1, term="term of epoch 1"), writes)

    with pytest.raises(PlugInError, match="fix the plug-in"):
        shared_commit()


def test_a_run_says_which_states_share(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = Evolving(f"sqlite:///{tmp_path}/states.db", elsewhere=("c",))

    with caplog.at_level(logging.INFO, "txtopo"):
        world.run(world.topology("a", "b", "c"))

    assert "topology 'evolving': these states share one transaction: a.a, b.b" in caplog.messages
    assert [world.held(name) for name in "abc"] == [of_batches(1, 6)] * 3


@pytest.mark.parametrize("opaque", [False, True])
def test_states_that_were_apart_are_brought_together(tmp_path: Path, opaque: bool) -> None:
    """The first has txid 5 from a run in which they did not share."""
    url = f"sqlite:///{tmp_path}/states.db"
    world = Evolving(url, opaque=opaque)
    apart = world.topology("a", "b", urls={"b": f"{url}?timeout=9"})
    world.die(apart, "write.after:a.a", 5)
    assert [world.ledger(name).txid for name in "ab"] == [5, 4]

    world.run(world.topology("a", "b"), allow_change=True)
    assert [world.held(name) for name in "ab"] == [of_batches(1, 6)] * 2
