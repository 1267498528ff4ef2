"""Pages: strangers see nothing, nobody commands without the token, and texts stay texts."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest

from tests.harness.web import TOKEN, Reply, ask, connected
from tests.unit.ui.pages.literal import LiteralSource
from txtopo import (
    BasicBolt,
    Config,
    Count,
    FailedException,
    Fields,
    Page,
    PersistentAggregate,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.errors import StoreUnavailable
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.ui.pages.server import PageServer

EVIL = "<script>alert(1)<script>"
QUOTES = "\"'><img src=x onerror=alert(1)>"
API = "/api/v1/topologies"
COMMANDS = f"{API}/payments/commands"
STOP = {"verb": "deactivate"}
PATHS = (
    "/topologies",
    "/topologies/payments",
    API,
    f"{API}/payments",
    f"{API}/payments/txids",
    "/metrics",
)


@pytest.fixture
def source() -> LiteralSource:
    return LiteralSource()


@pytest.fixture
def open_page(source: LiteralSource) -> Iterator[str]:
    """A page without a token, on a loopback address."""
    with PageServer(source) as server:
        yield server.url


@pytest.fixture
def closed_page(source: LiteralSource) -> Iterator[str]:
    """A page with a token."""
    with PageServer(source, Page(token=TOKEN)) as server:
        yield server.url


def logged_in(page: str) -> str:
    """Log in as a browser does, and return the cookie."""
    form = urlencode({"token": TOKEN}).encode()
    reply = ask(page, "/login", form, Origin=page)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    return reply.headers["set-cookie"]


# ------------------------------------------------------------------ the token


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", [None, "", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), "é" * 20])
@pytest.mark.rule("txtopo.ui.pages.access", "Rules", 2)
def test_without_the_token_nobody_sees_anything(
    closed_page: str, path: str, token: str | None
) -> None:
    reply = ask(closed_page, path, token=token)

    assert reply.status in (303, 401)
    assert "payments" not in reply.text
    assert ask(closed_page, path, token=TOKEN).status == 200


def test_who_has_no_token_may_see_that_the_process_lives_and_log_in(closed_page: str) -> None:
    replies = [ask(closed_page, path) for path in ("/healthz", "/readyz", "/login")]

    assert [each.status for each in replies] == [200, 200, 200]
    assert all("payments" not in each.text for each in replies)


@pytest.mark.rule("txtopo.ui.pages.access", "Rules", 4)
def test_a_login_sets_a_cookie_that_is_not_the_token(closed_page: str) -> None:
    cookie = logged_in(closed_page)

    assert TOKEN not in cookie
    assert re.search(r"HttpOnly", cookie)
    assert re.search(r"SameSite=strict", cookie)
    assert ask(closed_page, "/topologies", Cookie=cookie.partition(";")[0]).status == 200


@pytest.mark.parametrize("given", [b"", b"token=", b"token=wrong", b"token=" + b"%ff" * 50])
def test_a_login_with_another_token_is_refused(closed_page: str, given: bytes) -> None:
    reply = ask(closed_page, "/login", given)

    assert reply.status == 401
    assert "set-cookie" not in reply.headers


@pytest.mark.rule("txtopo.ui.pages.access", "Rules", 4)
def test_a_cookie_of_one_page_does_not_open_another(source: LiteralSource) -> None:
    with PageServer(source, Page(token=TOKEN)) as one, PageServer(source, Page(token=TOKEN)) as two:
        cookie = logged_in(one.url).partition(";")[0]
        name, value = cookie.split("=", 1)
        other = f"txtopo_{urlsplit(two.url).port}={value}"

        assert name == f"txtopo_{urlsplit(one.url).port}"
        assert ask(two.url, API, Cookie=cookie).status == 401
        assert ask(two.url, API, Cookie=other).status == 401


def test_the_token_is_in_no_log_and_in_no_answer(
    closed_page: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    replies = [
        ask(closed_page, "/", token=TOKEN),
        ask(closed_page, API, token=TOKEN),
        ask(closed_page, f"/?token={TOKEN}"),
        ask(closed_page, "/login", urlencode({"token": TOKEN}).encode()),
        ask(closed_page, f"/nowhere/{TOKEN}x", token="wrong"),
    ]

    assert TOKEN not in caplog.text
    assert not any(TOKEN in f"{each.headers}{each.text}" for each in replies)
    assert replies[2].status == 303  # a token in an address opens nothing


def test_a_token_is_compared_in_constant_time() -> None:
    source = (Path(__file__).parents[3] / "txtopo" / "ui" / "pages" / "access.py").read_text()

    assert source.count("hmac.compare_digest") == 1
    assert not re.search(
        r"(self\._token|self\._session)\s*(==|!=)|(==|!=)\s*self\._(tok|ses)", source
    )


# ------------------------------------------------------------------ commands


def test_a_page_without_a_token_takes_no_command(open_page: str, source: LiteralSource) -> None:
    replies = [ask(open_page, COMMANDS, STOP), ask(open_page, COMMANDS, STOP, token="anything")]

    assert [each.status for each in replies] == [403, 403]
    assert "page.token" in replies[0].json["error"]
    assert source.commands == []


def test_a_command_needs_the_token(closed_page: str, source: LiteralSource) -> None:
    refused = [ask(closed_page, COMMANDS, STOP), ask(closed_page, COMMANDS, STOP, token="wrong")]
    done = ask(closed_page, COMMANDS, {"verb": "kill", "wait_s": 5}, token=TOKEN)

    assert [each.status for each in refused] == [401, 401]
    assert done.json["answer"]["status"] == "deactivated"
    assert source.commands == [("payments", "kill", 5.0)]


@pytest.mark.rule("txtopo.ui.pages.access", "Rules", 3)
def test_a_command_from_another_page_is_refused(closed_page: str, source: LiteralSource) -> None:
    cookie = logged_in(closed_page).partition(";")[0]
    other = f"http://127.0.0.1:{(urlsplit(closed_page).port or 0) - 1}"
    for origin in ("http://evil.example", "null", other, "", "http://[", "file://"):
        assert ask(closed_page, COMMANDS, STOP, Cookie=cookie, Origin=origin).status == 403
        assert ask(closed_page, COMMANDS, STOP, token=TOKEN, Origin=origin).status == 403
    assert ask(closed_page, COMMANDS, STOP, Cookie=cookie).status == 403
    assert source.commands == []

    assert ask(closed_page, COMMANDS, STOP, Cookie=cookie, Origin=closed_page).status == 200


def test_a_login_from_another_page_is_refused(closed_page: str) -> None:
    form = urlencode({"token": TOKEN}).encode()

    assert ask(closed_page, "/login", form, Origin="http://evil.example").status == 403


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_command_is_posted_only(closed_page: str, source: LiteralSource, method: str) -> None:
    assert ask(closed_page, COMMANDS, method=method, token=TOKEN).status == 405
    assert source.commands == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"\xff\xfe",
        b"[" * 10_000,
        b"[]",
        b'"kill"',
        b"{}",
        b'{"verb": "forget"}',
        b'{"verb": ["kill"]}',
        b'{"verb": "kill", "wait_s": "5"}',
        b'{"verb": "kill", "wait_s": -1}',
        b'{"verb": "kill", "wait_s": NaN}',
        b'{"verb": "kill", "wait_s": 1e999}',
        b'{"verb": "kill", "wait_s": true}',
        b'{"verb": "kill", "wait_s": 100000}',
        b'{"verb": "kill", "wait_s": 1%s}' % (b"0" * 400),
        b'{"verb": "kill", "topology": "other"}',
    ],
)
def test_a_command_that_is_none_is_refused(
    closed_page: str, source: LiteralSource, body: bytes
) -> None:
    reply = ask(closed_page, COMMANDS, body, token=TOKEN)

    assert reply.status == 400
    assert "expected" in reply.json["error"]
    assert source.commands == []


# ------------------------------------------------------------------ other hosts


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[", "", "10.0.0.1"]
)
@pytest.mark.rule("txtopo.ui.pages.access", "Rules", 1)
def test_a_page_on_loopback_answers_to_no_other_name(open_page: str, host: str) -> None:
    """A stranger's site may have its name resolve to 127.0.0.1 (DNS rebinding)."""
    replies = [
        ask(open_page, path, Host=host) for path in ("/", API, "/healthz", "/static/page.js")
    ]

    assert [each.status for each in replies] == [403] * 4
    assert "payments" not in "".join(each.text for each in replies)


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost", "LOCALHOST:8080", "[::1]:80"])
def test_a_page_on_loopback_answers_to_its_own_names(open_page: str, host: str) -> None:
    assert ask(open_page, API, Host=host).status == 200


def test_two_hosts_in_one_request_are_refused(open_page: str) -> None:
    with connected(open_page) as sent:
        host = urlsplit(open_page).netloc
        sent.sendall(f"GET {API} HTTP/1.1\r\nHost: {host}\r\nHost: evil\r\n\r\n".encode())

        assert re.match(rb"HTTP/1.1 40[03] ", sent.recv(1000))


# ------------------------------------------------------------------ paths


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc/passwd",
        "/static//etc/passwd",
        "/static/..\\server.py",
        "/static/%00",
        "/static/page.js%00.css",
        "/static/",
        "/static/" + "a" * 5_000,
        "/static/%ff%fe",
    ],
)
def test_no_path_leaves_the_folder_of_files(open_page: str, path: str) -> None:
    reply = ask(open_page, path)

    assert reply.status == 404
    assert "PageServer" not in reply.text
    assert "root:" not in reply.text


@pytest.mark.parametrize(
    "id", ["..", "%2e%2e", "%2e%2e%2fpayments", "payments%2f..", "%00", "payments%00", "%ff", "."]
)
def test_an_id_that_is_a_path_is_unknown(open_page: str, id: str) -> None:
    for path in (
        f"/topologies/{id}",
        f"{API}/{id}",
        f"{API}/{id}/txids",
        f"{API}/payments/states/{id}",
    ):
        assert ask(open_page, path).status == 404


# ------------------------------------------------------------------ texts


def scripts_of(page: Reply) -> list[str]:
    """Return the tags of a page that could run something."""
    tags = re.findall(r"<[a-z][^>]*>", page.text)
    ours = '<script src="/static/page.js" defer>'
    return [
        tag
        for tag in tags
        if tag != ours
        and re.search(r"^<(script|img|iframe)|\son\w+=|javascript:", re.sub(r'"[^"]*"', "", tag))
    ]


@pytest.mark.parametrize("text", [EVIL, QUOTES])
def test_ids_and_errors_with_a_script_are_shown_as_text(text: str) -> None:
    id = text.replace("/", "-")
    source = LiteralSource(id)
    with PageServer(source) as server:
        pages = [
            ask(server.url, "/topologies"),
            ask(server.url, f"/topologies/{quote(id, safe='')}"),
            ask(server.url, f"/topologies/{quote('no' + id, safe='')}"),
            ask(server.url, f"/topologies/{quote(id, safe='')}/states/{quote(id, safe='')}"),
        ]
        source.error = StoreUnavailable(f"away: {text}")
        pages.append(ask(server.url, "/topologies"))
        rows = ask(server.url, API)

    assert [scripts_of(page) for page in pages] == [[]] * 5
    assert id in unescape(pages[1].text)
    assert rows.headers["content-type"] == "application/json"
    assert rows.json == {"error": f"away: {text}"}


class Reporting(BasicBolt):
    """Fails once with a script in its text."""

    output_fields = Fields("word string")
    failed = False

    def execute(self, tuple: Any, collector: Any) -> None:
        if not Reporting.failed:
            Reporting.failed = True
            raise FailedException(EVIL)
        collector.emit([tuple["word"]])


def test_scripts_in_keys_errors_and_ids_of_a_run_are_shown_as_text(tmp_path: Path) -> None:
    Reporting.failed = False
    spout = MemoryTransactionalSpout({0: [[EVIL], [QUOTES]]}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder(EVIL, "<b>spout", spout)
    builder.set_bolt("<img src=x>", Reporting()).shuffle_grouping("<b>spout")
    state = open_state(f"sqlite:///{tmp_path}/evil.db", table="words")
    count = PersistentAggregate(state, "word", Count())
    builder.set_bolt("count", count).fields_grouping("<img src=x>", "word")
    config = Config(carrier="local", zookeeper="memory", page=Page(port=0))
    with builder.build_topology().start(config=config) as run:
        run.process_all_available()
        page, one = run.page_url or "", quote(EVIL, safe="")
        pages = [
            ask(page, "/topologies"),
            ask(page, f"/topologies/{one}"),
            ask(page, f"/topologies/{one}/states/count.count"),
            ask(page, f"/topologies/{one}/states/count.count?key={quote(QUOTES)}"),
        ]
        failures = ask(page, f"{API}/{one}/failures").json["failures"]

    assert [each.status for each in pages] == [200] * 4
    assert [scripts_of(each) for each in pages] == [[]] * 4
    assert EVIL in unescape(pages[2].text)
    assert EVIL in failures[0]["cause"]


def test_each_answer_forbids_scripts_of_others_frames_and_caches(open_page: str) -> None:
    for path in ("/", "/nowhere", API, f"{API}/nowhere", "/static/page.js", "/healthz", "/login"):
        headers = ask(open_page, path).headers
        policy = headers["content-security-policy"]

        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] in ("no-store", "no-cache")
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_pages_have_no_script_or_style_inside(open_page: str) -> None:
    """So the policy of the answers can forbid them."""
    for path in ("/topologies", "/topologies/payments", "/login", "/nowhere"):
        text = ask(open_page, path).text

        assert not re.search(r"<style|<script(?! src=\"/static/)|\sstyle=|\son\w+=", text)
        assert not re.search(r"(src|href)=\"(https?:)?//", text)


# ------------------------------------------------------------------ sizes


def test_a_request_with_huge_headers_is_refused(open_page: str) -> None:
    with connected(open_page) as sent:
        host = urlsplit(open_page).netloc
        sent.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nX: {'x' * 100_000}\r\n".encode())

        assert sent.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert ask(open_page, "/healthz").status == 200


@pytest.mark.parametrize("path", ["/login", COMMANDS])
def test_a_huge_body_is_refused(closed_page: str, path: str) -> None:
    reply = ask(closed_page, path, b"x" * 20_000, token=TOKEN)

    assert reply.status == 413


def test_what_is_no_request_ends_only_its_connection(open_page: str) -> None:
    for garbage in (b"\x16\x03\x01\0\xa5\1\0\0", b"GET\r\n\r\n", b"\0" * 100 + b"\r\n\r\n"):
        with connected(open_page) as sent:
            sent.sendall(garbage)
            sent.shutdown(socket.SHUT_WR)
            assert not sent.recv(1000).startswith(b"HTTP/1.1 200")
    assert ask(open_page, "/healthz").status == 200


@pytest.mark.parametrize(
    "query",
    ["last=0", "last=-1", "last=x", "last=1e3", "last=%C2%B2", "last=" + "9" * 30, "last=%00"],
)
def test_numbers_of_a_query_that_are_none_are_refused(open_page: str, query: str) -> None:
    reply = ask(open_page, f"{API}/payments/txids?{query}")

    assert reply.status == 400
    assert "last" in reply.json["error"]


def test_an_unexpected_error_tells_nothing_of_the_process(
    open_page: str, source: LiteralSource, caplog: pytest.LogCaptureFixture
) -> None:
    source.error = RuntimeError("password=hunter2")
    replies = [ask(open_page, "/"), ask(open_page, API)]

    assert [each.status for each in replies] == [500, 500]
    assert "hunter2" not in json.dumps([each.text for each in replies])
    assert "hunter2" in caplog.text
