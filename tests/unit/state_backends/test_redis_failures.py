"""What a lost connection, a dead server or the wrong settings do to a state in Redis."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.servers.redis import RedisServer
from tests.harness.servers.tcp_proxy import TcpProxy
from tests.unit.state_backends.connection_suite import LostConnectionSuite
from txtopo import Fields
from txtopo.errors import (
    AuthError,
    ConfigError,
    FencedError,
    PromiseError,
    SchemaDrift,
    SchemaVersionError,
    StateUsageError,
    StoreUnavailable,
    TopologyError,
    TxtopoError,
    ValueRefusedError,
)
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import StateDriver

pytestmark = pytest.mark.service("redis")


@pytest.fixture
def state(redis_server: RedisServer) -> State:
    return open_state(redis_server.empty(), table="counts")


def raw(state: State) -> Any:
    from redis import Redis

    return Redis.from_url(state.url, decode_responses=True)


class TestConnection(LostConnectionSuite):
    commit_marker = b"$4\r\nEXEC\r\n"

    @pytest.fixture
    def server(self, redis_server: RedisServer) -> RedisServer:
        return redis_server

    @pytest.fixture
    def url(self, redis_server: RedisServer) -> str:
        return redis_server.empty()

    @pytest.mark.parametrize("command", [b"WATCH", b"HMGET", b"SMEMBERS"])
    def test_a_connection_lost_before_the_commit_writes_nothing(
        self, distant: StateDriver, proxy: TcpProxy, command: bytes
    ) -> None:
        proxy.lose(command, landed=True)

        with pytest.raises(StoreUnavailable, match="nothing was written"):
            distant.puts(2, {"a": 2})
        assert distant.contents() == {"a": 1}
        assert distant.puts(2, {"a": 2}).txid == 2


def test_a_writer_in_between_is_seen(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch, not the reading before: the successor claims when the rows are computed."""
    old = StateDriver(state, epoch=1)
    old.backend.point = lambda name: (
        None if name != "write.before" else StateDriver(state, epoch=2).close()
    )

    with pytest.raises(FencedError):
        old.puts(1, {"a": 9})
    assert old.contents() == {}


def test_a_wrong_password_is_refused_without_showing_it(redis_server: RedisServer) -> None:
    for scheme in ("redis", "redis-map"):
        url = redis_server.url(scheme).replace(redis_server.password, "not-the:word")
        with pytest.raises(AuthError) as caught:
            StateDriver(open_state(url, table="counts"))
        assert "not-the" not in str(caught.value)
        assert "word@" not in str(caught.value)


def test_a_url_that_cannot_be_read_is_refused_without_showing_its_password() -> None:
    for url in ("redis://:secret@host:port/0", "redis://:secret@host/0?socket_timeout=soon"):
        with pytest.raises(TopologyError) as caught:
            open_state(url, table="counts").open()
        assert "secret" not in str(caught.value)


def test_without_redis_py_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "redis", None)

    for scheme in ("redis", "redis-map"):
        with pytest.raises(ConfigError, match=r"pip install 'txtopo\[redis\]'"):
            open_state(f"{scheme}://host/0", table="counts").open()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("appendonly", "no", "a restart would lose commits"),
        ("appendfsync", "everysec", "a crash of its machine"),
        ("no-appendfsync-on-rewrite", "yes", "a crash during a rewrite"),
        ("maxmemory-policy", "allkeys-lru", "rows would be evicted"),
    ],
)
def test_a_server_that_may_forget_is_refused(
    redis_server: RedisServer, state: State, name: str, value: str, why: str
) -> None:
    with raw(state) as client:
        right = client.config_get(name)[name]
        client.config_set(name, value)
        try:
            for url in (state.url, redis_server.url("redis-map")):
                with pytest.raises(PromiseError, match=f"{why}.*got {name} '{value}'"):
                    StateDriver(open_state(url, table="counts"))
        finally:
            client.config_set(name, right)
        assert client.keys() == []


@pytest.mark.rule("state_backends.redis.backend", "Rules", 2)
def test_keys_of_another_program_are_not_written_over(state: State) -> None:
    store = StateDriver(state)
    store.puts(1, {"a": 1})

    for key, kind in (("rows", "hash"), ("touched", "list"), ("deleted", "set")):
        with raw(state) as client:
            name = f"txtopo:{{counts}}:{key}"
            client.rename(name, "kept") if client.exists(name) else None
            client.set(name, "of another program")
            with pytest.raises(SchemaDrift, match="the wrong type"):
                store.puts(2, {"a": 2, "b": 2} if kind != "set" else {})
            client.delete(name)
            client.rename("kept", name) if client.exists("kept") else None
    assert store.contents() == {"a": 1}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nonsense", SchemaDrift),
        ('{"version": 2}', SchemaVersionError),
        ('{"version": 1, "columns": "{}", "ledger": {"topology": "t", "epoch": 1}}', SchemaDrift),
    ],
)
def test_a_ledger_that_is_not_ours_is_refused(
    state: State, text: str, error: type[TxtopoError]
) -> None:
    store = StateDriver(state)
    with raw(state) as client:
        client.set("txtopo:{counts}:head", text)

    with pytest.raises(error):
        store.puts(1, {"a": 1})
    with pytest.raises(error):
        state.open().create()


def test_a_row_that_is_not_ours_is_refused(state: State) -> None:
    store = StateDriver(state)
    store.puts(1, {"a": 1})
    with raw(state) as client:
        client.hset("txtopo:{counts}:rows", '["a"]', "[1,[null")

    with pytest.raises(SchemaDrift, match="cannot be read"):
        store.puts(2, {"a": 2})


def test_anyone_reads_a_state_without_its_declaration(state: State) -> None:
    StateDriver(state).puts(1, {"a": 1})

    for other in ("redis", "redis-map"):
        url = state.url.replace("redis:", f"{other}:", 1)
        StateDriver(open_state(url, table="counts")).puts(2 if other == "redis" else 1, {"a": 5})
        with open_state(url).reader() as reader:
            assert reader.get("a") == 5
            assert reader.table == state.layout()


@pytest.mark.rule("state_backends.redis.backend", "Rules", 4)
def test_a_commit_reads_and_writes_its_own_keys_alone(state: State) -> None:
    """The cost of a commit is that of its batch, whatever the state holds."""
    store = StateDriver(state)
    store.puts(1, {str(n): n for n in range(3_000)})
    store.puts(2, {"0": 1})
    with raw(state) as client:
        client.config_resetstat()
        store.puts(3, {"0": 2, "1": 2})
        stats = client.info("commandstats")

    assert "cmdstat_hgetall" not in stats
    with raw(state) as client:
        assert sorted(client.lrange("txtopo:{counts}:touched", 0, -1)) == ['["0"]', '["1"]']


def test_a_large_state_that_is_written_while_it_is_read_says_so(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state_backends.redis.backend.ROWS_AT_ONCE", 1)
    store = StateDriver(state)
    store.puts(1, {"a": 1, "b": 1})

    with state.reader() as reader:
        assert reader.get("a") == 1
        store.puts(2, {"a": 2})
        with pytest.raises(StoreUnavailable, match="open a new reader"):
            reader.get("b")
    with state.reader() as reader:
        assert dict(reader.items()) == {"a": 2, "b": 1}
        store.puts(3, {"a": 3})
        assert reader.get("a") == 2


@pytest.mark.parametrize("broken", ["nonsense", '{"version": 2}', b"\xff", None])
def test_a_broken_ledger_is_named_and_keeps_nobody_from_another_state(
    state: State, broken: str | bytes | None
) -> None:
    """None stands for a key of another type."""
    StateDriver(state).puts(1, {"a": 1})
    StateDriver(open_state(state.url, table="b"))
    with raw(state) as client:
        client.delete("txtopo:{b}:head")
        client.rpush("txtopo:{b}:head", "x") if broken is None else client.set(
            "txtopo:{b}:head", broken
        )

    with state.reader() as reader:
        assert reader.get("a") == 1
    with (
        pytest.raises((SchemaDrift, SchemaVersionError), match="state 'b'"),
        open_state(state.url, table="b").reader(),
    ):
        pass
    with pytest.raises(StateUsageError, match=r"no state was named.*b, counts"):
        open_state(state.url).reader().__enter__()


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_rows_that_are_gone_are_no_empty_state(redis_server: RedisServer, kind: Any) -> None:
    """As in SQL. Redis has no empty hashes, so the ledger says whether there were rows."""
    state = open_state(redis_server.empty(), kind, table="counts")
    store = StateDriver(state)
    store.puts(1, {"a": 1})
    StateDriver(state, epoch=2).close()
    with raw(state) as client:
        client.delete("txtopo:{counts}:rows")

    with pytest.raises(SchemaDrift, match=r"its rows are missing.*txid 1"):
        StateDriver(state, epoch=3).puts(2, {"b": 1})
    with pytest.raises(SchemaDrift, match="its rows are missing"), state.reader():
        pass


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_a_state_whose_rows_were_all_deleted_goes_on(redis_server: RedisServer, kind: Any) -> None:
    store = StateDriver(open_state(redis_server.empty(), kind, table="counts"))
    store.puts(1, {"a": 1})
    store.puts(2, {"a": None})
    store.puts(3, {})
    store.puts(4, {})

    assert store.contents() == {}
    store.puts(5, {"b": 1})
    store.puts(5, {"c": 1}, attempt=1)
    assert store.contents() == ({"c": 1} if kind == "opaque" else {"b": 1})


@pytest.mark.parametrize("scheme", ["redis", "redis-map"])
def test_a_value_that_the_server_hangs_up_at_is_refused_by_its_setting(
    redis_server: RedisServer, scheme: str
) -> None:
    redis_server.empty()
    state = open_state(redis_server.url(scheme), table="texts", value=Fields("text string"))
    store = StateDriver(state)
    with raw(open_state(redis_server.url(), table="texts")) as client:
        right = client.config_get("proto-max-bulk-len")["proto-max-bulk-len"]
        client.config_set("proto-max-bulk-len", 1 << 20)
        try:
            with pytest.raises(ValueRefusedError, match="1048576, which is proto-max-bulk-len"):
                store.puts(1, {"a": "é" * 600_000})
        finally:
            client.config_set("proto-max-bulk-len", right)
    store.puts(1, {"a": "é" * 600_000}, attempt=1)

    assert store.contents() == {"a": "é" * 600_000}
