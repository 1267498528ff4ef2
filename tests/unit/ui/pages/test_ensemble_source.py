"""The page of an ensemble shows all its topologies and passes commands on to their leaders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.harness.polling import wait_until
from tests.harness.runs import started
from tests.harness.web import TOKEN, ask, listening
from tests.unit.ui.pages.test_server import on_page, words
from txtopo import Config, Page
from txtopo.ensemble import MemoryEnsemble
from txtopo.ensemble.memory import MemoryTransactionalState
from txtopo.ensemble.nodes import EPOCH
from txtopo.ensemble.store import Put
from txtopo.operations.ensemble import Ensemble
from txtopo.ui.pages.server import PageServer
from txtopo.ui.pages.sources import EnsembleSource

API = "/api/v1/topologies"


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    return MemoryEnsemble()


@pytest.fixture
def page(ensemble: MemoryEnsemble) -> Iterator[str]:
    """The page of an ensemble."""
    with (
        Ensemble.open(Config(zookeeper="memory"), ensemble=ensemble) as opened,
        PageServer(EnsembleSource(opened, "memory"), Page(token=TOKEN)) as server,
    ):
        yield server.url


def test_a_topology_that_runs_is_listed_with_its_page(
    page: str, ensemble: MemoryEnsemble, tmp_path: Path
) -> None:
    with started(words(tmp_path), on_page(), ensemble) as run:
        run.process_all_available()

        def listed() -> dict[str, Any]:
            (row,) = ask(page, API, token=TOKEN).json["topologies"]
            return row  # type: ignore[no-any-return]

        wait_until(lambda: listed()["txid"] == 3, "the summary is no earlier than the last commit")
        row = listed()
        txids = ask(page, f"{API}/words/txids", token=TOKEN)

    assert (row["topology"], row["txid"], row["status"]) == ("words", 3, "running")
    assert row["leader"]["pid"]
    assert txids.status == 404
    assert "only the process that runs 'words' has this" in txids.json["error"]


def test_a_topology_that_does_not_run_is_listed_as_stopped(
    page: str, ensemble: MemoryEnsemble, tmp_path: Path
) -> None:
    with started(words(tmp_path), on_page(), ensemble) as run:
        run.process_all_available()
    figures = ask(page, f"{API}/words", token=TOKEN).json

    assert (figures["status"], figures["txid"], figures["leader"]) == ("stopped", 3, None)
    assert [ask(page, f"/topologies/{id}", token=TOKEN).status for id in ("words", "x")] == [
        200,
        404,
    ]


@pytest.mark.parametrize("id", ["..", "%00", "a%2fb", "__x", quote("<script>")])
def test_an_id_that_no_topology_can_have_is_not_found(page: str, id: str) -> None:
    assert ask(page, f"{API}/{id}", token=TOKEN).status == 404


def test_changes_of_an_ensemble_are_told(
    page: str, ensemble: MemoryEnsemble, tmp_path: Path
) -> None:
    with started(words(tmp_path), on_page(), ensemble) as run:
        run.process_all_available()
        wait_until(lambda: ask(page, f"{API}/words", token=TOKEN).status == 200, "the topology")
        told = listening(page, f"{API}/words/events", Authorization=f"Bearer {TOKEN}")
        with told as events:
            assert next(events)[0] == ""
            name, first = next(events)
            run.stop()
            second = next(each for kind, each in events if kind == "change")

    assert name == "change"
    assert first["figures"]["status"] == "running"
    assert second["version"] > first["version"]


def test_a_thousand_topologies_are_listed(page: str, ensemble: MemoryEnsemble) -> None:
    for number in range(1_000):
        state = MemoryTransactionalState(f"topology-{number:04}", ensemble)
        state.apply([Put(EPOCH, {"schema": 1, "epoch": 1})])
    rows = ask(page, API, token=TOKEN).json["topologies"]

    assert len(rows) == 1_000
    assert ask(page, "/", token=TOKEN).status == 200


def test_an_ensemble_has_no_metrics_of_its_own(page: str) -> None:
    reply = ask(page, "/metrics", token=TOKEN)

    assert reply.status == 404
    assert "each run" in reply.json["error"]
