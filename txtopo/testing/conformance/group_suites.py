"""Suites of groups: several txids that a state takes in one write.

They are skipped for a store whose backend does not declare ``StateBackend.groups``, since it never
gets a group.

* :class:`GroupSuite`: groups of partial aggregates: order, bounds, fence, undo, lost answers,
  restarts, readers.
* :class:`PutGroupSuite`: groups of final values: deletes, and what a committer reads.
"""

from __future__ import annotations

import pytest

from txtopo.attempt import GroupAttempt
from txtopo.errors import (
    FencedError,
    GroupBoundsError,
    LedgerGapError,
    PromiseError,
    StaleBatchError,
    StoreUnavailable,
    UnknownOutcomeError,
    ValueRefusedError,
)
from txtopo.state import State, StateTransaction
from txtopo.state.commit import commit_resolved
from txtopo.testing.conformance.driver import (
    Drive,
    StateDriver,
    StoreFixtures,
    adding,
    partials,
    stored_rows,
    whole_ledger,
)
from txtopo.testing.conformance.ledger_suites import lose_answer
from txtopo.testing.conformance.rules import Rule, proves
from txtopo.testing.conformance.value_suites import LARGEST
from txtopo.testing.conformance.writing_suites import folds_of, sampled, wrong_samples


class GroupSuite(StoreFixtures):
    """Groups of partial aggregates, each of them of the state that ``counts`` declares."""

    @pytest.fixture
    def grouped(self, counts: State, drive: Drive) -> StateDriver:
        """A state of counts that holds txid 1."""
        store = _taking_groups(drive(counts))
        store.merge(1, [("a", 1), ("b", 1)])
        return store

    @proves(Rule.GROUP)
    def test_a_group_is_written_as_its_last_txid(self, grouped: StateDriver) -> None:
        written = grouped.merge(4, [("a", 10), ("new", 1)], first=2)

        assert written == whole_ledger("topology", 1, 4, 1, 0, earlier=(0, 0))
        assert grouped.held() == written
        assert grouped.contents() == {"a": 11, "b": 1, "new": 1}
        assert {key: row.txid for key, row in stored_rows(grouped).items()} == {
            ("a",): 4,
            ("b",): 1,
            ("new",): 4,
        }

    @proves(Rule.GROUP)
    def test_the_first_txids_may_be_a_group(self, counts: State, drive: Drive) -> None:
        store = _taking_groups(drive(counts))

        store.merge(3, [("a", 1), ("b", 2)], first=1)
        store.merge(3, [("b", 7)], attempt=1, first=1)
        assert store.contents() == {"b": 7}
        store.merge(3, [], attempt=2, first=1)
        assert store.contents() == {}
        assert store.held() == whole_ledger("topology", 1, 3, 1, 2, earlier=(2, 2))

    @proves(Rule.GROUP)
    def test_an_empty_group_moves_the_ledger(self, grouped: StateDriver) -> None:
        assert grouped.merge(3, [], first=2).txid == 3
        grouped.merge(4, [("a", 1)])
        _holds(grouped, {"a": 2, "b": 1}, txid=4)

    @proves(Rule.GROUP)
    def test_a_redo_takes_a_whole_group_back(self, grouped: StateDriver) -> None:
        """The undo restores the rows from before the first txid, whichever keys are repeated."""
        grouped.merge(4, [("a", 10), ("b", 20), ("new", 1)], first=2)

        grouped.merge(4, [("b", 5), ("other", 1)], attempt=1, first=2)
        assert grouped.contents() == {"a": 1, "b": 6, "other": 1}
        grouped.merge(4, [], attempt=2, first=2)
        assert grouped.contents() == {"a": 1, "b": 1}
        grouped.merge(4, [("a", 3)], attempt=3, first=2)
        assert grouped.contents() == {"a": 4, "b": 1}
        assert grouped.held() == whole_ledger("topology", 1, 4, 1, 3, earlier=(3, 3))

    @proves(Rule.GROUP)
    def test_the_same_attempts_of_a_group_count_once(self, grouped: StateDriver) -> None:
        for _ in range(2):
            held = grouped.merge(4, [("a", 10)], first=2)
            assert held == whole_ledger("topology", 1, 4, 1, 0, earlier=(0, 0))
            assert grouped.contents() == {"a": 11, "b": 1}

    @proves(Rule.GROUP)
    def test_other_attempts_of_the_earlier_txids_are_a_redo(self, grouped: StateDriver) -> None:
        """The batches of these txids may differ, though the last txid is of the same attempt."""
        writes = [partials(grouped.state, [("a", amount)]) for amount in (10, 20)]
        commit_resolved(grouped.backend, GroupAttempt(3, 1, 1, (0,)), writes[0])

        commit_resolved(grouped.backend, GroupAttempt(3, 1, 1, (1,)), writes[1])
        assert grouped.contents() == {"a": 21, "b": 1}
        assert grouped.held() == whole_ledger("topology", 1, 3, 1, 1, earlier=(1,))

    @pytest.mark.parametrize(
        ("first", "txid"), [(1, 4), (3, 4), (4, 4), (2, 5), (3, 5), (4, 5), (1, 6)]
    )
    @proves(Rule.GROUP)
    def test_other_bounds_than_those_of_the_held_group_are_refused(
        self, grouped: StateDriver, first: int, txid: int
    ) -> None:
        """The undo of the held group takes all of it back, to before its first txid."""
        held = grouped.merge(4, [("a", 10)], first=2)

        for attempt in (0, 7):
            with pytest.raises(GroupBoundsError):
                grouped.merge(txid, [("a", 99), ("new", 99)], attempt, first=first)
        assert grouped.contents() == {"a": 11, "b": 1}
        assert grouped.held() == held

    @proves(Rule.GROUP)
    def test_a_held_txid_is_not_written_again_in_a_group(self, grouped: StateDriver) -> None:
        held = grouped.merge(2, [("a", 10)])

        for first, txid in ((1, 2), (2, 3), (1, 3)):
            with pytest.raises(GroupBoundsError):
                grouped.merge(txid, [("a", 99)], 7, first=first)
        assert grouped.contents() == {"a": 11, "b": 1}
        assert grouped.held() == held

    @proves(Rule.ORDER)
    def test_a_group_after_a_gap_or_behind_is_refused(self, grouped: StateDriver) -> None:
        for first, txid in ((3, 4), (4, 6)):
            with pytest.raises(LedgerGapError):
                grouped.merge(txid, [("a", 99)], first=first)
        _holds(grouped, {"a": 1, "b": 1}, txid=1)
        grouped.merge(4, [("a", 10)], first=2)
        for first, txid in ((1, 3), (2, 3), (3, 3), (1, 2)):
            with pytest.raises(StaleBatchError):
                grouped.merge(txid, [("a", 99), ("new", 99)], 7, first=first)
        _holds(grouped, {"a": 11, "b": 1}, txid=4)

    @proves(Rule.GROUP)
    def test_groups_and_single_txids_follow_each_other(self, grouped: StateDriver) -> None:
        expected = {"a": 1, "b": 1}
        for first, txid in ((2, 4), (5, 6), (7, 7), (8, 8), (9, 11)):
            for attempt in (0, 1):
                amount = 10 * txid + attempt
                grouped.merge(
                    txid, [("ab"[attempt], amount), (f"of {txid}", 1)], attempt, first=first
                )
            expected["b"] += 10 * txid + 1
            expected[f"of {txid}"] = 1
            _holds(grouped, expected, txid=txid)
        assert grouped.held() == whole_ledger("topology", 1, 11, 1, 1, earlier=(1, 1))

    @proves(Rule.FENCE)
    def test_a_group_of_a_deposed_coordinator_is_refused(
        self, counts: State, grouped: StateDriver, drive: Drive, unfenced: None
    ) -> None:
        new = drive(counts, epoch=2)

        for first, txid in ((2, 4), (1, 2), (2, 2)):
            with pytest.raises(FencedError) as caught:
                grouped.merge(txid, [("a", 99)], attempt=9, first=first)
            assert caught.value.successor == 2
        new.merge(4, [("a", 10)], first=2)
        for first, txid in ((2, 4), (5, 6)):
            with pytest.raises(PromiseError):
                grouped.merge(txid, [("a", 99)], attempt=9, first=first)
        assert new.contents() == {"a": 11, "b": 1}
        assert new.held() == whole_ledger("topology", 2, 4, 2, 0, earlier=(0, 0))

    @proves(Rule.FENCE)
    def test_an_older_attempt_at_a_group_is_refused(self, grouped: StateDriver) -> None:
        grouped.merge(4, [("a", 10)], attempt=2, first=2)

        for attempt in (1, 0):
            with pytest.raises(FencedError):
                grouped.merge(4, [("a", 99), ("new", 99)], attempt, first=2)
        assert grouped.contents() == {"a": 11, "b": 1}
        assert grouped.held() == whole_ledger("topology", 1, 4, 1, 2, earlier=(2, 2))

    @proves(Rule.CLAIM)
    def test_the_ledger_keeps_the_attempts_of_a_group(
        self, counts: State, grouped: StateDriver, drive: Drive
    ) -> None:
        """They survive a claim and a reopening; a coordinator that takes over decides by them."""
        attempt = GroupAttempt(5, 3, 1, (0, 7, 1))
        written = commit_resolved(grouped.backend, attempt, partials(counts, [("a", 10)]))

        expected = whole_ledger("topology", 1, 5, 1, 3, earlier=(0, 7, 1))
        assert written == grouped.held() == expected
        assert written.writer == attempt
        grouped.close()
        new = drive(counts, epoch=2)
        assert new.ledger == whole_ledger("topology", 2, 5, 1, 3, earlier=(0, 7, 1))
        assert new.ledger.writer == attempt
        with pytest.raises(GroupBoundsError):
            new.merge(5, [("a", 99)])

    @proves(Rule.GROUP)
    def test_a_successor_undoes_the_group_of_its_predecessor(
        self, counts: State, grouped: StateDriver, drive: Drive
    ) -> None:
        """Numbers of attempts start at 0 in each epoch."""
        grouped.merge(3, [("a", 10), ("new", 1)], attempt=4, first=2)
        grouped.close()

        new = drive(counts, epoch=2)
        new.merge(3, [("b", 5)], first=2)
        assert new.contents() == {"a": 1, "b": 6}
        assert new.held() == whole_ledger("topology", 2, 3, 2, 0, earlier=(0,))
        new.merge(4, [("new", 1)])
        assert new.contents() == {"a": 1, "b": 6, "new": 1}

    @proves(Rule.OUTCOME)
    def test_a_group_that_landed_is_found_in_the_ledger(self, grouped: StateDriver) -> None:
        lose_answer(self, grouped, landed=True)

        written = grouped.merge(4, [("a", 10)], attempt=3, first=2)
        assert written == whole_ledger("topology", 1, 4, 1, 3, earlier=(3, 3))
        assert grouped.contents() == {"a": 11, "b": 1}
        assert grouped.merge(6, [("a", 1)], first=5).txid == 6

    @proves(Rule.OUTCOME)
    def test_a_group_that_was_lost_is_tried_again(self, grouped: StateDriver) -> None:
        lose_answer(self, grouped, landed=False)

        with pytest.raises(StoreUnavailable):
            grouped.merge(4, [("a", 10)], first=2)
        _holds(grouped, {"a": 1, "b": 1}, txid=1)
        grouped.merge(4, [("a", 10)], first=2)
        _holds(grouped, {"a": 11, "b": 1}, txid=4)

    @pytest.mark.parametrize("landed", [True, False])
    @proves(Rule.OUTCOME)
    def test_a_group_counts_once_whatever_became_of_its_write(
        self, grouped: StateDriver, landed: bool
    ) -> None:
        """The ledger could not be read. The next attempt, with other batches, decides."""
        group = grouped.attempt(4, first=2)
        lose_answer(self, grouped, landed=landed)

        with pytest.raises(UnknownOutcomeError):
            grouped.backend.commit(group, partials(grouped.state, [("a", 50), ("new", 50)]))
        assert grouped.merge(4, [("b", 1)], attempt=1, first=2).txid == 4
        assert grouped.contents() == {"a": 1, "b": 2}

    @proves(Rule.EXACT)
    def test_a_group_that_does_not_fit_is_refused_whole(self, grouped: StateDriver) -> None:
        """Nothing of the group is written, so its first txid can be committed separately."""
        with pytest.raises(ValueRefusedError):
            grouped.merge(3, [("a", LARGEST), ("new", 1)], first=2)
        _holds(grouped, {"a": 1, "b": 1}, txid=1)
        grouped.merge(2, [("new", 1)])
        _holds(grouped, {"a": 1, "b": 1, "new": 1}, txid=2)

    @proves(Rule.KEPT)
    def test_a_transactional_state_keeps_the_rows_of_a_held_group(
        self, kept_counts: State, drive: Drive
    ) -> None:
        store = _taking_groups(drive(kept_counts))
        store.merge(1, [("a", 1)])
        store.merge(3, [("a", 2), ("b", 1)], first=2)

        again = store.merge(3, [("a", 2), ("b", 1)], attempt=1, first=2)
        assert store.contents() == {"a": 3, "b": 1}
        assert again == store.held() == whole_ledger("topology", 1, 3, 1, 1, earlier=(1,))
        with pytest.raises(GroupBoundsError):
            store.merge(3, [("a", 2)], attempt=2)
        store.merge(5, [("b", 1)], first=4)
        assert store.contents() == {"a": 3, "b": 2}

    @proves(Rule.GROUP)
    def test_a_reader_never_sees_a_part_of_a_group(
        self, counts: State, drive: Drive, whole_readings: None
    ) -> None:
        """A reader reads all the time while groups of three are written and written again."""
        store = _taking_groups(drive(counts))
        batches = {
            store.attempt(last, attempt, first=last - 2): [
                *(("every", 1), (f"{last} {attempt}", 1), ("attempts", attempt)),
                *((key, last) for key in "abcdefgh"[last % 5 :]),
            ]
            for last in range(3, 46, 3)
            for attempt in range(2)
        }

        samples = sampled(counts, store, batches)
        folds = dict(folds_of(batches))
        whole = {0, *(attempt.txid for attempt in batches)}
        assert {attempt.txid for attempt, _ in samples} <= whole, "a txid within a group was seen"
        assert wrong_samples(samples, lambda attempt: folds[attempt]) == []

    @pytest.fixture
    def whole_readings(self) -> None:
        """Skip a test that needs atomic reading."""
        if not self.atomic_reader:
            pytest.skip("a reader of the store may see half a batch: atomic_reader = False")


def _taking_groups(store: StateDriver) -> StateDriver:
    if not store.backend.groups:
        pytest.skip("the store is given no groups: its StateBackend.groups is False")
    return store


def _holds(store: StateDriver, contents: dict[str, int], *, txid: int) -> None:
    held = store.held()
    assert (store.contents(), held and held.txid) == (contents, txid)


class PutGroupSuite(StoreFixtures):
    """Groups of final values in an opaque state."""

    @pytest.fixture
    def written(self, state: State, drive: Drive) -> StateDriver:
        """A state of final values that holds txid 1."""
        store = _taking_groups(drive(state))
        store.puts(1, {"a": 1, "b": 1, "c": 1})
        return store

    @proves(Rule.GROUP)
    def test_a_row_of_a_group_says_what_was_before_it(self, written: StateDriver) -> None:
        written.puts(4, {"a": 4, "new": 4, "c": None}, first=2)

        rows = stored_rows(written)
        assert (rows["a",].txid, rows["a",].current) == (4, (4,))
        assert rows["a",].before(4) == (1,)
        assert rows["b",].before(4) == (1,)
        assert rows["c",].deleted
        assert rows["c",].before(4) == (1,)
        assert rows["new",].before(4) is None

    @proves(Rule.TOMBSTONE)
    def test_a_removal_in_a_group_is_hidden_undone_and_swept(self, written: StateDriver) -> None:
        written.puts(3, {"a": None, "never there": None}, first=2)
        assert written.contents() == {"b": 1, "c": 1}

        written.puts(3, {"b": None}, attempt=1, first=2)
        assert written.contents() == {"a": 1, "c": 1}
        written.puts(3, {"b": None, "a": 5}, attempt=2, first=2)
        assert written.contents() == {"a": 5, "c": 1}
        assert stored_rows(written)["b",].deleted
        written.puts(6, {"c": 6}, first=4)
        assert set(stored_rows(written)) == {("a",), ("c",)}
        written.puts(6, {}, attempt=1, first=4)
        assert written.contents() == {"a": 5, "c": 1}

    @proves(Rule.TOMBSTONE)
    def test_a_key_comes_back_in_the_group_after_its_removal(self, written: StateDriver) -> None:
        written.puts(3, {"a": None}, first=2)

        written.puts(5, {"a": 5}, first=4)
        assert written.contents() == {"a": 5, "b": 1, "c": 1}
        written.puts(5, {}, attempt=1, first=4)
        assert written.contents() == {"b": 1, "c": 1}

    @proves(Rule.GROUP)
    def test_a_txid_reads_what_those_before_it_in_the_group_wrote(
        self, written: StateDriver
    ) -> None:
        """The same holds in a redo, which starts from the rows before the group."""
        for attempt in range(3):
            seen = written.run_group(4, [_removing, _reading, adding(("a", 5), ("c", 5))], attempt)
            assert seen == [
                [10, 11],
                ([None, 11, 1], [("b", 11), ("c", 1)]),
                [5, 6],
            ]
            assert written.contents() == {"a": 5, "b": 11, "c": 6}
        assert written.run_group(6, [adding(("b", 1)), adding(("b", 1))]) == [[12], [13]]

    @proves(Rule.KEPT)
    def test_a_transactional_group_that_is_held_discards_its_writes(
        self, kept: State, drive: Drive
    ) -> None:
        store = _taking_groups(drive(kept))
        store.puts(3, {"a": 1, "b": 2}, first=1)

        for epoch in (1, 2):
            store = drive(kept, epoch)
            store.puts(3, {"a": 9, "new": 9}, attempt=epoch, first=1)
            assert store.contents() == {"a": 1, "b": 2}
            assert store.held() == whole_ledger(
                "topology", epoch, 3, epoch, epoch, earlier=(epoch,) * 2
            )
        store.puts(5, {"a": None, "b": 5}, first=4)
        assert store.contents() == {"b": 5}


def _removing(state: StateTransaction) -> object:
    seen = adding(("a", 9), ("b", 10))(state)
    state.delete("a")
    return seen


def _reading(state: StateTransaction) -> object:
    return state.get_all(["a", "b", "c"]), sorted(state.items())
