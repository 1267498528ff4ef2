"""A page is served beside a run: it begins and ends with it, and never ends or holds up the run."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import LOCAL
from tests.harness.web import TOKEN, ask, listening
from tests.unit.ui.pages.literal import LiteralSource
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Config,
    Count,
    Fields,
    Page,
    PersistentAggregate,
    Restart,
    Topology,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.clock import wall_clock
from txtopo.errors import ConfigError, StoreUnavailable
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout
from txtopo.ui.board import Board
from txtopo.ui.pages.server import PageServer, listen, url_of
from txtopo.ui.pages.sources import RunSource

WORD = Fields("word string")
WORDS = [["a"], ["b"], ["a"]]


class Failing(BasicBolt):
    """Fails until it has failed often enough."""

    output_fields = WORD
    left = 0

    def execute(self, tuple: Any, collector: Any) -> None:
        if Failing.left > 0:
            Failing.left -= 1
            raise RuntimeError("<script>alert('no')</script>")
        collector.emit([tuple["word"]])


def words(folder: Path, failures: int = 0) -> Topology:
    """Return a topology that counts words."""
    Failing.left = failures
    spout = MemoryTransactionalSpout({0: WORDS}, WORD, 1)
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    builder.set_bolt("failing", Failing()).shuffle_grouping("spout")
    count = PersistentAggregate(open_state(f"sqlite:///{folder}/words.db"), "word", Count())
    builder.set_bolt("count", count).fields_grouping("failing", "word")
    return builder.build_topology()


def on_page(**page: Any) -> Config:
    """Return the settings of a run with a page."""
    return replace(LOCAL, page=Page(**{"token": TOKEN, **page}))


def is_free(url: str) -> bool:
    """Return whether another server could listen at the port of *url*."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return tried.connect_ex(("127.0.0.1", urlsplit(url).port or 0)) != 0


def test_a_run_has_a_page_as_long_as_it_runs(tmp_path: Path) -> None:
    with words(tmp_path).start(config=on_page()) as run:
        run.process_all_available()
        assert run.page_url is not None
        figures = ask(run.page_url, "/api/v1/topologies/words", token=TOKEN).json
        assert ask(run.page_url, "/readyz").text == "ready\n"
    ended = is_free(run.page_url)

    assert figures["txid"] == 3
    assert figures["page"] == run.page_url
    assert ended


def test_a_run_without_a_port_has_no_page(tmp_path: Path) -> None:
    with words(tmp_path).start(config=LOCAL) as run:
        assert run.page_url is None


def test_an_at_least_once_run_has_a_page_too() -> None:
    builder = TopologyBuilder("forward")
    builder.set_spout("words", MemorySpout(WORDS, WORD))
    with builder.build_topology().start(
        config=AtLeastOnceConfig(carrier="local", page=Page(token=TOKEN))
    ) as run:
        run.process_all_available()
        assert run.page_url is not None
        page, one = run.page_url, "/api/v1/topologies/forward"
        wait_until(lambda: ask(page, one, token=TOKEN).json["trees"], "figures of the trees")
        assert ask(page, one, token=TOKEN).json["kind"] == "at-least-once"
        ask(page, f"{one}/commands", {"verb": "deactivate"}, token=TOKEN)
        wait_until(lambda: run.status == "deactivated", "a deactivated run")
        ask(page, f"{one}/commands", {"verb": "activate"}, token=TOKEN)
        wait_until(lambda: run.status == "running", "an active run")
        assert ask(page, f"{one}/commands", {"verb": "kill", "wait_s": 0.1}, token=TOKEN).json
        assert run.await_termination(LIMIT_S)


class Slow:
    """A run that has something pending until the test opens the gate."""

    def __init__(self) -> None:
        self.gate, self.said = threading.Event(), list[str]()

    def activate(self) -> None:
        self.said.append("activate")

    def deactivate(self) -> None:
        self.said.append("deactivate")

    def process_all_available(self, timeout: float | None = None) -> None:
        assert self.gate.wait(LIMIT_S)
        self.said.append("waited")

    def stop(self) -> None:
        self.said.append("stop")


def test_an_at_least_once_run_that_is_activated_while_a_kill_waits_goes_on() -> None:
    builder = TopologyBuilder("forward")
    builder.set_spout("words", MemorySpout(WORDS, WORD))
    graph = builder.build_topology().graph
    slow: Any = Slow()
    source = RunSource(
        Board("forward", "at-least-once", graph, wall_clock), graph, slow, AtLeastOnceConfig()
    )
    source.command("forward", "kill", 60.0)
    source.command("forward", "activate", None)
    slow.gate.set()
    wait_until(lambda: "waited" in slow.said, "the end of the wait")
    source.command("forward", "kill", 60.0)
    wait_until(lambda: "stop" in slow.said, "the end of the second kill")

    assert slow.said == ["deactivate", "activate", "waited", "deactivate", "waited", "stop"]


def test_a_page_lives_on_while_its_run_is_restarted(tmp_path: Path) -> None:
    topology = words(tmp_path, failures=2)
    restart = Restart(backoff_s=0.01)
    with topology.start(config=on_page(), restart=restart) as run:
        page = run.page_url
        assert page is not None
        run.process_all_available()
        figures = ask(page, "/api/v1/topologies/words", token=TOKEN).json
        failures = ask(page, "/api/v1/topologies/words/failures", token=TOKEN).json["failures"]

    assert run.page_url == page
    assert figures["restarts"] == 2
    assert "<script>" in failures[0]["cause"]
    assert is_free(page)


def test_a_port_that_is_in_use_is_an_error_of_the_start_and_nothing_has_run(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(
            ConfigError, match=rf"page.port={port}; got .*in use.*page.port=0"
        ) as told:
            words(tmp_path).start(config=on_page(port=port))

    assert told.value.setting == "page.port"
    assert not (tmp_path / "words.db").exists()


def test_a_start_that_fails_gives_its_port_up(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Exception, match="nowhere"):
        builder_of(f"sqlite:///{tmp_path}/nowhere/words.db").start(config=on_page(port=port))

    with words(tmp_path).start(config=on_page(port=port)) as run:
        assert run.page_url == f"http://127.0.0.1:{port}"


def builder_of(url: str) -> Topology:
    """Return a topology with a state at *url*."""
    spout = MemoryTransactionalSpout({0: WORDS}, WORD, 1)
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    count = PersistentAggregate(open_state(url), "word", Count())
    builder.set_bolt("count", count).fields_grouping("spout", "word")
    return builder.build_topology()


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"page.host='192\.0\.2\.1'"):
        PageServer(LiteralSource(), Page(host="192.0.2.1", token=TOKEN))


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"port": -1}, "page.port"),
        ({"port": 65536}, "page.port"),
        ({"port": "8080"}, "page.port"),
        ({"port": True}, "page.port"),
        ({"host": ""}, "page.host"),
        ({"host": "http://host"}, "page.host"),
        ({"host": "a\0b"}, "page.host"),
        ({"host": "0.0.0.0"}, "page.token"),
        ({"host": "example.org"}, "page.token"),
        ({"host": "::", "token": "short"}, "page.token"),
        ({"token": "short-password"}, "page.token"),
        ({"token": "sixteen characters, but with spaces"}, "page.token"),
        ({"token": "sechzehn-zeichen-ä"}, "page.token"),
        ({"token": 1234567890123456}, "page.token"),
    ],
)
def test_settings_of_a_page_that_cannot_work_are_refused(settings: Any, setting: str) -> None:
    with pytest.raises(ConfigError) as told:
        Page(**settings)

    assert told.value.setting == setting
    assert "password" not in str(told.value)


def test_a_page_that_fails_is_logged_and_ends_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its socket is taken away, so the server cannot serve."""
    socket_of_page = listen(Page())
    server = PageServer(LiteralSource(), listening=socket_of_page)
    socket_of_page.close()
    with server:
        wait_until(lambda: "has failed" in caplog.text, "a record of the failure")

    (record,) = caplog.records
    assert (record.name, record.levelname) == ("txtopo.ui", "WARNING")


def test_no_thread_of_a_page_keeps_the_process_from_ending() -> None:
    with PageServer(LiteralSource()) as server:
        ask(server.url, "/")
        ours = [each for each in threading.enumerate() if each.name.startswith("txtopo-page")]

    assert len(ours) >= 2
    assert all(each.daemon for each in ours)


def test_clients_that_listen_do_not_hold_up_the_end(tmp_path: Path) -> None:
    with words(tmp_path).start(config=on_page(token=None)) as run:
        page = run.page_url
        assert page is not None
        with listening(page, "/api/v1/topologies/words/events") as events:
            assert next(events)[0] == ""
            run.stop(LIMIT_S)
            told = list(events)

    assert told[-1] == ("end", {})
    assert [data["figures"]["status"] for name, data in told if name == "change"][-1] in (
        "stopping",
        "stopped",
    )
    assert is_free(page)


@pytest.mark.integration
def test_the_end_of_a_run_that_fails_is_told(tmp_path: Path) -> None:
    Failing.left = 10**9
    topology = words(tmp_path, failures=10**9)
    config = on_page(token=None)
    run = topology.start(config=config, restart=Restart(times=2, backoff_s=1.0))
    page = run.page_url
    assert page is not None
    with listening(page, "/api/v1/topologies/words/events") as events:
        told = [data for name, data in events if name == "change"]

    with pytest.raises(Exception, match="alert"):
        run.await_termination(LIMIT_S)
    assert told[-1]["failures"][-1]["kind"] == "ended"


def test_two_pages_stand_side_by_side() -> None:
    with PageServer(LiteralSource("one")) as one, PageServer(LiteralSource("two")) as two:
        found = [ask(each.url, "/api/v1/topologies").json["topologies"] for each in (one, two)]

    assert [rows[0]["topology"] for rows in found] == ["one", "two"]


def test_a_page_can_be_stopped_twice_and_before_it_has_started() -> None:
    never = PageServer(LiteralSource())
    never.stop()
    with PageServer(LiteralSource()) as server:
        server.stop()

    assert is_free(never.url)
    assert is_free(server.url)


def test_the_first_page_of_one_topology_is_its_own() -> None:
    with PageServer(LiteralSource("shop/1")) as server:
        reply = ask(server.url, "/")

    assert (reply.status, reply.headers["location"]) == (303, "/topologies/shop%2F1")


def test_an_ensemble_that_is_away_is_told_and_comes_back() -> None:
    source = LiteralSource()
    source.error = StoreUnavailable("the ensemble is away")
    with PageServer(source) as server:
        away = [ask(server.url, path) for path in ("/topologies", "/api/v1/topologies", "/readyz")]
        source.error = None
        back = [ask(server.url, path) for path in ("/topologies", "/api/v1/topologies", "/readyz")]

    assert [each.status for each in away] == [503] * 3
    assert [each.status for each in back] == [200] * 3
    assert "the ensemble is away" in away[0].text
    assert away[1].json == {"error": "the ensemble is away"}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("::1", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
        ("0.0.0.0", f"http://{socket.gethostname()}:80"),
    ],
)
def test_the_address_of_a_page_is_one_that_others_reach(host: str, url: str) -> None:
    assert url_of(host, 80) == url


def test_a_page_on_the_address_of_ipv6() -> None:
    with PageServer(LiteralSource(), Page(host="::1")) as server:
        assert ask(server.url, "/healthz").text == "ok\n"
