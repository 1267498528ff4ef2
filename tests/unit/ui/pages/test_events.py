"""Events reach many clients at the cost of one, and one that does not read costs nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.harness.polling import wait_until
from tests.harness.web import ask, connected, listening
from tests.unit.ui.pages.literal import LiteralSource
from txtopo.errors import CoordinatorUnavailable
from txtopo.ui.pages import api, events
from txtopo.ui.pages.calls import Calls
from txtopo.ui.pages.server import PageServer

EVENTS = "/api/v1/topologies/payments/events"


class Counting(LiteralSource):
    """Counts how often it is asked for changes, and may have large ones all the time."""

    asked = 0
    text = ""

    def changes(self, topology: str, since: int) -> dict[str, Any]:
        self.asked += 1
        if self.text:
            self.version += 1
        return {**super().changes(topology, since), "text": self.text}


@pytest.fixture
def source() -> Counting:
    return Counting()


@pytest.fixture
def page(source: Counting) -> Iterator[str]:
    with PageServer(source) as server:
        yield server.url


def test_a_client_is_told_all_at_first_and_then_what_changes(page: str, source: Counting) -> None:
    with listening(page, EVENTS) as told:
        assert next(told)[0] == ""
        first = next(told)
        source.version = 2
        second = next(told)

    assert first[0] == second[0] == "change"
    assert [data["version"] for _, data in (first, second)] == [1, 2]
    assert first[1]["figures"]["topology"] == "payments"


def test_a_client_that_comes_back_is_told_what_it_missed(page: str, source: Counting) -> None:
    source.version = 5
    with listening(page, f"{EVENTS}?since=4") as told:
        assert next(told)[0] == ""
        assert next(told)[1]["version"] == 5


def test_two_hundred_clients_cost_the_source_as_much_as_one(page: str, source: Counting) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(listening(page, EVENTS)) for _ in range(200)]
        for told in clients:
            assert next(told)[0] == ""
            assert next(told)[1]["version"] == 1
        before = source.asked
        source.version = 2
        assert [next(told)[1]["version"] for told in clients] == [2] * 200
        asked = source.asked - before

    # One question a turn for each version that a client has; the clients are of two turns at most.
    assert asked < 100


def test_more_clients_than_allowed_are_told_to_come_later(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "CLIENTS_MAX", 2)
    with ExitStack() as stack:
        clients = [stack.enter_context(listening(page, EVENTS)) for _ in range(2)]
        assert [next(told)[0] for told in clients] == ["", ""]
        reply = ask(page, EVENTS)
        assert reply.status == 503
        assert "2 clients are already listening" in reply.json["error"]
    wait_until(lambda: listens(page), "room for another client")


def listens(page: str) -> bool:
    """Return whether a client is let in."""
    try:
        with listening(page, EVENTS) as told:
            return next(told)[0] == ""
    except AssertionError:
        return False


@pytest.mark.integration
def test_a_client_that_does_not_read_takes_no_memory_and_is_dropped(
    page: str,
    source: Counting,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(events, "SEND_TIMEOUT_S", 2.0)
    source.text = "x" * 1_000_000
    with connected(page) as silent:
        silent.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: {urlsplit(page).netloc}\r\n\r\n".encode())
        wait_until(lambda: "without completing response" in caplog.text, "the end of it")
        asked, read_bytes = source.asked, 0
        while part := silent.recv(1 << 20):
            read_bytes += len(part)

    # What fits into the buffers of two sockets, while five megabytes a second were there to send.
    assert read_bytes < 30_000_000
    assert asked < 40


def test_a_topology_that_is_unknown_has_no_events(page: str) -> None:
    assert ask(page, "/api/v1/topologies/other/events").status == 404
    assert ask(page, f"{EVENTS}?since=x").status == 400


def test_a_source_that_is_away_is_told_and_comes_back(page: str, source: Counting) -> None:
    with listening(page, EVENTS) as told:
        assert [next(told)[0], next(told)[0]] == ["", "change"]
        source.error = CoordinatorUnavailable("the ensemble is away")
        assert next(told) == ("away", {"error": "the ensemble is away"})
        source.error, source.version = None, 2
        back = next(each for each in told if each[0] == "change")

    assert back[1]["version"] == 2


def test_the_text_of_a_user_cannot_make_an_event() -> None:
    text = "\n\nevent: end\ndata: {}\n\n\r\u2028"
    _, event = events.event_of({"version": 1, "text": text}, 0)

    assert event is not None
    assert event.count(b"\n") == 3
    assert b"\r" not in event


def test_events_that_cost_more_come_less_often() -> None:
    """So the share of a processor that a page takes is bounded, also on a busy machine."""

    def changes(since: int) -> dict[str, Any]:
        threading.Event().wait(0.02)
        return {"version": since + 1}

    async def pauses() -> list[float]:
        calls = Calls(1, 60.0)
        quick = events.Feed(calls, lambda since: {"version": since})
        slow = events.Feed(calls, changes)
        for feed in (quick, slow):
            await feed.since(0)
        calls.close()
        return [quick.pause_s, slow.pause_s]

    quick_s, slow_s = asyncio.run(pauses())

    assert quick_s >= events.PAUSE_S
    assert 1.0 <= slow_s <= events.PAUSE_MAX_S
