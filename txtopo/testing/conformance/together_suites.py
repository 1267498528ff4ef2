"""TogetherSuite: states of one database that share a transaction.

It is skipped for a store whose backends return no :class:`~txtopo.state.backend.Database`, since
each of its states is a transaction of its own.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from txtopo.attempt import TransactionAttempt
from txtopo.errors import (
    FencedError,
    LedgerGapError,
    StoreUnavailable,
    TxtopoError,
    UnknownOutcomeError,
)
from txtopo.plugins.stores import Merges, StateBackend, Writes
from txtopo.state import Ledger, StateKind
from txtopo.state.commit import commit_all_resolved
from txtopo.testing.conformance.driver import Drive, StateDriver, StoreFixtures, partials
from txtopo.testing.conformance.pace import Extent
from txtopo.testing.conformance.rules import Rule, proves

_COMMITS = 40
_STEPS = 25
_NAMES = ("second", "first", "third")
"""Not in the order of the alphabet, in which a store may lock their ledgers."""


class Trio:
    """Three states of counts in one database.

    Attributes:
        states: The states.
    """

    def __init__(self, states: Sequence[StateDriver]) -> None:
        self.states = list(states)

    def commit(
        self, txid: int, amount: int, attempt: int = 0, *, first: int | None = None
    ) -> list[Ledger]:
        """Add *amount* to the key a, and to a key of the txid, in each state."""
        return commit_all_resolved(
            self.states[0].attempt(txid, attempt, first=first), self.writes(txid, amount)
        )

    def writes(self, txid: int, amount: int) -> list[tuple[StateBackend, Writes]]:
        """Return what :meth:`commit` writes."""
        rows = [("a", amount), (f"of {txid}", amount)]
        return [(each.backend, partials(each.state, rows)) for each in self.states]

    def alone(self, at: int, txid: int, amount: int, attempt: int = 0) -> None:
        """Write the same to one state, in a transaction of its own."""
        self.states[at].merge(txid, [("a", amount), (f"of {txid}", amount)], attempt)

    @property
    def txids(self) -> list[int]:
        """The txid that each state holds."""
        return [0 if (held := each.held()) is None else held.txid for each in self.states]

    @property
    def contents(self) -> list[dict[str, int]]:
        """What each state holds."""
        return [each.contents() for each in self.states]

    def seen(self) -> list[tuple[int, dict[str, int]]]:
        """Return txid and counts of each state, as of one instant."""
        backends = [each.backend for each in self.states]
        with backends[0].snapshots(backends) as snapshots:
            return [
                (
                    0 if each.ledger is None else each.ledger.txid,
                    {
                        str(key[0]): int(values[0])
                        for key, row in each.items()
                        if (values := row.visible()) is not None
                    },
                )
                for each in snapshots
            ]


class TogetherSuite(StoreFixtures):
    """States that share a transaction: all or none, each by its own ledger."""

    @pytest.fixture
    def trio(self, url: str, drive: Drive) -> Trio:
        """Three states of counts that hold txid 1; skipped if the store shares no transaction."""
        kind: StateKind = "opaque" if "opaque" in self.kinds else "transactional"
        states = [drive(self.counted(url, name, kind), component=name) for name in _NAMES]
        databases = [each.backend.database() for each in states]
        if databases[0] is None:
            pytest.skip("the store shares no transaction: StateBackend.database returns None")
        assert databases == databases[:1] * 3, "states of one URL are in one database"
        trio = Trio(states)
        trio.commit(1, 1)
        return trio

    @proves(Rule.TOGETHER)
    def test_every_state_gets_its_rows_and_its_ledger(self, trio: Trio) -> None:
        written = trio.commit(2, 10)

        assert [each.held() for each in trio.states] == written
        assert [each.component for each in written] == list(_NAMES)
        assert trio.txids == [2, 2, 2]
        assert trio.contents == [{"a": 11, "of 1": 1, "of 2": 10}] * 3

    @proves(Rule.TOGETHER)
    def test_states_that_hold_the_attempt_are_left_alone_and_the_others_get_it(
        self, trio: Trio
    ) -> None:
        """One wrote it in a transaction of its own, before they were known to be together."""
        trio.alone(1, 2, 10)

        for _ in range(2):
            trio.commit(2, 10)
            assert trio.txids == [2, 2, 2]
            assert trio.contents == [{"a": 11, "of 1": 1, "of 2": 10}] * 3

    @proves(Rule.TOGETHER)
    def test_a_later_attempt_is_a_redo_where_the_txid_is_held_and_new_elsewhere(
        self, trio: Trio
    ) -> None:
        if "opaque" not in self.kinds:
            pytest.skip("the store keeps no opaque states")
        trio.alone(0, 2, 10)
        trio.alone(2, 2, 10)

        trio.commit(2, 3, attempt=1)
        assert trio.contents == [{"a": 4, "of 1": 1, "of 2": 3}] * 3
        trio.commit(2, 4, attempt=2)
        assert trio.contents == [{"a": 5, "of 1": 1, "of 2": 4}] * 3

    @proves(Rule.TOGETHER)
    def test_nothing_is_written_if_one_state_refuses_the_attempt(self, trio: Trio) -> None:
        for at in (0, 1):
            trio.alone(at, 2, 10)
        held = trio.contents

        with pytest.raises(LedgerGapError):
            trio.commit(3, 100)
        assert trio.contents == held
        trio.commit(2, 10)
        trio.commit(3, 100)
        assert trio.contents == [{"a": 111, "of 1": 1, "of 2": 10, "of 3": 100}] * 3

    @pytest.mark.usefixtures("unfenced")
    @proves(Rule.TOGETHER)
    def test_nothing_is_written_if_a_later_epoch_has_claimed_one_state(
        self, trio: Trio, drive: Drive
    ) -> None:
        successor = drive(trio.states[2].state, 2, component=_NAMES[2])

        with pytest.raises(FencedError):
            trio.commit(2, 10)
        assert trio.txids == [1, 1, 1]
        assert trio.contents == [{"a": 1, "of 1": 1}] * 3
        successor.merge(2, [("a", 7)])
        assert successor.contents() == {"a": 8, "of 1": 1}

    @pytest.mark.parametrize(("step", "at"), [("rows.after", 0), ("write.before", 2)])
    @proves(Rule.TOGETHER)
    def test_nothing_is_written_if_it_breaks_off(self, trio: Trio, step: str, at: int) -> None:
        def point(name: str) -> None:
            if name == step:
                raise StoreUnavailable("broken off, as the test wanted")

        trio.states[at].backend.point = point
        try:
            trio.commit(2, 10)
        except StoreUnavailable:
            assert trio.txids == [1, 1, 1]
            assert trio.contents == [{"a": 1, "of 1": 1}] * 3
        trio.states[at].backend.point = lambda name: None

        trio.commit(2, 10)
        assert trio.txids == [2, 2, 2]
        assert trio.contents == [{"a": 11, "of 1": 1, "of 2": 10}] * 3

    @pytest.mark.parametrize("landed", [True, False])
    @proves(Rule.TOGETHER)
    def test_a_lost_answer_is_found_out_in_every_ledger(self, trio: Trio, landed: bool) -> None:
        first = trio.states[0].backend
        whole = first.commit_together

        def losing(
            attempt: TransactionAttempt, writes: Sequence[tuple[StateBackend, Writes]]
        ) -> list[Ledger]:
            whole(attempt, writes if landed else writes[:1])
            raise UnknownOutcomeError("the connection was lost, as the test wanted")

        first.commit_together = losing  # type: ignore[method-assign]
        if landed:
            assert [each.txid for each in trio.commit(2, 10)] == [2, 2, 2]
        else:
            # A store that writes a part of it breaks rule 9; here the test does.
            with pytest.raises(StoreUnavailable):
                trio.commit(2, 10)
        first.commit_together = whole  # type: ignore[method-assign]
        trio.commit(2, 10)
        assert trio.contents == [{"a": 11, "of 1": 1, "of 2": 10}] * 3

    @proves(Rule.TOGETHER)
    def test_two_transactions_of_the_same_states_end_whatever_order_they_are_given_in(
        self, trio: Trio
    ) -> None:
        """One of them was abandoned. They lock the ledgers in the same order."""
        reversed_ = Trio(trio.states[::-1])

        def committed(states: Trio, txid: int, attempt: int, start: threading.Barrier) -> bool:
            start.wait()
            try:
                states.commit(txid, 10, attempt)
            except FencedError:
                return False
            return True

        for txid in range(2, 12):
            start = threading.Barrier(2)
            with ThreadPoolExecutor(2) as workers:
                older = workers.submit(committed, trio, txid, 0, start)
                newer = workers.submit(committed, reversed_, txid, 1, start)
            assert newer.result()
            older.result()
        assert [each["a"] for each in trio.contents] == [101, 101, 101]

    @proves(Rule.TOGETHER)
    def test_a_reader_of_all_sees_them_change_together(self, trio: Trio, drive: Drive) -> None:
        if not self.atomic_reader:
            pytest.skip("a reader of the store may see half a batch: atomic_reader = False")
        done = threading.Event()

        def write() -> None:
            try:
                for txid in range(2, _COMMITS + 2):
                    trio.commit(txid, 1)
            finally:
                done.set()

        samples: list[list[tuple[int, dict[str, int]]]] = []
        with ThreadPoolExecutor(1) as workers:
            writing = workers.submit(write)
            while not done.is_set() or not samples:
                samples.append(trio.seen())
        writing.result()
        samples.append(trio.seen())

        for first, *others in samples:
            assert others == [first, first]
            assert first[1]["a"] == first[0]
        assert samples[-1][0][0] == _COMMITS + 1

    @proves(Rule.TOGETHER)
    def test_groups_are_written_together(self, trio: Trio) -> None:
        if not trio.states[0].backend.groups:
            pytest.skip("the store takes no groups")
        trio.commit(4, 10, first=2)
        assert trio.contents == [{"a": 11, "of 1": 1, "of 4": 10}] * 3
        if "opaque" in self.kinds:
            trio.commit(4, 5, attempt=1, first=2)
            assert trio.contents == [{"a": 6, "of 1": 1, "of 4": 5}] * 3

    @proves(Rule.TOGETHER)
    def test_many_rows_of_several_states_do_not_meet(self, trio: Trio, extent: Extent) -> None:
        """A store that writes many rows by way of a temporary table needs one for each state."""
        many = [
            partials(each.state, [(f"{at} {n}", at) for n in range(extent.many)])
            for at, each in enumerate(trio.states)
        ]
        writes: list[tuple[StateBackend, Merges]] = [
            (each.backend, rows) for each, rows in zip(trio.states, many, strict=True)
        ]
        for txid in (2, 3):
            commit_all_resolved(trio.states[0].attempt(txid), writes)

        for at, contents in enumerate(trio.contents):
            assert contents == {
                "a": 1,
                "of 1": 1,
                **{f"{at} {n}": 2 * at for n in range(extent.many)},
            }

    @proves(Rule.TOGETHER)
    def test_random_histories_of_shared_and_own_transactions(self, trio: Trio) -> None:
        """Each state is what its ledger says, whoever wrote it with whom."""
        chance = random.Random(9)
        counted = [[1], [1], [1]]
        for attempt in range(1, _STEPS):
            txids = [len(each) for each in counted]
            txid = max(txids) + (min(txids) == max(txids))
            amount = chance.randrange(100)
            if "opaque" not in self.kinds:
                amount = txid
            apart = chance.sample(range(3), chance.randrange(3))
            try:
                if apart:
                    for at in apart:
                        trio.alone(at, txid, amount, attempt)
                        counted[at][txid - 1 :] = [amount]
                else:
                    trio.commit(txid, amount, attempt)
                    for each in counted:
                        each[txid - 1 :] = [amount]
            except TxtopoError as error:
                raise AssertionError(f"attempt {attempt} of txid {txid} was refused") from error

            assert [each["a"] for each in trio.contents] == [sum(each) for each in counted]
