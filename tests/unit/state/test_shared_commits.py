"""Commits to states that share a transaction, and to copies of a database."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest

from state_backends.memory import MemoryBackend, MemoryStore
from txtopo import Fields
from txtopo.attempt import TransactionAttempt
from txtopo.errors import PlugInError, StoreUnavailable, TxtopoError, UnknownOutcomeError
from txtopo.plugins.stores import (
    Claim,
    Contents,
    Database,
    Owner,
    Puts,
    Replacement,
    RowBackend,
    StateBackend,
    StateTable,
)
from txtopo.state import Ledger
from txtopo.state.commit import commit_all_resolved
from txtopo.state.together import shared_transactions

CLAIM = Claim(Owner("topology", "bolt", "state"), 1, term="first")
FIRST = TransactionAttempt(1, 0, 1, term="first")
NAMES = (("bolt", "a"), ("bolt", "b"), ("bolt", "c"))
IDENTITY = Database(("one",))


class Backend(MemoryBackend):
    """A state of a database that has copies; it may lose the answer to a write of several."""

    answers = True
    written = 2

    def database(self) -> Database:
        return IDENTITY

    def load_together(self, backends: Sequence[RowBackend]) -> list[Contents]:
        """Read in the store of this one, as its connection would."""
        tables = self._store.tables
        return [tables.get(each.table.name, (each.table, Contents()))[1] for each in backends]

    def replace_together(self, replacements: Sequence[Replacement]) -> bool:
        if self.answers or len(replacements) < 2:
            return super().replace_together(replacements)
        super().replace_together(replacements[: self.written])
        raise UnknownOutcomeError("the connection was lost")


def claimed_backends(*stores: MemoryStore) -> list[Backend]:
    backends = []
    for (_, name), store in zip(NAMES, stores, strict=False):
        table = StateTable(name, "opaque", Fields("key string"), Fields("value long"))
        backends.append(Backend(store, table))
        backends[-1].claim(CLAIM)
    return backends


def puts(value: int) -> Puts:
    return Puts({("k",): (value,)})


def held(backend: RowBackend) -> tuple[int, object]:
    contents = backend.load()
    assert contents.ledger is not None
    return contents.ledger.txid, contents.rows["k",].current


@pytest.mark.rule("txtopo.state.backend", "Rules", 9)
def test_a_state_that_holds_the_attempt_is_left_and_the_others_are_written() -> None:
    store = MemoryStore()
    one, other = claimed_backends(store, store)
    one.commit(FIRST, puts(1))

    ledgers = commit_all_resolved(FIRST, [(one, puts(5)), (other, puts(2))])

    assert [each.writer for each in ledgers] == [FIRST, FIRST]
    assert (held(one), held(other)) == ((1, (1,)), (1, (2,)))


def test_a_lost_answer_is_a_success_if_every_ledger_has_the_attempt() -> None:
    store = MemoryStore()
    one, other = claimed_backends(store, store)
    one.answers = False

    ledgers = commit_all_resolved(FIRST, [(one, puts(1)), (other, puts(2))])

    assert [each.writer for each in ledgers] == [FIRST, FIRST]


def test_a_lost_answer_is_no_success_if_one_ledger_lacks_the_attempt() -> None:
    store = MemoryStore()
    one, other = claimed_backends(store, store)
    one.answers, one.written = False, 1

    with pytest.raises(StoreUnavailable, match="try again"):
        commit_all_resolved(FIRST, [(one, puts(1)), (other, puts(2))])


class Engine:
    """Writes that an engine performs."""

    def labelled(self) -> AbstractContextManager[None]:
        return nullcontext()

    def apply(self, backend: StateBackend, attempt: TransactionAttempt) -> Ledger:
        return backend.commit(attempt, puts(1))


def test_an_engine_writes_no_state_that_shares() -> None:
    store = MemoryStore()
    one, other = claimed_backends(store, store)

    with pytest.raises(PlugInError, match=r"expected database\(\) to return None"):
        commit_all_resolved(FIRST, [(one, puts(1)), (other, Engine())])
    assert [each.load().rows for each in (one, other)] == [{}, {}]


@pytest.mark.rule("txtopo.state.together", "Rules", 1, 2, 3)
def test_states_whose_claim_the_first_reads_share_transactions_and_a_copy_does_not() -> None:
    store, copy = MemoryStore(), MemoryStore()
    backends = claimed_backends(store, copy, store)
    copied = Backend(store, backends[1].table)
    copied.claim(Claim(CLAIM.owner, 1, term="earlier"))
    ledgers: list[Ledger | None] = [backend.load().ledger for backend in backends]

    shared = shared_transactions(
        dict(zip(NAMES, backends, strict=True)),
        {name: ledger for name, ledger in zip(NAMES, ledgers, strict=True) if ledger},
    )

    assert shared.groups == ((NAMES[0], NAMES[2]), (NAMES[1],))
    assert list(shared.apart) == [NAMES[1]]


@pytest.mark.rule("txtopo.state.together", "Rules", 4)
@pytest.mark.parametrize("moved", [0, 1])
def test_a_connection_that_leads_to_a_copy_after_the_claim_writes_nothing(moved: int) -> None:
    store, copy = MemoryStore(), MemoryStore()
    backends = claimed_backends(store, store)
    for backend in backends:
        Backend(copy, backend.table).claim(Claim(CLAIM.owner, 1, term="earlier"))
    before = [dict(each.tables) for each in (store, copy)]
    backends[moved]._store = copy

    with pytest.raises(TxtopoError):
        commit_all_resolved(FIRST, [(backend, puts(1)) for backend in backends])

    assert [each.tables for each in (store, copy)] == before
