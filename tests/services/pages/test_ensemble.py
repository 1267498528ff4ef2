"""The page of an ensemble that goes away answers at once, and again when the ensemble is back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.polling import wait_until
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.harness.web import TOKEN, ask
from tests.unit.ui.pages.test_server import on_page, words
from txtopo import Config
from txtopo.operations.ensemble import Ensemble
from txtopo.ui.pages import site
from txtopo.ui.pages.server import PageServer
from txtopo.ui.pages.sources import EnsembleSource

pytestmark = pytest.mark.service("zookeeper")

API = "/api/v1/topologies"


def test_an_ensemble_that_is_away_is_told_and_comes_back_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "_CALL_S", 2.0)
    with ZooKeeperProcess() as server:
        config = Config(zookeeper=server.hosts)
        with words(tmp_path).start(config=replace(on_page(), zookeeper=server.hosts)) as run:
            run.process_all_available()
        with Ensemble.open(config) as ensemble, PageServer(EnsembleSource(ensemble)) as page:
            there = ask(page.url, API)
            server.stop()
            wait_until(lambda: ask(page.url, API).status == 503, "an answer that it is away")
            away = [ask(page.url, path) for path in (API, f"{API}/words", "/readyz", "/healthz")]
            server.start()
            wait_until(lambda: ask(page.url, API).status == 200, "the ensemble")
            back = ask(page.url, f"{API}/words")

    assert there.json["topologies"][0]["txid"] == 3
    assert [each.status for each in away] == [503, 503, 503, 200]
    assert away[0].json["error"]
    assert back.json["txid"] == 3


def test_a_page_of_a_run_passes_a_command_to_its_leader(
    zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    config = replace(on_page(), zookeeper=f"{zookeeper.hosts}/commands-of-a-page")
    with words(tmp_path).start(config=config) as run:
        run.process_all_available()
        assert run.page_url is not None
        one = f"{API}/words/commands"
        answer = ask(run.page_url, one, {"verb": "deactivate"}, token=TOKEN)
        wait_until(lambda: run.status == "deactivated", "a deactivated run")

    assert answer.status == 200
    assert (answer.json["status"], answer.json["refused"]) == ("deactivated", None)
