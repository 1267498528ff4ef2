"""TransactionalStateSuite: what an ensemble must do; subclass it to test one.

* :class:`NodesSuite`: values and versions, compare-and-set, several nodes in one write.
* :class:`ClientsSuite`: several clients at once: what they see of each other, and the fence.
* :class:`ElectionSuite`: who leads, and what a session that ends leaves behind.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from txtopo.attempt import TransactionAttempt
from txtopo.clock import now
from txtopo.ensemble.journal import Journal
from txtopo.ensemble.nodes import STEP_BYTES_MAX, StoredBatch
from txtopo.ensemble.store import (
    Check,
    CompareAndSet,
    Delete,
    Leadership,
    Node,
    Put,
    Step,
    TransactionalState,
    VersionConflict,
)
from txtopo.errors import BatchMetadataTooLarge, EmitError, FencedError
from txtopo.metadata import Json
from txtopo.testing.conformance.ensemble_dying_suites import DyingEnsembleSuite
from txtopo.testing.conformance.ensemble_fixtures import (
    Connect,
    EnsembleFixtures,
    EnsembleRule,
    OpenClient,
)
from txtopo.testing.conformance.rules import proves

# A batch is planned in some hundred bytes; a coordinator fills a write up to the limit.
_LARGE = "x" * (STEP_BYTES_MAX * 3 // 4)


def nothing() -> None:
    """Ignore a lost leadership."""


class NodesSuite(EnsembleFixtures):
    """Nodes, as one client sees them."""

    @proves(EnsembleRule.READS)
    def test_a_node_that_was_never_written_is_none(self, state: TransactionalState) -> None:
        assert state.get("/epoch") is None
        assert state.children("/batches") == []

    @proves(EnsembleRule.VERSIONS)
    def test_each_write_of_a_node_adds_one_to_its_version(self, state: TransactionalState) -> None:
        for value in range(3):
            state.apply([Put("/current", value)])
        assert state.get("/current") == Node(2, 2)

        state.apply([Put("/current", 3), Put("/current", 4)])
        assert state.get("/current") == Node(4, 4), "also of one write"

    @proves(EnsembleRule.VERSIONS)
    def test_a_node_that_was_deleted_begins_again(self, state: TransactionalState) -> None:
        for value in range(2):
            state.apply([Put("/current", value)])
        state.apply([Delete("/current")])

        assert state.get("/current") is None
        state.apply([CompareAndSet("/current", 3, None)])
        assert state.get("/current") == Node(3, 0)

    @proves(EnsembleRule.TIMED)
    def test_a_node_tells_when_it_was_written_last(self, state: TransactionalState) -> None:
        assert state.written_s("/epoch") is None, "it was not written yet"
        state.apply([Put("/epoch", 1)])
        first_s = state.written_s("/epoch")
        if first_s is None:
            pytest.skip("written_s: this ensemble does not tell its time, and runs without it")
        end_s = now() + self.wait_s
        later_s: float | None = first_s
        while later_s == first_s and now() < end_s:
            state.apply([Put("/current", 1)])
            later_s = state.written_s("/current")
        assert later_s is not None
        assert later_s > first_s, "time continues"
        state.apply([Put("/epoch", 2)])

        last_s = state.written_s("/epoch")

        assert last_s is not None
        assert last_s >= later_s

    @pytest.mark.parametrize(
        "value", [None, True, 0, -1.5, "ü\x00\ud800", [], {"a": [1, {"b": None}]}, 2**70]
    )
    @proves(EnsembleRule.EXACT)
    def test_json_comes_back_as_it_was(self, state: TransactionalState, value: Json) -> None:
        state.apply([Put("/current", value)])

        found = state.get("/current")
        assert found == Node(value, 0)
        assert found is not None
        assert type(found.value) is type(value)

    @pytest.mark.parametrize("value", [{1: "a"}, float("nan"), b"bytes", {"a": object()}])
    @proves(EnsembleRule.EXACT)
    def test_what_json_would_change_is_refused(
        self, state: TransactionalState, value: Json
    ) -> None:
        with pytest.raises(EmitError):
            state.apply([Put("/other", 1), Put("/current", value)])
        assert state.get("/other") is None

    @proves(EnsembleRule.EXACT)
    def test_a_large_write_is_kept_whole_and_one_too_large_refused_whole(
        self, state: TransactionalState
    ) -> None:
        """The framework fills a write up to ``STEP_BYTES_MAX``."""
        state.apply([Put("/batches/1", _LARGE)])
        assert state.get("/batches/1") == Node(_LARGE, 0)

        try:
            state.apply([Put(f"/batches/{n}", _LARGE) for n in range(2, 6)])
        except BatchMetadataTooLarge:
            assert state.children("/batches") == ["1"]
        else:
            assert state.children("/batches") == ["1", "2", "3", "4", "5"]

    @proves(EnsembleRule.READS)
    def test_children_are_sorted_and_their_parent_has_no_value(
        self, state: TransactionalState
    ) -> None:
        state.apply([Put("/batches/2", 2), Put("/batches/10", 10), Put("/batches/1", 1)])

        assert state.children("/batches") == ["1", "10", "2"]
        assert state.get("/batches") is None

    @pytest.mark.parametrize("at", [0, 2])
    @proves(EnsembleRule.ONE_WRITE)
    def test_a_failed_check_undoes_the_whole_write(
        self, state: TransactionalState, at: int
    ) -> None:
        state.apply([Put("/epoch", 1), Put("/old", 1)])
        steps: list[Step] = [Put("/current", 2), Delete("/old")]
        steps.insert(at, Check("/epoch", 7))

        with pytest.raises(VersionConflict) as conflict:
            state.apply(steps)
        assert conflict.value.path.endswith("/epoch")
        assert state.get("/current") is None
        assert state.get("/old") == Node(1, 0)

    @proves(EnsembleRule.COMPARE)
    def test_compare_and_set_wants_the_version_that_it_names(
        self, state: TransactionalState
    ) -> None:
        state.apply([CompareAndSet("/epoch", "a", None)])
        state.apply([CompareAndSet("/epoch", "b", 0)])

        for version in (None, 0, 2):
            with pytest.raises(VersionConflict):
                state.apply([CompareAndSet("/epoch", "c", version)])
        with pytest.raises(VersionConflict):
            state.apply([CompareAndSet("/none", "c", 0)])
        assert state.get("/epoch") == Node("b", 1)
        assert state.get("/none") is None

    @proves(EnsembleRule.COMPARE)
    def test_steps_of_a_write_see_those_before(self, state: TransactionalState) -> None:
        """The first claim of an epoch, for example, writes its node several times."""
        state.apply([CompareAndSet("/epoch", 1, None), Put("/epoch", 2), Check("/epoch", 1)])

        assert state.get("/epoch") == Node(2, 1)

    @proves(EnsembleRule.AGAIN)
    def test_steps_that_were_done_may_be_done_again(self, state: TransactionalState) -> None:
        state.apply([Put("/epoch", 1), Put("/batches/1", 1)])
        steps: list[Step] = [Check("/epoch", 0), Put("/batches/2", 2)]
        steps += [Delete("/batches/1"), Delete("/batches/9")]

        state.apply(steps)
        state.apply(steps)
        assert state.children("/batches") == ["2"]


class ClientsSuite(EnsembleFixtures):
    """Several clients of one topology."""

    @proves(EnsembleRule.READS)
    def test_after_synchronize_a_client_sees_what_others_wrote(self, connect: Connect) -> None:
        one, other = connect(), connect()
        for value in range(3):
            one.apply([Put("/current", value), Put(f"/batches/{value}", value)])
            other.synchronize()
            assert other.get("/current") == Node(value, value)
            assert other.children("/batches") == [str(n) for n in range(value + 1)]

    @proves(EnsembleRule.COMPARE)
    def test_a_write_is_compared_with_what_others_wrote(self, connect: Connect) -> None:
        """No synchronize is needed: a write never relies on what its client has read."""
        one, other = connect(), connect()
        one.apply([Put("/epoch", 1)])
        assert one.get("/epoch") == Node(1, 0)
        other.apply([Put("/epoch", 2)])

        for step in (CompareAndSet("/epoch", 3, 0), Check("/epoch", 0)):
            with pytest.raises(VersionConflict):
                one.apply([step, Put("/current", 1)])
        one.apply([CompareAndSet("/epoch", 3, 1)])
        other.synchronize()
        assert other.get("/epoch") == Node(3, 2)
        assert other.get("/current") is None

    @proves(EnsembleRule.AGAIN)
    def test_clients_need_not_know_what_others_created_or_deleted(self, connect: Connect) -> None:
        one, other = connect(), connect()
        one.apply([Put("/batches/1", 1), Put("/batches/2", 1)])
        other.apply([Put("/batches/1", 2), Delete("/batches/2")])

        one.apply([Put("/batches/2", 3), Delete("/batches/1")])
        other.synchronize()
        assert other.get("/batches/1") is None
        assert other.get("/batches/2") == Node(3, 0)

    @proves(EnsembleRule.COMPARE)
    def test_of_clients_at_once_no_increment_is_lost(self, connect: Connect) -> None:
        clients = [connect() for _ in range(4)]
        clients[0].apply([Put("/n", 0)])

        def count(client: TransactionalState) -> None:
            won = 0
            while won < self.increments:
                client.synchronize()
                found = client.get("/n")
                assert found is not None
                assert isinstance(found.value, int)
                try:
                    client.apply([CompareAndSet("/n", found.value + 1, found.version)])
                    won += 1
                except VersionConflict:
                    continue

        with ThreadPoolExecutor(len(clients)) as threads:
            for done in [threads.submit(count, client) for client in clients]:
                done.result()
        clients[0].synchronize()
        every = len(clients) * self.increments
        assert clients[0].get("/n") == Node(every, every), "an increment was lost"

    @proves(EnsembleRule.FENCE)
    def test_of_claims_at_once_each_epoch_has_one_owner(self, connect: Connect) -> None:
        clients = [connect() for _ in range(4)]

        def claim(client: TransactionalState) -> int | None:
            try:
                return Journal(client).claim_epoch("candidate", token="ensemble")
            except FencedError:
                return None

        for _ in range(3):
            with ThreadPoolExecutor(len(clients)) as threads:
                won = [epoch for epoch in threads.map(claim, clients) if epoch is not None]
            assert won, "one of them has to win"
            assert len(set(won)) == len(won), f"two coordinators have the same epoch: {won}"

    @proves(EnsembleRule.FENCE)
    def test_a_deposed_coordinator_writes_nothing(self, connect: Connect) -> None:
        one, other = Journal(first := connect()), Journal(connect())
        assert one.claim_epoch("one", token="ensemble") == 1
        one.load()
        one.store_batches([_batch(1)])
        assert other.claim_epoch("other", token="ensemble") == 2

        with pytest.raises(FencedError):
            one.store_batches([_batch(2)])
        with pytest.raises(FencedError):
            one.advance(2)
        first.synchronize()
        assert first.get("/current") == Node({"current": 1}, 0)
        assert len(first.children("/batches")) == 1
        contents = other.load()
        assert (contents.current, list(contents.batches)) == (1, [1])

    @proves(EnsembleRule.DURABLE)
    def test_what_was_written_is_there_for_who_connects_next(self, connect: Connect) -> None:
        """A process that is killed closes nothing."""
        connect().apply([Put("/epoch", 1), Put("/batches/1", 1)])
        closed = connect()
        closed.apply([Put("/current", 1)])
        closed.close()

        later = connect()
        later.synchronize()
        assert later.get("/epoch") == Node(1, 0)
        assert later.get("/current") == Node(1, 0)
        assert later.children("/batches") == ["1"]

    @proves(EnsembleRule.APART)
    def test_topologies_do_not_see_each_other(self, open_client: OpenClient) -> None:
        ids = [uuid.uuid4().hex for _ in range(2)]
        one, other = map(open_client, ids)
        try:
            one.apply([Put("/epoch", 1)])

            assert other.get("/epoch") is None
            assert one.lead("one", timeout_s=self.wait_s, on_lost=nothing)
            assert other.lead("other", timeout_s=self.wait_s, on_lost=nothing)
        finally:
            one.close()
            other.close()

    @proves(EnsembleRule.SESSION)
    def test_closing_twice_is_harmless(self, state: TransactionalState) -> None:
        state.close()
        state.close()


class ElectionSuite(EnsembleFixtures):
    """Candidates of one topology."""

    @proves(EnsembleRule.LEADER)
    def test_nobody_leads_at_first(self, state: TransactionalState) -> None:
        assert state.leader() is None

    @proves(EnsembleRule.LEADER)
    def test_one_candidate_leads_and_the_next_follows_its_release(self, connect: Connect) -> None:
        one, other = connect(), connect()
        first = self._lead(one, "one")

        assert other.lead("other", timeout_s=0.1, on_lost=nothing) is None
        assert self._leader_is(other, "one")
        first.release()
        self._lead(other, "other")
        assert self._leader_is(one, "other")
        first.release()
        assert self._leader_is(one, "other"), "a release that comes twice is of no one else"

    @proves(EnsembleRule.LEADER)
    def test_a_candidate_keeps_its_place_from_one_call_to_the_next(self, connect: Connect) -> None:
        leader, early, late = connect(), connect(), connect()
        leadership = self._lead(leader, "leader")
        for _ in range(2):
            assert early.lead("early", timeout_s=0.1, on_lost=nothing) is None
            assert late.lead("late", timeout_s=0.1, on_lost=nothing) is None
        leadership.release()

        assert late.lead("late", timeout_s=0.1, on_lost=nothing) is None
        self._lead(early, "early")

    @proves(EnsembleRule.LEADER)
    def test_a_client_that_released_may_lead_again(self, state: TransactionalState) -> None:
        for _ in range(2):
            self._lead(state, "one").release()

    @proves(EnsembleRule.SESSION)
    def test_a_waiting_candidate_wakes_up_when_the_leader_closes(self, connect: Connect) -> None:
        one, other = connect(), connect()
        self._lead(one, "one")
        timer = threading.Timer(0.2, one.close)
        timer.start()

        self._lead(other, "other")
        timer.join()

    @proves(EnsembleRule.SESSION)
    def test_a_session_that_expires_tells_its_leader_and_lets_the_next_lead(
        self, connect: Connect
    ) -> None:
        """The old leader may not know, and the epoch keeps it from writing."""
        one, rival, told = connect(), connect(), threading.Semaphore(0)
        journal, successor = Journal(one), Journal(rival)
        assert one.lead("one", timeout_s=self.wait_s, on_lost=told.release)
        journal.claim_epoch("one", token="ensemble")

        self.expire(one)
        self._lead(rival, "rival")
        successor.claim_epoch("rival", token="ensemble")
        assert told.acquire(timeout=self.wait_s), "on_lost was not called"
        assert not told.acquire(blocking=False), "on_lost was called twice"
        with pytest.raises(FencedError):
            journal.store_batches([_batch(1)])
        assert one.lead("one", timeout_s=0.1, on_lost=nothing) is None
        assert self._leader_is(one, "rival")

    @proves(EnsembleRule.SESSION)
    def test_who_gave_up_the_leadership_is_not_told_that_it_is_lost(self, connect: Connect) -> None:
        one, told = connect(), threading.Event()
        leadership = one.lead("one", timeout_s=self.wait_s, on_lost=told.set)
        assert leadership is not None

        leadership.release()
        one.close()
        assert not told.is_set()

    @proves(EnsembleRule.ANNOUNCED)
    def test_what_the_leader_announces_is_seen_by_others_until_it_gives_up(
        self, connect: Connect
    ) -> None:
        one, other = self._announcing(connect), connect()
        leadership = self._lead(one, "one")
        assert other.announced() is None
        for txid in (1, 2):
            one.announce({"txid": txid, "lag": [None, 0.5, "x"]})
            other.synchronize()
            assert other.announced() == {"txid": txid, "lag": [None, 0.5, "x"]}
        assert self._leader_is(other, "one")

        leadership.release()
        other.synchronize()

        assert other.announced() is None

    @proves(EnsembleRule.ANNOUNCED)
    def test_who_does_not_lead_announces_nothing(self, connect: Connect) -> None:
        one, other = self._announcing(connect), connect()
        other.announce({"txid": 1})
        leadership = self._lead(one, "one")
        assert other.lead("other", timeout_s=0.1, on_lost=nothing) is None
        one.announce({"txid": 2})
        other.announce({"txid": 3})

        other.synchronize()
        assert other.announced() == {"txid": 2}
        leadership.release()
        one.announce({"txid": 4})
        self._lead(other, "other")
        assert other.announced() is None

    def _announcing(self, connect: Connect) -> TransactionalState:
        state = connect()
        if not state.announces:
            pytest.skip("announces: this ensemble shows no summaries, and runs without them")
        return state

    def _lead(self, state: TransactionalState, name: str) -> Leadership:
        leadership = state.lead(name, timeout_s=self.wait_s, on_lost=nothing)
        assert leadership is not None, f"{name} has to lead within {self.wait_s:g} s"
        return leadership

    def _leader_is(self, state: TransactionalState, name: str) -> bool:
        state.synchronize()
        return state.leader() == name


class TransactionalStateSuite(NodesSuite, ClientsSuite, ElectionSuite, DyingEnsembleSuite):
    """Proves that a :class:`~txtopo.plugins.ensembles.TransactionalState` keeps its promises.

    Subclass it in the tests of a plug-in and run ``pytest``. The subclass or its module needs one
    fixture ``open_client``: a function of a topology id that connects once more to the ensemble.
    Override ``expire`` if a session can be ended by force; otherwise its test is skipped. The
    attributes ``wait_s`` and ``increments``
    (:class:`~txtopo.testing.conformance.ensemble_fixtures.EnsembleFixtures`) set how long it waits
    and how much it writes.

    A failing test names the rule that is broken (:class:`EnsembleRule`). The suite makes about 280
    writes: 4 s with 5 ms a write. It does not show that an answer lost with a connection is
    resolved, or that several servers agree; to test that, break the network between them.

    Example:
        >>> from txtopo.plugins.ensembles import MemoryTransactionalState
        >>> from txtopo.ensemble import MemoryEnsemble
        >>> class TestMemory(TransactionalStateSuite):
        ...     @pytest.fixture
        ...     def open_client(self):
        ...         ensemble = MemoryEnsemble()
        ...         return lambda topology_id: MemoryTransactionalState(topology_id, ensemble)
        ...
        ...     def expire(self, client):
        ...         client.expire()
    """


def _batch(txid: int) -> StoredBatch:
    return StoredBatch(TransactionAttempt(txid, 0, 1), "metadata")
