"""Queries that continue each other while another one still runs: nothing is lost without an error.

The claims are those of ``foreach_batch``; what it would compute is written straight to the states,
so that no Spark is needed and the other query may come in between at any step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from state_backends.delta import backend as delta_backend
from state_backends.delta.merging import commit_nothing
from txtopo import Config, Fields, PersistentAggregate, Topology, TransactionalTopologyBuilder
from txtopo.attempt import TransactionAttempt
from txtopo.errors import ConfigError, PromiseError
from txtopo.frames import foreach_batch
from txtopo.frames.foreach_batch import StreamRun
from txtopo.runtime.scheduler import ThreadScheduler
from txtopo.spouts import StreamSpout
from txtopo.state import Count, Ledger, StateKind, open_state
from txtopo.state.backend import Puts, StateBackend
from txtopo.state.commit import claim_state, commit_resolved

pytestmark = pytest.mark.integration
KINDS: tuple[StateKind, ...] = ("opaque", "transactional")


@pytest.fixture(params=["sqlite", "delta"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"sqlite": f"sqlite:///{tmp_path}/words.db", "delta": f"delta://{tmp_path}/words"}[
        request.param
    ]


class Query:
    """One start of a query; *after_txid* is what it is told."""

    def __init__(
        self,
        url: str,
        kind: StateKind,
        id: str,
        *,
        continues: str | None = None,
        after_txid: int = 0,
        batch: int = 0,
    ) -> None:
        builder = TransactionalTopologyBuilder("words", "in", StreamSpout(Fields("word string")))
        words = PersistentAggregate(open_state(url, kind), "word", Count())
        builder.set_bolt("words", words).fields_grouping("in", "word")
        topology: Topology = builder.build_topology()
        config = Config(carrier="local", slots=1)
        frame: Any = None
        self._after_txid = after_txid
        self.run = StreamRun(topology.graph, config, id, frame, ThreadScheduler("query"))
        self.run.claim(batch + 1 + after_txid, continues=continues, after_txid=after_txid)

    def commit(self, batch: int, word: str) -> None:
        txid = batch + 1 + self._after_txid
        if self.run._held_by_all(txid):
            return
        (backend,) = self.run._backends.values()
        attempt = TransactionAttempt(txid, 0, self.run._epoch, term=self.run._term)
        commit_resolved(backend, attempt, Puts({(word,): (1,)}))


def words(url: str) -> list[str]:
    with open_state(url, table="words").reader() as reader:
        return sorted(key for key, _ in reader.items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_committed_just_before_the_claim_is_not_undone(
    url: str, kind: StateKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Query(url, kind, "one")
    first.commit(0, "x")

    def late(backend: StateBackend, *arguments: object) -> Ledger:
        first.commit(1, "y")
        return claim_state(backend, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(foreach_batch, "claim_state", late)
    with pytest.raises(PromiseError):
        Query(url, kind, "two", continues="one", after_txid=1)

    assert words(url) == ["x", "y"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_comes_within_a_claim_in_delta_is_refused(
    tmp_path: Path, kind: StateKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the transaction of the new owner and the name that says where to look for it."""
    url = f"delta://{tmp_path}/words"
    first = Query(url, kind, "one")
    first.commit(0, "x")

    def with_a_guest(*arguments: object) -> None:
        commit_nothing(*arguments)  # type: ignore[arg-type]
        with pytest.raises(PromiseError):
            first.commit(1, "lost")

    monkeypatch.setattr(delta_backend, "commit_nothing", with_a_guest)
    second = Query(url, kind, "two", continues="one", after_txid=1)
    monkeypatch.setattr(delta_backend, "commit_nothing", commit_nothing)
    second.commit(0, "y")

    assert words(url) == ["x", "y"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_that_was_continued_is_told_so_at_its_next_batch(url: str, kind: StateKind) -> None:
    """A transactional state holds that txid already: from the other query."""
    first = Query(url, kind, "one")
    first.commit(0, "x")
    Query(url, kind, "two", continues="one", after_txid=1).commit(0, "y")

    with pytest.raises(PromiseError):
        first.commit(1, "lost")
    assert words(url) == ["x", "y"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", [{}, {"continues": "one", "after_txid": 2}])
def test_a_later_start_says_the_same_as_the_first(
    url: str, kind: StateKind, said: dict[str, Any]
) -> None:
    """Else its batches would have other txids: one would be undone, or count twice."""
    Query(url, kind, "one").commit(0, "x")
    Query(url, kind, "two", continues="one", after_txid=1).commit(0, "y")

    with pytest.raises(ConfigError, match=r"with after_txid=1.*the same continues"):
        Query(url, kind, "two", **said, batch=1)
    Query(url, kind, "two", continues="one", after_txid=1, batch=1).commit(1, "z")
    assert words(url) == ["x", "y", "z"]
